"""Agreement of models as labellers: the draws of one persona, the personas with each other, and two labellings.

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
from cimemories.answer import Answer, Column, Table
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
from cimemories.text import count, decimal, percent, shortened

NO_MAJORITY = 3
LETTERS = "NX?-"  # a majority for necessary, for inappropriate, of abstentions; none
ORDER = (NECESSARY, INAPPROPRIATE, AMBIGUOUS)  # of rows and columns of a confusion table: N, X, ?
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """One persona's draws. pairs: with two counted votes or more; unanimous: on how many of these all counted votes
    agree; alpha: Krippendorff's over the votes, each draw an annotator."""

    persona: str
    pairs: int
    unanimous: int
    alpha: Estimate

    @property
    def share(self) -> float:
        """Return the share of pairs on which all draws are the same; nan if no pair has two."""
        return self.unanimous / self.pairs if self.pairs else float("nan")


@dataclass(frozen=True)
class DrawsAgreement:
    """A labelling's model with itself. draws: one a persona, empty for a labelling that was imported as shares.
    personas: alpha over the personas' majority verdicts; pairs: with a majority of two personas or more; unanimous: on
    how many of these all majorities agree."""

    draws: Sequence[Draws]
    personas: Estimate
    pairs: int
    unanimous: int

    @property
    def share(self) -> float:
        return self.unanimous / self.pairs if self.pairs else float("nan")


def draws_agreement(store: Store, labelling_id: str) -> DrawsAgreement:
    """Compute the agreement of draws and of personas, by verdict (necessary, inappropriate, abstain). Raises StoreError
    for an unknown labelling."""
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
    """Return the majority of each persona's counted votes: [pairs, personas], 0 necessary, 1 inappropriate, 2 abstain,
    NO_MAJORITY where it is divided or has no counted vote. votes: [pairs, personas, 3], counts or shares."""
    counts = np.asarray(votes, np.float64)
    most = counts.argmax(axis=-1)
    # More than half, so that there is at most one; without a vote 0 > 0 is false.
    enough = 2 * counts.max(axis=-1) > counts.sum(axis=-1)
    return np.where(enough, most, NO_MAJORITY).astype(np.int64)


DOMAINS = {
    "domain": Column("text", "Domain"),
    "share": Column("percent", "Same label"),
    "kappa": Column("decimal", "Cohen's kappa"),
    "same": Column("count", "Same"),
    "pairs": Column("count", "Pairs"),
}
CONFUSION = {"first": Column("text", "first \\ second")}
CONFUSION |= {str(LABELS[code]): Column("count", str(LABELS[code])) for code in ORDER}
DIFFERING = {
    "opposite": Column("text", "Opposite"),
    "first": Column("text", "First"),
    "second": Column("text", "Second"),
}
EVERY = {
    "first": Column("text", "First"),
    "second": Column("text", "Second"),
    "share": Column("percent", "Same label"),
    "kappa": Column("decimal", "Cohen's kappa"),
    "pairs": Column("count", "Pairs of both"),
}


@dataclass(frozen=True, kw_only=True)
class Agreement(Answer):
    """Compare two labellings of a dataset on the pairs that both have labelled.

    first, second: ids; names: their models, told apart by id if need be; rules: by which votes became labels. pairs:
    labelled by both; only_first, only_second: labelled by one, excluded from every share. same, share: pairs with the
    same label. kappa: Cohen's, nan where undefined. confusion: pairs by the label of the first (rows) and of the
    second. differing: pairs with different labels; opposite: those of them that are necessary in one and inappropriate
    in the other.
    """

    first: str
    second: str
    names: tuple[str, str]
    rules: tuple[AppliedRule, AppliedRule]
    pairs: int
    only_first: int
    only_second: int
    same: int
    share: float
    kappa: float
    opposite: int
    confusion: Table
    by_domain: Table
    differing: Table


@dataclass(frozen=True, kw_only=True)
class Agreements(Answer):
    """every: one row for each two labellings; compared: the full comparison of each."""

    every: Table
    compared: tuple[Agreement, ...]


def name_of(row: LabellingRow) -> str:
    """Return a labelling by its model, id and what it is: 'gpt-oss (labelling-3f9a, imported, no votes)'."""
    kinds = [row.id, *["imported, no votes"] * row.imported, *["simulated"] * row.simulated]
    return f"{row.model} ({', '.join(kinds)})"


