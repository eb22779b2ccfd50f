// Whether the person has just followed a link to another page of the app. Until the server answers, Streamlit leaves the
// components of the old page in place, and what one of them sends then makes the server run a part of the old page after
// the new one: the browser takes that for a change back, and the page stays blank (Streamlit 1.67). So a component that
// sends of its own accord asks here first. It stands before the script of each such component, in one module with it.

const LEAVING_MS = 3000; // then the link has led nowhere else, and what waits is sent
let leftAt = -Infinity;

document.addEventListener("click", (event) => {
  const link = event.composedPath().find((element) => element instanceof HTMLAnchorElement && element.href);
  if (link?.origin === location.origin && !event.ctrlKey && !event.metaKey && !event.shiftKey) leftAt = performance.now();
}, true);
window.addEventListener("popstate", () => { leftAt = performance.now(); });

const leaving = () => performance.now() - leftAt < LEAVING_MS;
const arrived = () => { leftAt = -Infinity; };

