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

import jinja2
import pandas as pd

from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks.gallery import Certainty
from cimemories.leaks.message import LeakView, leak_view
from cimemories.model import Span
from cimemories.seeds.published import load_published
from cimemories.text import count, markdown_escaped, part_names
from cimemories.version import __version__

# Stands once before a text that has been escaped. It prints a character where the engine knows Unicode (XeLaTeX,
# LuaLaTeX), and elsewhere [U+1F600].
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
    "\N{HYPHEN}": "-",
    "\N{NON-BREAKING HYPHEN}": r"\mbox{-}",
}
# Letters and signs of Europe, which every LaTeX since 2018 prints as they are.
_LETTERS = "".join(bytes(range(0x80, 0x100)).decode(encoding, "ignore") for encoding in ("cp1252", "cp1250"))
_PLAIN = frozenset(string.ascii_letters + string.digits + " .,:;!?()/+=@-'") | {
    letter for letter in _LETTERS if letter.isprintable()
}
_JOINED = re.compile(r"([-,'])(?=\1)")  # two in a row become one sign: a dash, a quotation mark


def latex_escaped(text: object) -> str:
    """Return a text for the inside of a paragraph or table cell: one line, in which nothing is a command of the text's
    own, and any other character than those of Europe is \\ciother{1F600}. LATEX_OTHER has to stand before it."""
    # A line break of any kind would end a paragraph, a control character the compilation.
    line = re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+", _space, unicodedata.normalize("NFC", str(text))).strip(" ")
    # \0 marks the places while characters are escaped: none can be in the line, which has lost its control characters.
    escaped = (
        c if c in _PLAIN or c == "\0" else _COMMANDS.get(c) or rf"\ciother{{{ord(c):04X}}}"
        for c in _JOINED.sub("\\1\0", line)
    )
    return "".join(escaped).replace("\0", "{}")


def _space(match: re.Match[str]) -> str:
    return "\N{NO-BREAK SPACE}" if set(match[0]) == {"\N{NO-BREAK SPACE}"} else " "


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
        """Return the origin of the label: 'votes of the personas, unanimous (labelling-3f9a)'."""
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
        view = leak_view(flows, scope, int(item["profile"]), int(item["context"]))
        pieces, in_message, sample = (
            quoted(view, int(item["attribute"]), str(item["strength"])) if view else ((), False, None)
        )
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
                excerpt=pieces,
                in_message=in_message,
                sample=sample,
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
    rows = leak_rows(flows, scopes, examples)
    return examples.assign(
        excerpt=["".join(piece.text for piece in row.excerpt) for row in rows],
        leaked=["".join(piece.text for piece in row.excerpt if piece.leaked) for row in rows],
        sample=pd.array([row.sample for row in rows], dtype="Int64"),
        in_message=pd.array([row.in_message for row in rows], dtype="bool"),
    )


def _line(text: object) -> str:
    return _SPACE.sub(" ", str(text)).strip()


def quoted(view: LeakView, attribute: int, strength: str) -> tuple[tuple[Piece, ...], bool, int | None]:
    """Return the excerpt to show for a claim of this strength, whether it is the message's own words, and the number of
    the message: the first that makes the claim, those whose quote stands in the message before the others. Nothing and
    None where no message makes it."""
    claims = [
        (sample, reveal)
        for sample in view.samples
        for reveal in sample.reveals
        if reveal.attribute == attribute and reveal.strength == strength
    ]
    if not claims:
        return (), False, None
    # min takes the first of equals: the earliest message of those whose quote is in it.
    sample, reveal = min(claims, key=lambda claim: not claim[1].grounded)
    text, span = (sample.text or "", reveal.span) if reveal.span else (reveal.quote, Span(0, len(reveal.quote)))
    return excerpt(text, span.start, span.end), reveal.grounded, sample.number


_TEMPLATES = Path(__file__).parent / "templates"
_COLOUR = "D55E00"  # of what is inappropriate, on every screen of the app
_MISSING = "people found it, and the judge claims nothing"
_ELSEWHERE = "quoted by the judge, not found in the message"


def as_markdown(rows: Sequence[LeakRow]) -> str:
    """Return the table in Markdown, what leaks in bold, and a numbered list of what each row rests on."""
    return _filled("leaks.md.jinja", rows)


def as_latex(rows: Sequence[LeakRow]) -> str:
    """Return the table in LaTeX, in printable ASCII; a comment on top says which packages it takes."""
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
    """Return what stands behind a row, in one line: run, message, judge, label, simulated parts, and the person's
    note."""
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
    """Return the pieces in a row, spaces at their ends kept outside of what is marked."""
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
