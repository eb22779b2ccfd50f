// The address of the view, read from the address bar while it is looked at: a part of the page that runs by itself
// changes it too, and the server draws the head of the page only when the whole page runs.

const LOOK_MS = 250;

export default function ({ parentElement }) {
  const shown = parentElement.querySelector("code");
  const button = parentElement.querySelector("button");
  const look = () => {
    if (shown.textContent === location.href) return;
    shown.textContent = location.href;
    button.textContent = "Copy";
  };
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      // Browsers give the clipboard to https and localhost alone; what is selected can be copied by hand.
      getSelection().selectAllChildren(shown);
      button.textContent = "Press Ctrl+C";
    }
  };
  look();
  button.addEventListener("click", copy);
  const timer = setInterval(look, LOOK_MS);
  return () => {
    clearInterval(timer);
    button.removeEventListener("click", copy);
  };
}
