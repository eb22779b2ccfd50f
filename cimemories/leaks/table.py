"""Leaked examples as rows of a table for a paper (paper, Table 3), in Markdown or in LaTeX with booktabs.

A row says who learned what, in which words of the message, and what that rests on. The text of a table is in
templates/leaks.*.jinja. Everything that a model, a file or a person wrote is escaped, so that no message makes a
command, a link or a column of itself.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks.gallery import Certainty
from cimemories.leaks.message import LeakView, leak_view
from cimemories.seeds.published import load_published
from cimemories.text import count, markdown_escaped, part_names
from cimemories.version import __version__

# Text as LaTeX that reads the same and compiles in any engine: what comes out is printable ASCII. Characters that LaTeX
# gives a meaning become commands, letters with an accent the accent's command, common signs their own commands.
# Anything else (Greek, Chinese, emoji) becomes \ciother{1F600}: its definition, which stands before an exported table,
# prints the character where the engine knows Unicode, and [U+1F600] where it does not.

# Stands once before a text that has been escaped.
LATEX_OTHER = (
    r"\providecommand{\ciother}[1]{\ifdefined\XeTeXrevision\symbol{\"#1}\else"
    r"\ifdefined\directlua\symbol{\"#1}\else[U+#1]\fi\fi}"
).replace(r"\"", '"')
_COMMANDS = {
    "\\": r"\textbackslash{}",
    **{character: rf"\{character}" for character in "{}$&#%_"},
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",  # its own command is not there in every font encoding
    "`": r"\textasciigrave{}",
    "[": "{[}",  # at the start of a row or argument these would be an option
    "]": "{]}",
    "*": "{*}",
    "\N{NO-BREAK SPACE}": "~",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "\N{LEFT DOUBLE QUOTATION MARK}": r"\textquotedblleft{}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": r"\textquotedblright{}",
    "\N{HYPHEN}": "-",
    "\N{NON-BREAKING HYPHEN}": r"\mbox{-}",
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{BULLET}": r"\textbullet{}",
    "\N{DEGREE SIGN}": r"\textdegree{}",
    "\N{POUND SIGN}": r"\pounds{}",
    "\N{EURO SIGN}": r"\texteuro{}",
    "\N{SECTION SIGN}": r"\S{}",
    "\N{COPYRIGHT SIGN}": r"\copyright{}",
    "\N{LATIN SMALL LETTER SHARP S}": r"\ss{}",
    "\N{LATIN SMALL LETTER AE}": r"\ae{}",
    "\N{LATIN CAPITAL LETTER AE}": r"\AE{}",
    "\N{LATIN SMALL LETTER O WITH STROKE}": r"\o{}",
    "\N{LATIN CAPITAL LETTER O WITH STROKE}": r"\O{}",
    "\N{LATIN SMALL LETTER L WITH STROKE}": r"\l{}",
    "\N{LATIN CAPITAL LETTER L WITH STROKE}": r"\L{}",
}
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`",
    "\N{COMBINING ACUTE ACCENT}": "'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~",
    "\N{COMBINING DIAERESIS}": '"',
    "\N{COMBINING MACRON}": "=",
    "\N{COMBINING DOT ABOVE}": ".",
    "\N{COMBINING CARON}": "v",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
    "\N{COMBINING BREVE}": "u",
    "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING CEDILLA}": "c",
}
_PLAIN = frozenset(string.ascii_letters + string.digits + " .,:;!?()/+=@-'")
_JOINED = re.compile(r"([-,'])(?=\1)")  # two in a row become one sign: a dash, a quotation mark


def latex_escaped(text: object) -> str:
    """A text for the inside of a paragraph or table cell: one line, white space and what cannot be seen as one space.
    LATEX_OTHER has to stand before it; LaTeX of before 2020 also needs the package textcomp."""
    # A line break of any kind would end a paragraph, a control character the compilation.
    line = re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+", _space, unicodedata.normalize("NFC", str(text))).strip(" ")
    # \0 marks the places while characters are escaped: none can be in the line, which has lost its control characters.
    return "".join(_escaped(character) for character in _JOINED.sub("\\1\0", line)).replace("\0", "{}")


def _space(match: re.Match[str]) -> str:
    return "\N{NO-BREAK SPACE}" if set(match[0]) == {"\N{NO-BREAK SPACE}"} else " "


def _escaped(character: str) -> str:
    if character in _PLAIN or character == "\0":
        return character
    if character in _COMMANDS:
        return _COMMANDS[character]
    # Decomposed into a letter and its accents; more than one accent has no simple command.
    base, *accents = list(unicodedata.normalize("NFD", character))
    if len(accents) == 1 and accents[0] in _ACCENTS and base in string.ascii_letters:
        # An accent on i or j replaces the dot.
        letter = {"i": r"\i", "j": r"\j"}.get(base, base)
        return rf"\{_ACCENTS[accents[0]]}{{{letter}}}"
    return rf"\ciother{{{ord(character):04X}}}"


AROUND = 110  # characters of the message on either side of what is leaked
LONGEST = 420  # of what is leaked itself
CUT = "…"
EXCERPT = ("excerpt", "leaked", "sample", "in_message")  # what messages say of an example, in a frame
ORIGINS = {
    Certainty.ADJUDICATED: "settled by people who had differed",
    Certainty.PERSON: "decided by a person",
    Certainty.UNANIMOUS: "votes of the personas, unanimous",
    Certainty.THRESHOLD: "votes of the personas, by a threshold below 100 %",
}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# A control character would be an order to the terminal that a table is printed on.
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Piece:
    """A stretch of an excerpt, on one line; `leaked`: it is what gives the attribute away."""

    text: str
    leaked: bool


@dataclass(frozen=True)
class LeakRow:
    """One example. claimed of draws: in how many judged messages it is claimed with this strength. sample: the message
    of the excerpt, from 1; None where no judge's claim is there to quote (people found it). in_message: whether the
    excerpt is the message's own words, not a quote that does not stand in it. simulated: which parts are.
    agreement: '' where the run has one judge of messages."""

    id: str
    run: str
    run_name: str
    model: str
    judge: str
    profile: str
    task: str
    recipient: str
    domain: str
    key: str
    statement: str
    excerpt: tuple[Piece, ...]
    in_message: bool
    sample: int | None
    strength: str
    claimed: int
    draws: int
    agreement: str
    certainty: str
    labels: str
    simulated: tuple[str, ...]
    note: str = ""

    @property
    def origin(self) -> str:
        """Where the label comes from: 'votes of the personas, unanimous (labelling-3f9a)'."""
        return ORIGINS[Certainty(self.certainty)] + (f" ({self.labels})" if self.labels else "")


def excerpt(text: str, start: int, end: int, around: int = AROUND) -> tuple[Piece, ...]:
    """text[start:end] with the sentence it stands in, or where it begins one the sentence before it.

    At most `around` characters on either side, cut between words; white space becomes single spaces. Bounds outside
    the text are cut to it. Nothing for an empty stretch.
    """
    start, end = max(start, 0), min(end, len(text))
    if start >= end:
        return ()
    before, leaked, after = text[:start], text[start:end], text[end:]
    breaks = [0, *(pieces.end() for pieces in _SENTENCE.finditer(before))]
    # What is a sentence of its own says little without the one before it.
    alone = not before[breaks[-1] :].strip() and len(breaks) > 1
    before = before[breaks[-2 if alone else -1] :]
    # A stretch that ends its own sentence needs nothing behind it.
    # With the last leaked character in front, for the look-behind of the pattern; the 1 below takes it off again.
    stop = _SENTENCE.search(leaked[-1:] + after)
    after = after[: max(stop.start() - 1, 0)] if stop else after
    if len(before) > around:
        # The cut may go through a word: what is left of its first one is dropped below.
        kept = before[-around:]
        before = (
            f"{CUT} " + (kept.split(maxsplit=1)[-1:] or [""])[0] if re.search(r"\s", kept.strip()) else f"{CUT}{kept}"
        )
    if len(after) > around:
        kept = after[:around]
        after = (kept.rsplit(maxsplit=1)[0] if re.search(r"\s", kept.strip()) else kept) + f" {CUT}"
    if len(leaked) > LONGEST:
        leaked = f"{leaked[: LONGEST // 2].rstrip()} {CUT} {leaked[-LONGEST // 2 :].lstrip()}"
    pieces = [Piece(_SPACE.sub(" ", before).lstrip(), False), Piece(_SPACE.sub(" ", leaked), True)]
    pieces.append(Piece(_SPACE.sub(" ", after).rstrip(), False))
    return tuple(piece for piece in pieces if piece.text)


def leak_rows(
    flows: Flows, scopes: Mapping[str, Scope], examples: pd.DataFrame, notes: Mapping[str, str] | None = None
) -> list[LeakRow]:
    """Return rows for these examples of the gallery, in their order. scopes: by run, those that the gallery was asked
    with. notes: by example id."""
    rows = []
    for item in examples.to_dict("records"):
        scope = scopes[str(item["run"])]
        shown = _quoted(flows, scope, item)
        texts = {name: _line(item[name]) for name in ("task", "recipient", "domain", "key", "statement")}
        rows.append(
            LeakRow(
                **texts,
                id=str(item["id"]),
                run=scope.run.id,
                run_name=scope.run.name,
                model=scope.run.model,
                judge=scope.judge_text,
                profile=_line(item["user"]),
                excerpt=shown.excerpt if shown else (),
                in_message=shown is not None and shown.in_message,
                sample=shown.sample if shown else None,
                strength=str(item["strength"]),
                claimed=int(item["claimed"]),
                draws=int(item["draws"]),
                agreement="" if item["agreement"] == "alone" else str(item["agreement"]),
                certainty=str(item["certainty"]),
                labels=scope.labelling.id if scope.labelling else "",
                simulated=scope.simulated,
                note=(notes or {}).get(str(item["id"]), ""),
            )
        )
    return rows


def with_excerpts(flows: Flows, scopes: Mapping[str, Scope], examples: pd.DataFrame) -> pd.DataFrame:
    """Return examples with what one message says of each: excerpt, leaked (the part of it that gives the attribute
    away), sample (from 1, <NA> where no judge quotes any), in_message (whether these are the message's own words)."""
    rows = []
    for item in examples.to_dict("records"):
        shown = _quoted(flows, scopes[str(item["run"])], item)
        pieces = shown.excerpt if shown else ()
        text, leaked = ("".join(piece.text for piece in part) for part in (pieces, [p for p in pieces if p.leaked]))
        rows.append((text, leaked, shown.sample if shown else None, shown is not None and shown.in_message))
    found = pd.DataFrame(rows, columns=EXCERPT, index=examples.index).astype({"sample": "Int64", "in_message": "bool"})
    return pd.concat([examples, found], axis=1)


def _quoted(flows: Flows, scope: Scope, item: Mapping[Any, Any]) -> Quoted | None:
    view = leak_view(flows, scope, int(item["profile"]), int(item["context"]))
    return None if view is None else quoted(view, int(item["attribute"]), str(item["strength"]))


def _line(text: object) -> str:
    return _SPACE.sub(" ", str(text)).strip()


@dataclass(frozen=True)
class Quoted:
    """What a message says of an attribute. sample: which message, from 1. in_message: whether the excerpt is its own
    words, not a quote that does not stand in it."""

    excerpt: tuple[Piece, ...]
    in_message: bool
    sample: int


def quoted(view: LeakView, attribute: int, strength: str) -> Quoted | None:
    """Return the excerpt to show for a claim of this strength: of the first message that makes it, those whose quote
    stands in the message before the others; None where no message makes it."""
    claims = [
        (sample, reveal)
        for sample in view.samples
        for reveal in sample.reveals
        if reveal.attribute == attribute and reveal.strength == strength
    ]
    if not claims:
        return None
    # min takes the first of equals: the earliest message of those whose quote is in it.
    sample, reveal = min(claims, key=lambda claim: not claim[1].grounded)
    if reveal.span is not None:
        pieces = excerpt(sample.text or "", reveal.span.start, reveal.span.end)
    else:
        pieces = excerpt(reveal.quote, 0, len(reveal.quote))
    return Quoted(pieces, reveal.grounded, sample.number)


_TEMPLATES = Path(__file__).parent / "templates"
_COLOUR = "D55E00"  # of what is inappropriate, on every screen of the app
_MISSING = "people found it, and the judge claims nothing"
_ELSEWHERE = "quoted by the judge, not found in the message"


def as_markdown(rows: Sequence[LeakRow]) -> str:
    """The table in Markdown, what leaks in bold, and a numbered list of what each row rests on."""
    return _filled("leaks.md.jinja", rows)


def as_latex(rows: Sequence[LeakRow]) -> str:
    """The table in LaTeX, in printable ASCII; a comment on top says which packages it takes."""
    return _filled("leaks.tex.jinja", rows)


@cache
def _environment() -> jinja2.Environment:
    # Delimiters that neither a row of a table nor a command of LaTeX has.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        # A misspelt name in a template fails, instead of leaving a cell empty.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown and LaTeX, no HTML: the filters md and tex escape
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters.update(
        md=markdown_escaped,
        tex=latex_escaped,
        attribute=lambda row: f"{row.key.replace('_', ' ')}: {row.statement}",
        rests_on=rests_on,
        marked_md=lambda pieces: _marked(pieces, markdown_escaped, "<b>{}</b>"),
        marked_tex=lambda pieces: _marked(pieces, latex_escaped, r"\cileaked{{{}}}"),
    )
    return environment


def _filled(template: str, rows: Sequence[LeakRow]) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            rows=rows,
            summary=f"{count(len(rows), 'leaked example')}, exported by CIMemories Studio {__version__}.",
            other=LATEX_OTHER,
            bibtex=load_published().paper.bibtex,
            colour=_COLOUR,
            caption=_caption(rows),
            missing=_MISSING,
            elsewhere=_ELSEWHERE,
        )
    )


