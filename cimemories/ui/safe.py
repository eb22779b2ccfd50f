"""The one way to show text that a model wrote or a file holds: escaped, in a few tags of ours, never as markdown.

Streamlit's markdown surfaces (markdown, write, metric, chat, toast, tooltips, most labels) fetch an image that a text
names, without a click. Here a page builds `Html` from tags of ours and plain strings, which are always escaped:

    show(tag("p", tag("b", profile.name), " is ", str(profile.age)))
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from cimemories.text import LABEL_LIMIT, shortened
from cimemories.text import clip as clip

# ---- style

# Each colour has one meaning, and always comes with a glyph or a word. Text takes the theme's own colour and tints are
# translucent: the same rules serve the light and the dark theme.
#
# Of Streamlit's own elements: a table's toolbar would cover the column titles; Plotly's text in one grey, by which our
# charts mean "the theme's colour", follows the theme; a drawer stays at the bottom of the window; a column with a
# component of ours stays in sight while the page scrolls, and so does what the last action came to; on a phone what
# is chosen from comes first; such a component is not greyed out while a run is under way,
# since people work on in it; white text stands on a blue that is dark enough for it in either theme, captions are as
# readable as our own muted lines, and small buttons are 24 pixels wide (WCAG 2.2: 1.4.3, 2.5.8).
STYLE = f"""
[data-testid="stMainBlockContainer"] {{ padding: 3.75rem 2.5rem 4rem; }}
[data-testid="stElementToolbar"] {{ top: 2px !important; opacity: 0; }}
[data-testid="stFullScreenFrame"]:hover [data-testid="stElementToolbar"] {{ opacity: 1; }}
.st-key-who {{ position: fixed; top: .5rem; right: 3.75rem; width: auto !important; z-index: 999991; }}
.st-key-who button {{ white-space: nowrap; }}
/* What shows that a page is at work would lie under the name. */
[data-testid="stStatusWidget"] {{ position: fixed; top: .75rem; left: 50%; }}
@media (max-width: 40rem) {{ [data-testid="stStatusWidget"] {{ left: 20%; }} }}
.st-key-shell, .st-key-remember {{ position: absolute; height: 0; overflow: hidden; }}
.stPlotlyChart text[style*="fill: rgb(127, 128, 129)"] {{ fill: currentColor !important; }}
/* Plotly puts a white edge around the names of a flow, in the dark too. */
.stPlotlyChart .sankey text {{ text-shadow: none !important; }}
/* Without a pointer that hovers, a chart's buttons are always there: over its title, were they not below it. */
@media (hover: none) {{
  [data-testid="stElementContainer"]:has(.stPlotlyChart) {{ margin-bottom: 14px; }}
  [data-testid="stElementContainer"]:has(.stPlotlyChart), .js-plotly-plot {{ overflow: visible !important; }}
  .stPlotlyChart .modebar-container {{ top: 100% !important; }}
}}
.stApp [data-testid^="stBaseButton-primary"]:enabled, .stMultiSelect [data-tag] {{ background: {MODEL}; }}
.stApp [data-testid^="stBaseButton-primary"]:enabled:hover {{ background: #005A8D; }}
.stMultiSelect button {{ min-width: 24px; min-height: 24px; }}
.stButtonGroup [data-selected] {{ background: rgba(0,114,178,.1) !important; }}
/* As high as the lists beside it, so that their labels are in one line. */
:is(.st-key-scope, .st-key-scope_grid) .stButtonGroup button {{ min-height: 2.4rem; }}
[data-testid="stPageLink-NavLink"] p {{ white-space: normal; }}
/* It would scroll, and the last of the choices would be out of sight. */
.stButtonGroup > :is([role="radiogroup"], [role="toolbar"]) {{ flex-wrap: wrap; row-gap: 4px; }}
.ci-head h2 {{ font-size: 1.55rem; font-weight: 650; margin: 0; padding: 0; display: inline; letter-spacing: -0.01em; }}
.ci-head p {{ margin: 0.25rem 0 0; font-size: 1rem; opacity: 0.8; max-width: 110ch; }}
.ci-line {{ line-height: 1.5; overflow-wrap: anywhere; }}
.ci-muted {{ opacity: 0.72; font-size: 0.875rem; line-height: 1.45; overflow-wrap: anywhere; }}
.ci-muted :is(.ci-muted, .ci-chip) {{ opacity: 1; }}
.stApp [data-testid="stCaptionContainer"] {{ color: inherit; opacity: 0.72; }}
.ci-heading {{ font-size: 1.1rem; font-weight: 650; margin: 0; padding: 0.25rem 0; overflow-wrap: anywhere; }}
.ci-fold summary {{ cursor: pointer; list-style: none; }}
.ci-fold summary::-webkit-details-marker {{ display: none; }}
.ci-fold[open] .ci-more {{ display: none; }}
.ci-more {{ color: {MODEL}; font-size: .8125rem; font-weight: 400; margin-left: 4px; white-space: nowrap; }}
.ci-message {{ white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.65; font-size: 1rem; max-width: 78ch;
  padding: 12px 16px; border: 1px solid rgba(128,128,128,.28); border-radius: 6px; }}
mark[class^="ci-"] {{ color: inherit; background: none; padding: 1px 1px; border-radius: 2px; }}
mark.ci-leaked {{ background: rgba(213,94,0,.24); border-bottom: 2px solid {INAPPROPRIATE}; }}
mark.ci-conveyed {{ background: rgba(0,158,115,.22); border-bottom: 2px solid {NECESSARY}; }}
mark.ci-ambiguous {{ background: rgba(230,159,0,.24); border-bottom: 2px dashed {AMBIGUOUS}; }}
mark.ci-opens::before {{ font-size: .7em; font-weight: 700; line-height: 1; margin-right: 3px; padding: 1px 4px;
  border-radius: 3px; color: #111; vertical-align: 1px; }}
mark.ci-weak {{ border-bottom-style: dotted; background: repeating-linear-gradient(135deg,
  var(--ci-hatch) 0 2px, transparent 2px 7px); }}
mark.ci-leaked {{ --ci-hatch: rgba(213,94,0,.3); }}
mark.ci-conveyed {{ --ci-hatch: rgba(0,158,115,.3); }}
mark.ci-ambiguous {{ --ci-hatch: rgba(230,159,0,.36); }}
mark.ci-weak.ci-opens.ci-opens::before {{ background: transparent; color: inherit; outline: 1px dashed; }}
mark.ci-confirmed::after, mark.ci-denied::after {{ content: "\\2713"; font-size: .7em; font-weight: 700; line-height: 1;
  margin-left: 3px; padding: 0 3px; border: 1px solid; border-radius: 50%; vertical-align: 1px; }}
mark.ci-denied::after {{ content: "\\2715"; }}
mark.ci-leaked.ci-opens::before {{ content: "X"; background: #F08A45; }}
mark.ci-conveyed.ci-opens::before {{ content: "N"; background: #37C49B; }}
mark.ci-ambiguous.ci-opens::before {{ content: "?"; background: {AMBIGUOUS}; }}
.ci-chip {{ display: inline-block; font-size: .8125rem; line-height: 1.3; padding: 1px 8px; border-radius: 4px;
  border: 1px solid rgba(128,128,128,.5); white-space: nowrap; }}
.ci-chip.ci-necessary {{ background: rgba(0,158,115,.18); border-color: {NECESSARY}; }}
.ci-chip.ci-inappropriate {{ background: rgba(213,94,0,.18); border-color: {INAPPROPRIATE}; }}
.ci-chip.ci-ambiguous {{ background: rgba(230,159,0,.18); border-color: {AMBIGUOUS}; }}
.ci-chip.ci-none {{ border-style: dashed; }}
.ci-chip.ci-simulated {{ background: {SIMULATED}; border-color: {SIMULATED}; color: #fff; font-weight: 600; }}
.ci-head .ci-chip {{ margin-left: 12px; vertical-align: 5px; }}
.ci-notice, .ci-error, .ci-empty {{ padding: 10px 14px; border-radius: 6px; line-height: 1.5; overflow-wrap: anywhere;
  border: 1px solid rgba(128,128,128,.3); border-left: 4px solid rgba(128,128,128,.8); }}
.ci-away {{ position: fixed; inset: 0 0 auto; z-index: 1000001; padding: 12px 20px; text-align: center;
  line-height: 1.5; color: #1C2329; background: #F3C259; }}
.ci-ok {{ border-left-color: {NECESSARY}; }}
.ci-error {{ border-left-color: {INAPPROPRIATE}; }}
.ci-error b, .ci-empty b {{ display: block; }}
.ci-empty {{ border-left-color: {MODEL}; padding: 16px 20px; max-width: 78ch; }}
dl.ci-facts {{ padding: 0 !important; }}
.ci-facts {{ display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; font-size: .9375rem; }}
.ci-facts dt {{ opacity: .7; font-weight: 400; }}
.ci-facts dd {{ margin: 0; overflow-wrap: anywhere; }}
.ci-wide {{ overflow-x: auto; }}
.ci-wide .ci-grid :is(th, td) {{ overflow-wrap: normal; }}
.ci-wide .ci-grid :is(th, td) {{ min-width: 2rem; }}
.ci-wide .ci-grid :is(th, td):first-child {{ min-width: 6.5rem; overflow-wrap: anywhere; }}
.ci-wide .ci-grid td:last-child:not(.ci-number) {{ min-width: 12rem; }}
.ci-wide:focus-visible, .stDataFrame:has(canvas:focus-visible) {{ outline: 2px solid {MODEL}; }}
.ci-grid {{ border-collapse: collapse; width: 100%; font-size: .9375rem; }}
.ci-grid th {{ text-align: left; font-weight: 600; font-size: .8125rem; opacity: .75; }}
.ci-grid th, .ci-grid td {{ padding: 4px 12px 4px 0; border: 0; border-bottom: 1px solid rgba(128,128,128,.22);
  vertical-align: top; overflow-wrap: anywhere; }}
.ci-grid tr.ci-chosen td {{ background: rgba(0,114,178,.16); }}
.ci-grid td.ci-key {{ width: 22%; }}
.ci-grid td.ci-value {{ width: 20%; }}
.ci-grid td.ci-event {{ width: 15%; opacity: .75; }}
.ci-number, .ci-grid th.ci-number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.ci-grid td.ci-number {{ white-space: nowrap; }}
.ci-votes {{ font-size: .875rem; }}
.ci-votes td {{ padding: 2px 8px 2px 0; border: 0; white-space: nowrap; }}
.ci-votes td:last-child {{ white-space: normal; width: 172px; padding-right: 0; }}
.ci-mark {{ display: inline-block; width: 16px; height: 20px; line-height: 20px; margin-right: 1px; text-align: center;
  border-radius: 3px; font-size: .75rem; font-weight: 700; color: #111; }}
.ci-mark.ci-necessary {{ background: #37C49B; }}
.ci-mark.ci-inappropriate {{ background: #F08A45; }}
.ci-mark.ci-abstain {{ background: #F3C259; }}
.ci-mark.ci-missing {{ color: inherit; border: 1px dashed rgba(128,128,128,.8); line-height: 18px; }}
[data-testid="stColumn"]:has(> div > div .stBidiComponent) {{ position: sticky; top: 3.75rem; align-self: start; }}
@media (max-width: 1150px) {{
  .st-key-desk [data-testid="stHorizontalBlock"] {{ flex-direction: column; }}
  .st-key-desk [data-testid="stColumn"] {{ width: 100%; flex: none; position: static; }}
}}
[data-testid="stLayoutWrapper"]:has(> .st-key-drawer) {{ position: sticky; bottom: 0; z-index: 2; }}
.st-key-drawer {{ background: light-dark(#fff, #15191d); max-height: 50vh; overflow-y: auto; gap: .5rem;
  box-shadow: 0 -4px 16px rgba(0,0,0,.14); }}
.st-key-pair {{ gap: .6rem; }}
.st-key-pair .ci-heading {{ padding-top: .4rem; }}
.ci-lines > div {{ margin-top: 4px; }}
.ci-document {{ max-width: 78ch; line-height: 1.55; }}
.ci-point {{ padding-left: 1.4em; position: relative; }}
.ci-point::before {{ content: "–"; position: absolute; left: .4em; }}
.ci-code {{ font-family: "Source Code Pro", monospace; font-size: .9em; }}
.ci-gap {{ height: .6em; }}
@media (max-width: 1279px) {{
  [data-testid="stColumn"]:has(.st-key-beside_panel) {{ display: none; }}
  [data-testid="stColumn"]:has(.st-key-panel) {{ flex: 1 1 100%; width: 100%; }}
}}
.ci-legend {{ line-height: 2; font-size: .875rem; }}
[data-testid="stLayoutWrapper"]:has(> [class*="st-key-outcome-"]) {{ position: sticky; top: 3.75rem; z-index: 3; }}
[class*="st-key-outcome-"] .ci-notice {{ background: light-dark(#fff, #15191d);
  box-shadow: 0 4px 16px rgba(0,0,0,.14); }}
@media (min-width: 641px) and (max-width: 1400px) {{
  .st-key-leaks_bar [data-testid="stHorizontalBlock"] {{ flex-wrap: wrap; gap: .5rem; }}
  .st-key-leaks_bar [data-testid="stColumn"] {{ flex: 0 0 auto; width: auto; min-width: max-content; }}
  .st-key-leaks_bar [data-testid="stColumn"]:nth-child(2) {{ flex: 1 1 12rem; min-width: 12rem; }}
}}
@media (min-width: 641px) and (max-width: 1200px) {{
  [class*="st-key-amounts"] [data-testid="stHorizontalBlock"] {{ flex-wrap: wrap; }}
  [class*="st-key-amounts"] [data-testid="stColumn"] {{ min-width: 5.75rem; }}
  .st-key-leaks_bar [data-testid="stColumn"]:nth-child(2) {{ flex-basis: calc(100% - 13rem); }}
}}
[class*="st-key-judge_line"] [data-testid="stColumn"]:has([data-testid="stPopover"]) {{ min-width: 6.5rem; }}
@media (max-width: 640px) {{
  [data-testid="stColumn"]:has(> div > div .stBidiComponent) {{ position: static; }}
  /* The link of the view stands beside the title, which leaves room for it. */
  [data-testid="stHorizontalBlock"]:has(> [data-testid="stColumn"] .ci-head) {{ position: relative; }}
  [data-testid="stColumn"]:has(.ci-head) + [data-testid="stColumn"] {{ position: absolute; top: 0; right: 0;
    width: auto; min-width: 0; }}
  .ci-head::before {{ content: ""; float: right; width: 5.5rem; height: 2rem; }}
  .st-key-scope_grid [data-testid="stColumn"] {{ min-width: 0; flex: 1 1 45%; width: auto; }}
  .st-key-scope_grid [data-testid="stColumn"]:last-child {{ flex-basis: 100%; }}
  [data-testid="stVerticalBlock"]:has(> * > :is(.st-key-leaks_bar, .st-key-leaks_basket)) > :has(> .st-key-scope) {{
    order: 1; }}
  [data-testid="stColumn"]:has(.st-key-leaks_filters) {{ order: 1; }}
  .st-key-confusion [data-testid="stHorizontalBlock"] {{ gap: 4px; }}
  .st-key-confusion [data-testid="stColumn"]:last-child {{ display: none; }}
  .st-key-confusion button {{ padding: 4px; }}
  .st-key-confusion .ci-line {{ font-size: 11px; overflow-wrap: normal; }}
  .st-key-confusion [data-testid="stColumn"] {{ min-width: 0; flex: 1 1 0; }}
  .st-key-leaks_bar [data-testid="stColumn"] {{ min-width: 0; flex: 1 1 auto; width: auto; }}
  .st-key-leaks_bar [data-testid="stColumn"]:has(.stBidiComponent) {{ display: none; }}
}}
[data-stale="true"]:has(.stBidiComponent) {{ opacity: 1 !important; }}
"""


# ---- safe


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
# What markdown may read as markup, anywhere or at the start of a line. No more: a field's label is also its name, and a
# screen reader reads the backslashes. Round brackets are nothing where square ones are escaped.
_PUNCTUATION = re.compile(r"([!$&*:<>@\[\\\]^_`{|}~])")
_START = re.compile(r"^(\s*(?:\d+(?=[.)]))?)([-+#=.)])")
_JOINER = "\N{WORD JOINER}"
_PERCENT = re.compile(r"(?<=\d) %")  # a line ends behind the percent sign, not before it


@dataclass(frozen=True)
class Html:
    """Markup that may be shown as it is. Only `tag`, `join` and `message_html` make it."""

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


def escape(text: object) -> str:
    """Return any text as markup that reads the same: one line, quotes escaped, characters that cannot be sent replaced,
    control characters visible; cut after LONGEST characters, with a note."""
    # Half of a surrogate pair cannot be sent. Line ends and tabs as references: st.html dedents its text, and would
    # change the lines of a message.
    clean = clip(text, LONGEST).encode("utf-8", "replace").decode("utf-8")
    return html.escape(clean, quote=True).replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")


def folded(text: object, limit: int = FOLD) -> Html:
    """Return the text; the part of a long one beyond `limit` opens with a click."""
    full = str(text)
    if len(full) <= limit:
        return Html(escape(full))
    more = tag("span", f"… {len(full) - limit:,} more characters", cls="ci-more")
    return tag("details", tag("summary", full[:limit], more), full[limit:], cls="ci-fold")


def tag(name: str, *parts: Html | str | int, cls: str = "", title: str = "", picture: str = "") -> Html:
    """Return one element. Strings in `parts` are escaped, Html is not. picture: what screen readers read instead of its
    content, which is cells or marks. Raises ValueError for a tag or class not of ours."""
    # Checked although callers are ours: a name or class that came from data would be markup.
    if name not in TAGS or (cls and not _CLASS.fullmatch(cls)):
        raise ValueError(f"<{name} class='{cls}'> is not among the tags and classes that the app shows")
    attributes = f' class="{cls}"' if cls else ""
    if title:
        attributes += f' title="{escape(clip(title))}"'
    if picture:
        attributes += f' role="img" aria-label="{escape(clip(picture))}"'
    return Html(f"<{name}{attributes}>{join(parts).source}</{name}>")


def join(parts: Iterable[Html | str | int]) -> Html:
    """Join parts, strings escaped."""
    return Html("".join(part.source if isinstance(part, Html) else escape(part) for part in parts))


def show(content: Html) -> None:
    """Draw markup that `tag` or `join` made."""
    if content.source:  # st.html raises for an empty text
        st.html(_PERCENT.sub("&nbsp;%", content.source))


def style() -> None:
    """Draw the app's classes, once a script run."""
    st.html(f"<style>{STYLE}</style>")


def message_html(text: str, spans: Sequence[Marked] = ()) -> Html:
    """Return a message with its marks. Where marks overlap, the piece takes the colour of the gravest and its tooltip
    has the notes of all, of as grave ones what counts before what is weak; marks are cut to the text, empty ones left
    out. A text is cut after LONGEST characters, and a last line says so."""
    full, text = text, text[:LONGEST]
    marks = [s for s in spans if max(s.start, 0) < min(s.end, len(text))]
    # Every border of a mark cuts the text, so that within a piece the same marks hold from end to end.
    cuts = sorted({0, len(text), *(max(s.start, 0) for s in marks), *(min(s.end, len(text)) for s in marks)})
    pieces: list[Html | str] = []
    before: tuple[int, bool] | None = None
    for start, end in pairwise(cuts):
        here = [s for s in marks if s.start <= start and s.end >= end]
        if not here:
            pieces.append(text[start:end])
            before = None
            continue
        looks = [(KINDS.index(s.kind), s.weak) for s in here]
        look = min(looks)
        shown = [s for s, other in zip(here, looks, strict=True) if other == look]
        # The glyph stands once, where a mark begins, and not again where another one that overlaps cuts it; what people
        # say of it where it ends.
        opens = look != before or any(s.start == start for s in shown)
        verdicts = {s.confirmed for s in shown if s.end == end and s.confirmed is not None}
        before = look
        notes = "; ".join(dict.fromkeys(s.note or s.kind for s in here))
        cls = f"ci-{KINDS[look[0]]}" + " ci-weak" * look[1] + " ci-opens" * opens
        cls += (" ci-confirmed" if True in verdicts else " ci-denied") if verdicts else ""
        pieces.append(tag("mark", text[start:end], cls=cls, title=notes))
    if len(full) > len(text):
        pieces.append(tag("div", f"… {len(full) - len(text):,} more characters", cls="ci-muted"))
    return tag("div", *pieces, cls="ci-message")


def message(text: str, spans: Sequence[Marked] = (), height: int | None = None) -> None:
    """Draw a message as it was written, lines kept, its spans marked; scrolls inside `height` pixels where given."""
    if height is None:
        show(message_html(text, spans))
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
        # Of what ** divides, every second part is bold.
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


def heading(text: object) -> None:
    """Draw a heading inside a page whose text is data."""
    show(tag("h3", folded(text), cls="ci-heading"))


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
    """Return a cell of a `grid` with a number, and in smaller type below it what goes with it."""
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
    """Return a label as text for a table cell: 'X inappropriate'; an empty text for None."""
    return "" if label is None else f"{GLYPHS[label]} {label}"


def option(text: object, limit: int = LABEL_LIMIT) -> str:
    """Return text for an option of a selectbox, which shows it unparsed: one line, capped."""
    return shortened(text, limit)


def options(items: Iterable[Item], text: Callable[[Item], object], limit: int = LABEL_LIMIT) -> dict[Item, str]:
    """Return the text of each option: `option` of its text, followed by the item itself if several would show the same.
    Streamlit tells options apart by their texts, and would take the wrong one."""
    shown = {item: option(text(item), limit) for item in items}
    told: set[Item] = set()
    while len(set(shown.values())) < len(shown):
        number = Counter(shown.values())
        # Again where a text that was told apart is what another one says of itself; each item only once.
        same = [item for item, value in shown.items() if number[value] > 1 and item not in told]
        for item in same:
            # The item goes behind what is left of the text, so that it is never cut itself.
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
