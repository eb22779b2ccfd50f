"""The pairs (attribute, context) of a labelling: votes, consensus and decisions.

A pair is labelled by its newest standing decision, else by the consensus of the personas. A vote that could not be read
is missing, with its cause; it is never an abstention. Beside that: what recorded runs did with one pair, and the groups
(domain, sphere, context, profile) that pairs fall into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.labels import (
    LABELS,
    ONE_LOST_OF,
    PAPER_THRESHOLD,
    TOO_FEW,
    TOO_FEW_NAME,
    UNLABELLED,
    AppliedRule,
    VoteCounts,
    applied_rule,
    consensus,
    mixture,
)
from cimemories.model import Attribute, Context, JudgementStatus, Label, Persona, Strength, Verdict
from cimemories.store import datasets, decisions, labellings, work
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.rows import in_chunks
from cimemories.store.tables import attribute, ballot, context, judgement, profile, response, reveal, run, run_judge
from cimemories.text import count, exact_percent, listed

# ---- groups: small codes a pair


NO_SPHERE = "no sphere given"
Codes = npt.NDArray[np.int64]


class GroupBy(StrEnum):
    """A property by which shares are broken down."""

    DOMAIN = "domain"
    SPHERE = "sphere"
    CONTEXT = "context"
    PROFILE = "profile"


@dataclass(frozen=True)
class Groups:
    """One grouping. ids: what tells a group apart in the record (a name, or an id of a row); names: what is shown;
    codes: [pairs], the position of each pair's group in `ids`."""

    ids: tuple[str | int, ...]
    names: tuple[str, ...]
    codes: Codes

    def count(self, mask: npt.NDArray[np.bool_]) -> Codes:
        """Count the masked pairs by group: [groups]. mask: [pairs]."""
        return np.bincount(self.codes[mask], minlength=len(self.ids))


def groupings(connection: sa.Connection, dataset_id: int, counts: VoteCounts) -> dict[GroupBy, Groups]:
    """Return every grouping of the pairs of a labelling, groups in the order of the record."""
    attributes = connection.execute(
        sa.select(attribute.c.id, attribute.c.domain, attribute.c.profile)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(attribute.c.id)
    ).all()
    contexts = connection.execute(
        sa.select(context.c.id, context.c.sphere, context.c.recipient, context.c.task)
        .where(context.c.dataset == dataset_id)
        .order_by(context.c.id)
    ).all()
    people = connection.execute(
        sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    ).all()
    # Rows come ordered by id, so searchsorted finds the position of each; every counted pair is of this dataset.
    by_attribute = np.searchsorted(np.array([row.id for row in attributes], np.int64), counts.attributes)
    by_context = np.searchsorted(np.array([row.id for row in contexts], np.int64), counts.contexts)
    position = {row.id: n for n, row in enumerate(people)}
    owners = [position[row.profile] for row in attributes]
    return {
        GroupBy.DOMAIN: _by_name([row.domain for row in attributes], by_attribute),
        GroupBy.SPHERE: _by_name([row.sphere or NO_SPHERE for row in contexts], by_context),
        GroupBy.CONTEXT: Groups(
            tuple(row.id for row in contexts), tuple(f"{row.recipient}: {row.task}" for row in contexts), by_context
        ),
        GroupBy.PROFILE: Groups(
            tuple(row.id for row in people), tuple(row.name for row in people), _coded(owners, by_attribute)
        ),
    }


def _by_name(names: Sequence[str], position: Codes) -> Groups:
    """Group pairs by a name; position: [pairs] into `names`."""
    unique = sorted(set(names))
    shown = tuple(name.replace("_", " ") for name in unique)
    return Groups(tuple(unique), shown, _coded([unique.index(name) for name in names], position))


def _coded(codes: Sequence[int], position: Codes) -> Codes:
    # Without any code there is no pair either, and nothing to look up.
    return np.array(codes, np.int64)[position] if codes else position


LOOKED_UP, MOST_STEPS = 1_000, 20  # attributes of one query, and queries beyond which all of a dataset are read


