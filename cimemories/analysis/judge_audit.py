"""How far the judges of a run are right, by the people who audited a slice of it.

Truth is the newest standing verdict of a person on (response, attribute); it stands beside the judge's and changes
nothing. Only strength `full` counts as revealed, of judge and person alike (paper, Section 5.1), unless any strength is
asked for. All shares are weighted by what an item stands for, so they speak for the run and not for the slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.analysis import audit_tables
from cimemories.analysis.audit_tables import Strata
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.kappa import ONE_ANSWER, Figure, confusion
from cimemories.analysis.pair_groups import pair_words
from cimemories.model import Span, Strength
from cimemories.store import audits, judgements, slices
from cimemories.store.audits import AuditVerdict
from cimemories.store.engine import StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.slices import JUDGEMENTS, SliceRow

ANSWERS = tuple(AuditVerdict)  # rows (the judge) and columns (the person) of a confusion table
MISSING = "missing"
NOTHING_CLAIMED = "the judge says of no audited item that it is revealed"
NOTHING_REVEALED = "people found no audited item to be revealed"
NOBODY = "neither the judge nor people found any audited item to be revealed"
NO_ITEM = "no item that this judge has judged has been audited"


class Counted(StrEnum):
    """What counts as revealed: strength full alone, as in every number of the app, or any strength."""

    FULL = "full"
    ANY = "any"


@dataclass(frozen=True)
class JudgeFigures:
    """One judge against people. judge: None for a baseline, which always answers the same. items: audited ones that it
    has judged; missing: audited ones that it has not. table, weighted: [judge, person] in ANSWERS, items and what they
    stand for. Of each Figure, `items` are those of its own denominator."""

    name: str
    judge: JudgeRow | None
    items: int
    missing: int
    table: npt.NDArray[np.int64]
    weighted: npt.NDArray[np.float64]
    precision: Figure
    recall: Figure
    f1: Figure
    agreement: Figure
    kappa: Figure


@dataclass(frozen=True)
class JudgeAudit:
    """All judges of a run against people, on one slice.

    items: one row an item of the slice in its order: response, attribute, context, stratum, weight, verdict (None: not
    audited), annotator, blind, seconds, and one column `judge <id>` a judge: its strength, none, or missing. spoken:
    the share of the population whose strata have a verdict; the rest is not spoken for.
    """

    slice: SliceRow
    counted: Counted
    items: pd.DataFrame
    judges: tuple[JudgeFigures, ...]
    baselines: tuple[JudgeFigures, ...]
    spoken: float

    @property
    def audited(self) -> int:
        return int(self.items["verdict"].notna().sum())


def of_run(flows: Flows, asked: Scope) -> list[SliceRow]:
    """The slices of judgements that were drawn of this run, newest first."""
    with flows.store.read() as connection:
        rows = slices.all_rows(connection, asked.run.dataset, JUDGEMENTS)
    return [row for row in reversed(rows) if row.manifest.get("run") == asked.run.id]


def judge_audit(flows: Flows, asked: Scope, slice_id: int, counted: Counted = Counted.FULL) -> JudgeAudit:
    """The audit of a slice, remembered until somebody says something new. Raises StoreError for a slice that is not
    there, or not of this run."""
    key = ("judge audit", asked.version, asked.audits, slice_id, counted)
    return flows.remember(key, lambda: _judge_audit(flows, asked, slice_id, counted))


def _judge_audit(flows: Flows, asked: Scope, slice_id: int, counted: Counted) -> JudgeAudit:
    with flows.store.read() as connection:
        row = slices.one(connection, slice_id)
        judges = judgements.of_run(connection, asked.run.id)
    if row.manifest.get("run") != asked.run.id:
        raise StoreError(f"the slice '{row.name}' was drawn of {row.manifest.get('run')}, not of {asked.run.id}.")
    items = audited_items(flows, asked, slice_id, judges)
    if items.empty:
        raise StoreError(f"the slice '{row.name}' is empty: its responses have been deleted.")
    answered = items["stratum"].isin(set(items["stratum"][items["verdict"].notna()]))
    spoken = items["weight"][answered].sum() / items["weight"].sum()
    return JudgeAudit(
        slice=row,
        counted=counted,
        items=items,
        judges=tuple(figures(judge.name, judge, items, items[column(judge)], counted) for judge in judges),
        baselines=tuple(
            figures(f"always '{words}'", None, items, pd.Series(str(answer), items.index), counted)
            for answer, words in ((AuditVerdict.NONE, "not revealed"), (AuditVerdict.FULL, "revealed"))
        ),
        spoken=float(spoken),
    )


def column(judge: JudgeRow) -> str:
    """The column of `items` that holds what this judge says."""
    return f"judge {judge.id}"


def audited_items(flows: Flows, asked: Scope, slice_id: int, judges: Sequence[JudgeRow]) -> pd.DataFrame:
    """The items of a slice with people's standing verdicts and what these judges say, as JudgeAudit.items has them."""
    with flows.store.read() as connection:
        items = slices.items_of(connection, slice_id)
        stand = audits.standing(audits.of_run(connection, asked.run.id))
        claimed = {j.id: judgements.claims(connection, j.id, (i.response or 0 for i in items)) for j in judges}
    rows = []
    for item in items:
        flow = (item.response or 0, item.attribute)
        said = stand.get(flow)
        verdict = None if said is None else str(said.verdict)
        who = (None, None, None) if said is None else (said.annotator, said.blind, said.seconds)
        claims = [_claim(claimed[judge.id], *flow) for judge in judges]
        rows.append((*flow, item.context, item.stratum, item.weight, verdict, *who, *claims))
    names = ["response", "attribute", "context", "stratum", "weight", "verdict", "annotator", "blind", "seconds"]
    return pd.DataFrame(rows, columns=[*names, *map(column, judges)])


