"""What tests read a report with: its HTML as tables, headings, tags and addresses, by a parser and no pattern.

page = Page(as_html(report))
page.table("Numbers of test-model")["Violation@5"]   # ['100.0 %', ...]: the cells of a row, by its first cell
"""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.chips: list[str] = []  # captions of tables with the mark of what is simulated
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append((int(tag[1]), ""))
        elif tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        elif tag == "span" and ("class", "chip") in attrs and "caption" in self.open:
            self.chips.append(self.tables[-1][0].strip())

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            level, text = self.headings[-1]
            self.headings[-1] = level, text + data
        if "caption" in self.open and "span" not in self.open:
            self.tables[-1] = self.tables[-1][0] + data, self.tables[-1][1]
        elif ("td" in self.open or "th" in self.open) and "span" not in self.open:
            self.tables[-1][1][-1][-1] += data

    @property
    def text(self) -> str:
        """All words, one space between them."""
        return " ".join(" ".join(self.words).split())

    def values(self, name: str) -> list[str]:
        """All values of an attribute, of any tag."""
        return [value for _, attribute, value in self.attributes if attribute == name]

    def table(self, caption: str) -> dict[str, list[str]]:
        """The rows of the first table whose caption begins so, by their first cell; the head is a row too."""
        rows = next(rows for title, rows in self.tables if title.strip().startswith(caption))
        return {row[0].strip(): row[1:] for row in rows}
