"""The pairs of one profile in one context: votes by persona, what the rule makes of them, what people decided.

A pair (attribute, context) is labelled by its newest standing decision, else by the consensus of the personas. A vote
that could not be read is missing, with its cause; it is never an abstention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from cimemories.curation.consensus import LABELS, UNLABELLED, consensus, mixture
from cimemories.model import Attribute, Context, Label, Persona, Verdict
from cimemories.store import datasets, decisions, labellings, work
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import ballot, profile

COUNTED = (Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN)
GLYPHS = {Verdict.NECESSARY: "N", Verdict.INAPPROPRIATE: "X", Verdict.ABSTAIN: "?"}
MISSING_GLYPH = "-"
LONGEST_STRIP = 10


@dataclass(frozen=True)
class PersonaVotes:
    """One persona's draws on one pair, in order. A draw is a counted Verdict, or the cause for which it is missing
    ('unparsed', 'truncated', 'failed', 'owed', 'conflict')."""

    persona: Persona
    draws: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Necessary, inappropriate, abstain."""
        found = Counter(self.draws)
        return found[Verdict.NECESSARY], found[Verdict.INAPPROPRIATE], found[Verdict.ABSTAIN]

    @property
    def counted(self) -> int:
        return sum(self.counts)

    @property
    def missing(self) -> dict[str, int]:
        """Draws that are not counted, by cause."""
        return {cause: n for cause, n in Counter(self.draws).items() if cause not in COUNTED}

    @property
    def strip(self) -> str:
        """One character a draw: N, X, ? for an abstention, - where the vote is missing. More than ten draws are counted
        instead: 'X 58, ? 2'."""
        if len(self.draws) > LONGEST_STRIP:
            numbers = [*zip("NX?", self.counts, strict=True), (MISSING_GLYPH, len(self.draws) - self.counted)]
            return ", ".join(f"{glyph} {n}" for glyph, n in numbers if n)
        glyphs: Mapping[str, str] = {str(verdict): glyph for verdict, glyph in GLYPHS.items()}
        return "".join(glyphs.get(draw, MISSING_GLYPH) for draw in self.draws)


@dataclass(frozen=True)
class PairView:
    """All there is to say of one pair. `mixture`: shares of necessary, inappropriate, abstain; None where unknown."""

    attribute_id: int
    attribute: Attribute
    context_id: int
    context: Context
    votes: tuple[PersonaVotes, ...]
    mixture: tuple[float, float, float] | None
    consensus: Label | None
    decision: Decision | None
    history: tuple[Decision, ...]
    explanation: str
    missing: str

    @property
    def effective(self) -> Label | None:
        """The newest standing decision's label, else the consensus; None for a pair that nobody labelled."""
        return self.decision.label if self.decision else self.consensus


def pairs(store: Store, labelling_id: str | None, profile_id: int, context_id: int) -> list[PairView]:
    """Every pair of a profile in a context, attributes in their order; without a labelling there are no votes.

    Raises StoreError where the profile or labelling is not there, or the context is none of the profile's.
    """
    with store.read() as connection:
        record = datasets.profile_record(connection, profile_id)
        if context_id not in record.context_ids:
            raise StoreError(f"profile {profile_id} has no context {context_id}. Choose one of its contexts.")
        personas: dict[int, Persona] = {}
        found: dict[int, dict[int, list[tuple[int, str]]]] = {}
        causes: dict[int, dict[int, str]] = {}
        if labelling_id is not None:
            if work.load(connection, labelling_id)["dataset"] != record.dataset:
                raise StoreError(f"the labelling '{labelling_id}' is of another dataset. Choose one that is listed.")
            personas = labellings.personas(connection, labelling_id)
            found = labellings.context_votes(connection, labelling_id, profile_id, context_id)
            causes = _ballots(connection, labelling_id, profile_id, context_id)
        history = decisions.history(connection, record.dataset, record.attribute_ids, context_id)
    standing = decisions.standing(history)
    context = record.profile.contexts[record.context_ids.index(context_id)]
    ballots = [
        tuple(PersonaVotes(p, _draws(found.get(a, {}).get(i, ()), causes.get(i, {}))) for i, p in personas.items())
        for a in record.attribute_ids
    ]
    codes, mixed = _settled(ballots, list(personas.values()))
    views = []
    for n, (attribute_id, attribute) in enumerate(zip(record.attribute_ids, record.profile.attributes, strict=True)):
        label = None if codes[n] == UNLABELLED else LABELS[int(codes[n])]
        views.append(
            PairView(
                attribute_id=attribute_id,
                attribute=attribute,
                context_id=context_id,
                context=context,
                votes=ballots[n],
                mixture=mixed[n],
                consensus=label,
                decision=standing.get((attribute_id, context_id)),
                history=tuple(d for d in history if d.attribute == attribute_id),
                explanation=explain(ballots[n], label),
                missing=missing_words(ballots[n]),
            )
        )
    return views


