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

// The key of an event that is meant for the page; null where a person types, for a repeated one and with Ctrl, Alt or Cmd.
const pageKey = (event) => {
  const other = event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing;
  return other || typing(event) ? null : pressedKey(event);
};

// keys: [key or several, what it does] each.
const fillHelp = (box, keys) => {
  box.replaceChildren(...keys.map(([key, words]) => make("div", "", make("kbd", "", key), ` ${words}`)));
};

// Whether a key was for the table of keys over the page: `?` opens it, any key closes it and does nothing else, since it
// lies over what the key would be for. Esc and a click elsewhere close it too.
const askedHelp = (pressed, box, keys) => {
  const open = box.matches(":popover-open");
  if (open) box.hidePopover();
  else if (pressed === "?") openHelp(box, keys);
  return open || pressed === "?";
};
const openHelp = (box, keys) => {
  fillHelp(box, keys);
  box.showPopover();
};
