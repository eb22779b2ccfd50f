// Where a key is not meant for the page: fields, and while something lies over it. Which key an event is of. And the table
// of keys that `?` shows, in which a person gives keys other places. It stands in one module with the script of each
// component that listens for keys.

const TYPING = "input, textarea, select, [contenteditable=''], [contenteditable='true']";
const OVER = "[role='dialog'], [role='listbox'], [data-testid='stPopoverBody']";

const typing = (event) => {
  const target = event.composedPath()[0];
  return target instanceof Element && Boolean(target.closest(TYPING));
};

// The keys of a person, kept by this browser under their name: by the usual key the one that they press for it. Two keys
// change places, so that no key means two things. Everything but what is pressed and what is shown has the usual ones.
const KEYS_STORED = "cimemories.keys";
let person = "";
const ownKeys = () => ({ ...fromStorage(KEYS_STORED)?.[person] });
const ownKey = (usual) => ownKeys()[usual] ?? usual;
const usualKey = (pressed) => Object.entries(ownKeys()).find(([, own]) => own === pressed)?.[0] ?? pressed;
const storeKeys = (own) => toStorage(KEYS_STORED, { ...fromStorage(KEYS_STORED), [person]: own });

// The name of a usual key, which follows the person.
const keyCap = (usual) => {
  const cap = make("kbd", "", ownKey(usual));
  cap.dataset.usual = usual;
  return cap;
};
const showKeys = (element) => {
  for (const cap of element.getRootNode().querySelectorAll("kbd[data-usual]")) cap.textContent = ownKey(cap.dataset.usual);
};
const useKeysOf = (name, element) => {
  person = name;
  showKeys(element);
};

// The key of an event, as keyboards name it. By its place where the keyboard's layout has no Latin letters: in a Russian,
// Greek, Hebrew or Arabic one no key would do anything.
const keyOf = ({ key, code }) => {
  if (/^[A-Z]\w/.test(key)) return key; // it has a name: Escape, ArrowUp
  if (/^[\p{ASCII}\p{Script=Latin}]/u.test(key)) return key.toLowerCase();
  return key === "؟" ? "?" : /^(?:Key|Digit)(.)$/.exec(code)?.[1].toLowerCase() ?? key;
};

// The key of an event, as the tables of keys name it.
const pressedKey = (event) => usualKey(keyOf(event));

// The key of an event that is meant for the page; null where a person types, for a repeated one and with Ctrl, Alt or Cmd.
const pageKey = (event) => {
  const other = event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing;
  return other || typing(event) ? null : pressedKey(event);
};

// keys: [key or several, what it does] each.
const fillHelp = (box, keys) => {
  const lines = keys.map(([key, words]) => make("div", "", key.length > 1 || key === "?" ? make("kbd", "", key) : keyField(box, keys, key, words), ` ${words}`));
  const usual = make("button", "", "Usual keys");
  usual.type = "button";
  usual.hidden = !Object.keys(ownKeys()).length;
  usual.addEventListener("click", () => changeKeys(box, keys, {}));
  box.replaceChildren(...lines, make("div", "muted", "Click a key and press another one to change it. ", usual));
};

const changeKeys = (box, keys, own) => {
  storeKeys(own);
  showKeys(box);
  fillHelp(box, keys);
};

// A key that is changed by pressing the one that is to take its place.
const keyField = (box, keys, usual, words) => {
  const field = make("input", "own-key");
  field.value = ownKey(usual);
  field.setAttribute("aria-label", `Key: ${words}`);
  field.addEventListener("focus", () => field.select());
  field.addEventListener("keydown", (event) => {
    const pressed = keyOf(event);
    if (event.ctrlKey || event.metaKey || event.altKey || pressed.length > 1) return;
    event.preventDefault();
    event.stopPropagation();
    if ("? ".includes(pressed)) return;
    changeKeys(box, keys, { ...ownKeys(), [usualKey(pressed)]: ownKey(usual), [usual]: pressed });
  });
  return field;
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
