"""How far models agree as labellers: the draws of one persona, the personas with each other, and two labellings.

People are not in it: their agreement is measured in `agreement.people`, and never mixed with this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.agreement.statistics import Estimate, cohen_kappa, confusion, krippendorff_alpha, unanimous
from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    LABELS,
    NECESSARY,
    AppliedRule,
    consensus_labels,
    rule_of,
    vote_counts,
)
from cimemories.labels.votes import describe_pairs
from cimemories.store import labellings
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow

NO_MAJORITY = 3
LETTERS = "NX?-"  # a majority for necessary, for inappropriate, of abstentions; none
ORDER = (NECESSARY, INAPPROPRIATE, AMBIGUOUS)  # of rows and columns of a confusion table: N, X, ?
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """One persona's draws. pairs: with two counted votes or more; same: on how many of these all counted votes say the
    same; alpha: Krippendorff's over the votes, each draw an annotator."""

    persona: str
    pairs: int
    same: int
    alpha: Estimate

    @property
    def share(self) -> float:
        """Pairs on which all draws say the same; nan where no pair has two."""
        return self.same / self.pairs if self.pairs else float("nan")


@dataclass(frozen=True)
class DrawsAgreement:
    """A labelling's model with itself. draws: one a persona, empty for a labelling that was imported as shares.
    personas: alpha over the personas' majority verdicts; pairs: with a majority of two personas or more; same: on how
    many of these all such majorities are the same."""

    draws: Sequence[Draws]
    personas: Estimate
    pairs: int
    same: int

    @property
    def share(self) -> float:
        return self.same / self.pairs if self.pairs else float("nan")


def draws_agreement(store: Store, labelling_id: str) -> DrawsAgreement:
    """Agreement of draws and of personas, by verdict (necessary, inappropriate, abstain). Raises StoreError for an
    unknown labelling."""
    counts = vote_counts(store, labelling_id)
    draws = []
    if not counts.imported:
        for position, persona in enumerate(counts.personas):
            votes = counts.votes[:, position].astype(np.int64)
            several = votes[votes.sum(axis=1) > 1]
            draws.append(Draws(persona.key, len(several), unanimous(several), krippendorff_alpha(votes)))
    verdicts = majorities(counts.votes)
    # NO_MAJORITY is no answer, so it is not among the codes that are counted.
    given = np.stack([(verdicts == code).sum(axis=1) for code in range(NO_MAJORITY)], axis=1).astype(np.int64)
    several = given[given.sum(axis=1) > 1]
    return DrawsAgreement(draws, krippendorff_alpha(given), len(several), unanimous(several))


def majorities(votes: npt.ArrayLike) -> Codes:
    """What more than half of each persona's counted votes say: [pairs, personas], 0 necessary, 1 inappropriate, 2
    abstain, NO_MAJORITY where it is divided or has no counted vote. votes: [pairs, personas, 3], counts or shares."""
    counts = np.asarray(votes, np.float64)
    most = counts.argmax(axis=-1)
    # More than half, so that there is at most one; without a vote 0 > 0 is false.
    enough = 2 * counts.max(axis=-1) > counts.sum(axis=-1)
    return np.where(enough, most, NO_MAJORITY).astype(np.int64)


@dataclass(frozen=True)
class Agreement:
    """How far two labellings of a dataset agree on the pairs that both have labelled.

    pairs: labelled in both; only_first, only_second: in one alone, which enter no share. same: pairs with the same
    label. kappa: Cohen's, nan where undefined. confusion: pairs [label of the first, label of the second] in ORDER.
    by_domain: columns domain, pairs, same, share, kappa. Rules: what made the labels of each.
    """

    first: LabellingRow
    second: LabellingRow
    rules: tuple[AppliedRule, AppliedRule]
    pairs: int
    only_first: int
    only_second: int
    same: int
    kappa: float
    confusion: Codes
    by_domain: pd.DataFrame
    differing: pd.DataFrame

    @property
    def share(self) -> float:
        """Pairs with the same label over the pairs of both; nan where there is none."""
        return self.same / self.pairs if self.pairs else float("nan")


def label_confusion(first: npt.ArrayLike, second: npt.ArrayLike) -> Codes:
    """How often each two labels meet: [3, 3] in ORDER. first, second: label codes [pairs], none of them UNLABELLED."""
    return confusion(first, second, len(ORDER))[np.ix_(ORDER, ORDER)].astype(np.int64)


def agreement(store: Store, first_id: str, second_id: str) -> Agreement:
    """Compare two labellings. Raises StoreError for one that is not there, or where they are of different datasets."""
    with store.read() as connection:
        rows = {row.id: row for row in labellings.all_rows(connection)}
    missing = [name for name in (first_id, second_id) if name not in rows]
    if missing:
        raise StoreError(f"there is no labelling '{missing[0]}'. `cimemories labellings` lists what is there.")
    first, second = rows[first_id], rows[second_id]
    if first.dataset != second.dataset:
        raise StoreError(f"{first_id} and {second_id} label different datasets, so no pair is in both.")
    labelled = [
        frame[frame["label"] >= AMBIGUOUS] for frame in map(partial(consensus_labels, store), (first_id, second_id))
    ]
    # Outer, so that pairs which only one labelling has can be counted.
    both = labelled[0].merge(labelled[1], on=["attribute", "context"], how="outer", suffixes=("_first", "_second"))
    here, there = both["label_first"].notna(), both["label_second"].notna()
    shared = both[here & there].astype({"label_first": np.int64, "label_second": np.int64})
    with store.read() as connection:
        named = describe_pairs(
            connection, first.dataset, shared[["attribute", "context", "label_first", "label_second"]]
        )
    table = label_confusion(named["label_first"], named["label_second"])
    return Agreement(
        first=first,
        second=second,
        rules=(rule_of(store, first_id), rule_of(store, second_id)),
        pairs=len(named),
        only_first=int((here & ~there).sum()),
        only_second=int((there & ~here).sum()),
        same=int(np.trace(table)),
        kappa=float(cohen_kappa(table)),
        confusion=table,
        by_domain=_by_domain(named),
        differing=_differing(named),
    )


def agreements(store: Store, dataset_id: int) -> list[Agreement]:
    """Every two labellings of a dataset that have labels, the older one first."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset_id)
    labelled = [row.id for row in rows if row.imported or row.ballots.get(labellings.OK)]
    return [agreement(store, first, second) for first, second in combinations(labelled, 2)]


def _by_domain(named: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for domain, part in named.groupby("domain", sort=True):
        table = label_confusion(part["label_first"], part["label_second"])
        same = int(np.trace(table))
        rows.append((domain, len(part), same, same / len(part), float(cohen_kappa(table))))
    return pd.DataFrame(rows, columns=["domain", "pairs", "same", "share", "kappa"])


def _differing(named: pd.DataFrame) -> pd.DataFrame:
    """The pairs on which the two differ, opposite labels before those where one is ambiguous: attribute, context,
    profile (ids), user, key, domain, statement, recipient, task, first, second (labels in words), opposite."""
    frame = named[named["label_first"] != named["label_second"]]
    opposite = (frame["label_first"] != AMBIGUOUS) & (frame["label_second"] != AMBIGUOUS)
    names = {code: str(label) for code, label in LABELS.items()}
    frame = frame.assign(
        first=frame["label_first"].map(names), second=frame["label_second"].map(names), opposite=opposite
    ).drop(columns=["label_first", "label_second"])
    order = ["opposite", "profile", "context", "attribute"]
    return frame.sort_values(order, ascending=[False, True, True, True], kind="stable").reset_index(drop=True)
