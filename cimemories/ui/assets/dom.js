// What every component stands on, in one module with its script. Texts of the data become text nodes, never markup.

// From the first to the last letter of words in a right-to-left script, as in text.py; what is isolated stays.
const RIGHT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]";
const RIGHT_BETWEEN = `(?:[ '"\\u20aa-]|(?<=${RIGHT})[,.;](?= )|[0-9]+(?:[.,/:][0-9]+)*(?= ))*`;
const RIGHT_WORDS = `${RIGHT}(?:${RIGHT_BETWEEN}${RIGHT})*`;
const RIGHT_TO_LEFT = new RegExp(`\u2068${RIGHT_WORDS}\u2069|(${RIGHT_WORDS})`, "g");
const asIsolate = (all, words) => (words ? `\u2068${words}\u2069` : all);
const isolated = (child) => (typeof child === "string" ? child.replace(RIGHT_TO_LEFT, asIsolate) : child);

// An element with these children, texts or elements; those that are null or undefined are left out. Words of a
// right-to-left script displace nothing beside them.
const make = (name, cls = "", ...children) => {
  const element = document.createElement(name);
  if (cls) element.className = cls;
  element.append(...children.filter((child) => child !== null && child !== undefined).map(isolated));
  return element;
};

// The same of text of the record, which has a direction of its own and is not to be translated with the page.
const own = (...parts) => {
  const element = make(...parts);
  [element.dir, element.translate] = ["auto", false];
  return element;
};

// An element whose text is of the data: in its own direction, and not for a browser to translate.
const ofData = (element) => {
  element.dir = "auto";
  element.translate = false;
  return element;
};

// What a component exports: one object of the class for each place where it is put in, made with the element that the
// query names there. It is given each message, and closed where the place or the element goes.
const mounted = (Class, query) => {
  const placed = new WeakMap();
  return (component) => {
    const parent = component.parentElement;
    const root = query ? parent.querySelector(query) : parent;
    let { root: before, one } = placed.get(parent) ?? {};
    if (!one || before !== root) {
      one?.close?.();
      one = new Class(root, parent);
      placed.set(parent, { root, one });
    }
    one.receive(component);
    return () => {
      one.close?.();
      placed.delete(parent);
    };
  };
};

// What is stored under a name, read as JSON; null where there is none, or storage is blocked.
const fromStorage = (name, of = "localStorage") => {
  try { return JSON.parse(window[of].getItem(name)); } catch { return null; }
};
// Whether storage has taken it.
const toStorage = (name, value, of = "localStorage") => {
  try {
    window[of].setItem(name, JSON.stringify(value));
    return true;
  } catch { return false; }
};

// A new uid, 32 hexadecimal digits. crypto.randomUUID is there on https and localhost only: at the address of a machine in
// a local network a queue that asked for it was dead.
const newUid = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