def label_confusion(first: npt.ArrayLike, second: npt.ArrayLike) -> Codes:
    """Cross-tabulate two labels: [3, 3] in ORDER. first, second: label codes [pairs], none of them UNLABELLED."""
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
    # An outer join, so that pairs which only one labelling has can be counted.
    both = labelled[0].merge(labelled[1], on=["attribute", "context"], how="outer", suffixes=("_first", "_second"))
    here, there = both["label_first"].notna(), both["label_second"].notna()
    shared = both[here & there].astype({"label_first": np.int64, "label_second": np.int64})
    with store.read() as connection:
        named = describe_pairs(
            connection, first.dataset, shared[["attribute", "context", "label_first", "label_second"]]
        )
    table = label_confusion(named["label_first"], named["label_second"])
    differing = _differing(named)
    opposite, same, kappa = int(differing["opposite"].sum()), int(np.trace(table)), float(cohen_kappa(table))
    share = same / len(named) if len(named) else float("nan")
    both_models = first.model == second.model
    names = tuple(f"{shortened(row.model, 40)} ({row.id})" if both_models else row.model for row in (first, second))
    rules = (rule_of(store, first_id), rule_of(store, second_id))
    only = (int((here & ~there).sum()), int((there & ~here).sum()))
    excluded = [f"{count(n)} only by {name}" for n, name in zip(only, names, strict=True) if n]
    words = [str(LABELS[code]) for code in ORDER]
    cells = pd.DataFrame(table, columns=words)
    for word in words if len(named) else ():
        cells[f"{word}_share"] = cells[word] / len(named)
    cells.insert(0, "first", words)
    text = (
        f"{names[0]} and {names[1]} give the same label to {percent(share)} of {count(len(named), 'pair')} "
        f"(Cohen's kappa {'undefined' if np.isnan(kappa) else decimal(kappa)}); "
        f"{count(opposite, 'pair')} {'gets' if opposite == 1 else 'get'} opposite labels."
    )
    return Agreement(
        sentence=text if len(named) else "No pair has been labelled by both.",
        notes=(
            *(f"{name}: {rule.note}" for name, rule in zip(names, rules, strict=True) if rule.note),
            *([f"not compared, labelled by one alone: {', '.join(excluded)}"] if excluded else []),
            "these are models only; people's decisions are not included",
        ),
        simulated=("labels",) * (first.simulated or second.simulated),
        first=first_id,
        second=second_id,
        names=(names[0], names[1]),
        rules=rules,
        pairs=len(named),
        only_first=only[0],
        only_second=only[1],
        same=same,
        share=share,
        kappa=kappa,
        opposite=opposite,
        confusion=Table(cells, CONFUSION, f"Pairs by both labels; rows: {names[0]}, columns: {names[1]}"),
        by_domain=Table(_by_domain(named), DOMAINS, "Agreement by domain, least first"),
        differing=Table(differing, DIFFERING, "Pairs on which the two labellings differ, opposite labels first"),
    )


def agreements(store: Store, dataset_id: int) -> Agreements:
    """Compare every two labellings of a dataset that have labels, the older with the newer."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset_id)
    labelled = [row.id for row in rows if row.imported or row.ballots.get(labellings.OK)]
    compared = tuple(agreement(store, first, second) for first, second in combinations(labelled, 2))
    named = {row.id: name_of(row) for row in rows}
    every = [
        {"first": named[item.first], "second": named[item.second]}
        | {"share": item.share, "kappa": item.kappa, "pairs": item.pairs}
        for item in compared
    ]
    return Agreements(
        sentence="" if compared else "There are fewer than two labellings, so there is nothing to compare.",
        simulated=("labels",) * any(item.simulated for item in compared),
        every=Table(pd.DataFrame(every, columns=[*EVERY]), EVERY, "Agreement of every two labellings"),
        compared=compared,
    )


def _by_domain(named: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for domain, part in named.groupby("domain", sort=True):
        table = label_confusion(part["label_first"], part["label_second"])
        same = int(np.trace(table))
        rows.append((domain, len(part), same, same / len(part), float(cohen_kappa(table))))
    frame = pd.DataFrame(rows, columns=["domain", "pairs", "same", "share", "kappa"])
    return frame.sort_values("share", kind="stable").reset_index(drop=True)


def _differing(named: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs on which the two differ, opposite labels before those where one is ambiguous: attribute,
    context, profile (ids), user, key, domain, statement, recipient, task, first, second (labels in words), opposite."""
    frame = named[named["label_first"] != named["label_second"]]
    opposite = (frame["label_first"] != AMBIGUOUS) & (frame["label_second"] != AMBIGUOUS)
    names = {code: str(label) for code, label in LABELS.items()}
    frame = frame.assign(
        first=frame["label_first"].map(names), second=frame["label_second"].map(names), opposite=opposite
    ).drop(columns=["label_first", "label_second"])
    order = ["opposite", "profile", "context", "attribute"]
    return frame.sort_values(order, ascending=[False, True, True, True], kind="stable").reset_index(drop=True)
