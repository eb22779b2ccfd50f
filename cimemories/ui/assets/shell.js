const FOCUS_MS = 100;
const ASKED = ".st-key-name input";

const sorted = (query) => {
  const params = new URLSearchParams(query);
  params.sort();
  return params.toString();
};

// Streamlit pushes each change of the query, so defaults come here instead. Only where the address is still the one that
// the server replaces, or what was last written here for that one: a run that began before it was written knows the one
// before. The person may have gone elsewhere since: to another page, whose address has no query yet as this one's had, or
// by Back to a view whose defaults were written here too.
let replaced = null;
let written = null;
const replace = (path, before, after) => {
  if (before === null || location.pathname.replace(/\/$/, "") !== path) return;
  const now = sorted(location.search);
  if (now !== sorted(before) && !(now === written && replaced === sorted(before))) return;
  history.replaceState(history.state, "", location.pathname + (after ? `?${after}` : ""));
  replaced = sorted(before);
  written = sorted(after);
};

// st.switch_page sends the query before the page, and Streamlit (1.67) pushes both: a step of the history that has the old
// page with the new one's query. The page takes its place, unless the user has pressed something since.
if (!document.documentElement.dataset.pushes) {
  document.documentElement.dataset.pushes = "one a page";
  const push = history.pushState.bind(history);
  let changed = null; // the address whose query was pushed last
  history.pushState = (state, unused, url) => {
    const { pathname, search } = new URL(url ?? "", location.href);
    const stays = pathname === location.pathname;
    if (!stays && changed === location.href && search === location.search) history.replaceState(state, unused, url);
    else push(state, unused, url);
    changed = stays ? location.href : null;
  };
  // A screen reader clicks without a key or a pointer.
  for (const press of ["keydown", "pointerdown", "click"]) document.addEventListener(press, () => (changed = null), true);
}

let last = null;
let tops = null; // as of the first run of a document: it begins at the top

// Gives a field the focus as soon as it is there, and again where drawing takes it away, until a key or the pointer is
// pressed or the same field has been there for LOOK_MS: within three looks of it from what `away` is true of, later only
// where nothing has it.
const LOOK_MS = 10000;
const looking = new Set();

const focus = (query, away) => {
  if (looking.has(query)) return;
  looking.add(query);
  const pressed = new AbortController(); // with Esc, say, before the field was there
  for (const press of ["keydown", "pointerdown"])
    document.addEventListener(press, () => pressed.abort(), { capture: true, signal: pressed.signal });
  let field = null;
  let end = performance.now() + LOOK_MS;
  let held = 0;
  const look = () => {
    const drawn = document.querySelector(query);
    if (drawn !== field) [field, end, held] = [drawn, performance.now() + LOOK_MS, 0];
    if (pressed.signal.aborted || performance.now() > end) {
      pressed.abort();
      looking.delete(query);
      return;
    }
    if (field && document.activeElement === field) held += 1;
    else if (field && (held < 3 ? away(document.activeElement) : document.activeElement === document.body)) field.focus();
    setTimeout(look, FOCUS_MS);
  };
  look();
};

// The popover of the header is drawn when it is open, elsewhere in the document. Its field gets the focus from what opens
// it, and again where the popover takes it away, until a key is pressed.
const OWN = ".st-key-who-field input";
const greet = () => focus(OWN, () => true);
document.addEventListener("click", (event) => event.target.closest?.(".st-key-who button") && greet());
// Whoever was faster than this file: it comes after the page is drawn.
if (document.querySelector(`${OWN}, .st-key-who button[aria-expanded='true']`)) greet();

// A field sends what was typed by a timer that starts when the focus leaves it; a link sends at once. Where the link is
// first, the server takes the field's message for the way back (Streamlit 1.67), and the person stays. A finger takes the
// focus away at the very click, and on a busy machine a click comes before a timer that is due. So the click on a link
// waits for two timers in a row: the field's lies between them.
const FIELD = "input, textarea";
const afterTimers = (act) => setTimeout(() => setTimeout(act));
let sending = false;
const fieldLeft = (event) => {
  if (!event.target.matches?.(FIELD)) return;
  sending = true;
  afterTimers(() => (sending = false));
};
const waitForField = (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (document.activeElement?.matches(FIELD)) document.activeElement.blur();
  if (!sending) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  afterTimers(() => link.click());
};
if (!document.documentElement.dataset.fields) {
  document.documentElement.dataset.fields = "left";
  document.addEventListener("focusout", fieldLeft, true);
  document.addEventListener("click", waitForField, true);
}

// A table that gets the focus chooses its first cell, and a chosen row opens: who passes by with Tab would land on another
// page. So a table hears of a focus that came by Tab with the first key that is meant for it.
const TABLE = "[data-testid='data-grid-canvas']";
const MEANT = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Enter", " ", "Home", "End", "PageUp", "PageDown"];
const CHOSEN = "td[aria-selected='true']";
const FIRST_CELL = [8, 52]; // of the table, in pixels: below the titles
const WAKE_MS = 10000; // a busy machine takes seconds; it ends before where the focus moves on
let tabbed = false;
let passed = null;

