// A queue of items that is worked through by keyboard. It lives here, in the browser: a press is answered at once, and
// what was decided goes to the desk by itself (outbox.js), whose reply has the items that come next.

const AHEAD = 30; // fewer items than this left: ask for more
const PACE_OVER = 30; // answers, for the time that is left
const LONGEST_ANSWER = 60; // seconds: who takes longer has been away
const RENEW_MS = 20000; // reservations last three times as long
const WATCH_MS = 900; // while somebody looks at what others answer
// Browsers take no more than 100 addresses in 30 s: so many at once, and one more each time that so long has passed.
const ADDRESSES = 20;
const ADDRESS_MS = 400;
const REMEMBERED = 30; // answers
const SIZES = [20, 50, 100, 200]; // of a batch

// Whether the page was reloaded, or the browser has gone back to it from elsewhere, and no queue was drawn since.
let reopened = ["reload", "back_forward"].includes(performance.getEntriesByType("navigation")[0]?.type);
const skipped = new Map(); // by owner, the cards that were put off since the app was opened
const opened = new Set(); // the parts beside the card that are open

// The name under which items are reserved for this tab: the first that no open tab of this browser has. Whoever closes a
// tab and comes back gets it again, with its items. A lock ends with its tab, so nobody has to release it.
const takePlace = async () => {
  let browser = newUid();
  try {
    browser = localStorage.getItem("cimemories.browser") ?? browser;
    localStorage.setItem("cimemories.browser", browser);
    for (let n = 0; navigator.locks && n < 100; n += 1) {
      const free = await new Promise((resolve, reject) => {
        navigator.locks.request(`cimemories.place.${n}`, { ifAvailable: true }, (lock) => {
          resolve(lock !== null);
          return lock && new Promise(() => {});
        }).catch(reject);
      });
      if (free) return `${browser}.${n}`;
    }
  } catch { /* storage or locks are blocked: the name lasts as long as the tab */ }
  return TAB;
};
const PLACE = takePlace();

// A card of a dispute has a third part, which is another one once somebody else decides the pair.
const pairOf = (card) => card.split(".").slice(0, 2).join(".");

class Bench extends DrawnQueue {
  constructor(root) {
    super(root);
    this.path = location.pathname;
    this.cards = [];
    this.known = new Map();
    this.at = 0;
    this.wanted = null; // the card of an answer to which the person jumps, until the server has sent it
    this.led = true; // whether the server may lead to a card: the person has not pressed a key since they asked it to
    this.answers = new Map(); // card -> its last answer
    this.undoable = [];
    this.reply = { cards: [], done: 0, total: 0 }; // the last one
    this.asks = 0; // how often the page was asked for something
    this.addresses = ADDRESSES; // that may be written at once, as of
    this.addressAt = performance.now();
    this.refused = new Set(); // uids that cannot be recorded: their item is gone
    this.choice = {}; // of an answer with a cause: what is chosen of says, cause and reason
    this.reasons = new Map(); // by pair, that of an answer with a cause that was refused: the pair may come again
    this.newBatch();
    arrived();
    this.onKey = (event) => this.key(event);
    this.onPoint = () => this.writeAddress();
    window.addEventListener("keydown", this.onKey, true);
    window.addEventListener("pointerdown", this.onPoint, true); // it may lead away
    this.renewal = setInterval(() => {
      const since = performance.now() - ((opened.has("history") ? this.heardAt : this.suppliedAt) ?? 0);
      if (!document.hidden && this.card && since > (opened.has("history") ? WATCH_MS : RENEW_MS)) this.flush();
    }, WATCH_MS);
    PLACE.then((place) => { this.place = place; this.flush(); });
    this.part("words").addEventListener("submit", (event) => { event.preventDefault(); this.comment(); });
    this.part("cancel").addEventListener("click", () => this.closeWords());
    this.part("size").addEventListener("click", () => {
      this.ask(`batch:${SIZES.find((size) => size > this.data.batch) ?? SIZES[0]}`);
      this.part("size").blur();
    });
  }

  close() {
    clearInterval(this.renewal);
    clearTimeout(this.addressing);
    this.addressing = null;
    window.removeEventListener("keydown", this.onKey, true);
    window.removeEventListener("pointerdown", this.onPoint, true);
    this.log?.detach(this);
  }

  // How far the batch is, by owner: a reload or a visit elsewhere does not begin it again.
  get batchName() { return `cimemories.batch.${this.data.key}.${this.data.owner}`; }

