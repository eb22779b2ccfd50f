"""The pairs of one profile in one context: votes by persona, what the rule makes of them, what people decided.

A pair (attribute, context) is labelled by its newest standing decision, else by the consensus of the personas. A vote
that could not be read is missing, with its cause; it is never an abstention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.analysis.rule import PAPER_THRESHOLD, AppliedRule, applied_rule
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
    ('unparsed', 'truncated', 'failed', 'owed', 'conflict').

    prior: the persona's share in the mixture by the rule that holds. shares: of a labelling that was imported without
    votes, what its file says of necessary, inappropriate and abstain (0 to 1; all 0: nothing); there are no draws then.
    """

    persona: Persona
    draws: tuple[str, ...]
    prior: float
    shares: tuple[float, float, float] | None = None

    @property
    def counts(self) -> tuple[float, float, float]:
        """Necessary, inappropriate, abstain: whole numbers of votes, or shares that were imported."""
        if self.shares is not None:
            return self.shares
        found = Counter(self.draws)
        return found[Verdict.NECESSARY], found[Verdict.INAPPROPRIATE], found[Verdict.ABSTAIN]

    @property
    def counted(self) -> float:
        """How many votes are counted; of imported shares their sum."""
        return sum(self.counts)

    @property
    def missing(self) -> dict[str, int]:
        """Draws that are not counted, by cause."""
        return {cause: n for cause, n in Counter(self.draws).items() if cause not in COUNTED}

    @property
    def strip(self) -> str:
        """One character a draw: N, X, ? for an abstention, - where the vote is missing. More than ten draws are counted
        instead: 'X 58, ? 2'. Imported shares are percentages: 'X 97 %, ? 3 %'."""
        if self.shares is not None:
            return ", ".join(f"{glyph} {share:.0%}".replace("%", " %") for glyph, share in _named(self.shares) if share)
        if len(self.draws) > LONGEST_STRIP:
            numbers = [*_named(self.counts), (MISSING_GLYPH, len(self.draws) - self.counted)]
            return ", ".join(f"{glyph} {n:.0f}" for glyph, n in numbers if n)
        glyphs: Mapping[str, str] = {str(verdict): glyph for verdict, glyph in GLYPHS.items()}
        return "".join(glyphs.get(draw, MISSING_GLYPH) for draw in self.draws)


def _named(counts: tuple[float, float, float]) -> list[tuple[str, float]]:
    return list(zip("NX?", counts, strict=True))


@dataclass(frozen=True)
class PairView:
    """All there is to say of one pair. `mixture`: shares of necessary, inappropriate, abstain; None where unknown.
    `rule`: the one that holds for the labelling; None without a labelling."""

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
    rule: AppliedRule | None

    @property
    def effective(self) -> Label | None:
        """The newest standing decision's label, else the consensus; None for a pair that nobody labelled."""
        return self.decision.label if self.decision else self.consensus


