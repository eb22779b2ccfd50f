// One user's tasks, one by one, full screen, controlled by keys alone. It lives here, so that each press is answered at
// once and nothing waits for the server, which is told only when it begins and ends. A modal dialog covers the page
// wherever it is scrolled to; its inside goes full screen as soon as the browser allows it, which takes a click or a key.
// Text of the data is set as textContent, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const MOVE_MS = 480;
const STAY_MS = 2200; // of a task while it plays, and more for each thing it reveals
const READ_MS = 420;
const LONGEST_MS = 6500;
const SHOWN = 80; // things in the list: more than any screen holds
// Where the axis may end, and in how many parts it is then ruled.
const NICE = [[0.02, 4], [0.05, 5], [0.1, 5], [0.2, 4], [0.3, 3], [0.4, 4], [0.5, 5], [0.6, 3], [0.8, 4], [1, 5]];
const percent = (share) => `${(share * 100).toFixed(1)} %`;
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const touched = () => matchMedia("(pointer: coarse)").matches;

const draw = (name, attributes, text) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

class Presenter {
  constructor(root) {
    this.root = root;
    [this.dialog, this.stage] = [root.querySelector("dialog"), root.querySelector(".stage")];
    this.at = 0;
    this.place = 0; // where the curve is drawn to: follows `at`
    this.open = false;
    this.addressed = false; // whether the address has said that it is open
    this.onKey = (event) => this.key(event);
    this.onScreen = () => this.screen();
    root.querySelector(".start").addEventListener("click", () => this.begin(0));
    // A phone has no keys: a tap goes on, one at the left goes back, and a button closes.
    this.stage.addEventListener("click", ({ clientX }) => {
      this.play(false);
      this.go(this.at + (clientX < innerWidth / 3 ? -1 : 1));
    });
    if (touched()) {
      const close = make("button", "leave", "Close");
      close.addEventListener("click", (event) => { event.stopPropagation(); this.leave(); });
      root.querySelector(".foot").append(close);
    }
    this.dialog.addEventListener("cancel", (event) => { event.preventDefault(); this.leave(); });
    this.watch = new ResizeObserver(() => { if (this.open) this.frame(); });
    this.watch.observe(root.querySelector(".plot"));
  }

  receive({ data, setTriggerValue }) {
    const first = !this.data;
    this.data = data;
    this.send = (value) => setTriggerValue("moved", value);
    this.root.querySelector(".start").disabled = !data.slides.length;
    if (first && data.open !== null && data.slides.length) this.begin(data.open, true);
    else if (this.open && this.addressed && data.open === null) this.leave(true); // by Back
    else if (this.open) { this.at = Math.min(this.at, data.slides.length + 1); this.show(0); }
    this.addressed = this.open && data.open !== null;
  }

  close() {
    this.stop();
    this.watch.disconnect();
    this.listen(false);
    this.open = false;
    if (this.dialog.open) this.dialog.close();
  }

  listen(on) {
    const change = on ? "addEventListener" : "removeEventListener";
    window[change]("keydown", this.onKey, true);
    document[change]("fullscreenchange", this.onScreen);
  }

  begin(at, told = false) {
    this.open = true;
    this.full = false;
    this.at = Math.max(0, Math.min(at, this.data.slides.length + 1));
    this.place = Math.min(this.at, this.data.slides.length);
    this.dialog.setAttribute("aria-label", `Presentation: the tasks of ${this.data.user}`);
    if (!this.dialog.open) this.dialog.showModal();
    this.listen(true);
    this.stage.focus();
    this.show(0);
    this.widen();
    this.pushed = !told; // whether the address gets a step of the browser's history for it
    if (!told) this.send({ open: true });
  }

  // Full screen, where the browser allows it at this moment; without it the dialog covers the window.
  widen() {
    if (document.fullscreenElement || !navigator.userActivation?.isActive) return;
    this.stage.requestFullscreen?.().then(() => { this.full = true; }, () => {});
  }

  screen() {
    if (this.full && !document.fullscreenElement) this.leave();
  }

