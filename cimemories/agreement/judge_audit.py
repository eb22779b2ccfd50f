"""Quality of the judges of a run, by the people who audited a slice of it.

Truth is the newest standing verdict of a person on (response, attribute); it stands beside the judge's and changes
nothing. Only strength `full` counts as revealed, of judge and person alike (paper, Section 5.1), unless any strength is
asked for. All shares are weighted by what an item stands for, so they speak for the run and not for the slice.

The audit comes down to two-by-two tables of a stratified sample, weighted up to the population:

                     person: no   yes
    judge: no             TN      FN
    judge: yes            FP      TP

An item of stratum h stands for size_h / n_h items of the population, n_h those that have been answered: a slice that is
answered in part speaks for the whole as well, only less surely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.agreement.statistics import (
    ONE_ANSWER,
    RESAMPLES,
    Estimate,
    Floats,
    Statistic,
    bootstrap_estimate,
    cohen_kappa,
    confusion,
    covering,
    raw_agreement,
)
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.labels.votes import describe_pairs
from cimemories.store import audits, decisions, judgements
from cimemories.store.audits import JUDGEMENTS, AuditVerdict, SliceRow
from cimemories.store.engine import StoreError
from cimemories.store.judgements import JudgeRow

Ints = npt.NDArray[np.int64]
ANSWERS = tuple(AuditVerdict)  # rows (the judge) and columns (the person) of a confusion table
MISSING = "missing"
NOTHING_CLAIMED = "the judge claims no reveal among the audited items"
NOTHING_REVEALED = "people found no reveal among the audited items"
NO_REVEAL = "neither the judge nor people found a reveal among the audited items"
NO_ITEM = "no audited item has been judged by this judge"


@dataclass(frozen=True)
class Strata:
    """Answered items by stratum. counts: [strata, judge no/yes, person no/yes]; sizes: [strata], how many items of the
    population each stratum has. Strata in which nothing is answered are not among them."""

    counts: Ints
    sizes: Floats

    @property
    def items(self) -> Ints:
        """Return the answered items, unweighted: [judge, person]."""
        return np.asarray(self.counts.sum(axis=0), np.int64)

    def total(self) -> Floats:
        """Return the sum of weights: [judge, person]; zeros where there is none."""
        return np.asarray((self._factors()[:, None, None] * self.counts).sum(axis=0), np.float64)

    def _factors(self) -> Floats:
        answered = self.counts.sum(axis=(1, 2))
        return np.asarray(self.sizes / np.maximum(answered, 1), np.float64)

    def resampled(self, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
        """Bootstrap within strata: [resamples, judge, person] of totals.

        Items of one stratum and cell cannot be told apart, so how often each cell is sampled is binomial twice over:
        first what the judge says, then what the person says of it. Resampling can never show an error that no item
        shows: a stratum in which twenty of twenty were right would count as if all thousands that they stand for were.
        So where all answers of a person are the same and the items stand for more than themselves, their share is
        sampled from what twenty such answers leave possible, the posterior Beta(k + 1/2, n - k + 1/2) of Jeffreys'
        prior (Brown, Cai, DasGupta 2001, Statistical Science 16, 101-133).
        """
        rng = np.random.default_rng(seed)
        answered = self.counts.sum(axis=(1, 2))
        by_judge = self.counts.sum(axis=2)
        yes = rng.binomial(answered, by_judge[:, 1] / np.maximum(answered, 1), size=(resamples, len(answered)))
        of_judge = np.stack([answered - yes, yes], axis=2)
        share = self.counts[:, :, 1] / np.maximum(by_judge, 1)
        revealed = rng.binomial(of_judge, share).astype(np.float64)
        # Items that stand for themselves alone are the whole stratum: nothing is left to be unsure of.
        unanimous = (by_judge > 0) & ((share == 0) | (share == 1)) & (self._factors() > 1 + 1e-9)[:, None]
        posterior = rng.beta(self.counts[:, :, 1] + 0.5, self.counts[:, :, 0] + 0.5, size=revealed.shape)
        # Fractions of items will do: only their weighted sums are used.
        revealed = np.where(unanimous, of_judge * posterior, revealed)
        cells = np.stack([of_judge - revealed, revealed], axis=3)
        return np.asarray(np.einsum("h,rhjp->rjp", self._factors(), cells))


def precision(table: Floats) -> Floats:
    """Return TP / (TP + FP), the share of the judge's claims that are true; nan without a claim."""
    return _share(table[..., 1, 1], table[..., 1, 0])


def recall(table: Floats) -> Floats:
    """Return TP / (TP + FN), or sensitivity, the share of reveals that the judge claims; nan without a reveal."""
    return _share(table[..., 1, 1], table[..., 0, 1])


def specificity(table: Floats) -> Floats:
    """Return TN / (TN + FP), the share of non-reveals that the judge does not claim; nan if all are reveals."""
    return _share(table[..., 0, 0], table[..., 1, 0])


