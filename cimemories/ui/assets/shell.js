const YEAR_SECONDS = 365 * 24 * 3600;
const FOCUS_MS = 100;
const ASKED = ".st-key-name input";

const sorted = (query) => {
  const params = new URLSearchParams(query);
  params.sort();
  return params.toString();
};

const remember = (cookie, name) => {
  const pair = `${cookie}=${encodeURIComponent(name)}`;
  if (!name || document.cookie.split("; ").includes(pair)) return;
  document.cookie = `${pair}; path=/; max-age=${YEAR_SECONDS}; samesite=strict`;
};

// Streamlit pushes each change of the query, so defaults come here instead. Only where the address is still the one that
// the server replaces, or the one written here last: a run that began before it was written knows the one before. The
// person may have gone elsewhere since.
let written = null;
const replace = (before, after) => {
  if (before === null || ![sorted(before), written].includes(sorted(location.search))) return;
  history.replaceState(history.state, "", location.pathname + (after ? `?${after}` : ""));
  written = sorted(after);
};

// Not away from where somebody types.
const focus = () => {
  const field = document.querySelector(ASKED);
  if (field && ["BODY", "A"].includes(document.activeElement?.tagName)) field.focus();
};

let last = null;

// The popover of the header is drawn when it is open, elsewhere in the document.
document.addEventListener("click", (event) => {
  if (!event.target.closest?.(".st-key-who button")) return;
  const end = performance.now() + 3000;
  const look = () => {
    const field = document.querySelector(".st-key-who-field input");
    if (field) field.focus();
    else if (performance.now() < end) setTimeout(look, FOCUS_MS);
  };
  look();
});

export default function ({ data }) {
  remember(data.cookie, data.name);
  const now = JSON.stringify([data.before, data.after]);
  if (now !== last) {
    last = now;
    replace(data.before, data.after);
  }
  if (!data.name) setTimeout(focus, FOCUS_MS);
}
