"""The one way to show text that a model wrote or a file holds: escaped, in a few tags of ours, never as markdown.

Streamlit's markdown surfaces (markdown, write, metric, chat, toast, tooltips, most labels) fetch an image that a text
names, without a click. Here a page builds `Html` from tags of ours and plain strings, which are always escaped:

    show(tag("p", tag("b", profile.name), " is ", str(profile.age)))
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Literal, TypeVar

import streamlit as st

from cimemories.charts.theme import AMBIGUOUS as AMBIGUOUS
from cimemories.charts.theme import GLYPHS as GLYPHS
from cimemories.charts.theme import INAPPROPRIATE as INAPPROPRIATE
from cimemories.charts.theme import MODEL as MODEL
from cimemories.charts.theme import NECESSARY as NECESSARY
from cimemories.charts.theme import SIMULATED as SIMULATED
from cimemories.model import Label
from cimemories.text import CELL_LIMIT as CELL_LIMIT
from cimemories.text import LABEL_LIMIT, abbreviated, count, isolated, shortened
from cimemories.text import clip as clip
from cimemories.ui import ASSETS

Kind = Literal["leaked", "ambiguous", "conveyed"]
KINDS: tuple[Kind, ...] = ("leaked", "ambiguous", "conveyed")  # the first that covers a piece of text colours it
TAGS = frozenset(
    {
        *("b", "dd", "details", "div", "dl", "dt", "h2", "h3", "li", "mark", "p", "span", "summary"),
        *("table", "tbody", "td", "th", "thead", "tr", "ul"),
    }
)
Item = TypeVar("Item", bound=Hashable)
FOLD = 600  # characters of a text that are shown at once; the rest opens with a click
# Of any text at all: a browser lays out a hundred thousand characters in one word in 15 ms, and hangs over millions.
LONGEST = 100_000
_CLASS = re.compile(r"ci-[a-z-]+( ci-[a-z-]+)*")
# Characters of markup in markdown, anywhere or at the start of a line. No more: a field's label is also its name, and a
# screen reader reads the backslashes. Round brackets are harmless if square ones are escaped.
_PUNCTUATION = re.compile(r"([!$&*:<>@\[\\\]^_`{|}~])")
_START = re.compile(r"^(\s*(?:\d+(?=[.)]))?)([-+#=.)])")
_JOINER = "\N{WORD JOINER}"
_PERCENT = re.compile(r"(?<=\d) %")  # a line ends behind the percent sign, not before it


@dataclass(frozen=True)
class Html:
    """Markup that may be shown as it is. Only this module makes it."""

    source: str


@dataclass(frozen=True)
class Marked:
    """A stretch text[start:end] of a message and what it reveals; `note` is its tooltip. weak: it does not count, since
    it reveals in part or implies. confirmed: whether people who read the message say that it reveals it; None: not
    read."""

    start: int
    end: int
    kind: Kind
    note: str = ""
    weak: bool = False
    confirmed: bool | None = None


def escape(text: object, *, data: bool = False) -> str:
    """Return any text as markup that reads the same: one line, quotes escaped, characters that cannot be sent replaced,
    control characters visible; cut after LONGEST characters, with a note. data: it stands alone, in an element with a
    direction of its own; else words of it from right to left are isolated."""
    # Half of a surrogate pair cannot be sent. Line ends and tabs as references: st.html dedents its text, and would
    # change the lines of a message.
    clean = clip(text, LONGEST).encode("utf-8", "replace").decode("utf-8")
    return (
        html.escape(clean if data else isolated(clean), quote=True)
        .replace("\r", "&#13;")
        .replace("\n", "&#10;")
        .replace("\t", "&#9;")
    )


def folded(text: object, limit: int = FOLD) -> Html:
    """Return the text; the part of a long one beyond `limit` opens with a click."""
    full = str(text)
    if len(full) <= limit:
        return Html(escape(full))
    more = tag("span", f"… {len(full) - limit:,} more characters", cls="ci-more")
    return tag("details", tag("summary", full[:limit], more), full[limit:], cls="ci-fold")


def data(text: object) -> Html:
    """Return a text of the record as a part of a line: in a direction of its own, folded if it is long."""
    return tag("span", folded(text), data=True)


def tag(
    name: str, *parts: Html | str | int, cls: str = "", title: str = "", picture: str = "", data: bool = False
) -> Html:
    """Return one element. Strings in `parts` are escaped, Html is not. picture: what screen readers read instead of its
    content, which is cells or marks. data: it holds text of the record, which has a direction of its own and is not to
    be translated with the page. Raises ValueError for a tag or class not of ours."""
    # Checked although callers are ours: a name or class that came from data would be markup.
    if name not in TAGS or (cls and not _CLASS.fullmatch(cls)):
        raise ValueError(f"<{name} class='{cls}'> is not among the tags and classes that the app shows")
    attributes = f' class="{cls}"' if cls else ""
    attributes += ' dir="auto" translate="no"' * data
    if title:
        attributes += f' title="{escape(clip(title))}"'
    if picture:
        attributes += f' role="img" aria-label="{escape(clip(picture))}"'
    return Html(f"<{name}{attributes}>{join(parts, data=data).source}</{name}>")


def join(parts: Iterable[Html | str | int], *, data: bool = False) -> Html:
    """Join parts, strings escaped."""
    return Html("".join(part.source if isinstance(part, Html) else escape(part, data=data) for part in parts))


# Streamlit (1.67) takes all SVG out of st.html: a small picture is made of boxes.
def bar(parts: Iterable[tuple[str, float]]) -> Html:
    """Return shares as parts of one bar. parts: a class and a share, from the left."""
    spans = (f'<span class="ci-{cls}" style="flex: {share:.4f} 1 0"></span>' for cls, share in parts)
    return Html(f'<div class="ci-bar" aria-hidden="true">{"".join(spans)}</div>')


def curve(shares: Sequence[float]) -> Html:
    """Return a curve as the area under it. shares: at equal steps, at least two; the highest is at the top."""
    most, last = max(shares) or 1.0, len(shares) - 1
    points = (f"{100 * i / last:.1f}% {100 - 100 * share / most:.1f}%" for i, share in enumerate(shares))
    shape = f"polygon(0% 100%, {', '.join(points)}, 100% 100%)"
    return Html(f'<div class="ci-curve" aria-hidden="true"><span style="clip-path: {shape}"></span></div>')


def show(content: Html) -> None:
    """Draw markup that `tag` or `join` made."""
    if content.source:  # st.html raises for an empty text
        st.html(_PERCENT.sub("&nbsp;%", content.source))


def style() -> None:
    """Draw the app's classes, once a script run."""
    st.html(ASSETS / "style.css")