def pairs(
    store: Store, labelling_id: str | None, profile_id: int, context_id: int, attribute_id: int | None = None
) -> list[PairView]:
    """Every pair of a profile in a context, attributes in their order, or that of one attribute alone; without a
    labelling there are no votes.

    Raises StoreError where the profile or labelling is not there, or the context or attribute is none of the profile's.
    """
    with store.read() as connection:
        record = datasets.profile_record(connection, profile_id)
        if context_id not in record.context_ids:
            raise StoreError(f"profile {profile_id} has no context {context_id}. Choose one of its contexts.")
        if attribute_id is not None and attribute_id not in record.attribute_ids:
            raise StoreError(f"profile {profile_id} has no attribute {attribute_id}. Choose one of its attributes.")
        attributes = {
            i: item
            for i, item in zip(record.attribute_ids, record.profile.attributes, strict=True)
            if attribute_id in (None, i)
        }
        rule, personas = None, {}
        ballots: list[tuple[PersonaVotes, ...]] = [()] * len(attributes)
        if labelling_id is not None:
            if work.load(connection, labelling_id)["dataset"] != record.dataset:
                raise StoreError(f"the labelling '{labelling_id}' is of another dataset. Choose one that is listed.")
            rule, personas = applied_rule(connection, labelling_id), labellings.personas(connection, labelling_id)
            ballots = _votes(connection, labelling_id, profile_id, context_id, list(attributes), personas, rule)
        history = decisions.history(connection, record.dataset, list(attributes), context_id)
    standing = decisions.standing(history)
    context = record.profile.contexts[record.context_ids.index(context_id)]
    codes, mixed = _settled(ballots, rule)
    views = []
    for n, (i, attribute) in enumerate(attributes.items()):
        label = None if codes[n] == UNLABELLED else LABELS[int(codes[n])]
        views.append(
            PairView(
                attribute_id=i,
                attribute=attribute,
                context_id=context_id,
                context=context,
                votes=ballots[n],
                mixture=mixed[n],
                consensus=label,
                decision=standing.get((i, context_id)),
                history=tuple(d for d in history if d.attribute == i),
                explanation=explain(ballots[n], label, rule.threshold if rule else PAPER_THRESHOLD),
                missing=missing_words(ballots[n]),
                rule=rule,
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


def explain(votes: Sequence[PersonaVotes], label: Label | None, threshold: float = PAPER_THRESHOLD) -> str:
    """The consensus rule applied to these votes, in words: 'Pragmatic 3 of 10 abstain. Not every counted vote says
    inappropriate: ambiguous.' threshold: 1 is the paper's rule, which asks for every counted vote; below 1 the mixture
    must reach it. Personas with a prior of 0 are not asked."""
    imported = any(v.shares is not None for v in votes)
    if label is None:
        none = "No share is given" if imported else "No vote is counted"
        return f"{none} for this pair, so it has no consensus label."
    asked = [v for v in votes if v.prior > 0]
    silent = [v.persona.key for v in asked if not v.counted]
    if silent:
        return f"No counted vote of {_listed(silent)}. Consensus needs every persona: ambiguous."
    if threshold < PAPER_THRESHOLD:
        return _reached(asked, label, threshold)
    sums = np.array([v.counts for v in asked]).sum(axis=0)
    total = sum(v.counted for v in asked)
    if imported:
        return _unanimous_shares(asked, label, sums)
    if label is not Label.AMBIGUOUS:
        return f"{total:.0f} of {total:.0f} counted votes say {label}: consensus."
    if sums[2] == total:
        return f"{total:.0f} of {total:.0f} counted votes abstain: ambiguous."
    leading = _leading(sums)
    parts = []
    for item in asked:
        against = [f"{n:.0f} of {item.counted:.0f} {_says(k)}" for k, n in enumerate(item.counts) if n and k != leading]
        if against:
            parts.append(f"{item.persona.key} {' and '.join(against)}")
    return f"{_sentence(parts)} Not every counted vote says {COUNTED[leading]}: ambiguous."


def _reached(asked: Sequence[PersonaVotes], label: Label, threshold: float) -> str:
    """A rule below unanimity, in words: which share of the mixture leads, and whether it reaches the threshold."""
    mixed = mixture(np.array([v.counts for v in asked]), [v.prior for v in asked])
    leading = _leading(mixed)
    share, needed = _percent(mixed[leading]), _percent(threshold)
    if label is Label.AMBIGUOUS:
        return f"{share} of the mixture says {COUNTED[leading]}, less than the threshold of {needed}: ambiguous."
    return f"{share} of the mixture says {label}; the threshold is {needed}: consensus."


def _unanimous_shares(asked: Sequence[PersonaVotes], label: Label, sums: npt.NDArray[np.float64]) -> str:
    if label is not Label.AMBIGUOUS:
        return f"Every persona's share is wholly {label}: consensus."
    leading = _leading(sums)
    parts = [
        f"{v.persona.key} {_percent(1 - v.counts[leading] / v.counted)}" for v in asked if v.counts[leading] < v.counted
    ]
    return f"Not {COUNTED[leading]}: {_listed(parts)}. Consensus needs every share to be whole: ambiguous."


def _leading(sums: Sequence[float] | npt.NDArray[np.float64]) -> int:
    """Necessary (0) or inappropriate (1), whichever has more."""
    return 0 if sums[0] >= sums[1] else 1


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


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


def _votes(
    connection: sa.Connection,
    labelling_id: str,
    profile_id: int,
    context_id: int,
    attribute_ids: Sequence[int],
    personas: Mapping[int, Persona],
    rule: AppliedRule,
) -> list[tuple[PersonaVotes, ...]]:
    """The votes of every persona on these attributes in one context, or the shares that were imported, in order."""
    shares = _shares(connection, labelling_id, profile_id, context_id)
    if shares is not None:
        nothing = (0.0, 0.0, 0.0)
        return [
            tuple(
                PersonaVotes(p, (), prior, shares.get((a, i), nothing))
                for (i, p), prior in zip(personas.items(), rule.priors, strict=True)
            )
            for a in attribute_ids
        ]
    found = labellings.context_votes(connection, labelling_id, profile_id, context_id)
    causes = _ballots(connection, labelling_id, profile_id, context_id)
    return [
        tuple(
            PersonaVotes(p, _draws(found.get(a, {}).get(i, ()), causes.get(i, {})), prior)
            for (i, p), prior in zip(personas.items(), rule.priors, strict=True)
        )
        for a in attribute_ids
    ]


def _shares(
    connection: sa.Connection, labelling_id: str, profile_id: int, context_id: int
) -> dict[tuple[int, int], tuple[float, float, float]] | None:
    """By (attribute, persona); None for a labelling that has votes."""
    if work.load(connection, labelling_id)["endpoint"] != labellings.IMPORTED:
        return None
    rows = labellings.tallies(connection, labelling_id, profile_id)
    return {
        (row.attribute, row.persona): (row.necessary, row.inappropriate, row.abstain)
        for row in rows
        if row.context == context_id
    }


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
    ballots: Sequence[Sequence[PersonaVotes]], rule: AppliedRule | None
) -> tuple[Sequence[int], list[tuple[float, float, float] | None]]:
    if rule is None or not ballots:
        return [UNLABELLED] * len(ballots), [None] * len(ballots)
    counts = np.array([[v.counts for v in row] for row in ballots])
    mixed = mixture(counts, rule.priors)
    shares = [None if np.isnan(row).any() else (float(row[0]), float(row[1]), float(row[2])) for row in mixed]
    return [int(code) for code in consensus(counts, rule.priors, rule.threshold)], shares