def profile_names(store: Store, dataset_id: int) -> dict[int, str]:
    """The profiles of a dataset by id, in their order: names only, however many attributes they have."""
    with store.read() as connection:
        rows = connection.execute(
            sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
        )
        return {row.id: row.name for row in rows}


def explain(votes: Sequence[PersonaVotes], label: Label | None) -> str:
    """The consensus rule applied to these votes, in words: 'Pragmatic: 3 of 10 abstain. Not all agree: ambiguous.'"""
    if label is None:
        return "No vote is counted for this pair, so it has no consensus label."
    asked = [v for v in votes if v.persona.prior > 0]
    total = sum(v.counted for v in asked)
    if label is not Label.AMBIGUOUS:
        return f"{total} of {total} counted votes say {label}: consensus."
    silent = [v.persona.key for v in asked if not v.counted]
    if silent:
        return f"No counted vote of {_listed(silent)}. Consensus needs every persona: ambiguous."
    sums = np.array([v.counts for v in asked]).sum(axis=0)
    if sums[2] == total:
        return f"{total} of {total} counted votes abstain: ambiguous."
    leading = 0 if sums[0] >= sums[1] else 1
    parts = []
    for item in asked:
        against = [f"{n} of {item.counted} {_says(k)}" for k, n in enumerate(item.counts) if n and k != leading]
        if against:
            parts.append(f"{item.persona.key} {' and '.join(against)}")
    return f"{'; '.join(parts).capitalize()}. Not every counted vote says {COUNTED[leading]}: ambiguous."


def missing_words(votes: Sequence[PersonaVotes]) -> str:
    """Which votes are missing and why: 'fundamentalist 1 unparsed; unconcerned 2 failed'; empty where none are."""
    return "; ".join(
        f"{item.persona.key} {', '.join(f'{n} {cause}' for cause, n in item.missing.items())}"
        for item in votes
        if item.missing
    )


def _says(verdict: int) -> str:
    return ("say necessary", "say inappropriate", "abstain")[verdict]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _ballots(
    connection: sa.Connection, labelling_id: str, profile_id: int, context_id: int
) -> dict[int, dict[int, str]]:
    """The status of every ballot: persona -> draw -> status."""
    rows = connection.execute(
        sa.select(ballot.c.persona, ballot.c.draw, ballot.c.status)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id, ballot.c.context == context_id)
        .order_by(ballot.c.draw)
    )
    found: dict[int, dict[int, str]] = {}
    for persona_id, draw, status in rows:
        found.setdefault(persona_id, {})[draw] = status
    return found


def _draws(votes: Sequence[tuple[int, str]], statuses: Mapping[int, str]) -> tuple[str, ...]:
    verdicts = dict(votes)
    return tuple(
        verdicts.get(draw, "no vote" if status == labellings.OK else status) for draw, status in statuses.items()
    )


def _settled(
    ballots: Sequence[Sequence[PersonaVotes]], personas: Sequence[Persona]
) -> tuple[Sequence[int], list[tuple[float, float, float] | None]]:
    if not personas or not ballots:
        return [UNLABELLED] * len(ballots), [None] * len(ballots)
    counts = np.array([[v.counts for v in row] for row in ballots])
    priors = [p.prior for p in personas]
    mixed = mixture(counts, priors)
    shares = [None if np.isnan(row).any() else (float(row[0]), float(row[1]), float(row[2])) for row in mixed]
    return [int(code) for code in consensus(counts, priors)], shares