def message_html(text: str, spans: Sequence[Marked] = (), differing: Sequence[tuple[int, int]] = ()) -> Html:
    """Return a message with its marks, its differing stretches (in order) underlined. If marks overlap, the piece takes
    the colour of the gravest and its tooltip has the notes of all, those that count before weak ones of the same
    gravity; marks are cut to the text, empty ones left out. A text is cut after LONGEST characters, and a last line
    says so."""
    full, text = text, text[:LONGEST]
    marks = [s for s in spans if max(s.start, 0) < min(s.end, len(text))]
    # Every border of a mark cuts the text, so that within a piece the same marks hold from end to end.
    borders = {0, len(text), *(max(s.start, 0) for s in marks), *(min(s.end, len(text)) for s in marks)}
    cuts = sorted(borders | {at for stretch in differing for at in stretch if at < len(text)})

    def piece(start: int, end: int) -> Html:
        at = bisect_right(differing, start, key=itemgetter(0)) - 1
        shown = Html(escape(text[start:end], data=True))
        return tag("span", shown, cls="ci-differs") if at >= 0 and end <= differing[at][1] else shown

    pieces: list[Html | str] = []
    before: tuple[int, bool] | None = None
    for start, end in pairwise(cuts):
        here = [s for s in marks if s.start <= start and s.end >= end]
        if not here:
            pieces.append(piece(start, end))
            before = None
            continue
        looks = [(KINDS.index(s.kind), s.weak) for s in here]
        look = min(looks)
        shown = [s for s, other in zip(here, looks, strict=True) if other == look]
        # The glyph stands once, at the start of a mark, and not again where an overlapping one cuts it; people's
        # verdict stands at its end.
        opens = look != before or any(s.start == start for s in shown)
        verdicts = {s.confirmed for s in shown if s.end == end and s.confirmed is not None}
        before = look
        notes = "; ".join(dict.fromkeys(s.note or s.kind for s in here))
        cls = f"ci-{KINDS[look[0]]}" + " ci-weak" * look[1] + " ci-opens" * opens
        cls += (" ci-confirmed" if True in verdicts else " ci-denied") if verdicts else ""
        pieces.append(tag("mark", piece(start, end), cls=cls, title=notes))
    if len(full) > len(text):
        behind = sum(s.start >= len(text) for s in spans)
        marked = f", with {count(behind, 'marked quote')}" if behind else ""
        pieces.append(tag("div", f"… {len(full) - len(text):,} more characters{marked}", cls="ci-muted"))
    return tag("div", *pieces, cls="ci-message", data=True)


def message(
    text: str,
    spans: Sequence[Marked] = (),
    height: int | None = None,
    *,
    differing: Sequence[tuple[int, int]] = (),
) -> None:
    """Draw a message as it was written, lines kept, its spans and differing stretches marked; scrolls inside `height`
    pixels if given."""
    if height is None:
        show(message_html(text, spans, differing))
    else:
        with st.container(height=height, border=False):
            show(message_html(text, spans))


def document(text: str) -> Html:
    """Return a text that people wrote, with a little markup: lines that begin with # are headings, with - points,
    **text** is bold.

    Nothing else is read, so there is nothing in it that could fetch or run anything."""
    lines = []
    for line in text.splitlines():
        heading, point = line.startswith("#"), line.startswith("- ")
        content = line.lstrip("#").strip() if heading else line[2:] if point else line
        # Every second part between ** is bold.
        parts = [tag("b", part) if n % 2 else part for n, part in enumerate(content.split("**"))]
        name, cls = ("h3", "ci-heading") if heading else ("div", "ci-point" if point else "ci-line")
        if content:
            lines.append(tag(name, *parts, cls=cls))
        else:
            lines.append(tag("div", cls="ci-gap"))
    return tag("div", *lines, cls="ci-document")