  newBatch() {
    this.batch = { done: 0, seconds: [] }; // answers of the batch, and how long the newest took
    this.batchStored = true;
  }

  loadBatch() {
    const batch = this.batchStored ? fromStorage(this.batchName) : null;
    const whole = Number.isInteger(batch?.done) && batch.done >= 0 && Array.isArray(batch.seconds);
    if (whole) this.batch = batch;
  }

  saveBatch() { this.batchStored = toStorage(this.batchName, this.batch); } // else it lasts as long as the tab

  // ---- the address

  // It names the card on the screen, without a step for Back: at once, or a moment later where many answers come fast.
  // A person who reloads a moment after a press comes back to the next card, not to the one just answered.
  follow() {
    const now = performance.now();
    this.addresses = Math.min(ADDRESSES, this.addresses + (now - this.addressAt) / ADDRESS_MS);
    this.addressAt = now;
    this.addressing ??= setTimeout(() => this.writeAddress(), Math.max(0, 1 - this.addresses) * ADDRESS_MS);
  }

  writeAddress() {
    clearTimeout(this.addressing);
    this.addressing = null;
    if (!this.data?.address.length || this.over || !this.root.isConnected) return;
    if (leaving() || location.pathname !== this.path) return;
    // Where nothing is left, Back would come to the last answered card, as if it were open.
    if (!this.card && (!this.heardAt || this.left > 0)) return;
    const query = new URLSearchParams(location.search);
    const parts = this.card?.id.split(".");
    for (const [n, name] of this.data.address.entries()) parts ? query.set(name, parts[n]) : query.delete(name);
    if (`?${query}` === location.search) return;
    this.addresses -= 1;
    history.replaceState(history.state, "", `${location.pathname}?${query}`);
  }

  // ---- the answers of this tab that a reload may ask for again, newest last

  get rememberedName() { return `cimemories.answered.${this.data.key}.${this.data.owner}`; }

  remembered() { return new Map(fromStorage(this.rememberedName, "sessionStorage") ?? []); }

  remember(card, answer) {
    const answers = this.remembered();
    answers.delete(card);
    if (answer) answers.set(card, answer);
    toStorage(this.rememberedName, [...answers].slice(-REMEMBERED), "sessionStorage"); // else a reload asks the card again
  }

  // One answer more or less; other tabs of this person count in the same batch.
  count(step, seconds = 0) {
    this.loadBatch();
    this.batch.done = Math.max(0, this.batch.done + step);
    if (step > 0) this.batch.seconds = [...this.batch.seconds, Math.min(seconds, LONGEST_ANSWER)].slice(-PACE_OVER);
    this.saveBatch();
  }

  // The end of a batch stands on the card until the person begins the next one.
  get over() { return this.data.batch > 0 && this.batch.done >= this.data.batch; }

  nextBatch() {
    this.loadBatch();
    this.batch.done = 0;
    this.summary = null;
    this.saveBatch();
    this.draw();
    this.part("card").focus({ preventScroll: true });
    this.flush();
  }

  // What the page says: which queue it is, and how it is shown.
  receive({ data, setTriggerValue }) {
    const before = this.data;
    this.data = data;
    this.setAsked = (what) => setTriggerValue("asked", what);
    if (before?.owner !== data.owner) {
      this.log?.detach(this);
      this.log = Outbox.of(data.key, data.owner);
      this.newBatch();
      this.loadBatch();
    }
    this.log.attach(this, data.url);
    if (!before) this.blind = data.blind;
    useKeysOf(data.person, this.root);
    if (before?.session !== data.session) {
      this.cards = [];
      this.known.clear();
      this.undoable = [];
      this.at = 0;
      this.led = true;
      this.wanted = null;
      this.heardAt = null;
      this.fresh = true;
      this.summary = null;
      this.answers = this.unsavedAnswers();
      this.startedAt = null;
    }
    this.buttons();
    this.rail();
    this.draw();
    this.follow(); // a view that was chosen has no card in its address
    if (!this.heardAt || before?.url !== data.url) this.flush();
  }

  // What goes to the desk beside the events.
  request() {
    this.reported = this.card?.id ?? null;
    this.wantedAsked = this.wanted;
    return {
      place: this.place, at: this.reported, blind: this.blind, fresh: this.fresh,
      start: this.wanted ?? (this.fresh ? this.data.start : null),
      skipped: [...skipped.get(this.data.owner) ?? []], looks: [...opened].filter((name) => this.data.folds.some(([fold]) => fold === name)),
      batch: this.over && !this.summary ? this.batch.done : 0,
      needs: this.data.complete || this.cards.length - this.at < AHEAD || performance.now() - this.suppliedAt > RENEW_MS,
    };
  }

