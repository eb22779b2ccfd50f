// What a person did and the server has not confirmed yet. It is sent again until it is confirmed, by uid, and kept in the
// browser's storage, so that it survives a reload, a closed tab and a lost connection. Where storage is full or blocked it
// is kept here, the person is told to keep the tab open, and the browser asks before it closes it. It stands in one module
// with the script of each component that needs it.

const RETRY_MS = 4000;
const MOST_SENT = 500;
const TAB = newUid(); // of this opening of the page

// By name. They outlive the component: whoever goes to another page of the app and comes back gets a new component, which
// must go on with the log of the old one.
const LOGS = new Map();

// What is stored under a name, read as JSON; null where there is none, or storage is blocked.
const fromStorage = (name) => {
  try { return JSON.parse(localStorage.getItem(name)); } catch { return null; }
};
const storageNames = () => {
  try { return Object.keys(localStorage); } catch { return []; }
};
const askBeforeClosing = (event) => event.preventDefault();

class Unsaved {
  constructor() {
    // That of the name, from the first data on. stored: whether the browser's storage holds its events.
    this.log = { events: [], owners: new Set(), stored: true };
    this.sent = new Set(); // uids of the message in flight
    this.sentAt = 0;
    this.stranded = new Set(); // uids that the server cannot record in this session: another person's, say
  }

  open(name) {
    this.name = name;
    if (!LOGS.has(name)) LOGS.set(name, this.log);
    this.log = LOGS.get(name);
  }

  get events() { return this.log.events; }

  add(event) { this.log.events.push(event); }

  // What is not saved is kept by owner (who works on what, in which workspace) and by tab: no answer may become somebody
  // else's, or another dataset's, and a tab that has nothing to keep must not drop what another one has.
  shelf(owner) { return `cimemories.unsaved.${this.name}.${owner}.`; }

  keep() {
    this.log.stored = true;
    for (const owner of this.log.owners) {
      const own = this.events.filter((event) => event.owner === owner);
      try {
        if (own.length) localStorage.setItem(this.shelf(owner) + TAB, JSON.stringify(own));
        else localStorage.removeItem(this.shelf(owner) + TAB);
      } catch { this.log.stored = false; }
    }
    const lost = [...LOGS.values()].some(({ events, stored }) => events.length && !stored);
    window[lost ? "addEventListener" : "removeEventListener"]("beforeunload", askBeforeClosing);
  }

  // How much is not saved, in words; '' where the server has confirmed all of it.
  get words() {
    const { events, stored } = this.log;
    return events.length ? `${events.length} not saved yet${stored ? "" : ": keep this tab open"}` : "";
  }

  // Take over what this owner had left unsaved when a tab was closed; returns it.
  adopt(owner) {
    this.log.owners.add(owner);
    const here = new Set(this.events.map((event) => event.uid));
    const adopted = [];
    for (const name of storageNames()) {
      if (!name.startsWith(this.shelf(owner)) || name.endsWith(TAB)) continue;
      const left = fromStorage(name) ?? [];
      adopted.push(...left.filter((event) => !here.has(event.uid)).map((event) => ({ ...event, owner })));
      localStorage.removeItem(name);
    }
    this.log.events.push(...adopted);
    return adopted;
  }

  // What the server says. settled: uids that it has recorded, or refused; owner: who works now, '' for nobody. Returns
  // what was taken over for this owner.
  receive(owner, settled, stranded) {
    this.owner = owner;
    const adopted = owner && !this.log.owners.has(owner) ? this.adopt(owner) : [];
    this.log.events = this.events.filter((event) => !settled.has(event.uid));
    this.stranded = new Set(stranded);
    this.keep();
    return adopted;
  }

  sendable() {
    return this.events.filter((event) => !this.stranded.has(event.uid) || event.owner === this.owner);
  }

  get unsent() { return this.sendable().some((event) => !this.sent.has(event.uid)); }

  // The events of the next message; null while one is in flight: later events go with the next one.
  next() {
    const waiting = this.events.some((event) => this.sent.has(event.uid) && !this.stranded.has(event.uid));
    if (waiting && performance.now() - this.sentAt < RETRY_MS) return null;
    const events = this.sendable().slice(0, MOST_SENT);
    this.sent = new Set(events.map((event) => event.uid));
    this.sentAt = performance.now();
    return events;
  }
}
