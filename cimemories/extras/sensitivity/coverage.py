"""The flows of a run by what its headline says of them.

Violation and completeness rest on pairs with a clear label (a person's decision, else a consensus) in contexts that
are retained. Of every other flow of the run the headline says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.flows.arrays import Bools, FlowArrays, IdentifierRule, Ints, decided_pairs
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, TOO_FEW, TOO_FEW_NAME, UNLABELLED
from cimemories.flows.scope import Scope
from cimemories.metrics.breakdown import grouped, together
from cimemories.metrics.places import By, places
from cimemories.metrics.sentences.numbers import LONGEST, TIE, shares
from cimemories.text import count, percent, shortened

# Parts of the flows, by their use in the headline; it covers the first two.
NECESSARY_FLOWS, INAPPROPRIATE_FLOWS = "necessary", "inappropriate"
AMBIGUOUS_FLOWS, UNLABELLED_FLOWS, DISCARDED, IDENTIFIERS, UNJUDGED, TOO_FEW_FLOWS = (
    "ambiguous",
    "unlabelled",
    "discarded_context",
    "identifier",
    "not_judged",
    "too_few_votes",
)
PARTS = (
    NECESSARY_FLOWS,
    INAPPROPRIATE_FLOWS,
    AMBIGUOUS_FLOWS,
    DISCARDED,
    UNLABELLED_FLOWS,
    IDENTIFIERS,
    UNJUDGED,
    TOO_FEW_FLOWS,
)
WORDS = {
    NECESSARY_FLOWS: "necessary, in retained contexts",
    INAPPROPRIATE_FLOWS: "inappropriate, in retained contexts",
    AMBIGUOUS_FLOWS: "ambiguous",
    DISCARDED: "clear, in discarded contexts",
    UNLABELLED_FLOWS: "not labelled",
    IDENTIFIERS: "inappropriate, of identifiers",
    UNJUDGED: "clear, without a judged message",
    TOO_FEW_FLOWS: TOO_FEW_NAME,
}


@dataclass(frozen=True)
class FlowCoverage:
    """The flows of one run, each in one part. frame: one row a group, the whole run in `totals`, with the columns
    group, pairs, speaks (what the headline covers), share (speaks / pairs), decided (of these, how many a person
    decided), and one a part (PARTS), which add up to pairs. Groups without a flow are left out."""

    totals: dict[str, int]
    frame: pd.DataFrame

    @property
    def pairs(self) -> int:
        """Return all flows of the run: pairs whose attribute some planned memory of the context held."""
        return sum(self.totals[part] for part in PARTS)

    @property
    def speaks(self) -> int:
        return self.totals[NECESSARY_FLOWS] + self.totals[INAPPROPRIATE_FLOWS]

    @property
    def decided(self) -> int:
        return self.totals["decided"]

    @property
    def share(self) -> float:
        """Share of the flows that the headline covers; nan without a flow."""
        return self.speaks / self.pairs if self.pairs else float("nan")

    def as_json(self) -> dict[str, object]:
        return {"pairs": self.pairs, "speaks": self.speaks, "share": self.share if self.pairs else None, **self.totals}


@cached
def flow_coverage(
    flows: Flows, scope: Scope, by: By = By.DOMAIN, rule: IdentifierRule = IdentifierRule.EXACT
) -> FlowCoverage:
    """Count the flows of a run by group and part (PARTS); the headline of this scope rests on the first two parts."""
    tables = []
    for data, codes, number in grouped(flows, scope, by, rule):
        decided = np.zeros(data.draws.shape, np.bool_)
        decided[decided_pairs(flows, scope, data)] = True
        tables.append(_counts(part_codes(data), decided, codes, number).T)
    groups, table = places(flows, scope, by).groups, together(by, tables).T
    parts = table[list(groups.values()), :-1]
    frame = pd.DataFrame({"group": list(groups), "pairs": parts.sum(axis=1), "speaks": parts[:, :2].sum(axis=1)})
    frame["share"] = frame["speaks"] / np.maximum(frame["pairs"], 1)
    frame["decided"] = table[list(groups.values()), -1]
    for position, name in enumerate(PARTS):
        frame[name] = parts[:, position]
    whole = {name: int(parts[:, position].sum()) for position, name in enumerate(PARTS)}
    return FlowCoverage(whole | {"decided": int(table[:, -1].sum())}, frame[frame["pairs"] > 0].reset_index(drop=True))


def part_codes(data: FlowArrays) -> Ints:
    """Return the part of each cell as a position in PARTS, -1 where there is no flow: [profile, attribute, context]."""
    labels, draws, is_flow, kept = data.labels, data.draws, data.planned_draws > 0, data.retained[:, None, :]
    violates = labels == INAPPROPRIATE
    clear = (labels == NECESSARY) | violates
    # Later lines win where several fit, so that each flow is in one part.
    codes = np.full(labels.shape, -1, np.int64)
    codes[is_flow & (labels == NECESSARY)] = PARTS.index(NECESSARY_FLOWS)
    codes[is_flow & violates] = PARTS.index(INAPPROPRIATE_FLOWS)
    codes[is_flow & clear & (draws == 0)] = PARTS.index(UNJUDGED)
    codes[is_flow & violates & ~data.counted[:, :, None]] = PARTS.index(IDENTIFIERS)
    codes[is_flow & clear & ~kept] = PARTS.index(DISCARDED)
    codes[is_flow & (labels == AMBIGUOUS)] = PARTS.index(AMBIGUOUS_FLOWS)
    codes[is_flow & (labels == UNLABELLED)] = PARTS.index(UNLABELLED_FLOWS)
    codes[is_flow & (labels == TOO_FEW)] = PARTS.index(TOO_FEW_FLOWS)
    return codes


def _counts(codes: Ints, decided: Bools, groups: Ints, number: int) -> Ints:
    """Count flows by group and part, and as the last column those that people decided: [number, parts + 1]. codes,
    decided: [profile, attribute, context]; groups: as of Places.codes_in."""
    width = len(PARTS)
    flat = np.flatnonzero(codes >= 0)
    group = np.broadcast_to(groups, codes.shape).reshape(-1)[flat].astype(np.int64)
    part = codes.reshape(-1)[flat]
    table = np.bincount(group * width + part, minlength=number * width).reshape(number, width)
    # The first two parts are those that the headline covers.
    of_people = decided.reshape(-1)[flat] & (part < 2)
    return np.column_stack([table, np.bincount(group[of_people], minlength=number)])


# ---- sentences


def coverage_text(item: FlowCoverage) -> str:
    """Return 'the headline covers 46.2 % of 72,030 flows (12,340 necessary, 20,938 inappropriate)'."""
    if not item.pairs:
        return "the run has no flow"
    necessary, inappropriate = item.totals[NECESSARY_FLOWS], item.totals[INAPPROPRIATE_FLOWS]
    return f"{_covers(item)} ({necessary:,} necessary, {inappropriate:,} inappropriate)"


def _covers(item: FlowCoverage) -> str:
    return f"the headline covers {percent(item.share)} of {count(item.pairs, 'flow')}"


def coverage_title(rows: Sequence[tuple[str, FlowCoverage]], frame: pd.DataFrame, *, by_group: bool) -> str:
    """Say what share of flows the headline covers: of each run, or of the groups of the first. frame: with `group` and
    `share`, the highest first. These are counts of this run, and no sample of anything."""
    values = frame["share"].tolist()
    least, most = shares(float(values[-1]), float(values[0]))
    if by_group:
        name, of_run = rows[0]
        start = f"{name}: {_covers(of_run)}"
        if values[0] - values[-1] <= TIE:
            return f"{start}, alike in {count(len(values), 'group')}"
        ends = [shortened(str(frame["group"].iloc[i]).replace("_", " "), LONGEST) for i in (-1, 0)]
        return f"{start}, from {least} ({ends[0]}) to {most} ({ends[1]})"
    if values[0] - values[-1] <= TIE:
        whose = "the flows of every run" if len(values) > 1 else "the run's flows"
        return f"The headline covers {most} of {whose}"
    return f"The headline covers {least} to {most} of a run's flows"