  leave(told = false) {
    if (!this.open) return;
    this.open = false;
    this.stop();
    this.listen(false);
    const back = () => {
      this.dialog.close();
      this.root.querySelector(".start").focus();
      if (told) return;
      // The way it came, so that no step for Back is left over.
      if (this.pushed && this.addressed) history.back();
      else this.send({ open: false });
    };
    // While the stage is full screen, nothing outside of it takes the focus.
    if (document.fullscreenElement) document.exitFullscreen().then(back, back);
    else back();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^F\d+$/.test(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const last = this.data.slides.length + 1; // the closing slide
    const keys = {
      ArrowRight: () => this.go(this.at + 1), ArrowDown: () => this.go(this.at + 1), PageDown: () => this.go(this.at + 1),
      ArrowLeft: () => this.go(this.at - 1), ArrowUp: () => this.go(this.at - 1), PageUp: () => this.go(this.at - 1),
      Home: () => this.go(0), End: () => this.go(last), Escape: () => this.leave(),
      " ": () => { if (!event.repeat) this.play(!this.playing); },
    };
    if (!(event.key in keys)) return;
    if (event.key !== " ") this.play(false);
    if (event.key !== "Escape") this.widen();
    keys[event.key]();
  }

  play(on) {
    clearTimeout(this.turn);
    this.playing = on;
    if (!on) return;
    if (this.at > this.data.slides.length) this.go(0);
    const next = () => {
      if (this.at > this.data.slides.length) { this.playing = false; return; }
      this.go(this.at + 1);
      const news = this.data.slides[this.at - 1]?.dropped.length ?? 0;
      this.turn = setTimeout(next, Math.min(STAY_MS + READ_MS * news, LONGEST_MS));
    };
    this.turn = setTimeout(next, this.at ? 0 : 500);
  }

  stop() {
    this.playing = false;
    clearTimeout(this.turn);
    cancelAnimationFrame(this.moving);
  }

  go(to) {
    const from = this.at;
    this.at = Math.max(0, Math.min(to, this.data.slides.length + 1));
    if (this.at !== from) this.show(this.at - from);
  }

  // step: by how many tasks it has moved; one forward lets things drop, everything else is there at once.
  show(step) {
    const { slides, user, attributes, messages, mark, run } = this.data;
    const slide = slides[this.at - 1];
    const closing = this.at > slides.length;
    const known = slides.slice(0, this.at).reduce((sum, item) => sum + item.dropped.length, 0);
    const text = (name, words) => { this.root.querySelector(`.${name}`).textContent = words; };
    const tasks = `${slides.length} task${slides.length === 1 ? "" : "s"}`;
    text("count", slide ? `${user} · task ${this.at} of ${slides.length}` : closing ? `After ${tasks}` : `${tasks}, one by one`);
    text("recipient", slide ? slide.recipient : user);
    const what = closing ? `The assistant has revealed ${known} of ${attributes} private attributes.`
      : `What an assistant that remembers ${attributes} private attributes reveals.`;
    text("task", slide ? slide.task : what);
    text("of", `${known} of ${attributes} private attributes revealed`);
    text("mark", mark);
    text("source", `${run} · ${messages} of each task`);
    text("keys", this.at ? "" : touched() ? "Tap for the next task" : "Space plays · ← → or Page up, Page down: one task · Esc exits");
    const news = slide ? slide.dropped.map((item) => item.name).join(", ") || this.none(slide) : "";
    text("unseen", slide ? `Task ${this.at}: ${slide.recipient}, ${slide.task}. New: ${news}. ${percent(slide.share)}` : `${user}. ${what}`);
    this.fill(step === 1);
    this.move(step === 1 || step === -1);
  }

  fill(dropping) {
    const list = this.root.querySelector(".list");
    const { slides, definitions, closing } = this.data;
    const groups = this.at ? [] : definitions.map(([term, text]) => {
      return make("div", "group said", make("b", "", term), `: ${text}`);
    });
    if (this.at > slides.length) groups.push(...closing.map((text) => make("div", "group said", text)));
    let room = SHOWN;
    for (let i = this.at > slides.length ? 0 : this.at; i > 0 && room > 0; i -= 1) {
      const slide = slides[i - 1];
      if (!slide.dropped.length && i !== this.at) continue;
      const group = make("div", i === this.at ? "group" : "group old");
      const counted = slide.dropped.length ? `${slide.dropped.length} new` : this.none(slide);
      group.append(make("div", "from", `Task ${i}, ${slide.recipient}: ${counted}`));
      slide.dropped.slice(0, room).forEach((item, n) => group.append(this.item(item, dropping && i === this.at, n)));
      room -= slide.dropped.length;
      groups.push(group);
    }
    list.replaceChildren(...groups);
  }

  // A task without a judged message is not a task without leaks, so it is not called "nothing new".
  none(slide) {
    return slide.judged ? "nothing new" : "no judged message";
  }

  item({ name, statement, revealed, quote }, dropping, n) {
    const item = make("div", dropping ? "item dropping" : "item");
    if (dropping) item.style.animationDelay = `${150 + n * 110}ms`;
    const said = quote ? make("div", "quote", `“${quote}”`) : null;
    const title = make("div", "name", name, make("span", "revealed", revealed));
    item.append(make("div", "glyph", "I"), make("div", "words", title, make("div", "statement", statement), said));
    return item;
  }

  move(smooth) {
    cancelAnimationFrame(this.moving);
    const [from, to, start] = [this.place, Math.min(this.at, this.data.slides.length), performance.now()];
    if (!smooth || still()) { this.place = to; this.frame(); return; }
    const step = (now) => {
      const part = Math.min(1, Math.max(0, (now - start) / MOVE_MS)); // a frame may have begun before `start`
      this.place = from + (to - from) * (1 - (1 - part) ** 3);
      this.frame();
      if (part < 1) this.moving = requestAnimationFrame(step);
    };
    this.moving = requestAnimationFrame(step);
  }

  // The plot, drawn anew up to `place`.
  frame() {
    const plot = this.root.querySelector(".plot");
    const { clientWidth: wide, clientHeight: high } = plot;
    if (!wide || !high) return;
    const size = parseFloat(getComputedStyle(this.stage).fontSize);
    const [left, below, right, above] = [size * 3.4, size * 2.6, size * 1.2, size * 2.2];
    const { slides } = this.data;
    const highest = Math.max(...slides.map((s) => Math.max(s.share, s.expected)), 0.01);
    const [top, ruled] = NICE.find(([n]) => n >= highest - 1e-9) ?? [1, 5];
    const x = (k) => left + (k / slides.length) * (wide - left - right);
    const y = (share) => high - below - (share / top) * (high - below - above);
    const parts = [];
    for (const tick of Array.from({ length: ruled + 1 }, (_, part) => (part / ruled) * top)) {
      parts.push(draw("line", { class: tick ? "grid" : "axis", x1: left, x2: wide - right, y1: y(tick), y2: y(tick) }));
      const words = `${+(tick * 100).toFixed(1)} %`;
      parts.push(draw("text", { class: "soft", x: left - size * 0.5, y: y(tick) + size * 0.28, "text-anchor": "end" }, words));
    }
    parts.push(draw("text", { class: "soft", x: 0, y: size * 0.9 }, "private attributes revealed"));
    const every = [1, 2, 5, 10, 20, 50, 100].find((n) => slides.length / n <= 10) ?? 200;
    for (let k = every; k <= slides.length; k += every) {
      parts.push(draw("text", { class: "soft", x: x(k), y: high - below + size * 1.2, "text-anchor": "middle" }, k));
    }
    parts.push(draw("text", { class: "soft", x: wide - right, y: high - size * 0.2, "text-anchor": "end" }, "tasks done"));
    const line = (name) => {
      const value = (k) => (k ? slides[k - 1][name] : 0);
      const whole = Math.floor(this.place);
      const points = Array.from({ length: whole + 1 }, (_, k) => [k, value(k)]);
      if (this.place > whole) {
        points.push([this.place, value(whole) + (value(whole + 1) - value(whole)) * (this.place - whole)]);
      }
      return points;
    };
    const path = (points) => `M${points.map(([k, share]) => `${x(k).toFixed(1)},${y(share).toFixed(1)}`).join("L")}`;
    const [mine, mean] = [line("share"), line("expected")];
    const [k, share] = mine.at(-1);
    parts.push(draw("path", { class: "under", d: `${path(mine)}L${x(k)},${y(0)}L${x(0)},${y(0)}Z` }));
    parts.push(draw("path", { class: "expected", d: path(mean) }));
    const [sample, level] = [wide - right - size * 10.5, y(0) - size * 0.9];
    parts.push(draw("path", { class: "expected", d: `M${sample - size * 2.6},${level}h${size * 2}` }));
    parts.push(draw("text", { class: "soft", x: sample, y: level + size * 0.28 }, "average over all orders"));
    parts.push(draw("path", { class: "curve", d: path(mine) }), draw("circle", { class: "dot", cx: x(k), cy: y(share), r: 9 }));
    plot.replaceChildren(...parts);
    this.root.querySelector(".share").textContent = percent(share);
  }
}

export default mounted(Presenter, ".presenter");