  // The page is asked for what it draws in another way than the card.
  ask(what) {
    if (!leaving()) this.setAsked(`${what} ${this.asks += 1}`);
  }

  reopen() { this.ask("reopen"); }

  // What the desk answers. settled: the events that it has recorded or refused.
  hear(reply, settled) {
    const first = !this.heardAt;
    const here = first ? undefined : this.card;
    const left = this.reply.total - this.reply.done;
    this.heardAt = performance.now();
    if (reply.cards) this.suppliedAt = this.heardAt;
    else reply.cards = this.reply.cards;
    this.reply = reply;
    this.fresh = false;
    if (reply.notice) this.notice = reply.notice;
    if (reply.summary.length) this.summary = reply.summary;
    for (const uid of reply.refused) this.refused.add(uid);
    for (const { uid, card, cause, text } of settled) {
      if (cause && text && this.refused.has(uid)) this.reasons.set(pairOf(card), text);
    }
    // Undone is what was answered on the visit before: the server names its card, which may be the one of the address.
    if (settled.some(({ kind, card }) => kind === "undo" && !card)) this.startedAt = null;
    if (this.data.complete) this.drop(new Set(reply.cards.map((card) => card.id)));
    for (const card of reply.cards) {
      if (this.known.has(card.id)) continue;
      this.known.set(card.id, card);
      this.cards.push(card);
    }
    if (!this.card) this.again(new Set(reply.cards.map((card) => card.id)));
    const answered = first && reopened && this.remembered().get(reply.start);
    if (first) reopened = false;
    if (answered) {
      // The address was read again before it named the next card.
      this.startedAt = reply.start;
      this.answers.set(reply.start, answered);
    }
    if (reply.start && reply.start !== this.startedAt && this.known.has(reply.start)) {
      this.startedAt = reply.start;
      // The server asks it again: an undo of what was answered on the visit before.
      if (!this.log.events.some((event) => event.card === reply.start)) this.answers.delete(reply.start);
      if (this.led) this.at = this.cards.findIndex((card) => card.id === reply.start);
      this.led = false;
    }
    const jumped = this.wanted !== null && reply.start === this.wanted && this.known.has(this.wanted);
    if (jumped) this.at = this.cards.findIndex((card) => card.id === this.wanted);
    if (this.wanted === this.wantedAsked) this.wanted = null;
    // Only to a card that this reply has put in sight: a person who went back to one that they answered stays there, or
    // their next press would answer a card that they have not read.
    if (!jumped && this.card !== here && this.answers.has(this.card?.id)) this.at = this.nextOpen(this.at);
    this.draw();
    if (this.spreading && !this.log.events.length) {
      this.spreading = false;
      this.ask("spread");
    }
    if (left > 0 && reply.total <= reply.done && !this.log.events.length) {
      this.writeAddress();
      this.ask("finished");
    }
    // What is shown beside the card is of another one.
    if (opened.size && (this.card?.id ?? null) !== this.reported) this.flush();
  }

  changed() {
    this.status();
    const { problem, gone } = this.log;
    if (gone && this.part("card").dataset.card) this.draw();
    const box = this.part("problem");
    const kept = "You can continue: this browser keeps your answers and tries again every few seconds.";
    box.hidden = !problem && !this.notice;
    box.textContent = (problem ? `Your answers cannot be saved at the moment. ${problem} ${kept}` : this.notice ?? "");
  }

  // Where nothing else is left, what was skipped or flagged comes again, the longest ago first, if the server still
  // offers it.
  again(offered) {
    const busy = new Set(this.log.events.map((event) => event.card));
    for (const [id, { kind }] of this.answers) {
      if ((kind !== "skip" && kind !== "flag") || !offered.has(id) || busy.has(id)) continue;
      this.answers.delete(id);
      this.at = this.cards.findIndex((card) => card.id === id);
      return;
    }
  }