def describe_pairs(connection: sa.Connection, dataset_id: int, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return these pairs (columns attribute, context: ids) in their order, with what a person reads beside their
    further columns: profile (id), user, key, domain, statement, recipient, task."""
    query = (
        sa.select(
            attribute.c.id,
            attribute.c.profile,
            profile.c.name,
            attribute.c.key,
            attribute.c.domain,
            attribute.c.statement,
        )
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    ids = [int(i) for i in pairs["attribute"].unique()]
    # A few of a dataset of any size are looked up, and not found among all of them.
    steps = [ids[start : start + LOOKED_UP] for start in range(0, len(ids), LOOKED_UP)]
    queries = [query.where(attribute.c.id.in_(step)) for step in steps] if len(steps) <= MOST_STEPS else [query]
    attributes = [row for one in queries for row in connection.execute(one).all()]
    contexts = connection.execute(
        sa.select(context.c.id, context.c.recipient, context.c.task).where(context.c.dataset == dataset_id)
    ).all()
    named = pairs.merge(
        pd.DataFrame(attributes, columns=["attribute", "profile", "user", "key", "domain", "statement"]),
        on="attribute",
        how="left",
    )
    return named.merge(pd.DataFrame(contexts, columns=["context", "recipient", "task"]), on="context", how="left")


@dataclass(frozen=True)
class PairText:
    """A pair with what a person reads of it. attribute, context, profile: ids; user: the profile's name."""

    attribute: int
    context: int
    profile: int
    user: str
    key: str
    domain: str
    statement: str
    recipient: str
    task: str

    @property
    def pair(self) -> tuple[int, int]:
        return self.attribute, self.context


def pair_texts(connection: sa.Connection, pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], PairText]:
    """Return the texts of these pairs (attribute id, context id)."""
    facts = sa.select(attribute.c.id, attribute.c.profile, profile.c.name, attribute.c.key, attribute.c.domain)
    facts = facts.add_columns(attribute.c.statement).join(profile, attribute.c.profile == profile.c.id)
    towards = sa.select(context.c.id, context.c.recipient, context.c.task)
    attributes: dict[int, Sequence[Any]] = {}
    contexts: dict[int, Sequence[Any]] = {}
    for ids in in_chunks({a for a, _ in pairs}):
        attributes |= {i: row for i, *row in connection.execute(facts.where(attribute.c.id.in_(ids)))}
    for ids in in_chunks({c for _, c in pairs}):
        contexts |= {i: row for i, *row in connection.execute(towards.where(context.c.id.in_(ids)))}
    return {(a, c): PairText(a, c, *attributes[a], *contexts[c]) for a, c in pairs}


# ---- what recorded runs did with one pair


WHOLE = "full"  # the composition of a run whose assistants hold everything


@dataclass(frozen=True)
class PairRun:
    """One run on one pair, by its first judge. draws: judged messages whose memory held the attribute; reveals: in how
    many of them it is revealed in full; expected: how many messages were planned with it in memory. composition: what
    memories of the run hold; a reduced one says something else than the whole, and is to be named."""

    run_id: str
    name: str
    simulated: bool
    expected: int
    draws: int
    reveals: int
    composition: str = WHOLE

    @property
    def title(self) -> str:
        """Return the run's name, with its memory where that is not the whole."""
        return self.name if self.composition == WHOLE else f"{self.name} (memory: {self.composition})"


