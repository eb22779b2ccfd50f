// What is seen of the queue: the card, the keys, and what stands beside it. desk.js, which stands behind this file in one
// module, has the work. Text of the data is set as textContent, never as markup.

const LAST = 10; // answers that are listed
const ABOVE = "b?"; // keys whose buttons stand above the card
let detailed = false; // whether the details of a card are open

class DrawnQueue {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`.${name}`);
  }

  allKeys() {
    const keys = this.data.keys.map((item) => [item.key, item.label, `${item.glyph} ${item.label}`, item.colour]);
    return [...keys, ...this.data.causes.map(([key, , label, words]) => [key, label, words, ""]), ...this.data.actions];
  }

  buttons() {
    const bar = this.part("keys");
    const signature = JSON.stringify([this.data.keys, this.data.causes, this.data.actions]);
    if (bar.dataset.signature !== signature) {
      bar.dataset.signature = signature;
      const [above, below] = [true, false].map((up) => this.allKeys().filter(([key]) => ABOVE.includes(key) === up));
      const buttons = below.filter(([key]) => key !== "e").map((item) => this.button(item));
      // Label, cause and what else there is in lines of their own.
      const { keys, causes } = this.data;
      if (causes.length) {
        buttons.splice(keys.length + causes.length, 0, make("span", "turn"));
        buttons.splice(keys.length, 0, make("span", "turn"));
      }
      bar.replaceChildren(...buttons);
      this.part("above").replaceChildren(...above.map((item) => this.button(item)));
    }
    this.root.querySelector("[data-key=b]").setAttribute("aria-pressed", String(this.blind));
  }

  button([key, label, words, colour]) {
    const button = make("button", colour ? "main" : "", keyCap(key), label);
    button.type = "button";
    button.title = words;
    button.dataset.key = key;
    if (colour) button.style.borderColor = colour;
    button.addEventListener("click", () => { this.act(key); button.blur(); });
    return button;
  }

  marks(rows) {
    const table = make("table", "votes");
    for (const [name, prior, letters] of rows) {
      const drawn = /^[NIU-]+$/.test(letters) ? [...letters].map((letter) => make("span", `mark ${letter === "-" ? "missing" : letter}`, letter)) : [letters];
      table.insertRow().append(make("td", "", name), make("td", "prior", prior), make("td", "", ...drawn));
    }
    return table;
  }

  // What people answered before, side by side.
  given(answers) {
    return make("div", "given", ...answers.map(([who, says, how, reason]) => {
      const key = this.data.keys.find((item) => item.says === says);
      const said = make("b", "", `${who}: ${key?.glyph ?? ""} ${key?.label ?? says}`);
      const one = make("div", "one", said, make("div", "muted", how), reason ? make("div", "", reason) : null);
      if (key) one.style.borderLeftColor = key.colour;
      return one;
    }));
  }

  // Which half of an answer is chosen already.
  chosen() {
    const keys = [...this.data.keys.map((item) => [item.key, item.says === this.choice.says]),
      ...this.data.causes.map(([key, cause]) => [key, cause === this.choice.cause])];
    for (const [key, pressed] of keys) this.part("keys").querySelector(`[data-key="${key}"]`).setAttribute("aria-pressed", String(pressed));
  }

  answered(answer) {
    const key = this.data.keys.find((item) => item.says === answer.says);
    if (answer.kind === "say") return `${key?.glyph ?? ""} ${key?.label ?? answer.says}${answer.cause ? `, ${answer.cause}` : ""}`;
    return answer.kind === "flag" ? "flagged" : "skipped";
  }

  // What stands on the card between two batches.
  end() {
    const button = make("button", "main next");
    button.type = "button";
    button.append("Next batch", make("kbd", "", "Enter"));
    button.addEventListener("click", () => this.nextBatch());
    const done = `Batch done: ${this.batch.done.toLocaleString("en")} decided`;
    const summary = this.summary ?? ["Saving …"];
    return [make("div", "over", done), ...summary.map((text) => make("div", "", text)), button];
  }

  // After an answer of training: the known one, and why.
  feedback([says, why], answer) {
    const { glyph, label, means, colour } = this.data.keys.find((key) => key.says === says);
    const button = make("button", "main next", "Next", make("kbd", "", "Enter"));
    button.type = "button";
    button.addEventListener("click", () => this.proceed());
    const isRight = answer.says === says;
    const known = `${isRight ? "Right" : "Not right"}: ${glyph} ${label}`;
    const said = isRight ? "" : `. You: ${this.answered(answer)}`;
    const box = make("div", "one", make("b", "", known), said, make("div", "", `${means} ${why}`));
    box.style.borderLeftColor = colour;
    return make("div", "given", box, button);
  }

  draw() {
    const card = this.over ? undefined : this.card;
    const box = this.part("card");
    const isNew = box.dataset.card !== (card?.id ?? ""); // not at each message of the page
    if (isNew) {
      this.shownAt = performance.now();
      const reason = card && this.data.causes.length && this.reasons.get(pairOf(card.id));
      this.choice = reason ? { reason } : {};
    }
    const context = this.data.context ? [make("div", "context", this.data.context)] : [];
    if (this.over) {
      // Its button has the focus, or Enter would press what had it before: a link that was followed, say.
      const old = box.querySelector(".next");
      const focused = !old || old === this.root.getRootNode().activeElement;
      box.replaceChildren(...this.end());
      if (focused) box.querySelector(".next").focus({ preventScroll: true });
    } else if (!card) {
      const coming = this.log.events.length || this.reply.cards.some(({ id }) => !this.answers.has(id));
      const more = this.left > 0 && this.cards.length && coming ? "Loading more …" : this.data.empty;
      const words = this.log.gone || (this.heardAt ? more : "Loading …");
      box.replaceChildren(...context, make("div", "muted", words));
    } else {
      const answer = this.answers.get(card.id);
      const said = answer && make("div", "said", `You: ${this.answered(answer)}`);
      const parts = this.learned ? [this.feedback(card.known, answer)] : answer ? [said] : context;
      const words = card.question.map(([text, kind]) => (kind ? ofData(make("bdi", kind, text)) : text));
      if (words.length) parts.push(make("div", "question", ...words));
      parts.push(ofData(make("div", "title", card.title)));
      if (card.warning) parts.push(make("div", "warning", card.warning));
      if (card.given.length) parts.push(this.given(card.given));
      if (this.choice.reason) parts.push(make("div", "muted", `Reason: ${this.choice.reason}`));
      const seen = !this.blind || answer;
      const text = card.text.map(([piece, kind]) => (kind && seen ? make("mark", "", piece) : piece));
      if (text.length) parts.push(ofData(make("div", "text", ...text)));
      if (card.hidden.length) parts.push(seen ? this.marks(card.hidden) : make("div", "muted", this.data.hiding));
      if (card.note) parts.push(make("div", "muted", card.note));
      box.replaceChildren(...parts, this.more(card));
    }
    box.classList.toggle("long", this.cards.some(({ text }) => text.length));
    if (isNew) box.scrollTop = 0; // a long message was read to its end, and the next one has to begin at its first line
    box.dataset.card = card?.id ?? "";
    if (this.data.causes.length) this.chosen();
    this.drawLast();
    this.drawAnswers();
    this.beside();
    this.changed();
    if (isNew && card) this.reveal();
    if (isNew) this.follow();
  }

  // What few need of a card: pages about it, and names of the data.
  more({ facts, links }) {
    const details = make("details", "", make("summary", "", "Details"));
    details.append(make("dl", "", ...facts.flatMap(([name, text]) => [make("dt", "", name), ofData(make("dd", "", text))])));
    details.open = detailed;
    details.addEventListener("toggle", () => { detailed = details.open; });
    const shown = links.map(([text, address]) => {
      const link = ofData(make("a", "", text));
      link.href = new URL(address, document.baseURI).href;
      link.target = "_blank";
      return link;
    });
    return make("div", "more", ...shown, facts.length ? details : null);
  }

  // In a low window, at 200 % or on a phone on its side, the keys would lie over what is asked about. And a person who
  // jumps from the end of the list has scrolled past it.
  reveal() {
    const title = this.part("card").querySelector(".title").getBoundingClientRect();
    const covered = Math.min(title.bottom, title.top + 70) > this.part("dock").getBoundingClientRect().top;
    if (covered || title.top < 0) this.root.scrollIntoView();
  }

  // The item answered last. In blind mode, this is where its votes are shown.
  drawLast() {
    const last = this.part("last");
    const answer = this.previous && this.answers.get(this.previous.id);
    if (!answer || this.previous === this.card) { last.replaceChildren(); return; }
    const spread = this.data.actions.find(([key]) => key === "e");
    last.replaceChildren(
      make("span", "muted", "Last:"), make("b", "", this.answered(answer)), ofData(make("span", "what", this.previous.title)),
      ...(spread ? [this.button(spread)] : []),
      ...(this.previous.hidden.length ? [this.marks(this.previous.hidden)] : []),
    );
  }

  // The answers to jump back to, those that the server can send again or that are here.
  drawAnswers() {
    const may = [...this.remembered()].filter(([id, { title }]) => title && (this.known.has(id) || this.data.address.length));
    this.part("answers").hidden = !may.length;
    this.part("list").replaceChildren(...may.slice(-LAST).reverse().map(([id, answer]) => {
      const glyph = this.data.keys.find(({ says }) => says === answer.says)?.glyph;
      const button = make("button", "", make("b", "", glyph ?? this.answered(answer)), ofData(make("span", "what", answer.title)));
      button.type = "button";
      button.disabled = this.over;
      button.addEventListener("click", () => this.jump(id));
      return button;
    }));
  }

  status() {
    const { done, total } = this.reply;
    const unsaved = this.log.events.filter((event) => event.kind === "say").length;
    const now = Math.min(total, done + unsaved);
    const [of, so] = this.data.batch ? [Math.min(this.data.batch, this.batch.done + total - now), this.batch.done] : [total, now];
    const left = this.timeLeft(of - so);
    const what = this.data.batch ? `Batch of ${of.toLocaleString("en")}: ${so.toLocaleString("en")} done`
      : `${so.toLocaleString("en")} of ${of.toLocaleString("en")} done`;
    this.part("progress").textContent = !this.heardAt ? "" : left ? `${what}, ${left}` : what;
    this.part("size").hidden = !this.data.batch || !this.heardAt;
    this.part("filled").style.width = of ? `${(100 * so) / of}%` : "0";
    const saved = this.part("saved");
    const why = this.data.causes.length ? "the item has changed" : "the item is gone";
    const lost = this.refused.size ? `${this.refused.size} discarded: ${why}` : this.heardAt ? "all saved" : "";
    saved.textContent = this.log.words || lost;
    saved.classList.toggle("waiting", Boolean(this.log.words) || this.refused.size > 0);
  }

  timeLeft(answers) {
    const { seconds } = this.batch;
    if (seconds.length < 3 || answers <= 0) return "";
    const minutes = Math.round((answers * seconds.reduce((sum, one) => sum + one, 0)) / seconds.length / 60);
    if (minutes < 1) return "under a minute";
    return minutes === 1 ? "about a minute" : `about ${minutes.toLocaleString("en")} minutes`;
  }

  // ---- beside the card

  // What stands there as long as the queue is this one.
  rail() {
    const signature = JSON.stringify([this.data.keys, this.data.folds]);
    if (this.part("rail").dataset.signature === signature) return;
    this.part("rail").dataset.signature = signature;
    this.part("means").replaceChildren(...this.data.keys.filter(({ means }) => means).map(({ glyph, label, colour, means }) => {
      const chip = make("b", "chip", `${glyph} ${label}`);
      chip.style.borderColor = colour;
      return make("div", "", chip, make("div", "muted", means));
    }));
    this.part("folds").replaceChildren(...this.data.folds.map(([name, title]) => {
      const fold = make("details", name, make("summary", "", title), make("div", "inside"));
      fold.open = opened.has(name);
      fold.addEventListener("toggle", () => {
        opened[fold.open ? "add" : "delete"](name);
        this.beside();
        if (fold.open) this.flush();
      });
      return fold;
    }));
  }

  // What the last reply says of the card on the screen.
  beside() {
    this.part("aside").replaceChildren(...(this.reply.aside ?? []).map((text) => make("div", "", text)));
    const current = this.heardAt && (this.card?.id ?? null) === this.reported;
    for (const name of opened) {
      const inside = this.root.querySelector(`.folds .${name} .inside`);
      if (!inside) continue;
      const said = current ? this.reply[name] : undefined;
      const nothing = name === "history" && !this.blind ? "No answers or comments yet." : "";
      if (said === undefined) inside.replaceChildren(make("div", "muted", this.card ? "Loading …" : ""));
      else if (!said) inside.replaceChildren(make("div", "muted", name === "memory" ? "" : "Shows after your answer: press k to go back to it. Press b to see it now."));
      else if (!said.length) inside.replaceChildren(make("div", "muted", nothing || "No answers or comments yet."));
      else if (name === "memory") inside.replaceChildren(...said.map(([text, asked]) => ofData(make(asked ? "b" : "div", "line", text))));
      else inside.replaceChildren(this.entries(said));
    }
  }

  entries(rows) {
    return make("div", "", ...rows.map(([when, who, what, how]) => {
      return make("div", "entry", make("b", "", what), ` ${who}`, make("div", "muted", [when, how].filter(Boolean).join(", ")));
    }));
  }
}
