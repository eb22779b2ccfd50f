"""The labels of a labelling under another rule. Nothing is written, and the answer takes milliseconds.

Only the consensus is looked at; a pair that a person decided keeps its label whatever the rule, and is counted apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.answer import Answer, Column, Table
from cimemories.evaluation.compositions import LabelSource
from cimemories.flows.cache import workspace_cached
from cimemories.flows.labels import (
    CODES,
    INAPPROPRIATE,
    LABELS,
    NECESSARY,
    TOO_FEW,
    TOO_FEW_NAME,
    UNLABELLED,
    AppliedRule,
    VoteCounts,
    applied_rule,
    consensus_labels,
    custom_rule,
    default_labelling,
    vote_counts,
)
from cimemories.labels.votes import GroupBy, Groups, groupings
from cimemories.model import Label
from cimemories.store import decisions, work
from cimemories.store.engine import Store, content_hash
from cimemories.store.labellings import BOTH_LISTS
from cimemories.store.tables import dataset
from cimemories.text import count, percent


def effective_labels(store: Store, dataset_id: int) -> LabelSource | None:
    """Return the labels of every pair that has one (a person's decision before the consensus) with where they come
    from, or None where nothing is labelled. The hash in the origin changes with any label."""
    labelling = default_labelling(store, dataset_id)
    labels: dict[tuple[int, int], Label] = {}
    if labelling is not None:
        frame = consensus_labels(store, labelling.id)
        for of, into, code in zip(frame["attribute"], frame["context"], frame["label"], strict=True):
            if (label := LABELS.get(int(code))) is not None:
                labels[int(of), int(into)] = label
    with store.read() as connection:
        standing = decisions.standing(decisions.history(connection, dataset_id))
    decided = {pair: decision.label for pair, decision in standing.items() if decision.label is not None}
    labels |= decided
    if not labels:
        return None
    origin = {
        "labelling": labelling.id if labelling else None,
        "decisions": len(decided),
        # Sorted, so that equal labels have one hash in whatever order they were read.
        "hash": content_hash(sorted((a, c, str(label)) for (a, c), label in labels.items())),
    }
    return LabelSource(labels, origin)


TRIED = "what if"
WIDTH = len(LABELS) - TOO_FEW  # a label's code less TOO_FEW, the lowest, is its place in a table
KEPT = [NECESSARY - TOO_FEW, INAPPROPRIATE - TOO_FEW]
NAMED = {TOO_FEW: TOO_FEW_NAME, **{code: str(label) for code, label in LABELS.items()}}
LABELLED = slice(-TOO_FEW, None)
LABELLINGS_CACHED = 4
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Pairs:
    """The input of trying a rule: the counted votes, the groups of the pairs, and which a person decided. decided:
    [pairs], whether a decision stands; decided_labels: its label code, UNLABELLED where none stands. A pair that was
    decided and never voted on is among the pairs, with no votes."""

    dataset_id: int
    counts: VoteCounts
    groups: Mapping[GroupBy, Groups]
    decided: Bools
    decided_labels: Labels


CHANGES = {"from": Column("text", "Label now"), "to": Column("text", "Label then"), "pairs": Column("count", "Pairs")}
BY = {
    "changed": Column("count", "Pairs that change"),
    "gained": Column("count", "Get a label"),
    "lost": Column("count", "Lose it"),
    "survival_before": Column("percent", "Consensus now"),
    "survival_after": Column("percent", "Consensus then"),
    "pairs": Column("count", "Pairs with votes"),
}


@dataclass(frozen=True, kw_only=True)
class WhatIf(Answer):
    """The labels of a labelling under the rule that holds and under one that is tried.

    pairs: with at least one counted vote. changes: from, to (labels in words or 'too few votes'), pairs, the most
    frequent first. survival_before, survival_after: of the pairs with enough votes, the share with a consensus; nan
    without any. too_few_before, too_few_after: pairs with too few. decided: of the pairs that change, how many a person
    decided, so that their effective label stays. by: one table a grouping with the columns id, name, pairs, changed,
    gained (no consensus before, one after), lost, survival_before, survival_after.
    """

    before: AppliedRule
    after: AppliedRule
    pairs: int
    changed: int
    decided: int
    changes: Table
    survival_before: float
    survival_after: float
    too_few_before: int
    too_few_after: int
    by: Mapping[GroupBy, Table]

    def tables(self) -> dict[str, Table]:
        return super().tables() | {f"by {by}": table for by, table in self.by.items()}


def labelled_pairs(store: Store, labelling_id: str) -> Pairs:
    """Return the pairs of a labelling, cached as long as neither its votes nor the dataset's decisions move. Raises
    StoreError for an unknown labelling."""
    return _labelled_pairs(store, labelling_id, *pairs_version(store, labelling_id))


def pairs_version(store: Store, labelling_id: str) -> tuple[int, tuple[int, int | None]]:
    """Return the dataset of a labelling, and the version of its pairs: the revisions of the votes and of the dataset,
    which decisions move. Raises StoreError for an unknown labelling."""
    with store.read() as connection:
        row = work.load(connection, labelling_id)
        revision = connection.execute(sa.select(dataset.c.revision).where(dataset.c.id == row["dataset"])).scalar()
    return int(row["dataset"]), (int(row["revision"]), revision)


@workspace_cached(most=LABELLINGS_CACHED)
def _labelled_pairs(store: Store, labelling_id: str, dataset_id: int, _revisions: tuple[int, int | None]) -> Pairs:
    votes = vote_counts(store, labelling_id)
    with store.read() as connection:
        standing = decisions.standing(decisions.history(connection, dataset_id))
        decided = [(a, c, CODES[item.label]) for (a, c), item in standing.items() if item.label is not None]
        counts, labels = with_decisions(votes, np.array(decided, np.int64).reshape(-1, 3))
        groups = groupings(connection, dataset_id, counts)
    return Pairs(dataset_id, counts, groups, labels != UNLABELLED, labels)


def with_decisions(counts: VoteCounts, decided: npt.NDArray[np.int64]) -> tuple[VoteCounts, Labels]:
    """Return the votes with an empty row for each pair that was only decided by a person, and each pair's decided
    label. decided: [decisions, 3], attribute, context, label code, no pair twice. Returns the counts, in the order of
    VoteCounts, and the codes [pairs], UNLABELLED where no person decided."""
    if not len(decided):
        return counts, np.full(len(counts.attributes), UNLABELLED, np.int8)
    # A pair as one number, attribute by attribute: sorted, that is the order of VoteCounts; searchsorted finds one.
    width = int(max(counts.contexts.max(initial=0), decided[:, 1].max(initial=0))) + 1
    numbers = counts.attributes * width + counts.contexts
    decided_numbers = decided[:, 0] * width + decided[:, 1]
    extra = np.setdiff1d(decided_numbers, numbers)
    if len(extra):
        everything = np.concatenate([numbers, extra])
        order = np.argsort(everything, kind="stable")
        empty = np.zeros((len(extra), *counts.votes.shape[1:]), counts.votes.dtype)
        numbers = everything[order]
        counts = replace(
            counts,
            attributes=numbers // width,
            contexts=numbers % width,
            votes=np.concatenate([counts.votes, empty])[order],
            conflicts=None
            if counts.conflicts is None
            else np.concatenate([counts.conflicts, np.zeros((len(extra), counts.conflicts.shape[1]), np.int16)])[order],
            planned=counts.planned
            if isinstance(counts.planned, int)
            else np.concatenate([counts.planned, np.zeros(len(extra), np.int64)])[order],
        )
    labels = np.full(len(numbers), UNLABELLED, np.int8)
    # Every decided pair has a row by now, so searchsorted finds the pair itself.
    labels[np.searchsorted(numbers, decided_numbers)] = decided[:, 2]
    return counts, labels


def what_if(
    store: Store,
    labelling_id: str,
    threshold: float,
    priors: Mapping[str, float],
    least_votes: int | None = None,
    both_lists: str = BOTH_LISTS[0],
    name: str = TRIED,
) -> WhatIf:
    """Compare a labelling's labels with those of a rule with this threshold, these priors (by persona key), this least
    number of votes and this reading of votes in both lists. Raises StoreError for numbers that are no rule, priors for
    other personas, or an unknown labelling."""
    pairs = labelled_pairs(store, labelling_id)
    with store.read() as connection:
        before = applied_rule(connection, labelling_id)
    after = custom_rule(pairs.counts.personas, name, threshold, priors, least_votes, both_lists)
    return compare(pairs, before, replace(after, shares=pairs.counts.imported))


def compare(pairs: Pairs, before: AppliedRule, after: AppliedRule) -> WhatIf:
    """Return the difference that a rule makes, as a pure function of the pairs."""
    old, new = pairs.counts.labels(before), pairs.counts.labels(after)
    # Both labels as one small number, counted once for each grouping: every number below is a sum of such counts.
    states = (WIDTH * (old - TOO_FEW) + new - TOO_FEW).astype(np.int64)
    table = np.bincount(states, minlength=WIDTH**2).reshape(WIDTH, WIDTH)
    changes = [(NAMED[a], NAMED[b], int(table[a - TOO_FEW, b - TOO_FEW])) for a in NAMED for b in NAMED if a != b]
    # A pair without a vote has none under either rule.
    total = int(table.sum() - table[UNLABELLED - TOO_FEW].sum())
    changed = sum(n for _, _, n in changes)
    decided = int((pairs.decided & (old != UNLABELLED) & (old != new)).sum())
    now = _share(int(table[KEPT].sum()), int(table[LABELLED].sum()))
    then = _share(int(table[:, KEPT].sum()), int(table[:, LABELLED].sum()))
    moved = pd.DataFrame(changes, columns=[*CHANGES])
    moved = moved[moved["pairs"] > 0].sort_values("pairs", ascending=False, kind="stable").reset_index(drop=True)
    text = f"No label of {count(total, 'pair')} would change; {percent(now)} of them keep a consensus."
    if changed:
        text = (
            f"{count(changed)} of {count(total, 'pair')} would change their label; consensus on {percent(now)} of them "
            f"now, {percent(then)} then."
        )
    note = f"{count(decided)} of the pairs that change were decided by a person and keep that label"
    return WhatIf(
        sentence=text,
        notes=(note,) if decided else (),
        before=before,
        after=after,
        pairs=total,
        changed=changed,
        decided=decided,
        changes=Table(moved, CHANGES, "Labels that change"),
        survival_before=now,
        survival_after=then,
        too_few_before=int(table[0].sum()),
        too_few_after=int(table[:, 0].sum()),
        by={by: _by_table(by, groups, states) for by, groups in pairs.groups.items()},
    )


def _by_table(by: GroupBy, groups: Groups, states: npt.NDArray[np.int64]) -> Table:
    """Return one row a group that has a labelled pair."""
    size = WIDTH**2
    tables = np.bincount(groups.codes * size + states, minlength=len(groups.ids) * size).reshape(-1, WIDTH, WIDTH)
    pairs = tables.sum(axis=(1, 2)) - tables[:, UNLABELLED - TOO_FEW].sum(axis=1)
    before, after = tables[:, LABELLED].sum(axis=(1, 2)), tables[:, :, LABELLED].sum(axis=(1, 2))
    # The diagonal: the same label before and after.
    places = [code - TOO_FEW for code in NAMED]
    same = tables[:, places, places].sum(axis=1)
    agreed_before, agreed_after = tables[:, KEPT].sum(axis=(1, 2)), tables[:, :, KEPT].sum(axis=(1, 2))
    # A consensus before and after, even if another: neither gained nor lost.
    both = tables[:, KEPT][:, :, KEPT].sum(axis=(1, 2))
    frame = pd.DataFrame(
        {
            "id": list(groups.ids),
            "name": list(groups.names),
            "pairs": pairs,
            "changed": pairs - same,
            "gained": agreed_after - both,
            "lost": agreed_before - both,
            "survival_before": np.where(before > 0, agreed_before / np.maximum(before, 1), np.nan),
            "survival_after": np.where(after > 0, agreed_after / np.maximum(after, 1), np.nan),
        }
    )
    frame = frame[frame["pairs"] > 0].reset_index(drop=True)
    return Table(frame, {"name": Column("text", by.capitalize())} | BY, f"Changes by {by}", by != GroupBy.DOMAIN)


def _share(part: int, total: int) -> float:
    return part / total if total else float("nan")