def pair_runs(store: Store, attribute_id: int, context_id: int) -> list[PairRun]:
    """Return every run that was to write messages of the attribute's profile in that context with it in memory, oldest
    first. Messages that are missing, or have no verdict, are in no `draws`."""
    judged = sa.and_(
        judgement.c.response == response.c.id,
        judgement.c.judge == run_judge.c.judge,
        judgement.c.status == JudgementStatus.OK,
    )
    revealed = sa.and_(
        reveal.c.judgement == judgement.c.id, reveal.c.attribute == attribute_id, reveal.c.strength == Strength.FULL
    )
    profile_id = sa.select(attribute.c.profile).where(attribute.c.id == attribute_id).scalar_subquery()
    # Inner joins to what was planned, outer ones to what came of it: a message without a judgement or a reveal still
    # counts as expected. count leaves out the nulls of an outer join.
    query = (
        sa.select(
            run.c.id,
            run.c.name,
            run.c.simulated,
            run.c.composition,
            response.c.memory,
            sa.func.count(response.c.id.distinct()).label("expected"),
            sa.func.count(judgement.c.id.distinct()).label("draws"),
            sa.func.count(reveal.c.judgement.distinct()).label("reveals"),
        )
        .select_from(run)
        .join(run_judge, sa.and_(run_judge.c.run == run.c.id, run_judge.c.ordinal == 0))
        .join(
            response,
            sa.and_(
                response.c.run == run.c.id,
                response.c.profile == profile_id,
                response.c.context == context_id,
            ),
        )
        .outerjoin(judgement, judged)
        .outerjoin(reveal, revealed)
        .where(run.c.explains.is_(None))
        # By memory, since whether one holds the attribute is looked up after the query.
        .group_by(run.c.id, run.c.name, run.c.simulated, run.c.composition, run.c.created, response.c.memory)
        .order_by(run.c.created, run.c.id)
    )
    with store.read() as connection:
        rows = connection.execute(query).all()
        memories = datasets.memories_of(connection, {row.memory for row in rows if row.memory is not None})
    runs: dict[str, PairRun] = {}
    for row in rows:
        # A memory that the record has no list of counts as whole.
        if row.memory is not None and attribute_id not in memories.get(row.memory, (attribute_id,)):
            continue
        # The rows of a run's several memories add up.
        counts = runs.setdefault(row.id, PairRun(row.id, row.name, row.simulated, 0, 0, 0, row.composition))
        runs[row.id] = replace(
            counts,
            expected=counts.expected + row.expected,
            draws=counts.draws + row.draws,
            reveals=counts.reveals + row.reveals,
        )
    return list(runs.values())


# ---- the pairs of one profile in one context


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
        """Return the votes for necessary, inappropriate, abstain, or the imported shares."""
        if self.shares is not None:
            return self.shares
        counts = Counter(self.draws)
        return counts[Verdict.NECESSARY], counts[Verdict.INAPPROPRIATE], counts[Verdict.ABSTAIN]

    @property
    def counted(self) -> float:
        """Return the number of counted votes; of imported shares, their sum."""
        return sum(self.counts)

    @property
    def missing(self) -> dict[str, int]:
        """Count the draws that are not counted, by cause."""
        return {cause: n for cause, n in Counter(self.draws).items() if cause not in COUNTED}

    @property
    def strip(self) -> str:
        """Return one character a draw: N, X, ? for an abstention, - where the vote is missing. More than ten draws are
        counted instead: 'X 58, ? 2'. Imported shares are percentages: 'X 97 %, ? 3 %'."""
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
    """One pair with its votes and decisions. `mixture`: shares of necessary, inappropriate, abstain; None where
    unknown. `rule`: the one that holds for the labelling; None without a labelling. too_few: some persona has fewer
    counted votes than the rule asks for."""

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
    too_few: bool = False

    @property
    def kind(self) -> str | None:
        """Return the effective label, TOO_FEW_NAME where some persona has too few counted votes, None without votes."""
        return self.effective or (TOO_FEW_NAME if self.too_few else None)

    @property
    def effective(self) -> Label | None:
        """Return the newest standing decision's label, else the consensus; None for an unlabelled pair."""
        return self.decision.label if self.decision else self.consensus


