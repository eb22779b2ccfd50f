// Colours strips of glyphs, one cell a context, puts a bar below cells that people decided, and says on hovering a cell
// which context it is. The letters are on the page already; a gradient behind each strip costs the browser far less than
// an element for each cell.

const KINDS = {
  N: ["necessary", "#37C49B"],
  I: ["inappropriate", "#F08A45"],
  U: ["ambiguous", "#F3C259"],
  "~": ["too few votes", "#C9B8D8"],
  "-": ["not labelled", "#AEB6BD"],
};
const PEOPLE = "niu"; // as the server marks what people decided
const BAR = "#111";
const RAW = ".ci-strip.ci-raw";

// A gradient over the cells, by a colour for each run of equal ones.
const gradient = (cells, colourOf) => {
  const stops = [];
  for (let start = 0, end = 0; start < cells.length; start = end) {
    while (end < cells.length && cells[end] === cells[start]) end += 1;
    const [from, to] = [start, end].map((at) => `${(100 * at) / cells.length}%`);
    stops.push(`${colourOf(cells[start])} ${from} ${to}`);
  }
  return `linear-gradient(90deg, ${stops.join(",")})`;
};

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
      const marked = [...strip.textContent];
      const glyphs = marked.map((glyph) => glyph.toUpperCase());
      const bits = marked.map((glyph) => (PEOPLE.includes(glyph) ? "1" : "0"));
      if (glyphs.length) {
        const ground = gradient(glyphs, (glyph) => (KINDS[glyph] ?? KINDS["-"])[1]);
        const bar = gradient(bits, (bit) => (bit === "1" ? BAR : "transparent"));
        strip.style.background = bits.includes("1") ? `${bar} left bottom 1px / 100% 2px no-repeat, ${ground}` : ground;
      }
      strip.textContent = glyphs.join("");
      strip.dataset.people = bits.join("");
      strip.dataset.drawn = "yes";
    }
  }

  say(event) {
    const strip = event.target.closest?.(RAW);
    if (!strip) return;
    const glyphs = strip.textContent;
    const box = strip.getBoundingClientRect();
    const at = Math.min(glyphs.length - 1, Math.floor(((event.clientX - box.left) / box.width) * glyphs.length));
    const by = strip.dataset.people?.[at] === "1" ? ", decided by a person" : "";
    const said = `${(KINDS[glyphs[at]] ?? KINDS["-"])[0]}${by}: ${this.names[at] ?? ""}`;
    if (strip.title !== said) strip.title = said;
  }
}

export default mounted(Strips);
