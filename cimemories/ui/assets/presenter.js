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
const WORST = 10; // tasks of the short cut
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
    this.short = false; // whether it stops at the worst tasks alone
    this.onKey = (event) => this.key(event);
    this.onScreen = () => this.screen();
    for (const button of root.querySelectorAll(".start")) {
      button.addEventListener("click", () => {
        this.short = button.classList.contains("worst");
        this.begin(0);
      });
    }
    // A phone has no keys: a tap goes on, one at the left goes back, and a button closes.
    this.stage.addEventListener("click", ({ clientX }) => {
      this.play(false);
      this.turn(clientX < innerWidth / 3 ? -1 : 1);
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
    const [every, worst] = this.root.querySelectorAll(".start");
    every.disabled = !data.slides.length;
    worst.hidden = data.slides.length <= WORST;
    worst.querySelector("span").textContent = `The ${WORST} worst`;
    worst.title = `Play only the ${WORST} tasks that newly tell most`;
    if (first && data.open !== null && data.slides.length) {
      this.short = data.worst;
      this.begin(data.open, true);
    } else if (this.open && this.addressed && data.open === null) this.leave(true); // by Back
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
    if (!told) this.send({ open: true, worst: this.short });
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
      else { this.address(null); this.send({ open: false }); }
    };
    // While the stage is full screen, nothing outside of it takes the focus.
    if (document.fullscreenElement) document.exitFullscreen().then(back, back);
    else back();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^F\d+$/.test(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const [on, back] = [() => this.turn(1), () => this.turn(-1)];
    const keys = {
      ArrowRight: on, ArrowDown: on, PageDown: on, ArrowLeft: back, ArrowUp: back, PageUp: back,
      Home: () => this.go(0), End: () => this.go(this.data.slides.length + 1), Escape: () => this.leave(),
      " ": () => { if (!event.repeat) this.play(!this.playing); },
    };
    if (!(event.key in keys)) return;
    if (event.key !== " ") this.play(false);
    if (event.key !== "Escape") this.widen();
    keys[event.key]();
  }

  play(on) {
    clearTimeout(this.timer);
    this.playing = on;
    if (!on) return;
    if (this.at > this.data.slides.length) this.go(0);
    const next = () => {
      if (this.at > this.data.slides.length) { this.playing = false; return; }
      this.turn(1);
      const news = this.data.slides[this.at - 1]?.dropped.length ?? 0;
      this.timer = setTimeout(next, Math.min(STAY_MS + READ_MS * news, LONGEST_MS));
    };
    this.timer = setTimeout(next, this.at ? 0 : 500);
  }

  stop() {
    this.playing = false;
    clearTimeout(this.timer);
    cancelAnimationFrame(this.moving);
  }

  // To the next stop, or the one before.
  turn(by) {
    const stops = this.stops();
    const next = by > 0 ? stops.find((stop) => stop > this.at) : stops.findLast((stop) => stop < this.at);
    if (next !== undefined) this.go(next);
  }

  // The story, the tasks from the first that tells something on (or the worst alone), and the closing slide.
  stops() {
    const { slides } = this.data;
    const numbers = slides.map((_, i) => i + 1);
    const news = (number) => slides[number - 1].dropped.length;
    const first = slides.findIndex((slide) => slide.dropped.length) + 1;
    const worst = [...numbers].sort((a, b) => news(b) - news(a)).slice(0, WORST).filter(news);
    return [0, ...numbers.filter((n) => (this.short ? worst.includes(n) : n >= first)), slides.length + 1];
  }

  go(to) {
    const from = this.at;
    this.at = Math.max(0, Math.min(to, this.data.slides.length + 1));
    if (this.at === from) return;
    this.show(this.at - from);
    this.address(this.at);
  }

  // So that a reload stays here. Not before the address has it at all, which is one step of the history.
  address(at) {
    const query = new URLSearchParams(location.search);
    if (!query.has("present")) return;
    if (at === null) for (const name of ["present", "stops"]) query.delete(name);
    else query.set("present", at);
    history.replaceState(history.state, "", `${location.pathname}?${query}`);
  }

  // step: by how many tasks it has moved; forward lets things drop, everything else is there at once.
  show(step) {
    const { slides, user, attributes, messages, mark, run } = this.data;
    const slide = slides[this.at - 1];
    const closing = this.at > slides.length;
    const known = slides.slice(0, this.at).reduce((sum, item) => sum + item.dropped.length, 0);
    const text = (name, words) => { this.root.querySelector(`.${name}`).textContent = words; };
    const tasks = `${slides.length} task${slides.length === 1 ? "" : "s"}`;
    text("count", slide ? `Task ${this.at} of ${slides.length}: the assistant writes to` : closing ? `After ${tasks}` : `${tasks}, one by one`);
    text("recipient", slide ? slide.recipient : user);
    const what = closing ? `The assistant has told ${known} of ${attributes} private facts.`
      : `An assistant remembers ${attributes} facts about this person that are private in some task.`;
    text("task", slide ? slide.task : what);
    text("of", `${known} of ${attributes} private facts told`);
    text("mark", mark);
    text("source", `${run} · ${messages} of each task`);
    text("keys", this.at ? "" : touched() ? "Tap for the next task" : "Space plays · ← → or Page up, Page down: one task · Esc exits");
    const news = slide ? slide.dropped.map((item) => item.name).join(", ") || this.none(slide) : "";
    text("unseen", slide ? `Task ${this.at}: ${slide.recipient}, ${slide.task}. New: ${news}. ${percent(slide.share)}` : `${user}. ${what}`);
    this.fill(step > 0);
    this.move(step !== 0);
  }

  fill(dropping) {
    const list = this.root.querySelector(".list");
    const { slides, story, definitions, closing } = this.data;
    const groups = this.at ? [] : story.map(([term, text]) => make("div", "group story", make("b", "", term), own("div", "words", text)));
    if (!this.at) {
      groups.push(make("div", "group meant", ...definitions.map(([term, text]) => make("div", "", make("b", "", term), `: ${text}`))));
    }
    if (this.at > slides.length) groups.push(...closing.map((text) => make("div", "group said", text)));
    let room = SHOWN;
    for (let i = this.at > slides.length ? 0 : this.at; i > 0 && room > 0; i -= 1) {
      const slide = slides[i - 1];
      if (!slide.dropped.length && i !== this.at) continue;
      const group = make("div", i === this.at ? "group" : "group old");
      const number = slide.dropped.length;
      const counted = number ? `${number} ${number === 1 ? "fact" : "facts"} told for the first time` : this.none(slide);
      group.append(make("div", "from", `Task ${i}, `, own("bdi", "", slide.recipient), `: ${counted}`));
      const told = Map.groupBy(slide.dropped.slice(0, room), (item) => item.quote);
      [...told].forEach(([quote, items], n) => group.append(this.leak(quote, items, dropping && i === this.at, n)));
      room -= slide.dropped.length;
      groups.push(group);
    }
    list.replaceChildren(...groups);
  }

  // A task without a judged message is not a task without leaks, so it is not called quiet.
  none(slide) {
    return slide.judged ? "nothing new is told" : "no judged message";
  }

  // What is remembered beside the sentence that tells it, which stands once however much it tells.
  leak(quote, items, dropping, n) {
    const leak = make("div", dropping ? "leak dropping" : "leak");
    if (dropping) leak.style.animationDelay = `${150 + n * 110}ms`;
    const known = items.map(({ name, statement, revealed }) => {
      // A memory that is told word for word stands in the sentence.
      const same = quote.includes(statement.replace(/[.!?]$/, ""));
      const how = make("span", "revealed", [same ? "word for word" : "", revealed].filter(Boolean).join(", in "));
      return make("div", "item", own("div", same ? "statement same" : "statement", statement), make("div", "name", own("bdi", "", name), how));
    });
    // Quotes come once the server knows that it is open.
    const none = this.data.open === null ? "" : "told without a quote";
    leak.append(make("div", "memories", ...known), quote ? own("div", "quote", quote) : make("div", "unquoted", none));
    return leak;
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
    parts.push(draw("text", { class: "soft", x: 0, y: size * 0.9 }, "share of the private facts told"));
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
