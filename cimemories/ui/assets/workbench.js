// A queue of items that is worked through by keyboard. It lives here, in the browser: a press is answered at once and
// goes into a log; the server is sent all of the log that it has not confirmed, and confirms each event by its uid.
// Unconfirmed events are counted on screen, and kept when the person leaves the page, reloads it or closes the tab. Text
// of the data is set as textContent, never as markup.

const MARKS = { N: "N", X: "X", "?": "Q", "-": "M" };
const AHEAD = 30; // fewer items than this left: ask for more
const PACE_OVER = 50;
const RETRY_MS = 4000;
const TYPING = "input, textarea, select, [contenteditable=''], [contenteditable='true']";
const RENEW_MS = 20000;
const WATCH_MS = 900; // while somebody looks at what others answer
const MOST_SENT = 500;
const TAB = crypto.randomUUID(); // of this opening of the page

// The name under which items are reserved for this tab: the first that no open tab of this browser has. Whoever closes a
// tab and comes back gets it again, with its items. A lock ends with its tab, so nobody has to release it.
const takePlace = async () => {
  let browser = localStorage.getItem("cimemories.browser");
  if (!browser) {
    browser = crypto.randomUUID();
    localStorage.setItem("cimemories.browser", browser);
  }
  for (let n = 0; navigator.locks && n < 100; n += 1) {
    const free = await new Promise((resolve) => {
      navigator.locks.request(`cimemories.place.${n}`, { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        return lock && new Promise(() => {});
      });
    });
    if (free) return `${browser}.${n}`;
  }
  return TAB;
};
const PLACE = takePlace();

// Events that are not confirmed yet, by component key. They outlive the component: whoever goes to another page of the
// app and comes back gets a new Workbench, which must go on with the log of the old one.
const LOGS = new Map();

const logOf = (key) => {
  if (!LOGS.has(key)) LOGS.set(key, { events: [], owners: new Set() });
  return LOGS.get(key);
};

const make = (name, cls, text) => {
  const element = document.createElement(name);
  if (cls) element.className = cls;
  if (text !== undefined) element.textContent = text;
  return element;
};

