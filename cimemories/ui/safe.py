"""The one way to show text that a model wrote or a file brought: escaped, in our own few tags, never as markdown.

Streamlit's markdown surfaces (markdown, write, metric, chat, toast, tooltips, most labels) fetch an image that a text
names, without a click. Here a page builds `Html` from tags of ours and plain strings, which are always escaped:

    show(tag("p", tag("b", profile.name), " is ", str(profile.age)))
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import streamlit as st

from cimemories.model import Label
from cimemories.texts import visible
from cimemories.ui.style import STYLE

Kind = Literal["leaked", "ambiguous", "conveyed"]
KINDS: tuple[Kind, ...] = ("leaked", "ambiguous", "conveyed")  # the first that covers a piece of text colours it
TAGS = frozenset(
    [
        "b",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "h2",
        "h3",
        "li",
        "mark",
        "p",
        "span",
        "summary",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]
)
GLYPHS = {Label.NECESSARY: "N", Label.INAPPROPRIATE: "X", Label.AMBIGUOUS: "?"}
LABEL_LIMIT = 90
FOLD = 600  # characters of a text that stand there at once; the rest opens with a click
CELL_LIMIT = 2_000  # of a cell of a table, a card of the workbench, a hint
# Of any text at all: a browser lays out a hundred thousand characters in one word in 15 ms, and hangs over millions.
LONGEST = 100_000
_CLASS = re.compile(r"ci-[a-z-]+( ci-[a-z-]+)*")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_JOINER = "\N{WORD JOINER}"


@dataclass(frozen=True)
class Html:
    """Markup that may be shown as it is. Only `tag`, `join` and `message_html` make it."""

    source: str


@dataclass(frozen=True)
class Marked:
    """A stretch text[start:end] of a message and what happened there; `note` is shown on hover."""

    start: int
    end: int
    kind: Kind
    note: str = ""


def escape(text: object) -> str:
    """Any text as markup that reads the same: one line, quotes escaped, characters that cannot be sent replaced, those
    that control visible; cut, saying so, where it is longer than anything that is to be read."""
    clean = clip(text, LONGEST).encode("utf-8", "replace").decode("utf-8")
    return html.escape(clean, quote=True).replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")


def clip(text: object, limit: int = CELL_LIMIT) -> str:
    """The text, cut after so many characters with a word on how many more there are, and with its control characters
    visible: an override of the writing direction would show a text as another."""
    whole = visible(str(text))
    return whole if len(whole) <= limit else f"{whole[:limit]}… ({len(whole) - limit:,} more characters)"


def folded(text: object, limit: int = FOLD) -> Html:
    """The text; the part of a long one beyond `limit` opens with a click."""
    whole = str(text)
    if len(whole) <= limit:
        return Html(escape(whole))
    more = tag("span", f"… {len(whole) - limit:,} more characters", cls="ci-more")
    return tag("details", tag("summary", whole[:limit], more), whole[limit:], cls="ci-fold")


def tag(name: str, *parts: Html | str | int, cls: str = "", title: str = "") -> Html:
    """One element. Strings in `parts` are escaped, Html is kept. Raises ValueError for a tag or class not of ours."""
    if name not in TAGS or (cls and not _CLASS.fullmatch(cls)):
        raise ValueError(f"<{name} class='{cls}'> is none of the tags and classes that the app shows")
    attributes = f' class="{cls}"' if cls else ""
    if title:
        attributes += f' title="{escape(clip(title))}"'
    return Html(f"<{name}{attributes}>{join(parts).source}</{name}>")


def join(parts: Iterable[Html | str | int]) -> Html:
    """Parts in a row, strings escaped."""
    return Html("".join(part.source if isinstance(part, Html) else escape(part) for part in parts))


def show(content: Html) -> None:
    """Draw what `tag` made."""
    if content.source:
        st.html(content.source)


def style() -> None:
    """Our classes, once a script run."""
    st.html(f"<style>{STYLE}</style>")


def message_html(text: str, spans: Sequence[Marked] = ()) -> Html:
    """A message with its marks. Where marks overlap, the piece takes the colour of the gravest and says all of them;
    marks that lie outside the text are cut to it, empty ones are left out. Of a text that is longer than anything that
    is to be read the end is left out, which a last line says."""
    whole, text = text, text[:LONGEST]
    kept = [s for s in spans if max(s.start, 0) < min(s.end, len(text))]
    cuts = sorted({0, len(text), *(max(s.start, 0) for s in kept), *(min(s.end, len(text)) for s in kept)})
    pieces: list[Html | str] = []
    before: Kind | None = None
    for start, end in pairwise(cuts):
        here = [s for s in kept if s.start <= start and s.end >= end]
        if not here:
            pieces.append(text[start:end])
            before = None
            continue
        kind = next(k for k in KINDS if any(s.kind == k for s in here))
        opens = kind != before or any(s.kind == kind and s.start == start for s in here)
        before = kind
        notes = "; ".join(dict.fromkeys(s.note or s.kind for s in here))
        cls = f"ci-{kind} ci-opens" if opens else f"ci-{kind}"
        pieces.append(tag("mark", text[start:end], cls=cls, title=notes))
    if len(whole) > len(text):
        pieces.append(tag("div", f"… {len(whole) - len(text):,} more characters", cls="ci-muted"))
    return tag("div", *pieces, cls="ci-message")


def message(text: str, spans: Sequence[Marked] = (), height: int | None = None) -> None:
    """A message as it was written, lines kept, its spans marked; scrolls inside `height` pixels where given."""
    if height is None:
        show(message_html(text, spans))
    else:
        with st.container(height=height, border=False):
            show(message_html(text, spans))


def document(text: str) -> Html:
    """A text of people's own with a little shape: lines that begin with # are headings, with - points, **words** bold.

    Nothing else is read, so there is nothing in it that could fetch or run anything."""
    lines = []
    for line in text.splitlines():
        heading, point = line.startswith("#"), line.startswith("- ")
        words = line.lstrip("#").strip() if heading else line[2:] if point else line
        parts = [tag("b", part) if n % 2 else part for n, part in enumerate(words.split("**"))]
        name, cls = ("h3", "ci-heading") if heading else ("div", "ci-point" if point else "ci-line")
        if words:
            lines.append(tag(name, *parts, cls=cls))
        else:
            lines.append(tag("div", cls="ci-gap"))
    return tag("div", *lines, cls="ci-document")


def inline(text: object, *, muted: bool = False, strong: bool = False) -> None:
    """One line of plain text."""
    line = folded(text)
    show(tag("div", tag("b", line) if strong else line, cls="ci-muted" if muted else "ci-line"))


def heading(text: object) -> None:
    """A heading inside a page whose words are data."""
    show(tag("h3", folded(text), cls="ci-heading"))


def facts(pairs: Iterable[tuple[str, Html | str]]) -> Html:
    """Names and values in two columns; long values are folded."""
    rows = [
        join([tag("dt", name), tag("dd", value if isinstance(value, Html) else folded(value))]) for name, value in pairs
    ]
    return tag("dl", *rows, cls="ci-facts")


def label_chip(label: Label | None) -> Html:
    """A label as glyph and word; None is 'not labelled'."""
    if label is None:
        return tag("span", "not labelled", cls="ci-chip ci-none")
    return tag("span", tag("b", GLYPHS[label]), f" {label}", cls=f"ci-chip ci-{label}")


def glyphed(label: Label | None) -> str:
    """A label as text for a table cell: 'X inappropriate'; an empty text for None."""
    return "" if label is None else f"{GLYPHS[label]} {label}"


def option(text: object, limit: int = LABEL_LIMIT) -> str:
    """Text for an option of a selectbox, which shows it as it is: one line, capped."""
    line = visible(" ".join(str(text).encode("utf-8", "replace").decode("utf-8").split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plain_label(text: object, limit: int = LABEL_LIMIT) -> str:
    """Text for a label that Streamlit reads as markdown (buttons, pills, tabs, expanders): escaped, one line, capped.

    Escaping alone is not enough: emoji codes and bare addresses are looked for after escapes are resolved, so an
    invisible joiner breaks those up.
    """
    escaped = _PUNCTUATION.sub(r"\\\1", option(text, limit))
    escaped = re.sub(r"\\:(?=\S)", rf"\\:{_JOINER}", escaped).replace(r"\@", rf"{_JOINER}\@")
    return re.sub(r"(?i)\b(www)(?=\\\.)", rf"\1{_JOINER}", escaped)