def f1(table: Floats) -> Floats:
    """Return 2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall; nan where neither sees any reveal."""
    return _share(2 * table[..., 1, 1], table[..., 0, 1] + table[..., 1, 0])


def _share(part: Floats, rest: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / (part + rest), np.float64)


def statistic_estimate(statistic: Statistic, strata: Strata, resampled: Floats, items: int, undefined: str) -> Estimate:
    """Estimate one statistic of the weighted table with its interval; `items` are those that it rests on, and
    `undefined` says why where it has no value."""
    value = float(statistic(strata.total())) if len(strata.sizes) else float("nan")
    if np.isnan(value):
        return Estimate.undefined(items, undefined)
    return covering(bootstrap_estimate(value, statistic(resampled), items))


class Counted(StrEnum):
    """The strengths that count as revealed: full alone, as in every number of the app, or any strength."""

    FULL = "full"
    ANY = "any"


@dataclass(frozen=True)
class JudgeQuality:
    """One judge against people. judge: None for a baseline, which always answers the same. items: audited ones that it
    has judged; missing: audited ones that it has not. table, weighted: [judge, person] in ANSWERS, items and what they
    stand for. Of each Estimate, `items` are those of its own denominator."""

    name: str
    judge: JudgeRow | None
    items: int
    missing: int
    table: npt.NDArray[np.int64]
    weighted: npt.NDArray[np.float64]
    precision: Estimate
    recall: Estimate
    f1: Estimate
    agreement: Estimate
    kappa: Estimate


@dataclass(frozen=True)
class JudgeAudit:
    """All judges of a run against people, on one slice.

    items: one row an item of the slice in its order: response, attribute, context, stratum, weight, verdict (None: not
    audited), annotator, blind, seconds, and one column `judge <id>` a judge: its strength, none, or missing. coverage:
    the share of the population whose strata have a verdict; nothing is known of the rest.
    """

    slice: SliceRow
    counted: Counted
    items: pd.DataFrame
    judges: tuple[JudgeQuality, ...]
    baselines: tuple[JudgeQuality, ...]
    coverage: float

    @property
    def audited(self) -> int:
        return int(self.items["verdict"].notna().sum())


def of_run(flows: Flows, scope: Scope, kind: str = JUDGEMENTS) -> list[SliceRow]:
    """Return the slices of this kind that were drawn of the run, newest first."""
    with flows.store.read() as connection:
        rows = audits.all_slices(connection, scope.run.dataset, kind)
    return [row for row in reversed(rows) if row.manifest.get("run") == scope.run.id]


def judge_audit(flows: Flows, scope: Scope, slice_id: int, counted: Counted = Counted.FULL) -> JudgeAudit:
    """Return the audit of a slice, cached until there is a new verdict. Raises StoreError for a slice that is not
    there, or not of this run."""
    key = ("judge audit", scope.version, scope.audits, slice_id, counted)
    return flows.cached(key, lambda: _judge_audit(flows, scope, slice_id, counted))


def _judge_audit(flows: Flows, scope: Scope, slice_id: int, counted: Counted) -> JudgeAudit:
    with flows.store.read() as connection:
        row = audits.slice_row(connection, slice_id)
        judges = judgements.of_run(connection, scope.run.id)
    if row.manifest.get("run") != scope.run.id:
        raise StoreError(f"the slice '{row.name}' was drawn of {row.manifest.get('run')}, not of {scope.run.id}.")
    items = audited_items(flows, scope, slice_id, judges)
    if items.empty:
        raise StoreError(f"the slice '{row.name}' is empty: its responses have been deleted.")
    # All of a stratum counts as covered where any item of it is answered: its answers stand for the rest.
    answered = items["stratum"].isin(set(items["stratum"][items["verdict"].notna()]))
    coverage = items["weight"][answered].sum() / items["weight"].sum()
    return JudgeAudit(
        slice=row,
        counted=counted,
        items=items,
        judges=tuple(judge_quality(judge.name, judge, items, items[column(judge)], counted) for judge in judges),
        baselines=tuple(
            judge_quality(f"always '{text}'", None, items, pd.Series(str(answer), items.index), counted)
            for answer, text in ((AuditVerdict.NONE, "not revealed"), (AuditVerdict.FULL, "revealed"))
        ),
        coverage=float(coverage),
    )


def column(judge: JudgeRow) -> str:
    """Return the column of `items` that holds what this judge says."""
    return f"judge {judge.id}"