def pairs(
    store: Store, labelling_id: str | None, profile_id: int, context_id: int, attribute_id: int | None = None
) -> list[PairView]:
    """Return every pair of a profile in a context, attributes in their order, or that of one attribute alone; without a
    labelling there are no votes. Raises StoreError where the profile or labelling is not there, or the context or
    attribute is none of the profile's."""
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
    for n, (i, item) in enumerate(attributes.items()):
        label = LABELS.get(int(codes[n]))
        views.append(
            PairView(
                attribute_id=i,
                attribute=item,
                context_id=context_id,
                context=context,
                votes=ballots[n],
                mixture=mixed[n],
                consensus=label,
                decision=standing.get((i, context_id)),
                history=tuple(d for d in history if d.attribute == i),
                explanation=explain(
                    ballots[n], label, rule.threshold if rule else PAPER_THRESHOLD, _needed(ballots[n], rule)
                ),
                missing=missing_text(ballots[n]),
                rule=rule,
                too_few=codes[n] == TOO_FEW,
            )
        )
    return views


def decide(
    store: Store, dataset_id: int, pair: PairView, *, annotator: str, label: Label | None, reason: str = ""
) -> str:
    """Record a person's decision on a pair and return its uid; None withdraws their last one. Raises StoreError as
    decisions.add_all does."""
    new = decisions.NewDecision(pair.attribute_id, pair.context_id, label, reason=reason)
    with store.write(Role.ANNOTATOR) as connection:
        decisions.take_turns(connection, dataset_id, annotator)
        decisions.add_all(connection, dataset_id, annotator, [new])
    return new.uid


def _needed(votes: Sequence[PersonaVotes], rule: AppliedRule | None) -> int:
    """Return how many counted votes the rule asks of each persona, as in VoteCounts.needed."""
    if rule is None or rule.shares:
        return 0
    planned = max((len(item.draws) for item in votes), default=0)
    return planned - planned // ONE_LOST_OF if rule.least_votes is None else rule.least_votes