def coded(text: str) -> Html:
    """Return a remark of ours, with commands in backticks set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one that belongs to nothing
        return Html(escape(text))
    return join(tag("span", part, cls="ci-code") if n % 2 else part for n, part in enumerate(parts))


def inline(text: object, *, muted: bool = False, strong: bool = False) -> None:
    """Draw one line of plain text."""
    line = folded(text)
    show(tag("div", tag("b", line) if strong else line, cls="ci-muted" if muted else "ci-line"))


def heading(text: object, *, data: bool = False) -> None:
    """Draw a heading inside a page. data: it is a text of the record alone, as for `tag`."""
    show(tag("h3", folded(text), cls="ci-heading", data=data))


def facts(pairs: Iterable[tuple[str, Html | str]]) -> Html:
    """Return names and values in two columns; long values are folded."""
    rows = [
        join([tag("dt", name), tag("dd", value if isinstance(value, Html) else folded(value))]) for name, value in pairs
    ]
    return tag("dl", *rows, cls="ci-facts")


def grid(
    titles: Sequence[str], rows: Iterable[Html], *, texts: Container[int] = (0,), hints: Mapping[str, str] | None = None
) -> Html:
    """Return a table of rows under these titles (none: no head), numbers at the right. texts: positions of the columns
    that hold none. hints: tooltips by title."""
    heads = [
        tag("th" if title else "td", title, cls="" if i in texts else "ci-number", title=(hints or {}).get(title, ""))
        for i, title in enumerate(titles)
    ]
    head = [tag("thead", tag("tr", *heads))] if heads else []
    return tag("table", *head, tag("tbody", *rows), cls="ci-grid")


def wide(content: Html, name: str) -> Html:
    """Return a table that may be wider than a phone: it scrolls by itself, by the keyboard too, and the page does
    not."""
    return Html(f'<div class="ci-wide" role="region" aria-label="{escape(name)}" tabindex="0">{content.source}</div>')


def number(value: Html | str, small: str = "", *, title: str = "") -> Html:
    """Return a cell of a `grid` with a number, and its details in smaller type below."""
    return tag("td", value, tag("div", small, cls="ci-muted") if small else "", cls="ci-number", title=title)


def lines(texts: Iterable[Html | str], cls: str = "ci-muted", *, box: str = "") -> Html:
    """Return texts one below the other. cls: of each; box: of the whole."""
    return tag("div", *(tag("div", text, cls=cls) for text in texts), cls=box)


def label_chip(label: Label | None) -> Html:
    """Return a label as glyph and word; None is 'not labelled'."""
    if label is None:
        return tag("span", "not labelled", cls="ci-chip ci-none")
    return tag("span", tag("b", GLYPHS[label]), f" {label}", cls=f"ci-chip ci-{label}")


def glyphed(label: Label | None) -> str:
    """Return a label as text for a table cell: 'I inappropriate'; an empty text for None."""
    return "" if label is None else f"{GLYPHS[label]} {label}"


def option(text: object, limit: int = LABEL_LIMIT) -> str:
    """Return text for an option of a selectbox, which shows it unparsed: one line, capped."""
    return isolated(shortened(text, limit))


def options(items: Iterable[Item], text: Callable[[Item], object], limit: int = LABEL_LIMIT) -> dict[Item, str]:
    """Return the text of each option: of its text what tells it from the others, followed by the item itself if several
    would show the same. Streamlit tells options apart by their texts, and would take the wrong one."""
    items = list(items)
    texts = abbreviated([text(item) for item in items], limit)
    shown = {item: isolated(line) for item, line in zip(items, texts, strict=True)}
    told: set[Item] = set()
    while len(set(shown.values())) < len(shown):
        number = Counter(shown.values())
        # Again if an extended text equals that of another item; each item only once.
        same = [item for item, value in shown.items() if number[value] > 1 and item not in told]
        for item in same:
            # The item goes behind the cut text, so that it is never cut itself.
            behind = f" ({item})"
            shown[item] = f"{option(text(item), max(limit - len(behind), 1))}{behind}"
        told.update(same)
        if not same:
            break
    return shown


def plain_label(text: object, limit: int = LABEL_LIMIT) -> str:
    """Return text for a label that Streamlit reads as markdown (buttons, pills, tabs, expanders): escaped, one line,
    capped.

    Escaping alone is not enough: emoji codes and bare addresses are looked for after escapes are resolved, so an
    invisible joiner breaks those up.
    """
    escaped = _START.sub(r"\1\\\2", _PUNCTUATION.sub(r"\\\1", option(text, limit)))
    escaped = re.sub(r"\\:(?=\S)", rf"\\:{_JOINER}", escaped).replace(r"\@", rf"{_JOINER}\@")
    return re.sub(r"(?i)\b(www)(?=\.)", rf"\1{_JOINER}", escaped)