// Streamlit leaves out what the keyboard chooses while it takes the pointer to be elsewhere on the page, and learns
// where it is some time after the event: so this repeats until a cell is chosen.
const wake = (table, end) => {
  if (document.activeElement !== table || table.querySelector(CHOSEN) || performance.now() > end) return;
  const { left, top } = table.getBoundingClientRect();
  const there = { bubbles: true, clientX: left + FIRST_CELL[0], clientY: top + FIRST_CELL[1] };
  table.dispatchEvent(new PointerEvent("pointermove", there));
  table.blur();
  table.focus();
  setTimeout(() => wake(table, end), FOCUS_MS);
};

const tables = () => {
  document.addEventListener("pointerdown", () => (tabbed = false), true);
  document.addEventListener(
    "focusin",
    (event) => {
      passed = tabbed && event.target.matches?.(TABLE) ? event.target : null;
      if (passed) event.stopPropagation();
    },
    true,
  );
  document.addEventListener(
    "keydown",
    (event) => {
      tabbed = event.key === "Tab";
      if (!passed || event.target !== passed) return;
      if (tabbed) event.stopPropagation(); // on to what comes next, and not to the table's next cell
      if (!MEANT.includes(event.key)) return;
      event.preventDefault(); // the page stays where it is
      event.stopPropagation();
      passed = null;
      wake(event.target, performance.now() + WAKE_MS);
    },
    true,
  );
};

// Once a document: Streamlit may load this file again.
if (!document.documentElement.dataset.tables) {
  document.documentElement.dataset.tables = "passed";
  tables();
}

// A login or log-out in another tab ends this one's session too: the server would go on with who it was. Not in the tab
// that is on its way out: a reload would keep it from the provider's own log-out.
const CHANGED_MS = 2000;
const OUT_MS = 30000;
const logins = () => [...document.cookie.matchAll(/(?:^|; )cimemories_login=([^;]*)/g)].map(([, value]) => value);
if (!document.documentElement.dataset.login) {
  document.documentElement.dataset.login = "watched";
  const began = String(logins());
  // The session may have begun before this file was there, and the log-out have come between.
  const changed = () => {
    const session = document.documentElement.dataset.sessionLogin;
    return String(logins()) !== began || (session && !logins().includes(session));
  };
  let out = -Infinity;
  document.addEventListener(
    "click",
    (event) => event.target.closest?.("[data-testid='stSidebar'] button") && (out = performance.now()),
    true,
  );
  const look = () => changed() && performance.now() - out > OUT_MS && location.reload();
  setInterval(look, CHANGED_MS);
  document.addEventListener("visibilitychange", look);
}

// The server has gone away. Streamlit says so in a dialog of its own, which names a command that is not this app's, lies
// over the page and takes its keys. It is closed as soon as it is there, Streamlit then opens none until the next time, and
// this line stands in its place.
const AWAY = "This app's server does not answer: it was stopped, or the connection is lost. If you started the app, start it "
  + "again with the same command; otherwise tell the person who did. This page then continues by itself. Decisions that you "
  + "make meanwhile are kept, and saved then.";
const AWAY_MS = 1000; // a shorter break heals by itself
const connected = () => (document.querySelector(".stApp")?.dataset.testConnectionState ?? "CONNECTED") === "CONNECTED";
if (!document.documentElement.dataset.away) {
  document.documentElement.dataset.away = "watched";
  let since = null;
  const line = document.createElement("div");
  line.className = "ci-away";
  line.setAttribute("role", "alert");
  setInterval(() => {
    since = connected() ? null : since ?? performance.now();
    const away = since !== null && performance.now() - since > AWAY_MS;
    line.textContent = away ? AWAY : "";
    if (away) document.body.append(line);
    else line.remove();
  }, 250);
  new MutationObserver((changes) => {
    if (connected()) return; // a dialog of the app
    for (const dialog of changes.flatMap(({ addedNodes }) => [...addedNodes])) {
      const close = dialog.querySelector?.("[data-testid='stDialog'] [aria-label='Close']");
      if (dialog.textContent.startsWith("Connection error")) close?.click();
    }
  }).observe(document.body, { childList: true });
}

// Where the server drew for another width than the screen has, it hears so and draws again.
const SCREENS = [["phone", 640], ["tablet", 1000], ["narrow", 1200], ["laptop", 1400]]; // up to so many pixels
const widths = SCREENS.map(([name, most]) => [name, matchMedia(`(max-width: ${most}px)`)]);
let measure = () => {};
for (const [, width] of widths) width.addEventListener("change", () => measure());

export default function ({ data, setStateValue }) {
  measure = () => {
    const screen = widths.find(([, width]) => width.matches)?.[0] ?? "wide";
    if (screen === data.screen) return;
    // For the first run of the next session, a reload say.
    document.cookie = `cimemories_screen=${screen}; path=/; max-age=31536000; samesite=lax`;
    setStateValue("screen", screen);
  };
  measure();
  document.documentElement.dataset.sessionLogin ??= data.login ?? "";
  // Once: the same data come again while another page is opened, whose address they are not of.
  const now = JSON.stringify([data.path, data.before, data.after, data.steps]);
  if (now !== last) {
    last = now;
    replace(data.path, data.before, data.after);
  }
  if (tops !== null && data.tops > tops) document.querySelector("[data-testid='stMain']")?.scrollTo(0, 0);
  tops = data.tops;
  // Not away from where somebody types.
  if (!data.named) focus(ASKED, (element) => !element || ["BODY", "A"].includes(element.tagName));
}