def _caption(rows: Sequence[LeakRow]) -> str:
    text = (
        "Examples of leaks on CIMemories tasks: attributes of a user's memory that a message reveals although they are "
        "inappropriate for its recipient. What gives the attribute away is in bold."
    )
    count = sum(bool(row.simulated) for row in rows)
    if not count:
        return text
    which = "All rows rest" if count == len(rows) else f"{count} of {len(rows)} rows, marked so, rest"
    return f"{text} {which} on simulated parts and say nothing about any real model."


def rests_on(row: LeakRow) -> str:
    """What stands behind a row, in one line: run, message, judge, label, simulated parts, and the person's note."""
    message = f", sample {row.sample}" if row.sample is not None else ""
    together = {"all": ", by all judges in one message", "some": ", not by all judges"}.get(row.agreement, "")
    parts = [
        f"{row.profile}; run {row.run} ({row.run_name}){message}",
        f"claimed ({row.strength}) in {row.claimed} of {row.draws} judged messages by {row.judge}{together}",
        f"label inappropriate: {row.origin}",
        f"simulated: {part_names(row.simulated)}" if row.simulated else "",
        f"note: {row.note}" if row.note else "",
    ]
    return "; ".join(part for part in parts if part) + "."


def _marked(pieces: Sequence[Piece], escape: Callable[[object], str], leaked: str) -> str:
    """The pieces in a row, spaces at their ends kept outside of what is marked."""
    parts = []
    for piece in pieces:
        inside = escape(piece.text)
        # From the piece itself: the escaped text may have lost the spaces at its ends.
        before, after = piece.text[:1].isspace(), piece.text[-1:].isspace()
        if not inside:
            parts.append(" ")
            continue
        text = leaked.format(inside) if piece.leaked else inside
        parts.append(f"{' ' * before}{text}{' ' * after}")
    return "".join(parts)
