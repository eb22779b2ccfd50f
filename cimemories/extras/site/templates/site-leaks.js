"use strict";
// The list is whole without this script, which hides what is not of the chosen run and domain or lacks the words.
const by = (id) => document.getElementById(id);

function show() {
  const [run, domain, words] = ["only-run", "only-domain", "search"].map((id) => by(id).value);
  const text = words.trim().toLowerCase(), every = [...by("list").children];
  for (const item of every) {
    item.hidden = Boolean((run && item.dataset.run !== run) || (domain && item.dataset.domain !== domain)
                          || (text && !item.textContent.toLowerCase().includes(text)));
  }
  by("shown").textContent = `${every.filter((item) => !item.hidden).length} of ${every.length} examples`;
}

by("filters").hidden = false;
by("filters").addEventListener("submit", (event) => event.preventDefault());
by("filters").addEventListener("input", show);
show();