  // Cards that are open no longer: another tab, or somebody else, has answered them. Not those that were answered here,
  // to which a person can go back, nor what an event on its way is about.
  drop(open) {
    const here = this.card;
    const busy = new Set(this.log.events.map((event) => event.card));
    this.cards = this.cards.filter((card) => {
      const kept = card === here || open.has(card.id) || busy.has(card.id) || this.answers.has(card.id);
      if (!kept) this.known.delete(card.id);
      return kept;
    });
    // Beyond the last card one is at none: there, too, when what comes next is added.
    this.at = here ? this.cards.indexOf(here) : this.cards.length;
  }

  // The answers in the log: the server may still hand out cards whose answers have not reached it.
  unsavedAnswers() {
    const answers = new Map();
    for (const { kind, card, says, cause } of this.log.events) {
      if (kind === "undo") answers.delete(card);
      else if (kind !== "comment") answers.set(card, { kind, says, cause });
    }
    return answers;
  }

  // None once the dataset is gone: nothing more can be decided.
  get card() { return this.log?.gone ? undefined : this.cards[this.at]; }

  // ---- keys

  key(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
    if (typing(event)) {
      if (event.key === "Escape" && this.part("words").contains(target)) this.closeWords();
      return;
    }
    if (!this.root.isConnected || this.root.offsetParent === null) return;
    if (document.querySelector(OVER)) return;
    // A field is open and has lost the focus: what is typed goes there, and is never an answer.
    if (!this.part("words").hidden) {
      if (event.key === "Escape") this.closeWords();
      else if (event.key.length === 1) this.part("words").querySelector("input").focus();
      return;
    }
    const pressed = pressedKey(event);
    if (event.key === "Enter" && this.learned && !(target instanceof Element && target.closest("button, a"))) this.proceed();
    if (event.key === "Enter" || event.key === " ") { // they press the button that has the focus
      if (this.over && event.key === "Enter" && !(target instanceof Element && target.closest("button, a"))) this.nextBatch();
      return;
    }
    if (!this.act(pressed)) return;
    event.preventDefault();
    event.stopImmediatePropagation(); // Streamlit has keys of its own
  }

  act(pressed) {
    const began = performance.now();
    const help = this.part("help");
    const says = this.data.keys.find((item) => item.key === pressed);
    const cause = this.data.causes.find(([key]) => key === pressed)?.[1];
    if (!says && !cause && pressed !== "Escape" && !this.data.actions.some(([key]) => key === pressed)) return false;
    if (!"b?".includes(pressed)) [this.led, this.wanted] = [false, null];
    // The help lies over the item, so the key that closes it answers nothing.
    if (!help.hidden) help.hidden = true;
    else if ((pressed === "Escape" || pressed === "z") && Object.keys(this.choice).length) this.choose(null);
    else if (pressed === "Escape") return false; // somebody else's
    else if (this.over && !"zb?".includes(pressed)) return true;
    else if (this.learned && (says || pressed === "s")) { // meant for a card that is not there yet
      this.notice = "This one is answered. Press Enter for the next.";
      this.changed();
    }
    else if (cause) this.choose({ cause });
    else if (says && this.data.causes.length) this.choose({ says: says.says });
    else if (says) this.say(says.says);
    else if (pressed === "s") this.say(null, "skip");
    else if ("fcr".includes(pressed)) this.openWords(pressed);
    else if (pressed === "e") this.spread();
    else if (pressed === "z") this.undo();
    else if (pressed === "j") this.move(1);
    else if (pressed === "k") this.move(-1);
    else if (pressed === "b") this.setBlind(!this.blind);
    else if (pressed === "?") this.help();
    performance.measure("desk key", { start: began });
    return true;
  }

  // An answer with a cause is given when both are chosen, in whatever order. null: choose anew.
  choose(part) {
    if (!this.card) return;
    this.choice = part ? { ...this.choice, ...part } : {};
    const { says, cause, reason } = this.choice;
    if (says && cause) this.say(says, "say", reason ?? "", cause);
    else this.draw();
  }

  say(says, kind = "say", text = "", cause = "") {
    const card = this.card;
    if (!card) return;
    const now = performance.now();
    const event = {
      uid: newUid(), kind, card: card.id, says, text, cause, of: null,
      seconds: Math.round(now - this.shownAt) / 1000, blind: this.blind,
    };
    const before = this.answers.get(card.id);
    if (kind === "say" && before?.kind !== "say") this.count(1, event.seconds);
    if (kind === "comment") {
      card.note = card.note ? `${card.note}; ${text}` : text;
    } else {
      const answer = { kind, says, cause, title: card.known?.length ? "" : card.title };
      this.undoable.push({ uid: event.uid, card: card.id, kind, before });
      this.answers.set(card.id, answer);
      this.remember(card.id, answer);
      this.previous = card;
      if (!this.learned) this.at = this.nextOpen(this.at + 1);
      this.putOff(card.id, kind === "skip");
    }
    this.notice = "";
    this.log.add(event);
    this.draw();
  }