def explain(
    votes: Sequence[PersonaVotes], label: Label | None, threshold: float = PAPER_THRESHOLD, needed: int = 0
) -> str:
    """Return the consensus rule applied to these votes, in words: 'Pragmatic 3 of 10 abstain. Not every counted vote
    says inappropriate: ambiguous.' threshold: 1 is the paper's rule, which asks for every counted vote; below 1 the
    mixture must reach it. needed: counted votes that each persona must have. Personas with a prior of 0 are left
    out."""
    imported = any(v.shares is not None for v in votes)
    short = [f"{v.persona.key} has {v.counted:.0f}" for v in votes if v.prior > 0 and v.counted < needed]
    if label is None and short and any(v.counted for v in votes):
        return f"The rule asks for {count(needed, 'counted vote')} of each persona; {listed(short)}: {TOO_FEW_NAME}."
    if label is None:
        none = "No share is given" if imported else "No vote is counted"
        return f"{none} for this pair, so it has no consensus label."
    voters = [v for v in votes if v.prior > 0]
    if without_votes := [v.persona.key for v in voters if not v.counted]:
        return f"No counted vote of {listed(without_votes)}. Consensus needs every persona: ambiguous."
    if threshold < PAPER_THRESHOLD:
        mixed = mixture(np.array([v.counts for v in voters]), [v.prior for v in voters])
        leading = _leading(mixed)
        share, least = exact_percent(mixed[leading]), exact_percent(threshold)
        if label is Label.AMBIGUOUS:
            return f"{share} of the mixture says {COUNTED[leading]}, less than the threshold of {least}: ambiguous."
        return f"{share} of the mixture says {label}; the threshold is {least}: consensus."
    sums = np.array([v.counts for v in voters]).sum(axis=0)
    leading = _leading(sums)
    if imported:
        if label is not Label.AMBIGUOUS:
            return f"Every persona's share is wholly {label}: consensus."
        parts = [
            f"{v.persona.key} {exact_percent(1 - v.counts[leading] / v.counted)}"
            for v in voters
            if v.counts[leading] < v.counted
        ]
        return f"Not {COUNTED[leading]}: {listed(parts)}. Consensus needs every share to be whole: ambiguous."
    total = sum(v.counted for v in voters)
    if label is not Label.AMBIGUOUS:
        return f"{total:.0f} of {total:.0f} counted votes say {label}: consensus."
    if sums[2] == total:
        return f"{total:.0f} of {total:.0f} counted votes abstain: ambiguous."
    verbs = ("say necessary", "say inappropriate", "abstain")
    parts = []
    for item in voters:
        against = [f"{n:.0f} of {item.counted:.0f} {verbs[k]}" for k, n in enumerate(item.counts) if n and k != leading]
        if against:
            parts.append(f"{item.persona.key} {' and '.join(against)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}. Not every counted vote says {COUNTED[leading]}: ambiguous."


def _leading(sums: npt.NDArray[np.float64]) -> int:
    """Return necessary (0) or inappropriate (1), the one with more."""
    return 0 if sums[0] >= sums[1] else 1


def missing_text(votes: Sequence[PersonaVotes]) -> str:
    """List the missing votes with their causes: 'fundamentalist 1 unparsed; unconcerned 2 failed'; empty where none
    are."""
    return "; ".join(
        f"{item.persona.key} {', '.join(f'{n} {cause}' for cause, n in item.missing.items())}"
        for item in votes
        if item.missing
    )


def _votes(
    connection: sa.Connection,
    labelling_id: str,
    profile_id: int,
    context_id: int,
    attribute_ids: Sequence[int],
    personas: Mapping[int, Persona],
    rule: AppliedRule,
) -> list[tuple[PersonaVotes, ...]]:
    """Return the votes of every persona on these attributes in one context, or the shares that were imported, in
    order."""
    people = [(i, persona, prior) for (i, persona), prior in zip(personas.items(), rule.priors, strict=True)]
    if work.load(connection, labelling_id)["endpoint"] == labellings.IMPORTED:
        shares = {
            (row.attribute, row.persona): (row.necessary, row.inappropriate, row.abstain)
            for row in labellings.tallies(connection, labelling_id, profile_id)
            if row.context == context_id
        }
        nothing = (0.0, 0.0, 0.0)
        return [
            tuple(PersonaVotes(persona, (), prior, shares.get((a, i), nothing)) for i, persona, prior in people)
            for a in attribute_ids
        ]
    rows = connection.execute(
        sa.select(ballot.c.persona, ballot.c.draw, ballot.c.status)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id, ballot.c.context == context_id)
        .order_by(ballot.c.draw)
    )
    statuses: dict[int, dict[int, str]] = {}  # persona -> draw -> status of the ballot
    for persona_id, draw, status in rows:
        statuses.setdefault(persona_id, {})[draw] = status
    votes = labellings.context_votes(connection, labelling_id, profile_id, context_id)
    # As VoteCounts.under has it.
    read = {str(Verdict.CONFLICT): rule.both_lists}

    def draws(attribute_id: int, persona_id: int) -> tuple[str, ...]:
        verdicts = dict(votes.get(attribute_id, {}).get(persona_id, ()))
        return tuple(
            # The ballot arrived but says nothing of this attribute, or it did not arrive: then its status is the cause.
            read.get(verdict := verdicts.get(draw, "no vote" if status == labellings.OK else status), verdict)
            for draw, status in statuses.get(persona_id, {}).items()
        )

    return [tuple(PersonaVotes(persona, draws(a, i), prior) for i, persona, prior in people) for a in attribute_ids]


def _settled(
    ballots: Sequence[Sequence[PersonaVotes]], rule: AppliedRule | None
) -> tuple[Sequence[int], list[tuple[float, float, float] | None]]:
    if rule is None or not ballots:
        return [UNLABELLED] * len(ballots), [None] * len(ballots)
    counts = np.array([[v.counts for v in row] for row in ballots])
    mixed = mixture(counts, rule.priors)
    # nan: a persona has no counted vote, so there is no mixture.
    shares = [None if np.isnan(row).any() else (float(row[0]), float(row[1]), float(row[2])) for row in mixed]
    needed = [_needed(row, rule) for row in ballots]
    return [int(code) for code in consensus(counts, rule.priors, rule.threshold, needed)], shares
