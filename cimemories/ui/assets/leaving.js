// Whether the person has just followed a link to another page of the app. Until the server answers, Streamlit leaves the
// components of the old page in place, and what one of them sends then names the old page: sent within some milliseconds
// of the click, it takes the person back there (Streamlit 1.67). Of a fragment the server ignores it (ui/server.py); of a
// whole page it cannot tell it from a link. So a component that sends of its own accord asks here first. It stands
// before the script of each such component, in one module with it.

// Then the link has led nowhere else, and what waits is sent. As long as that, since a busy server may take many seconds
// to answer, and nothing is lost by waiting: what is not sent is kept, and counted on screen.
const LEAVING_MS = 30000;
let leftAt = -Infinity;
let leftFrom = ""; // the path of the page that is being left
// The path of the page that the person is on or was led to last, by whichever page's components: a component of one page
// must know from which other page Back leads to it.
let here = location.pathname;

// The page is not left for a download, another tab, or a link to itself.
const leads = (link) => link?.origin === location.origin && link.pathname !== location.pathname
  && !link.hasAttribute("download") && link.target !== "_blank";

const leave = (from) => {
  leftAt = performance.now();
  leftFrom = from;
};

document.addEventListener("click", (event) => {
  const link = event.composedPath().find((element) => element instanceof HTMLAnchorElement && element.href);
  if (!leads(link) || event.ctrlKey || event.metaKey || event.shiftKey) return;
  leave(location.pathname);
  here = link.pathname;
}, true);
// The address has changed already when this comes.
window.addEventListener("popstate", () => {
  if (location.pathname === here) return;
  leave(here);
  here = location.pathname;
});

const leaving = () => performance.now() - leftAt < LEAVING_MS;
// A component has been put in. The old page may still put one in anew while it is being left: then it is left still.
const arrived = () => {
  here = location.pathname;
  if (here !== leftFrom) leftAt = -Infinity;
};
