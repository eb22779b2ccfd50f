// Decisions by keys on the pair that the person is at, in the matrix and in the list of one context: drawn at once, posted
// until the record has them (outbox.js), taken back with z. The table of keys is here too.

const UNDOABLE = []; // the decisions made since the app was opened, and those that a closed tab has left
let elsewhere = ""; // the last decision that no key has made, as the page names it

const REST_MS = 120;

// The place of the person in a matrix or list: the server is told where they came to rest. host.card(): the pair there.
class Place {
  constructor(host) {
    this.host = host;
    this.moved = 0;
    this.told = 0; // the number of moves that the server was told of last, at `toldAt`
    this.retry = setInterval(() => {
      // A run that the next one ends before it has read the place forgets it. One that goes on may still answer.
      const running = document.querySelector(".stApp")?.dataset.testScriptState === "running";
      const unheard = this.heard < this.told && this.told === this.moved && performance.now() - this.toldAt > RETRY_MS;
      if (unheard && !running && !leaving()) this.tell();
    }, 1000);
  }

  close() {
    clearInterval(this.retry);
    clearTimeout(this.rest);
  }

  // Whether the place that the server names counts: not where the person has moved on since.
  receive({ moves }, setTriggerValue, first) {
    this.send = (value) => setTriggerValue("chosen", value);
    this.heard = moves;
    const counts = first || moves >= this.moved;
    this.moved = Math.max(this.moved, moves);
    return counts;
  }

  move(wait) {
    this.moved += 1;
    clearTimeout(this.rest);
    if (wait) this.rest = setTimeout(() => { if (!leaving()) this.tell(); }, wait);
    else this.tell();
  }

  tell() {
    clearTimeout(this.rest);
    [this.told, this.toldAt] = [this.moved, performance.now()];
    const [attribute, context] = this.host.card().split(".").map(Number);
    if (context) this.send({ attribute, context, moves: this.moved });
  }
}

class Deciding {
  // host: what shows the pairs. root: its element, with places for .state, .deciding and .table-of-keys; card(): the pair
  // that the person is at, '' for none; mark(card, glyph): show it as decided; shown(): after a key; step(by): to the next
  // pair that is asked for, or the one before; moves: lines of the table of keys.
  constructor(host) {
    this.host = host;
    this.recorded = []; // decisions that the record has and the page does not show yet
    this.asks = 0;
    arrived();
    this.part = (name) => host.root.querySelector(`.${name}`);
    this.onKey = (event) => {
      // Of a key that nothing else takes.
      const at = event.composedPath()[0];
      const free = (at === document.body || at.matches?.("[data-testid='stMain']")) && host.root.isConnected && !document.querySelector(OVER);
      if (free && this.data && !event.defaultPrevented && this.key(event)) event.preventDefault();
    };
    host.place = new Place(host);
    window.addEventListener("keydown", this.onKey);
    this.part("ask").addEventListener("click", () => openHelp(this.part("table-of-keys"), this.help));
  }

  close() {
    this.host.place.close();
    window.removeEventListener("keydown", this.onKey);
    this.log?.detach(this);
  }

  receive(data, setTriggerValue) {
    const first = this.data?.url !== data.url;
    this.data = data;
    useKeysOf(data.person, this.host.root);
    this.setAsked = (what) => setTriggerValue("asked", what);
    this.recorded = this.recorded.filter(({ version }) => version > data.version);
    if (data.owner) {
      const log = Outbox.of(data.key, data.owner);
      if (this.log !== log) {
        this.log?.detach(this);
        this.log = log;
        for (const event of log.events) {
          if (UNDOABLE.some(({ uid }) => uid === event.uid)) continue;
          if (event.kind === "say") UNDOABLE.push(event);
          else this.forget(event.of);
        }
      }
      log.attach(this, data.url);
    }
    // What is newest now, the record knows alone: z is to ask it.
    if (data.elsewhere !== elsewhere) UNDOABLE.length = 0;
    elsewhere = data.elsewhere;
    this.mark();
    this.status();
    if (first && this.log?.events.length) this.log.send();
  }

  request() { return {}; }

  hear(reply, settled) {
    this.recorded.push(...settled.map((event) => ({ ...event, version: reply.version })));
    if (reply.notice) this.notice = reply.notice;
    if (reply.back === "") this.notice = "You have no decision left to take back here.";
    // The page shows what counts now, and leads to a pair of before that was taken back.
    if (reply.back) this.ask(`back ${reply.back}`);
    else if (settled.length && !this.log.events.length) this.ask("decided"); // one run of the page shows all of it
  }

  changed() { this.status(); }

  ask(what) {
    if (!leaving()) this.setAsked(`${what} ${this.asks += 1}`);
  }

  reopen() { this.ask("reopen"); }

  forget(uid) {
    const at = UNDOABLE.findIndex((event) => event.uid === uid);
    if (at >= 0) UNDOABLE.splice(at, 1);
  }

  // Whether the key has a meaning here. Not with Ctrl, Alt or Cmd.
  key(event) {
    const pressed = pageKey(event);
    if (pressed === null) return false;
    const says = this.data.keys.find((item) => item.key === pressed);
    if (askedHelp(pressed, this.part("table-of-keys"), this.help)) return true;
    if (pressed === "j" || pressed === "k") this.host.step(pressed === "j" ? 1 : -1);
    else if (says || (pressed === "z" && this.data.keys.length)) this.decide(says);
    else return false;
    return true;
  }

  // key: what decides the pair; without one the last decision is taken back. One from before the app was opened has no
  // event here: the record knows which it was, and the page leads to its pair.
  decide(key) {
    const card = this.host.card();
    if (!this.log) return this.status("Enter your name beside the pairs, then decide.");
    const last = key ? null : UNDOABLE.findLast((event) => event.owner === this.data.owner);
    if (key && !card) return this.status("There is no pair to decide here.");
    if (last) this.forget(last.uid);
    // Only the record knows the pair of an undo that is still on its way. Nothing leads there once another one is decided.
    if (key && this.log.events.some((event) => event.kind === "undo" && !event.card)) this.host.step(0);
    this.sent = true;
    const event = {
      uid: newUid(), kind: key ? "say" : "undo", card: key ? card : last?.card ?? "", says: key?.says ?? null, text: "",
      seconds: 0, blind: false, of: last?.uid ?? null, owner: this.data.owner,
    };
    if (key) UNDOABLE.push(event);
    this.notice = "";
    this.log.add(event);
    this.mark();
    this.host.shown();
    this.status();
    return undefined;
  }

  // What the page does not show yet is drawn as if it did; what is taken back shows once the page says what counts.
  mark() {
    const made = [...this.recorded, ...this.log?.events ?? []];
    const undone = new Set(made.map((event) => event.of));
    for (const { uid, kind, card, says } of made) {
      const key = this.data.keys.find((item) => item.says === says);
      if (kind === "say" && key && !undone.has(uid)) this.host.mark(card, key.glyph);
    }
  }

  status(words) {
    const { words: unsaved = "", problem = "", gone = "" } = this.log ?? {};
    const saved = UNDOABLE.length || this.sent ? "all saved" : "";
    this.part("state").textContent = words || [unsaved, gone || problem].filter(Boolean).join(". ") || this.notice || saved;
    const hint = this.part("deciding");
    if (hint.childElementCount) return;
    const keys = this.data.help.filter(([key]) => key !== "?" && this.data.keys.length);
    hint.replaceChildren(...keys.flatMap(([key, label]) => [keyCap(key), label]));
  }

  get help() { return [...this.data.help.map(([key, , words]) => [key, words]), ...this.host.moves]; }
}