def audited_items(flows: Flows, scope: Scope, slice_id: int, judges: Sequence[JudgeRow]) -> pd.DataFrame:
    """Return the items of a slice with people's standing verdicts and what these judges say, as JudgeAudit.items has
    them."""
    with flows.store.read() as connection:
        items = audits.slice_items(connection, slice_id)
        verdicts = decisions.standing(audits.of_run(connection, scope.run.id))
        # A response that is gone has the id 0 here, which no row has.
        claims = {j.id: judgements.claims(connection, j.id, (i.response or 0 for i in items)) for j in judges}

    def strength(judge: JudgeRow, response: int, attribute: int) -> str:
        if response not in claims[judge.id]:
            return MISSING
        claim = claims[judge.id][response].get(attribute)
        return str(AuditVerdict.NONE) if claim is None else str(claim[0])

    rows: list[tuple[object, ...]] = []
    for item in items:
        flow = (item.response or 0, item.attribute)
        audit = verdicts.get(flow)
        by_person = (audit and str(audit.verdict), audit and audit.annotator, audit and audit.blind)
        strengths = (strength(judge, *flow) for judge in judges)
        rows.append((*flow, item.context, item.stratum, item.weight, *by_person, audit and audit.seconds, *strengths))
    names = ["response", "attribute", "context", "stratum", "weight", "verdict", "annotator", "blind", "seconds"]
    return pd.DataFrame(rows, columns=[*names, *map(column, judges)])


def strata_of(items: pd.DataFrame, judge: pd.Series, counted: Counted) -> Strata:
    """Return the answered items by stratum, as two-by-two tables. Sizes are those of the whole strata, so that the
    answered items of one stand for those of it that are not."""
    both = items["verdict"].notna() & (judge != MISSING)
    codes, names = pd.factorize(items["stratum"])
    weights = items["weight"].to_numpy(np.float64)
    sizes = np.asarray(np.bincount(codes, weights=weights, minlength=len(names)), np.float64)
    claimed, confirmed = revealed(judge[both], counted), revealed(items["verdict"][both], counted)
    # Stratum and both answers as one number from 0 to 4 * strata - 1.
    flat = np.bincount(codes[both.to_numpy()] * 4 + claimed * 2 + confirmed, minlength=4 * len(sizes))
    counts = flat.reshape(len(sizes), 2, 2)
    # A stratum without an answer has nothing to speak for it, and is left out.
    answered = counts.sum(axis=(1, 2)) > 0
    return Strata(counts[answered], sizes[answered])


def revealed(answers: pd.Series, counted: Counted) -> npt.NDArray[np.bool_]:
    """Return a mask of the answers (strengths or none) that count as revealed."""
    counting = answers != AuditVerdict.NONE if counted == Counted.ANY else answers == AuditVerdict.FULL
    return counting.to_numpy(np.bool_)


def judge_quality(
    name: str, judge: JudgeRow | None, items: pd.DataFrame, says: pd.Series, counted: Counted
) -> JudgeQuality:
    """Compare one judge with people. items: rows of JudgeAudit.items (stratum, weight, verdict are read); says: its
    strength, none or missing of each."""
    both = items["verdict"].notna() & (says != MISSING)
    strata = strata_of(items, says, counted)
    resampled = strata.resampled()
    n = strata.items
    total = int(n.sum())
    code = {str(answer): number for number, answer in enumerate(ANSWERS)}
    first, second = says[both].map(code).to_numpy(np.int64), items["verdict"][both].map(code).to_numpy(np.int64)
    names, stratum = np.unique(items["stratum"].to_numpy(str), return_inverse=True)
    sizes = np.bincount(stratum, weights=items["weight"].to_numpy(np.float64), minlength=len(names))
    # What an item stands for: the size of its stratum over how many of it are answered and judged.
    mass = (sizes / np.maximum(np.bincount(stratum[both], minlength=len(names)), 1))[stratum[both]]

    def estimate(statistic: Statistic, rests_on: int, undefined: str) -> Estimate:
        return statistic_estimate(statistic, strata, resampled, rests_on, undefined if total else NO_ITEM)

    return JudgeQuality(
        name=name,
        judge=judge,
        items=total,
        missing=int((items["verdict"].notna() & (says == MISSING)).sum()),
        table=confusion(first, second, len(ANSWERS)).astype(np.int64),
        weighted=confusion(first, second, len(ANSWERS), mass),
        precision=estimate(precision, int(n[1].sum()), NOTHING_CLAIMED),
        recall=estimate(recall, int(n[:, 1].sum()), NOTHING_REVEALED),
        # What both call not revealed is in no part of F1.
        f1=estimate(f1, total - int(n[0, 0]), NO_REVEAL),
        agreement=estimate(raw_agreement, total, NO_ITEM),
        kappa=estimate(cohen_kappa, total, ONE_ANSWER),
    )


def cell_items(flows: Flows, audit: JudgeAudit, judge: JudgeRow, claim: str, verdict: str) -> pd.DataFrame:
    """Return the audited items behind one cell of a judge's confusion table, with what a person reads: response,
    attribute, context, weight, verdict, annotator, profile, user, key, domain, statement, recipient, task."""
    frame = audit.items[(audit.items["verdict"] == verdict) & (audit.items[column(judge)] == claim)]
    columns = frame[["response", "attribute", "context", "weight", "verdict", "annotator", "blind", "seconds"]]
    with flows.store.read() as connection:
        return describe_pairs(connection, audit.slice.dataset, columns)
