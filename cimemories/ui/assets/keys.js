// Where a key is not meant for the page: fields, and while something lies over it. And the table of keys that `?` shows.
// It stands in one module with the script of each component that listens for keys.

const TYPING = "input, textarea, select, [contenteditable=''], [contenteditable='true']";
const OVER = "[role='dialog'], [role='listbox'], [data-testid='stPopoverBody']";

const typing = (event) => {
  const target = event.composedPath()[0];
  return target instanceof Element && Boolean(target.closest(TYPING));
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
