"""Arrays of two runs cut to the flows that both have, and what is counted and resampled on them. All of it is pure.

A flow is common where both runs have a judged sample whose memory held the attribute. What one run lacks (contexts that
it did not plan, responses that failed, another memory) is left out of both sides, so that a difference is one of
behaviour and not of what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.analysis.counted import asked_for, exposed
from cimemories.analysis.cube import Bools, Cube, Ints, Names
from cimemories.analysis.intervals import Interval, paired_cubes


@dataclass(frozen=True)
class Tallied:
    """Common inappropriate flows by whether each run ever reveals them in its samples."""

    neither: int
    stopped: int
    newly: int
    both: int

    @property
    def flows(self) -> int:
        return self.neither + self.stopped + self.newly + self.both


def common(first: Cube, second: Cube) -> tuple[Cube, Cube]:
    """Both cubes on the profiles and contexts that they share, with no draw where the other has none: pure.

    A profile's attributes stand at the same positions in every run of a dataset; a position that holds another
    attribute in the other cube is no common flow.
    """
    profiles = tuple(sorted(set(first.profiles) & set(second.profiles)))
    contexts = tuple(sorted(set(first.contexts) & set(second.contexts)))
    width = min(first.counted.shape[1], second.counted.shape[1])
    one, two = (_cut(data, profiles, contexts, width) for data in (first, second))
    same = (one.names.attribute == two.names.attribute) & (one.names.attribute >= 0)
    kept: Bools = (one.draws > 0) & (two.draws > 0) & same[:, :, None]
    return _only(one, kept), _only(two, kept)


def changes(first: Cube, second: Cube) -> tuple[Tallied, dict[str, Ints]]:
    """Of two cubes on common flows: how many inappropriate flows each reveals, and those that changed, as arrays
    `profile` and `context` (record ids), `attribute` (record id), counts of both sides, `newly` (1 or 0)."""
    mask = exposed(first.draws, first.labels, first.counted) & exposed(second.draws, second.labels, second.counted)
    before, after = mask & (first.reveals > 0), mask & (second.reveals > 0)
    moved = before ^ after
    p, a, c = np.nonzero(moved)
    both, newly, stopped = int((before & after).sum()), int((after & ~before).sum()), int((before & ~after).sum())
    found = {
        "profile": np.array(first.profiles, np.int64)[p] if len(p) else p,
        "attribute": first.names.attribute[p, a],
        "context": np.array(first.contexts, np.int64)[c] if len(c) else c,
        "newly": after[moved].astype(np.int64),
        "first_reveals": first.reveals[moved],
        "first_draws": first.draws[moved],
        "second_reveals": second.reveals[moved],
        "second_draws": second.draws[moved],
    }
    return Tallied(int(mask.sum()) - both - newly - stopped, stopped, newly, both), found


def by_domain(first: Cube, second: Cube, n: int) -> pd.DataFrame:
    """The differences inside each domain, of two cubes on common flows: domain, `violation` and `completeness` with
    `_low` and `_high`, and what they rest on (`attributes`, `necessary_flows`); nan where a domain has none."""
    names = first.names.domain
    leaking = exposed(first.draws, first.labels, first.counted) & exposed(second.draws, second.labels, second.counted)
    needed = asked_for(first.draws, first.labels) & asked_for(second.draws, second.labels)
    rows = []
    for name in sorted({str(name) for name in names[first.names.attribute >= 0]}):
        inside = (names == name)[:, :, None]
        found = paired_cubes(_only(first, inside), _only(second, inside), n)
        rows.append(
            {
                "domain": name,
                **_columns("violation", found.violation),
                "attributes": int((leaking & inside).any(axis=2).sum()),
                **_columns("completeness", found.completeness),
                "necessary_flows": int((needed & inside).sum()),
            }
        )
    columns = ["domain", "violation", "violation_low", "violation_high", "attributes"]
    columns += ["completeness", "completeness_low", "completeness_high", "necessary_flows"]
    return pd.DataFrame(rows, columns=columns)


def _columns(name: str, found: Interval) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _cut(data: Cube, profiles: Sequence[int], contexts: Sequence[int], width: int) -> Cube:
    p = np.array([data.profiles.index(i) for i in profiles], np.int64)
    c = np.array([data.contexts.index(i) for i in contexts], np.int64)
    cells = np.ix_(p, np.arange(width), c)
    rows = np.ix_(p, np.arange(width))
    names = data.names
    kept = Names(names.attribute[rows], names.key[rows], names.domain[rows], names.event[rows], names.bio[rows])
    counts = data.reveals[cells], data.draws[cells], data.labels[cells], data.counted[rows]
    return Cube(*counts, tuple(profiles), tuple(contexts), kept)


def _only(data: Cube, kept: Bools) -> Cube:
    return replace(data, reveals=np.where(kept, data.reveals, 0), draws=np.where(kept, data.draws, 0))
