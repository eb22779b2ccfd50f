"""Leaked examples as rows of a table (paper, Table 3): who was told what, in which words, and what that rests on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.gallery_parts import Certainty
from cimemories.analysis.leaks import LeakView, Sample, leak_view
from cimemories.model import Reveal

AROUND = 110  # characters of the message on either side of what is leaked
LONGEST = 420  # of what is leaked itself
CUT = "…"
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
        """Where the label comes from, in words: 'votes of the personas, unanimous (labelling-3f9a)'."""
        return ORIGINS[Certainty(self.certainty)] + (f" ({self.labels})" if self.labels else "")

    def as_json(self) -> dict[str, object]:
        """One object for scripts; the excerpt as a text and the stretch of it that leaks."""
        text = "".join(piece.text for piece in self.excerpt)
        leaked = "".join(piece.text for piece in self.excerpt if piece.leaked)
        plain = {name: value for name, value in vars(self).items() if name not in ("excerpt", "simulated")}
        return plain | {
            "excerpt": text,
            "leaked": leaked,
            "simulated": list(self.simulated),
            "label_origin": self.origin,
        }


def excerpt(text: str, start: int, end: int, around: int = AROUND) -> tuple[Piece, ...]:
    """text[start:end] with the sentence it stands in, or where it begins one the sentence before it.

    At most `around` characters on either side, cut between words; white space becomes single spaces. Bounds outside
    the text are cut to it. Nothing for an empty stretch.
    """
    start, end = max(start, 0), min(end, len(text))
    if start >= end:
        return ()
    before, leaked, after = text[:start], text[start:end], text[end:]
    breaks = [0, *(found.end() for found in _SENTENCE.finditer(before))]
    # What is a sentence of its own says little without the one before it.
    alone = not before[breaks[-1] :].strip() and len(breaks) > 1
    before = before[breaks[-2 if alone else -1] :]
    # A stretch that ends its own sentence needs nothing behind it.
    stop = _SENTENCE.search(leaked[-1:] + after)
    after = after[: max(stop.start() - 1, 0)] if stop else after
    if len(before) > around:
        kept = before[-around:]
        before = (
            f"{CUT} " + (kept.split(maxsplit=1)[-1:] or [""])[0] if re.search(r"\s", kept.strip()) else f"{CUT}{kept}"
        )
    if len(after) > around:
        kept = after[:around]
        after = (kept.rsplit(maxsplit=1)[0] if re.search(r"\s", kept.strip()) else kept) + f" {CUT}"
    if len(leaked) > LONGEST:
        leaked = f"{leaked[: LONGEST // 2].rstrip()} {CUT} {leaked[-LONGEST // 2 :].lstrip()}"
    found = [Piece(_SPACE.sub(" ", before).lstrip(), False), Piece(_SPACE.sub(" ", leaked), True)]
    found.append(Piece(_SPACE.sub(" ", after).rstrip(), False))
    return tuple(piece for piece in found if piece.text)


def leak_rows(
    flows: Flows, scopes: Mapping[str, Scope], examples: pd.DataFrame, notes: Mapping[str, str] | None = None
) -> list[LeakRow]:
    """Rows for these examples of the gallery, in their order. scopes: by run, those that the gallery was asked with.
    notes: by example id."""
    found = []
    for item in examples.to_dict("records"):
        asked = scopes[str(item["run"])]
        view = view_of(flows, asked, int(item["profile"]), int(item["context"]))
        found.append(_row(asked, item, view, (notes or {}).get(str(item["id"]), "")))
    return found


def view_of(flows: Flows, asked: Scope, profile: int, context: int) -> LeakView | None:
    """`leak_view`, remembered until something that the flows rest on moves."""
    made = partial(leak_view, flows, asked, profile, context)
    return flows.remember(("leak view", asked.version, profile, context), made)


def _row(asked: Scope, item: Mapping[Any, Any], view: LeakView | None, note: str) -> LeakRow:
    said = None if view is None else best(view, int(item["attribute"]), str(item["strength"]))
    pieces: tuple[Piece, ...] = ()
    sample: Sample | None = None
    if said is not None:
        sample, reveal = said
        text = sample.text or ""
        if reveal.span is not None:
            pieces = excerpt(text, reveal.span.start, reveal.span.end)
        else:
            pieces = excerpt(reveal.quote, 0, len(reveal.quote))
    return LeakRow(
        id=str(item["id"]),
        run=asked.run.id,
        run_name=asked.run.name,
        model=asked.run.model,
        judge=asked.judge_words,
        profile=_line(item["user"]),
        task=_line(item["task"]),
        recipient=_line(item["recipient"]),
        domain=_line(item["domain"]),
        key=_line(item["key"]),
        statement=_line(item["statement"]),
        excerpt=pieces,
        in_message=said is not None and said[1].grounded,
        sample=None if sample is None else sample.number,
        strength=str(item["strength"]),
        claimed=int(item["claimed"]),
        draws=int(item["draws"]),
        agreement="" if item["agreement"] == "alone" else str(item["agreement"]),
        certainty=str(item["certainty"]),
        labels=asked.labelling.id if asked.labelling else "",
        simulated=asked.simulated,
        note=note,
    )


def _line(text: object) -> str:
    return _SPACE.sub(" ", str(text)).strip()


def best(view: LeakView, attribute: int, strength: str) -> tuple[Sample, Reveal] | None:
    """The message to show for a leak and the claim on it: the first one that claims it with this strength, those whose
    quote stands in the message before the others; None where no message does."""
    found = [
        (sample, reveal)
        for sample in view.samples
        for reveal in sample.reveals
        if reveal.attribute == attribute and reveal.strength == strength
    ]
    return min(found, key=lambda pair: not pair[1].grounded, default=None)
