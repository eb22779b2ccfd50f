// What a person did and the record does not have yet. It is posted to the desk (cimemories/desk) again until the desk
// names it as recorded or refused, by uid, whatever page the person has gone to since. It is also kept in the browser's
// storage, so that it survives a reload, a closed tab and a lost connection. Where storage is full or blocked the person
// is told to keep the tab open, and the browser asks before it closes it. It stands in one module with the script of
// each component that needs it.

const RETRY_MS = 4000;
const PATIENCE_MS = 15000; // a server that has not answered by then is asked again
const MOST_SENT = 500;
const MOST_LEFT = 150; // events that a browser sends for a page that is gone: it takes 64 KiB
const TAB = newUid(); // of this opening of the page

// By name and owner. They outlive the component: a person who goes to another page of the app and comes back gets a new
// component, which goes on with the same outbox.
const OUTBOXES = new Map();

const storageNames = () => {
  try { return Object.keys(localStorage); } catch { return []; }
};
const askBeforeClosing = (event) => event.preventDefault();

class Outbox {
  // name: of the kind of desk. owner: who works on what, in which workspace: no answer may become somebody else's, or
  // another dataset's.
  static of(name, owner) {
    const key = `${name}.${owner}`;
    if (!OUTBOXES.has(key)) OUTBOXES.set(key, new Outbox(name, owner));
    return OUTBOXES.get(key);
  }

  constructor(name, owner) {
    this.shelf = `cimemories.unsaved.${name}.${owner}.`;
    this.owner = owner;
    this.stored = true; // whether the browser's storage holds the events
    this.sending = false;
    this.problem = ""; // why the server cannot record them
    this.gone = ""; // why it never will
    this.events = this.adopted();
    window.addEventListener("pagehide", () => this.leave());
  }

  // What this owner had left unsaved when another tab was closed.
  adopted() {
    const left = new Map();
    for (const name of storageNames()) {
      if (!name.startsWith(this.shelf) || name.endsWith(TAB)) continue;
      for (const event of fromStorage(name) ?? []) left.set(event.uid, { ...event, owner: this.owner });
      localStorage.removeItem(name);
    }
    return [...left.values()];
  }

  // host: the component in front, with request(): what it asks beside the events, hear(reply, events): for its answer
  // and the events that are settled by it, changed(): when what is to be shown of the outbox is another, and reopen():
  // when the server does not know the desk. url: of the desk.
  attach(host, url) {
    this.host = host;
    this.url = new URL(url, document.baseURI).href;
  }

  detach(host) {
    if (this.host === host) this.host = null;
  }

  add(event) {
    this.events.push({ ...event, owner: this.owner });
    this.keep();
    return this.send();
  }

  keep() {
    this.stored = true;
    try {
      if (this.events.length) localStorage.setItem(this.shelf + TAB, JSON.stringify(this.events));
      else localStorage.removeItem(this.shelf + TAB);
    } catch { this.stored = false; }
    const lost = [...OUTBOXES.values()].some(({ events, stored }) => events.length && !stored);
    window[lost ? "addEventListener" : "removeEventListener"]("beforeunload", askBeforeClosing);
  }

  // The page goes: a last try that the browser makes without it.
  leave() {
    this.keep();
    const events = this.events.slice(0, MOST_LEFT);
    if (events.length && this.url) fetch(this.url, { method: "POST", body: JSON.stringify({ events }), keepalive: true }).catch(() => {});
  }

  // How much is not saved, in words; '' where all of it is.
  get words() {
    const { events, stored } = this;
    return events.length ? `${events.length} not saved yet${stored ? "" : ": keep this tab open"}` : "";
  }

  // One request at a time: what comes meanwhile goes with the next one.
  async send() {
    if (!this.url || this.gone) return;
    this.asked = true;
    if (this.sending) return;
    this.sending = true;
    while (this.asked) {
      this.asked = false;
      await this.exchange();
    }
    this.sending = false;
  }

  async exchange() {
    clearTimeout(this.retry);
    const { host, url } = this;
    const events = this.events.slice(0, MOST_SENT);
    let reply = null;
    try {
      const body = JSON.stringify({ ...host?.request(), events });
      const response = await fetch(url, { method: "POST", body, signal: AbortSignal.timeout(PATIENCE_MS) });
      reply = await response.json();
    } catch { reply = { problem: "The server does not answer." }; }
    if (reply.unknown) host?.reopen();
    this.gone = reply.gone ?? "";
    this.problem = reply.recorded || reply.unknown ? "" : reply.problem ?? "";
    const settled = new Set([...reply.recorded ?? [], ...reply.refused ?? []]);
    const done = this.events.filter((event) => settled.has(event.uid));
    this.events = this.events.filter((event) => !settled.has(event.uid));
    this.keep();
    if (reply.recorded) this.host?.hear(reply, done);
    this.host?.changed();
    if (reply.recorded) this.asked ||= this.events.length > 0;
    else {
      this.asked = false;
      if (!this.gone) this.retry = setTimeout(() => this.send(), RETRY_MS);
    }
  }
}
