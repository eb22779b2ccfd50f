// Colours strips of glyphs, one cell a context, and says on hovering a cell which context it is. The letters are on the
// page already; a gradient behind each strip costs the browser far less than an element for each cell.

const KINDS = {
  N: ["necessary", "#37C49B"],
  X: ["inappropriate", "#F08A45"],
  "?": ["ambiguous", "#F3C259"],
  "~": ["too few votes", "#C9B8D8"],
  "-": ["not labelled", "#AEB6BD"],
};
const RAW = ".ci-strip.ci-raw";

class Strips {
  constructor() {
    this.names = [];
    this.watcher = new MutationObserver(() => this.colour());
    this.watcher.observe(document.body, { childList: true, subtree: true });
    this.onMove = (event) => this.say(event);
    document.addEventListener("pointermove", this.onMove, { passive: true });
  }

  close() {
    this.watcher.disconnect();
    document.removeEventListener("pointermove", this.onMove);
  }

  receive({ data }) {
    this.names = data.names;
    this.colour();
  }

  colour() {
    for (const strip of document.querySelectorAll(`${RAW}:not([data-drawn])`)) {
      const glyphs = strip.textContent;
      const stops = [];
      for (let start = 0, end = 0; start < glyphs.length; start = end) {
        while (end < glyphs.length && glyphs[end] === glyphs[start]) end += 1;
        const [, colour] = KINDS[glyphs[start]] ?? KINDS["-"];
        const [from, to] = [start, end].map((at) => `${(100 * at) / glyphs.length}%`);
        stops.push(`${colour} ${from} ${to}`);
      }
      if (stops.length) strip.style.backgroundImage = `linear-gradient(90deg, ${stops.join(",")})`;
      strip.dataset.drawn = "yes";
    }
  }

  say(event) {
    const strip = event.target.closest?.(RAW);
    if (!strip) return;
    const glyphs = strip.textContent;
    const box = strip.getBoundingClientRect();
    const at = Math.min(glyphs.length - 1, Math.floor(((event.clientX - box.left) / box.width) * glyphs.length));
    const said = `${(KINDS[glyphs[at]] ?? KINDS["-"])[0]}: ${this.names[at] ?? ""}`;
    if (strip.title !== said) strip.title = said;
  }
}

const drawn = new WeakMap();

export default function (component) {
  const parent = component.parentElement;
  let strips = drawn.get(parent);
  if (!strips) {
    strips = new Strips();
    drawn.set(parent, strips);
  }
  strips.receive(component);
  return () => {
    strips.close();
    drawn.delete(parent);
  };
}