class Workbench {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`.${name}`);
    this.cards = [];
    this.known = new Map();
    this.at = 0;
    this.answers = new Map(); // card -> its last answer
    this.undoable = [];
    this.log = { events: [], owners: new Set() }; // that of the key, from the first data on
    this.sent = new Set(); // uids of the message in flight
    this.stranded = new Set(); // uids that the server cannot record in this session: another person's, say
    this.refused = new Set(); // uids that cannot be recorded: their item is gone
    this.times = [];
    this.sentAt = 0;
    arrived();
    this.onKey = (event) => this.key(event);
    this.onHide = () => { if (this.data) this.keep(); };
    window.addEventListener("keydown", this.onKey, true);
    window.addEventListener("pagehide", this.onHide);
    this.retry = setInterval(() => {
      const since = performance.now() - this.sentAt;
      const rest = this.data?.watch ? WATCH_MS : RENEW_MS;
      // Cards come only once the server has heard of this component: until then it is told again, whatever held it back.
      const urgent = this.sendable().length || (this.data && !this.sentAt);
      if (urgent ? since > RETRY_MS : since > rest && !document.hidden && this.card) this.flush();
    }, 1000);
    PLACE.then((place) => { this.place = place; if (this.data) this.flush(); });
    this.part("words").addEventListener("submit", (event) => { event.preventDefault(); this.comment(); });
    this.part("cancel").addEventListener("click", () => this.closeWords());
  }

  close() {
    if (this.data) this.keep();
    clearInterval(this.retry);
    window.removeEventListener("keydown", this.onKey, true);
    window.removeEventListener("pagehide", this.onHide);
  }

  // What is not saved is kept by owner (who works on what, in which workspace) and by tab: no answer may become somebody
  // else's, or another dataset's, and a tab that has nothing to keep must not drop what another one has.
  shelf(owner) { return `cimemories.unsaved.${this.data.key}.${owner}.`; }

  keep() {
    for (const owner of this.log.owners) {
      const own = this.log.events.filter((event) => event.owner === owner);
      try {
        if (own.length) localStorage.setItem(this.shelf(owner) + TAB, JSON.stringify(own));
        else localStorage.removeItem(this.shelf(owner) + TAB);
      } catch { /* storage is full or forbidden: the log still holds all of it, as long as this tab is open */ }
    }
  }

  // Take over what this owner had left unsaved when a tab was closed.
  adopt(owner) {
    this.log.owners.add(owner);
    const here = new Set(this.log.events.map((event) => event.uid));
    for (const name of Object.keys(localStorage)) {
      if (!name.startsWith(this.shelf(owner)) || name.endsWith(TAB)) continue;
      let left = [];
      try { left = JSON.parse(localStorage.getItem(name)); } catch { left = []; }
      this.log.events.push(...left.filter((event) => !here.has(event.uid)).map((event) => ({ ...event, owner })));
      localStorage.removeItem(name);
    }
    this.keep();
  }

  receive({ data, setStateValue }) {
    const first = !this.data;
    this.data = data;
    this.send = (value) => setStateValue("log", value);
    if (first) {
      this.blind = data.blind;
      this.log = logOf(data.key);
    }
    if (!this.log.owners.has(data.owner)) this.adopt(data.owner);
    const confirmed = new Set(data.confirmed);
    for (const uid of data.refused) this.refused.add(uid);
    this.log.events = this.log.events.filter((event) => !confirmed.has(event.uid) && !this.refused.has(event.uid));
    this.stranded = new Set(data.stranded);
    this.keep();
    if (this.session !== data.session) {
      this.session = data.session;
      this.cards = [];
      this.known.clear();
      this.undoable = [];
      this.at = 0;
      this.blind = data.blind;
      this.answers = this.unsavedAnswers();
    }
    for (const card of data.cards) {
      if (this.known.has(card.id)) continue;
      this.known.set(card.id, card);
      this.cards.push(card);
    }
    if (data.start && data.start !== this.startedAt && this.known.has(data.start)) {
      this.startedAt = data.start;
      this.at = this.cards.findIndex((card) => card.id === data.start);
    } else if (this.answers.has(this.card?.id)) {
      this.at = this.nextOpen(this.at);
    }
    this.buttons();
    this.draw();
    if (first || this.sendable().some((event) => !this.sent.has(event.uid))) this.flush();
  }

  // The answers in the log: the server may still hand out cards whose answers have not reached it.
  unsavedAnswers() {
    const answers = new Map();
    for (const { kind, card, says, owner } of this.log.events) {
      if (owner !== this.data.owner) continue;
      if (kind === "undo") answers.delete(card);
      else if (kind !== "comment") answers.set(card, { kind, says });
    }
    return answers;
  }

  sendable() {
    return this.log.events.filter((event) => !this.stranded.has(event.uid) || event.owner === this.data.owner);
  }

  get card() { return this.cards[this.at]; }

  // ---- keys

  key(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing) return;
    if (target instanceof Element && target.closest(TYPING)) {
      if (event.key === "Escape" && this.part("words").contains(target)) this.closeWords();
      return;
    }
    if (!this.root.isConnected || this.root.offsetParent === null) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.key === "Enter" || event.key === " ") return; // they press the button that has the focus
    if (!this.act(pressed)) return;
    event.preventDefault();
    event.stopImmediatePropagation(); // Streamlit has keys of its own
  }

  act(pressed) {
    const began = performance.now();
    const says = this.data.keys.find((item) => item.key === pressed);
    if (says) this.say(says.says);
    else if (pressed === "s") this.say(null, "skip");
    else if (pressed === "f" && this.data.flags) this.say(null, "flag");
    else if (pressed === "z") this.undo();
    else if (pressed === "j") this.move(1);
    else if (pressed === "k") this.move(-1);
    else if (pressed === "c" && this.data.comments) this.openWords();
    else if (pressed === "b") this.setBlind(!this.blind);
    else if (pressed === "?") this.help();
    else if (pressed === "Escape") { this.part("help").hidden = true; }
    else return false;
    performance.measure("workbench key", { start: began });
    return true;
  }

  say(says, kind = "say", text = "") {
    const card = this.card;
    if (!card) return;
    const now = performance.now();
    const event = {
      uid: crypto.randomUUID(), kind, card: card.id, says, text, of: null,
      seconds: Math.round(now - this.shownAt) / 1000, blind: this.blind, owner: this.data.owner,
    };
    this.log.events.push(event);
    if (kind === "comment") {
      card.note = card.note ? `${card.note}; ${text}` : text;
    } else {
      this.undoable.push({ uid: event.uid, card: card.id, kind, before: this.answers.get(card.id) });
      this.answers.set(card.id, { kind, says });
      this.times.push(now);
      if (this.times.length > PACE_OVER) this.times.shift();
      this.previous = card;
      this.at = this.nextOpen(this.at + 1);
    }
    this.draw();
    this.flush();
  }

  nextOpen(from) {
    let at = from;
    while (at < this.cards.length && this.answers.has(this.cards[at].id)) at += 1;
    return at;
  }

  undo() {
    const last = this.undoable.pop();
    const event = {
      uid: crypto.randomUUID(), kind: "undo", card: last?.card ?? "", says: null, text: "",
      of: last?.uid ?? null, seconds: 0, blind: this.blind, owner: this.data.owner,
    };
    this.log.events.push(event);
    if (last) {
      if (last.before) this.answers.set(last.card, last.before);
      else this.answers.delete(last.card);
      this.times.pop();
      this.at = this.cards.findIndex((card) => card.id === last.card);
      this.previous = null;
    }
    this.draw();
    this.flush();
  }

  move(step) {
    this.at = Math.max(0, Math.min(this.cards.length - (this.data.left > 0 ? 0 : 1), this.at + step));
    this.draw();
    this.flush();
  }

  setBlind(blind) {
    this.blind = blind;
    this.draw();
    this.buttons();
    this.flush();
  }

  openWords() {
    if (!this.card) return;
    const form = this.part("words");
    form.hidden = false;
    const field = form.querySelector("input");
    field.placeholder = "Comment on this item (Enter saves, Esc cancels)";
    field.setAttribute("aria-label", "Comment on this item");
    field.value = "";
    field.focus();
  }

  closeWords() {
    this.part("words").hidden = true;
    this.part("card").focus({ preventScroll: true });
  }

  comment() {
    const text = this.part("words").querySelector("input").value.trim();
    this.closeWords();
    if (text) this.say(null, "comment", text);
  }

  help() {
    const box = this.part("help");
    box.hidden = !box.hidden;
    box.replaceChildren(...this.allKeys().map(([key, , words]) => {
      const line = make("div");
      line.append(make("kbd", "", key), ` ${words}`);
      return line;
    }));
  }

  // ---- to the server

  // One message is in flight at a time; later events go with the next one.
  flush() {
    this.keep();
    this.status();
    if (!this.place || leaving()) return;
    const waiting = this.log.events.some((event) => this.sent.has(event.uid) && !this.stranded.has(event.uid));
    if (waiting && performance.now() - this.sentAt < RETRY_MS) return;
    const events = this.sendable().slice(0, MOST_SENT);
    this.sent = new Set(events.map((event) => event.uid));
    this.sentAt = performance.now();
    const need = this.cards.length - this.at < AHEAD;
    this.send({ place: this.place, events, at: this.card?.id ?? null, blind: this.blind, need });
  }

  // ---- what is seen

  allKeys() {
    const keys = this.data.keys.map((item) => [item.key, item.label, `${item.glyph} ${item.label}`, item.colour]);
    keys.push(["s", "skip", "skip for now"]);
    if (this.data.flags) keys.push(["f", "flag", "flag as a bad item"]);
    keys.push(["z", "undo", "undo the last answer; repeat to go further back"]);
    keys.push(["k", "previous", "previous item"], ["j", "next", "next item"]);
    if (this.data.comments) keys.push(["c", "comment", "add a comment"]);
    keys.push(["b", "blind", "blind: hide votes and quotes until you answer"], ["?", "help", "show or hide this help"]);
    return keys;
  }

  buttons() {
    const bar = this.part("keys");
    const signature = JSON.stringify([this.data.keys, this.data.flags, this.data.comments]);
    if (bar.dataset.signature !== signature) {
      bar.dataset.signature = signature;
      bar.replaceChildren(...this.allKeys().map(([key, label, words, colour]) => {
        const button = make("button", colour ? "main" : "");
        button.type = "button";
        button.title = words;
        button.dataset.key = key;
        if (colour) button.style.borderColor = colour;
        button.append(make("kbd", "", key), colour ? words : label);
        button.addEventListener("click", () => { this.act(key); button.blur(); });
        return button;
      }));
    }
    bar.querySelector("[data-key=b]").setAttribute("aria-pressed", String(this.blind));
  }

  marks(rows) {
    const table = make("table", "votes");
    for (const [name, prior, letters] of rows) {
      const row = table.insertRow();
      row.append(make("td", "", name), make("td", "prior", prior));
      const cell = make("td");
      if (/^[NX?-]+$/.test(letters)) for (const letter of letters) cell.append(make("span", `mark ${MARKS[letter]}`, letter));
      else cell.textContent = letters;
      row.append(cell);
    }
    return table;
  }

  answered(answer) {
    const key = this.data.keys.find((item) => item.says === answer.says);
    if (answer.kind === "say") return `${key?.glyph ?? ""} ${key?.label ?? answer.says}`;
    return answer.kind === "flag" ? "flagged" : "skipped";
  }

  draw() {
    const card = this.card;
    const box = this.part("card");
    this.shownAt = performance.now();
    if (!card) {
      const words = this.data.left > 0 && this.cards.length ? "Loading more …" : this.data.empty;
      box.replaceChildren(make("div", "muted", words));
    } else {
      const answer = this.answers.get(card.id);
      const parts = [make("div", "title", card.title)];
      if (answer) parts.unshift(make("div", "said", `You: ${this.answered(answer)}`));
      const facts = make("dl");
      for (const [name, words, strong] of card.facts) {
        facts.append(make("dt", "", name), make("dd", strong ? "strong" : "", words));
      }
      parts.push(facts);
      const seen = !this.blind || answer;
      if (card.text.length) {
        const text = make("div", "text");
        for (const [words, kind] of card.text) text.append(kind && seen ? make("mark", "", words) : words);
        parts.push(text);
      }
      if (card.hidden.length) parts.push(seen ? this.marks(card.hidden) : make("div", "muted", this.data.hiding));
      if (card.note) parts.push(make("div", "muted", card.note));
      box.replaceChildren(...parts);
    }
    box.dataset.card = card?.id ?? "";
    this.drawLast();
    this.status();
  }

  // The item answered last. In blind mode, this is where its votes are shown.
  drawLast() {
    const last = this.part("last");
    const answer = this.previous && this.answers.get(this.previous.id);
    if (!answer) { last.replaceChildren(); return; }
    last.replaceChildren(
      make("span", "muted", "Last:"), make("b", "", this.answered(answer)), make("span", "what", this.previous.title),
      ...(this.previous.hidden.length ? [this.marks(this.previous.hidden.slice(0, 3))] : []),
    );
  }

  status() {
    const { done, total } = this.data;
    const waiting = this.log.events.length;
    const unsaved = this.log.events.filter((event) => event.kind === "say" && event.owner === this.data.owner).length;
    const now = Math.min(total, done + unsaved);
    this.part("progress").textContent = `${now.toLocaleString("en")} of ${total.toLocaleString("en")} done`;
    this.part("filled").style.width = total ? `${(100 * now) / total}%` : "0";
    this.part("pace").textContent = this.pace(total - now);
    const saved = this.part("saved");
    const lost = this.refused.size ? `${this.refused.size} discarded: the item is gone` : "all saved";
    saved.textContent = waiting ? `${waiting} not saved yet` : lost;
    saved.classList.toggle("waiting", waiting > 0 || this.refused.size > 0);
  }

  pace(left) {
    if (this.times.length < 3) return "";
    const hours = (this.times.at(-1) - this.times[0]) / 3.6e6;
    const hourly = (this.times.length - 1) / Math.max(hours, 1e-6);
    const minutes = Math.ceil((60 * left) / hourly);
    const time = minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
    return `${Math.round(hourly).toLocaleString("en")} per hour, ${time} left at this pace`;
  }
}

const benches = new WeakMap();

export default function (component) {
  const parent = component.parentElement;
  const root = parent.querySelector(".bench");
  let bench = benches.get(parent);
  if (!bench || bench.root !== root) {
    bench?.close();
    bench = new Workbench(root);
    benches.set(parent, bench);
  }
  bench.receive(component);
  return () => { bench.close(); benches.delete(parent); };
}
