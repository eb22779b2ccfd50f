// Decisions by keys on the pair that the person is at, in the matrix and in the list of one context: drawn at once, kept
// until the record has them (unsaved.js), taken back with z. The table of keys is here too.

const UNDOABLE = []; // the decisions made since the app was opened, and those that a closed tab has left
let elsewhere = ""; // the last decision that no key has made, as the server names it

class Deciding {
  // host: what shows the pairs. root: its element, with places for .state, .deciding and .table-of-keys; card(): the pair
  // that the person is at, '' for none; mark(card, glyph): show it as decided; shown(): after a key; step(by): to the next
  // pair that is asked for, or the one before; moves: lines of the table of keys; tell(): the server hears of the place,
  // by `told`, the number of moves at `toldAt`.
  constructor(host) {
    this.host = host;
    this.log = new Unsaved();
    arrived();
    this.part = (name) => host.root.querySelector(`.${name}`);
    this.onHide = () => { if (this.data) this.log.keep(); };
    this.onKey = (event) => {
      // Of a key that nothing else takes.
      const at = event.composedPath()[0];
      const free = (at === document.body || at.matches?.("[data-testid='stMain']")) && host.root.isConnected && !document.querySelector(OVER);
      if (free && this.data && !event.defaultPrevented && this.key(event)) event.preventDefault();
    };
    window.addEventListener("pagehide", this.onHide);
    window.addEventListener("keydown", this.onKey);
    this.part("ask").addEventListener("click", () => this.help());
    this.retry = setInterval(() => {
      if (this.log.sendable().length && performance.now() - this.log.sentAt > RETRY_MS) this.flush();
      // A run that the next one ends before it has read the place forgets it. One that goes on may still answer.
      const { told, toldAt, moved } = host;
      const running = document.querySelector(".stApp")?.dataset.testScriptState === "running";
      const unheard = this.data?.moves < told && told === moved && performance.now() - toldAt > RETRY_MS;
      if (unheard && !running && !leaving()) host.tell();
    }, 1000);
  }

  close() {
    this.onHide();
    clearInterval(this.retry);
    window.removeEventListener("pagehide", this.onHide);
    window.removeEventListener("keydown", this.onKey);
  }

  receive(data, setStateValue) {
    if (!this.data) this.log.open(data.log);
    this.data = data;
    this.send = (value) => setStateValue("log", value);
    for (const event of this.log.receive(data.owner, new Set(data.handled), data.stranded)) {
      if (event.kind === "say") UNDOABLE.push(event);
      else this.forget(event.of);
    }
    // What is newest now, the server knows alone: z is to ask it.
    if (data.elsewhere !== elsewhere) UNDOABLE.length = 0;
    elsewhere = data.elsewhere;
    this.mark();
    this.status();
    if (this.log.unsent) this.flush();
  }

  forget(uid) {
    const at = UNDOABLE.findIndex((event) => event.uid === uid);
    if (at >= 0) UNDOABLE.splice(at, 1);
  }

  // Whether the key has a meaning here. Not with Ctrl, Alt or Cmd.
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return false;
    const pressed = pressedKey(event);
    const says = this.data.keys.find((item) => item.key === pressed);
    // The table lies over the pairs, so the key that closes it decides nothing.
    if (this.part("table-of-keys").matches(":popover-open")) this.part("table-of-keys").hidePopover();
    else if (pressed === "?") this.help();
    else if (pressed === "j" || pressed === "k") this.host.step(pressed === "j" ? 1 : -1);
    else if (says || (pressed === "z" && this.data.keys.length)) this.decide(says);
    else return false;
    return true;
  }

  // key: what decides the pair; without one the last decision is taken back. One from before the app was opened has no
  // event here: the server knows which it was, and leads to its pair.
  decide(key) {
    const { owner } = this.data;
    const card = this.host.card();
    const last = key ? null : UNDOABLE.findLast((event) => event.owner === owner);
    if (!owner) return this.status("Enter your name beside the pairs, then decide.");
    if (key && !card) return this.status("There is no pair to decide here.");
    if (last) this.forget(last.uid);
    // Only the server knows the pair of an undo that is still on its way. It leads there no more once another one is decided.
    if (key && this.log.events.some((event) => event.kind === "undo" && !event.card)) this.host.step(0);
    this.sent = true;
    const event = {
      uid: newUid(), kind: key ? "say" : "undo", card: key ? card : last?.card ?? "", says: key?.says ?? null, text: "",
      seconds: 0, blind: false, of: last?.uid ?? null, owner,
    };
    if (key) UNDOABLE.push(event);
    this.log.add(event);
    this.mark();
    this.host.shown();
    this.status();
    this.flush();
    return undefined;
  }

  // What is decided and not confirmed is drawn as if it were; what is taken back shows once the server says what counts.
  mark() {
    const undone = new Set(this.log.events.map((event) => event.of));
    for (const { uid, kind, card, says, owner } of this.log.events) {
      const key = this.data.keys.find((item) => item.says === says);
      if (kind === "say" && key && owner === this.data.owner && !undone.has(uid)) this.host.mark(card, key.glyph);
    }
  }

  flush() {
    this.log.keep();
    if (leaving()) return;
    const events = this.log.next();
    if (events) this.send({ events });
  }

  status(words) {
    this.part("state").textContent = words ?? (this.log.words || (UNDOABLE.length || this.sent ? "all saved" : ""));
    const hint = this.part("deciding");
    if (hint.childElementCount) return;
    const keys = this.data.help.filter(([key]) => key !== "?" && this.data.keys.length);
    hint.replaceChildren(...keys.flatMap(([key, label]) => {
      const shown = document.createElement("kbd");
      shown.textContent = key;
      return [shown, label];
    }));
  }

  help() {
    const keys = this.data.help.map(([key, , words]) => [key, words]);
    toggleHelp(this.part("table-of-keys"), [...keys, ...this.host.moves]);
  }
}