def _claim(claimed: dict[int, dict[int, tuple[Strength, Span | None, str]]], response: int, attribute: int) -> str:
    if response not in claimed:
        return MISSING
    claim = claimed[response].get(attribute)
    return str(AuditVerdict.NONE) if claim is None else str(claim[0])


def strata_of(items: pd.DataFrame, judge: pd.Series, counted: Counted) -> Strata:
    """The answered items by stratum, as two-by-two tables. Sizes are those of the whole strata, so that the answered
    items of one stand for those of it that are not."""
    both = items["verdict"].notna() & (judge != MISSING)
    codes, names = pd.factorize(items["stratum"])
    weights = items["weight"].to_numpy(np.float64)
    sizes = np.asarray(np.bincount(codes, weights=weights, minlength=len(names)), np.float64)
    return audit_tables.tables(
        revealed(judge[both], counted), revealed(items["verdict"][both], counted), codes[both.to_numpy()], sizes
    )


def revealed(answers: pd.Series, counted: Counted) -> npt.NDArray[np.bool_]:
    """Which of these answers (strengths or none) count as revealed."""
    if counted == Counted.ANY:
        return (answers != AuditVerdict.NONE).to_numpy(np.bool_)
    return (answers == AuditVerdict.FULL).to_numpy(np.bool_)


def figures(name: str, judge: JudgeRow | None, items: pd.DataFrame, says: pd.Series, counted: Counted) -> JudgeFigures:
    """One judge's figures. items: rows of JudgeAudit.items (stratum, weight, verdict are read); says: its strength,
    none or missing of each."""
    both = items["verdict"].notna() & (says != MISSING)
    strata = strata_of(items, says, counted)
    drawn = strata.resampled()
    n = strata.items
    total = int(n.sum())
    code = {str(answer): number for number, answer in enumerate(ANSWERS)}
    first, second = says[both].map(code).to_numpy(np.int64), items["verdict"][both].map(code).to_numpy(np.int64)
    names, place = np.unique(items["stratum"].to_numpy(str), return_inverse=True)
    whole = np.bincount(place, weights=items["weight"].to_numpy(np.float64), minlength=len(names))
    mass = (whole / np.maximum(np.bincount(place[both], minlength=len(names)), 1))[place[both]]

    def figure(statistic: audit_tables.Statistic, rests_on: int, undefined: str) -> Figure:
        return audit_tables.figure(statistic, strata, drawn, rests_on, undefined if total else NO_ITEM)

    return JudgeFigures(
        name=name,
        judge=judge,
        items=total,
        missing=int((items["verdict"].notna() & (says == MISSING)).sum()),
        table=confusion(first, second, len(ANSWERS)).astype(np.int64),
        weighted=confusion(first, second, len(ANSWERS), mass),
        precision=figure(audit_tables.precision, int(n[1].sum()), NOTHING_CLAIMED),
        recall=figure(audit_tables.recall, int(n[:, 1].sum()), NOTHING_REVEALED),
        f1=figure(audit_tables.f1, total - int(n[0, 0]), NOBODY),
        agreement=figure(audit_tables.agreement, total, NO_ITEM),
        kappa=figure(audit_tables.kappa, total, ONE_ANSWER),
    )


def behind(flows: Flows, found: JudgeAudit, judge: JudgeRow, claim: str, verdict: str) -> pd.DataFrame:
    """The audited items behind one cell of a judge's confusion table, with the words that a person reads: response,
    attribute, context, weight, verdict, annotator, profile, user, key, domain, statement, recipient, task."""
    frame = found.items[(found.items["verdict"] == verdict) & (found.items[column(judge)] == claim)]
    kept = frame[["response", "attribute", "context", "weight", "verdict", "annotator", "blind", "seconds"]]
    with flows.store.read() as connection:
        return pair_words(connection, found.slice.dataset, kept)