  // Whether the card on the screen is one of training that is answered: it stays and shows the known answer.
  get learned() { return Boolean(this.card?.known?.length) && this.answers.get(this.card.id)?.kind === "say"; }

  proceed() {
    this.notice = "";
    this.at = this.nextOpen(this.at + 1);
    this.draw();
    this.part("card").focus({ preventScroll: true });
  }

  // What was skipped is asked last, by the server too.
  putOff(card, on) {
    const cards = skipped.get(this.data.owner) ?? new Set();
    skipped.set(this.data.owner, cards);
    cards[on ? "add" : "delete"](card);
  }

  nextOpen(from) {
    let at = from;
    while (at < this.cards.length && this.answers.has(this.cards[at].id)) at += 1;
    if (at < this.cards.length) return at;
    // At the end: what was passed by, or came behind the one that an undo led to.
    const open = this.cards.findIndex((card) => !this.answers.has(card.id));
    return open < 0 ? this.cards.length : open;
  }

  undo() {
    const last = this.undoable.pop();
    const event = {
      uid: newUid(), kind: "undo", card: last?.card ?? "", says: null, text: "",
      of: last?.uid ?? null, seconds: 0, blind: this.blind,
    };
    this.led = !last;
    if (!last || (last.kind === "say" && last.before?.kind !== "say")) this.count(-1);
    if (last) {
      this.remember(last.card, last.before);
      if (last.before) this.answers.set(last.card, last.before);
      else this.answers.delete(last.card);
      this.at = this.cards.findIndex((card) => card.id === last.card);
      this.previous = null;
      this.putOff(last.card, last.before?.kind === "skip");
    }
    this.log.add(event);
    this.draw();
  }

  move(step) {
    this.at = Math.max(0, Math.min(this.cards.length - (this.left > 0 ? 0 : 1), this.at + step));
    this.draw();
    if (opened.size || !this.card) this.flush();
  }

  // To one of the last answers, which stays until another one is given. Where the server has to send its card, a key that
  // is pressed before answers what is in sight, and nothing leads there any more.
  jump(id) {
    const at = this.cards.findIndex((card) => card.id === id);
    this.led = false;
    this.closeWords(); // it would be about the card that was left
    if (at >= 0) this.move(at - this.at);
    else {
      [this.wanted, this.startedAt] = [id, id];
      this.answers.set(id, this.remembered().get(id));
      this.flush();
    }
  }

  setBlind(blind) {
    this.blind = blind;
    this.draw();
    this.buttons();
    this.flush();
    this.ask(blind ? "blind" : "seeing");
  }

  // The page shows where the last decision could be spread, once the record has it.
  spread() {
    this.spreading = true;
    this.flush();
  }

  // The field takes the place of the keys, where the person looks.
  openWords(key) {
    if (!this.card) return;
    this.asked = { f: "flag", c: "comment", r: "reason" }[key];
    const form = this.part("words");
    form.hidden = false;
    this.part("keys").hidden = true;
    const field = form.querySelector("input");
    const label = { f: "What is wrong with this item?", c: "Comment on this item", r: "Reason for your answer" }[key];
    field.placeholder = `${label} (Enter saves, Esc cancels)`;
    field.setAttribute("aria-label", label);
    field.value = key === "r" ? this.choice.reason ?? "" : "";
    field.focus();
  }

  closeWords() {
    this.part("words").hidden = true;
    this.part("keys").hidden = false;
    this.part("card").focus({ preventScroll: true });
  }

  comment() {
    const text = this.part("words").querySelector("input").value.trim();
    this.closeWords();
    if (this.asked === "reason") this.choose({ reason: text });
    else if (text || this.asked === "flag") this.say(null, this.asked, text);
  }

  help() {
    const box = this.part("help");
    box.hidden = !box.hidden;
    fillHelp(box, this.allKeys().map(([key, , words]) => [key, words]));
  }

  // Cards come once the tab has a place, under which they are reserved for it.
  flush() {
    if (this.place && this.data) this.log.send();
  }

  get left() { return Math.max(0, this.reply.total - this.reply.done); }
}

export default mounted(Bench, ".bench");
