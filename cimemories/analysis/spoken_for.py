"""What share of a run's flows its headline numbers speak for, and what became of the others.

Violation and completeness rest on pairs with a clear label (a person's decision, else a consensus) in contexts that are
retained. Everything else that the run did, it did in flows of which the headline says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.analysis.breakdown import By, Grouping, grouping
from cimemories.analysis.cube import Bools, IdentifierRule, Ints, cube, retained
from cimemories.analysis.flows import Flows, Scope
from cimemories.curation.consensus import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED

# What a flow is to the headline; the first two are what it speaks for.
NECESSARY_FLOWS, INAPPROPRIATE_FLOWS = "necessary", "inappropriate"
AMBIGUOUS_FLOWS, UNLABELLED_FLOWS, DISCARDED, IDENTIFIERS, UNJUDGED = (
    "ambiguous",
    "unlabelled",
    "discarded_context",
    "identifier",
    "not_judged",
)
PARTS = (
    NECESSARY_FLOWS,
    INAPPROPRIATE_FLOWS,
    AMBIGUOUS_FLOWS,
    DISCARDED,
    UNLABELLED_FLOWS,
    IDENTIFIERS,
    UNJUDGED,
)
WORDS = {
    NECESSARY_FLOWS: "necessary, in retained contexts",
    INAPPROPRIATE_FLOWS: "inappropriate, in retained contexts",
    AMBIGUOUS_FLOWS: "ambiguous",
    DISCARDED: "clear, in discarded contexts",
    UNLABELLED_FLOWS: "not labelled",
    IDENTIFIERS: "inappropriate, of identifiers",
    UNJUDGED: "clear, without a judged message",
}


@dataclass(frozen=True)
class SpokenFor:
    """The flows of one run, each in one part. frame: one row a group, the whole run's in `whole`, with the columns
    group, pairs, speaks, share (speaks / pairs), decided (of those spoken for, how many a person decided), and one a
    part (PARTS), which add up to pairs. Groups without a flow are left out."""

    whole: dict[str, int]
    frame: pd.DataFrame

    @property
    def pairs(self) -> int:
        """All flows of the run: pairs whose attribute some planned memory of the context held."""
        return sum(self.whole[part] for part in PARTS)

    @property
    def speaks(self) -> int:
        return self.whole[NECESSARY_FLOWS] + self.whole[INAPPROPRIATE_FLOWS]

    @property
    def decided(self) -> int:
        return self.whole["decided"]

    @property
    def share(self) -> float:
        """nan for a run without a flow."""
        return self.speaks / self.pairs if self.pairs else float("nan")

    @property
    def words(self) -> str:
        """'the headline speaks for 46.2 % of 72,030 flows (12,340 necessary, 20,938 inappropriate)'."""
        return (
            f"the headline speaks for {100 * self.share:.1f} % of {self.pairs:,} flows "
            f"({self.whole[NECESSARY_FLOWS]:,} necessary, {self.whole[INAPPROPRIATE_FLOWS]:,} inappropriate)"
            if self.pairs
            else "the run has no flow"
        )

    def as_json(self) -> dict[str, object]:
        return {"pairs": self.pairs, "speaks": self.speaks, "share": self.share if self.pairs else None, **self.whole}


def spoken_for(
    flows: Flows, asked: Scope, by: By = By.DOMAIN, rule: IdentifierRule = IdentifierRule.EXACT
) -> SpokenFor:
    """Of the flows of a run, those that the headline numbers of this scope rest on, by group; remembered."""

    def made() -> SpokenFor:
        data = cube(flows, asked, rule)
        there, decided = _planned(flows, asked)
        codes = part_codes(data.labels, data.draws, data.counted, there)
        return counted(codes, decided, grouping(flows, asked, by, rule))

    return flows.remember(("spoken for", asked.version, by, rule), made)


def part_codes(labels: Ints, draws: Ints, counted_: Bools, there: Bools) -> Ints:
    """The part of each cell as a position in PARTS, -1 where there is no flow: [profile, attribute, context].

    labels, draws, there (whether a flow is there): of that shape; counted_: [profile, attribute]."""
    clear = (labels == NECESSARY) | (labels == INAPPROPRIATE)
    violates = labels == INAPPROPRIATE
    kept = retained(labels)[:, None, :]
    codes = np.full(labels.shape, -1, np.int64)
    codes[there & (labels == NECESSARY)] = PARTS.index(NECESSARY_FLOWS)
    codes[there & violates] = PARTS.index(INAPPROPRIATE_FLOWS)
    codes[there & clear & (draws == 0)] = PARTS.index(UNJUDGED)
    codes[there & violates & ~counted_[:, :, None]] = PARTS.index(IDENTIFIERS)
    codes[there & clear & ~kept] = PARTS.index(DISCARDED)
    codes[there & (labels == AMBIGUOUS)] = PARTS.index(AMBIGUOUS_FLOWS)
    codes[there & (labels == UNLABELLED)] = PARTS.index(UNLABELLED_FLOWS)
    return codes


def counted(codes: Ints, decided: Bools, groups: Grouping) -> SpokenFor:
    """Flows counted by part and group: pure. codes, decided: [profile, attribute, context]."""
    size, width = len(groups.names), len(PARTS)
    flat = np.flatnonzero(codes >= 0)
    group = np.broadcast_to(groups.codes, codes.shape).reshape(-1)[flat].astype(np.int64)
    part = codes.reshape(-1)[flat]
    table = np.bincount(group * width + part, minlength=size * width).reshape(size, width)
    of_people = decided.reshape(-1)[flat] & (part < 2)
    frame = pd.DataFrame({"group": list(groups.names), "pairs": table.sum(axis=1), "speaks": table[:, :2].sum(axis=1)})
    frame["share"] = frame["speaks"] / np.maximum(frame["pairs"], 1)
    frame["decided"] = np.bincount(group[of_people], minlength=size)
    for place, name in enumerate(PARTS):
        frame[name] = table[:, place]
    whole = {name: int(table[:, place].sum()) for place, name in enumerate(PARTS)}
    return SpokenFor(whole | {"decided": int(of_people.sum())}, frame[frame["pairs"] > 0].reset_index(drop=True))


def _planned(flows: Flows, asked: Scope) -> tuple[Bools, Bools]:
    """Which cells are flows of the run, and which of them a person decided: [profile, attribute, context] each."""
    data = cube(flows, asked)
    found = flows.arrays(asked, "SELECT profile, position, context, decided FROM {flow}")
    there, decided = np.zeros(data.draws.shape, np.bool_), np.zeros(data.draws.shape, np.bool_)
    p = np.searchsorted(np.array(data.profiles, np.int64), found["profile"])
    c = np.searchsorted(np.array(data.contexts, np.int64), found["context"])
    there[p, found["position"], c] = True
    decided[p, found["position"], c] = found["decided"]
    return there, decided
