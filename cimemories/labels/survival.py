"""Survival: the share of pairs with a consensus, who prevents one, and which contexts are discarded for whom; with
the statistics of the paper's Table 2.

This is the paper's word for pairs whose label survives the vote, not survival analysis: nothing is censored, and every
share has the labelled pairs as its denominator. Definitions are in docs/metrics.md. Everything here is of the rule that
holds for the labelling (flows.labels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.flows.cache import workspace_cached
from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    NECESSARY,
    TOO_FEW,
    UNLABELLED,
    AppliedRule,
    applied_rule,
    consensus,
    rule_of,
)
from cimemories.labels.votes import GroupBy, Groups
from cimemories.labels.whatif import labelled_pairs, pairs_version
from cimemories.store import datasets, work
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, profile, profile_context
from cimemories.text import count

Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]

# Who prevents a consensus where it is not one persona alone.
ANY_OF_SEVERAL = "any of several"
ALL_ABSTAIN = "all abstain"
SEVERAL = "several"
# How one persona alone does it.
OPPOSITE, ABSTAINS, DIVIDED, NO_VOTE = "says the opposite", "abstains", "is divided", "has no counted vote"
# Why a context is discarded for a profile.
NO_NECESSARY, NO_INAPPROPRIATE, NEITHER = "no necessary attribute", "no inappropriate attribute", "neither"
RESULTS_CACHED = 8


@dataclass(frozen=True)
class Decided:
    """Pairs with a standing decision of a person, by what the rule says of them; the four parts add up to `pairs`.
    agree: the same. settled: ambiguous by the rule, necessary or inappropriate by the person. against: another label
    than the consensus, or taken out of it (decided as ambiguous). unlabelled: no vote is counted, or too few."""

    pairs: int
    agree: int
    settled: int
    against: int
    unlabelled: int


@dataclass(frozen=True)
class Survival:
    """The survival of the pairs of one labelling.

    pairs: with enough counted votes, the denominator of every share; too_few: with fewer votes of some persona than the
    rule asks for, in no share; planned: all pairs of the dataset. needed: how many votes of each persona a pair needs,
    least and most over the pairs; 0 for imported shares. by: one frame a grouping with the columns id, name, pairs,
    necessary, ambiguous, inappropriate, too_few, survival (share, 0 to 1; nan where all pairs have too few votes),
    groups without a vote left out. dissent: columns who, how, pairs, share (of the ambiguous pairs); sums to them.
    decisions: pairs that a person decided, which no share above looks at. effective: necessary, inappropriate and
    ambiguous pairs where these decisions go before the rule.
    """

    labelling_id: str
    rule: AppliedRule
    imported: bool
    planned: int
    pairs: int
    necessary: int
    inappropriate: int
    ambiguous: int
    by: Mapping[GroupBy, pd.DataFrame]
    dissent: pd.DataFrame
    decisions: Decided
    too_few: int = 0
    needed: tuple[int, int] = (0, 0)
    effective: tuple[int, int, int] = (0, 0, 0)

    @property
    def unlabelled(self) -> int:
        """Return the number of pairs without a counted vote."""
        return self.planned - self.pairs - self.too_few

    @property
    def too_few_text(self) -> str:
        """'1,203 pairs have too few votes for a label (needed: 9 counted votes of each persona).'; '' if none has."""
        if not self.too_few:
            return ""
        have = "has" if self.too_few == 1 else "have"
        return f"{count(self.too_few, 'pair')} {have} too few votes for a label (needed: {self.needed_text})."

    @property
    def needed_text(self) -> str:
        """Describe what a pair needs: '9 counted votes of each persona'; '' where any number is enough."""
        low, high = self.needed
        if not high:
            return ""
        return f"{count(low, 'counted vote') if low == high else f'{low} to {high} counted votes'} of each persona"

    @property
    def share(self) -> float:
        """Return the share of labelled pairs with a consensus; nan without any."""
        return (self.necessary + self.inappropriate) / self.pairs if self.pairs else float("nan")


def survival(store: Store, labelling_id: str, rule: AppliedRule | None = None) -> Survival:
    """Return the survival of a labelling under a rule (None: its own), cached until votes or decisions change. It is
    shared: do not write to it. Raises StoreError for an unknown labelling."""
    if rule is None:
        with store.read() as connection:
            rule = applied_rule(connection, labelling_id)
    return _survival(store, labelling_id, pairs_version(store, labelling_id), rule)


@workspace_cached(most=RESULTS_CACHED)
def _survival(
    store: Store, labelling_id: str, version: tuple[int, tuple[int, int | None]], rule: AppliedRule
) -> Survival:
    pairs = labelled_pairs(store, labelling_id)
    with store.read() as connection:
        sizes = datasets.sizes(connection, version[0]).values()
    labels = pairs.counts.labels(rule)
    by_person, by_rule = pairs.decided_labels[pairs.decided], labels[pairs.decided]
    agree, unlabelled = by_person == by_rule, by_rule < AMBIGUOUS
    settled = ~agree & (by_rule == AMBIGUOUS)
    # Four parts that exclude each other: what disagrees with no vote at all is `unlabelled`, not `against`.
    parts = (agree, settled, ~agree & ~unlabelled & ~settled, unlabelled)
    # Pairs that were only decided have no votes that any could be asked for.
    voted = labels != UNLABELLED
    needed = np.broadcast_to(pairs.counts.needed(rule.least_votes), labels.shape)[voted]
    effective = np.where(pairs.decided, pairs.decided_labels, labels)
    return Survival(
        labelling_id=labelling_id,
        rule=rule,
        imported=pairs.counts.imported,
        planned=sum(size.attributes * size.contexts for size in sizes),
        pairs=int((labels >= AMBIGUOUS).sum()),
        necessary=int((labels == NECESSARY).sum()),
        inappropriate=int((labels == INAPPROPRIATE).sum()),
        ambiguous=int((labels == AMBIGUOUS).sum()),
        by={group_by: by_group(groups, labels) for group_by, groups in pairs.groups.items()},
        dissent=dissent(pairs.counts.under(rule.both_lists).votes, rule, labels),
        decisions=Decided(len(by_person), *(int(part.sum()) for part in parts)),
        too_few=int((labels == TOO_FEW).sum()),
        needed=(int(needed.min()), int(needed.max())) if len(needed) else (0, 0),
        effective=(
            int((effective == NECESSARY).sum()),
            int((effective == INAPPROPRIATE).sum()),
            int((effective == AMBIGUOUS).sum()),
        ),
    )


def by_group(groups: Groups, labels: Labels) -> pd.DataFrame:
    """Count labels by group: columns id, name, pairs, necessary, ambiguous, inappropriate, too_few, survival."""
    parts = {
        "necessary": groups.count(labels == NECESSARY),
        "ambiguous": groups.count(labels == AMBIGUOUS),
        "inappropriate": groups.count(labels == INAPPROPRIATE),
    }
    pairs = parts["necessary"] + parts["ambiguous"] + parts["inappropriate"]
    parts["too_few"] = groups.count(labels == TOO_FEW)
    frame = pd.DataFrame({"id": list(groups.ids), "name": list(groups.names), "pairs": pairs, **parts})
    agreed = frame["necessary"] + frame["inappropriate"]
    frame["survival"] = np.where(pairs > 0, agreed / np.maximum(pairs, 1), np.nan)
    return frame[pairs + parts["too_few"] > 0].reset_index(drop=True)


def dissent(votes: npt.NDArray[np.generic], rule: AppliedRule, labels: Labels) -> pd.DataFrame:
    """Return who prevents a consensus: columns who, how, pairs, share of the ambiguous pairs; most frequent first.

    votes: [pairs, personas, 3]; labels: [pairs], by this rule. A persona dissents alone where the rule over the others,
    their priors scaled up to 1, gives necessary or inappropriate, and it is the only one of whom this is true: `who` is
    then its key and `how` what it does. Personas with a prior of 0 are left out. Else `who` is ALL_ABSTAIN,
    ANY_OF_SEVERAL (more than one could be left out) or SEVERAL (leaving out no single one is enough), `how` is ''.
    """
    counts = np.asarray(votes, dtype=np.float64)[labels == AMBIGUOUS]
    with_prior = [n for n, prior in enumerate(rule.priors) if prior > 0]
    # One column a persona: what the others alone would have decided. Pairs are ambiguous here, so a label above
    # AMBIGUOUS says that this persona is in the way; where that is true of one persona only, it dissents alone.
    without = np.stack([_without(counts, rule, n, with_prior) for n in with_prior], axis=1)
    alone = (without > AMBIGUOUS).sum(axis=1) == 1
    counted: dict[tuple[str, str], int] = {}
    for position, persona in enumerate(with_prior):
        mask = alone & (without[:, position] > AMBIGUOUS)
        for how, those in _how(counts[mask, persona], without[mask, position]).items():
            counted[rule.keys[persona], how] = int(those.sum())
    # Over personas with a prior: the others have no say in the rule.
    verdicts = counts[:, with_prior].sum(axis=1)
    all_abstain = ~alone & (verdicts[:, 2] > 0) & (verdicts[:, :2].sum(axis=1) == 0)
    any_one = ~alone & ~all_abstain & ((without > AMBIGUOUS).sum(axis=1) > 1)
    counted[ALL_ABSTAIN, ""] = int(all_abstain.sum())
    counted[ANY_OF_SEVERAL, ""] = int(any_one.sum())
    counted[SEVERAL, ""] = int((~alone & ~all_abstain & ~any_one).sum())
    rows = [(who, how, n, n / len(counts)) for (who, how), n in counted.items() if n]
    frame = pd.DataFrame(rows, columns=["who", "how", "pairs", "share"])
    return frame.sort_values("pairs", ascending=False, kind="stable").reset_index(drop=True)


def _without(counts: npt.NDArray[np.float64], rule: AppliedRule, persona: int, with_prior: list[int]) -> Labels:
    """Return the labels that the rule gives without one persona: [pairs]; AMBIGUOUS where there is no other."""
    others = [n for n in with_prior if n != persona]
    if not others:
        return np.full(len(counts), AMBIGUOUS, np.int8)
    # Scaled up to 1, so that the threshold asks the same of the others as of all.
    priors = np.array([rule.priors[n] for n in others])
    return consensus(counts[:, others], priors / priors.sum(), rule.threshold)


def _how(counts: npt.NDArray[np.float64], others: Labels) -> dict[str, Bools]:
    """Return how a persona that dissents alone votes, by more than half of its counted votes. counts: [pairs, 3];
    others: the label that the others agree on."""
    total = counts.sum(axis=1)
    other_verdict = np.where(others == NECESSARY, counts[:, 1], counts[:, 0])
    none = total == 0
    # More than half, so that at most one of these is true of a pair.
    opposite = ~none & (2 * other_verdict > total)
    abstains = ~none & (2 * counts[:, 2] > total)
    return {OPPOSITE: opposite, ABSTAINS: abstains, NO_VOTE: none, DIVIDED: ~none & ~opposite & ~abstains}


@dataclass(frozen=True)
class Contexts:
    """The contexts that count for each profile, by effective labels (a standing decision before the consensus),
    as runs count them. frame: one row a (profile, context) with a label: profile, context (ids), user, name (of the
    context), sphere, attributes (labelled), necessary, inappropriate, reason ('' where retained). unlabelled: those of
    the dataset without any label, which are neither retained nor discarded."""

    frame: pd.DataFrame
    unlabelled: int

    @property
    def retained(self) -> int:
        return int((self.frame["reason"] == "").sum())

    @property
    def discarded(self) -> dict[str, int]:
        """Count discarded (profile, context) pairs by reason, all three reasons named."""
        counts = self.frame["reason"].value_counts()
        return {reason: int(counts.get(reason, 0)) for reason in (NO_NECESSARY, NO_INAPPROPRIATE, NEITHER)}


def contexts(store: Store, labelling_id: str) -> Contexts:
    """Return the contexts of every profile, retained or discarded and why. Raises StoreError for an unknown
    labelling."""
    pairs = labelled_pairs(store, labelling_id)
    labels = np.where(pairs.decided, pairs.decided_labels, pairs.counts.labels(rule_of(store, labelling_id)))
    people, contexts = pairs.groups[GroupBy.PROFILE], pairs.groups[GroupBy.CONTEXT]
    spheres = pairs.groups[GroupBy.SPHERE]
    # A (profile, context) as one number.
    cell = people.codes * len(contexts.ids) + contexts.codes
    size = len(people.ids) * len(contexts.ids)
    labelled, necessary, inappropriate = (
        np.bincount(cell[mask], minlength=size)
        for mask in (labels >= AMBIGUOUS, labels == NECESSARY, labels == INAPPROPRIATE)
    )
    # A context has one sphere, so any pair of it tells which.
    sphere_of = dict(zip(contexts.codes.tolist(), spheres.codes.tolist(), strict=True))
    rows = [
        {
            "profile": people.ids[c // len(contexts.ids)],
            "context": contexts.ids[c % len(contexts.ids)],
            "user": people.names[c // len(contexts.ids)],
            "name": contexts.names[c % len(contexts.ids)],
            "sphere": spheres.names[sphere_of[c % len(contexts.ids)]],
            "attributes": int(labelled[c]),
            "necessary": int(necessary[c]),
            "inappropriate": int(inappropriate[c]),
            "reason": _reason(int(necessary[c]), int(inappropriate[c])),
        }
        for c in np.flatnonzero(labelled).tolist()
    ]
    names = ["profile", "context", "user", "name", "sphere", "attributes", "necessary", "inappropriate", "reason"]
    with store.read() as connection:
        dataset_id = int(work.load(connection, labelling_id)["dataset"])
        tested = sum(_by_profile(connection, dataset_id, profile_context).values())
    return Contexts(pd.DataFrame(rows, columns=names), tested - len(rows))


def _reason(necessary: int, inappropriate: int) -> str:
    if necessary and inappropriate:
        return ""
    return NO_NECESSARY if inappropriate else NO_INAPPROPRIATE if necessary else NEITHER


# ---- Table 2 beside the published figures
#
# Those are facts of arXiv 2511.14937; a figure that is not at hand is None, never guessed.


PAPER = "arXiv 2511.14937"


@dataclass(frozen=True)
class Published:
    """A figure of the paper: as text, and the section or table that has it."""

    figure: str
    source: str


@dataclass(frozen=True)
class Statistic:
    """One line of the table. mean and sd (n - 1) over `over` things; both nan without any, sd nan with one. A plain
    count has sd None. published: None where the figure is not at hand."""

    name: str
    mean: float
    sd: float | None
    over: int
    unit: str
    published: Published | None


def table2(store: Store, labelling_id: str) -> tuple[Statistic, ...]:
    """Return the statistics of a labelling, by effective labels. All attributes count, those of the biography too.
    Profiles without any label are left out (`unlabelled_text` counts them): with 0 retained contexts they would pull
    the mean down. Raises StoreError for an unknown labelling."""
    with store.read() as connection:
        dataset_id = int(work.load(connection, labelling_id)["dataset"])
        attributes = _by_profile(connection, dataset_id, attribute)
        tested = _by_profile(connection, dataset_id, profile_context)
    frame = contexts(store, labelling_id).frame
    retained = frame[frame["reason"] == ""]
    labelled = set(frame["profile"])
    attributes, tested = ({p: n for p, n in each.items() if p in labelled} for each in (attributes, tested))
    by_profile = retained["profile"].value_counts()
    per_profile = [int(by_profile.get(profile_id, 0)) for profile_id in attributes]
    number = float(len(attributes))
    return (
        Statistic("Profiles", number, None, len(attributes), "profiles", Published("10", "Section 5.1")),
        _over("Attributes per profile", list(attributes.values()), "profiles", Published("about 147", "Table 2")),
        _over("Contexts per profile, all", list(tested.values()), "profiles", Published("49", "Section 4.1.2")),
        _over("Contexts per profile, retained", per_profile, "profiles", Published("about 45", "Table 2")),
        _over("Necessary attributes per context", retained["necessary"].tolist(), "retained contexts", None),
        _over("Inappropriate attributes per context", retained["inappropriate"].tolist(), "retained contexts", None),
    )


def _over(name: str, values: Sequence[int], unit: str, published: Published | None) -> Statistic:
    array: npt.NDArray[np.float64] = np.array(values, np.float64)
    mean = float(array.mean()) if len(array) else float("nan")
    sd = float(array.std(ddof=1)) if len(array) > 1 else float("nan")
    return Statistic(name, mean, sd, len(array), unit, published)


def _by_profile(connection: sa.Connection, dataset_id: int, table: sa.Table) -> dict[int, int]:
    """Count the rows of a table by profile, none left out."""
    # A subquery, not a join: profiles without a row would drop out of one.
    rows_of = sa.select(sa.func.count()).select_from(table).where(table.c.profile == profile.c.id).scalar_subquery()
    rows = connection.execute(
        sa.select(profile.c.id, rows_of).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    )
    return {profile_id: int(n) for profile_id, n in rows}
