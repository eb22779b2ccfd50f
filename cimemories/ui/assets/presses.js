// Keys that the page answers. A press goes into a log here, in the browser; the page is sent all of the log that it has
// not confirmed, and confirms by sequence number, so that fast presses are neither lost nor taken twice.

const RETRY_MS = 3000;
const TAB = newUid(); // of this opening of the page: sequence numbers begin anew with it
let sequence = 0; // they go on where the component is put up anew, or the server would take them for old ones
let sends = 0;

class Presses {
  constructor(root) {
    this.root = root;
    this.log = [];
    this.sentAt = 0;
    this.table = root.parentElement.querySelector(".table-of-keys");
    arrived();
    this.onKey = (event) => this.key(event);
    window.addEventListener("keydown", this.onKey);
    this.retry = setInterval(() => {
      if (this.log.length && !leaving() && performance.now() - this.sentAt > RETRY_MS) this.flush();
    }, 1000);
  }

  close() {
    clearInterval(this.retry);
    window.removeEventListener("keydown", this.onKey);
  }

  receive({ data, setStateValue }) {
    this.send = (value) => setStateValue("log", value);
    useKeysOf(data.person, this.root);
    this.keys = new Set(data.keys.map(({ key }) => key));
    this.help = [...data.keys.map(({ key, words }) => [key, words]), data.help];
    if (data.tab === TAB) this.log = this.log.filter((press) => press.seq > data.acked);
    const ask = make("button", "", "?");
    ask.type = "button";
    ask.title = "Keys (?)";
    ask.setAttribute("aria-label", "Keys");
    ask.addEventListener("click", () => openHelp(this.table, this.help));
    this.root.replaceChildren(...data.keys.flatMap(({ key, label }) => [keyCap(key), label]), ask);
  }

  key(event) {
    const target = event.composedPath()[0];
    const pressed = pageKey(event);
    if (event.defaultPrevented || (target instanceof Element && target.closest("[role='dialog'] *"))) return;
    if (!(this.keys?.has(pressed) || pressed === "?") || !this.root.isConnected) return;
    event.preventDefault();
    if (askedHelp(pressed, this.table, this.help)) return;
    this.log.push({ seq: ++sequence, key: pressed });
    this.flush();
  }

  flush() {
    this.sentAt = performance.now();
    this.send({ tab: TAB, sent: ++sends, presses: [...this.log] });
  }
}

export default mounted(Presses, ".presses");
