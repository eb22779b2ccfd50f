// Where a key is not meant for the page: fields, and while something lies over it. Which key an event is of. And the table
// of keys that `?` shows. It stands in one module with the script of each component that listens for keys.

const TYPING = "input, textarea, select, [contenteditable=''], [contenteditable='true']";
const OVER = "[role='dialog'], [role='listbox'], [data-testid='stPopoverBody']";

const typing = (event) => {
  const target = event.composedPath()[0];
  return target instanceof Element && Boolean(target.closest(TYPING));
};

// The key of an event, as the tables of keys name it. By its place where the keyboard's layout has no Latin letters: in a
// Russian, Greek, Hebrew or Arabic one no key would do anything.
const pressedKey = ({ key, code }) => {
  if (/^[A-Z]\w/.test(key)) return key; // it has a name: Escape, ArrowUp
  if (/^[\p{ASCII}\p{Script=Latin}]/u.test(key)) return key.toLowerCase();
  return key === "؟" ? "?" : /^(?:Key|Digit)(.)$/.exec(code)?.[1].toLowerCase() ?? key;
};

// keys: [key or several, what it does] each.
const fillHelp = (box, keys) => {
  box.replaceChildren(...keys.map(([key, words]) => {
    const line = document.createElement("div");
    const shown = document.createElement("kbd");
    shown.textContent = key;
    line.append(shown, ` ${words}`);
    return line;
  }));
};

// A table of keys over the page; Esc and a click elsewhere close it.
const toggleHelp = (box, keys) => {
  fillHelp(box, keys);
  box.togglePopover();
};
