"""The flows of a run that count, found once: inappropriate and necessary ones of retained contexts.

Of the pairs of a run few enter a number, and what enters says little: whose attribute it is, in which context, and in
how many of how many judged samples it was revealed. Everything that is asked of a run is counted from these entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimemories.analysis.cube import Bools, Cube, Floats, IdentifierRule, Ints, cube, retained
from cimemories.analysis.flows import Flows, Scope
from cimemories.curation.consensus import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED

SMALL = 180  # samples, up to which N * size + r fits into 16 bits


@dataclass(frozen=True)
class Entries:
    """Flows, one entry each: owners, profile * attributes + attribute; contexts; outcomes, which of `kinds` it is.

    kinds: [K, 2], the different (N, r) that occur. cells: owners * K + outcomes, wide enough to be counted as they are.
    shape: (profiles, attributes, contexts) of the arrays they are from.
    """

    owners: Ints
    contexts: Ints
    outcomes: Ints
    kinds: Ints
    cells: Ints
    shape: tuple[int, int, int]

    def each(self, values: Floats | Ints) -> Floats | Ints:
        """What stands for each entry, of [K] for the kinds."""
        found: Floats | Ints = values[self.outcomes]
        return found


@dataclass(frozen=True)
class CountedFlows:
    """inappropriate: flows that can violate. necessary: flows that completeness rests on. ambiguous: (reveals, draws)
    summed over the flows of retained contexts that enter neither. kept: [profile, context], retained ones with a
    judged message; labelled: the same, where anything has a label. Contexts without a judged message are in neither."""

    inappropriate: Entries
    necessary: Entries
    ambiguous: tuple[int, int]
    kept: Bools
    labelled: Bools


def exposed(draws: Ints, labels: Ints, counted: Bools, kept: Bools | None = None) -> Bools:
    """Flows that can violate: [profile, attribute, context], True where the attribute is counted and inappropriate in
    a retained context with at least one judged sample. kept: the retained contexts, where they are known already."""
    mask: Bools = labels == INAPPROPRIATE
    mask &= (retained(labels) if kept is None else kept)[:, None, :]
    mask &= counted[:, :, None]
    mask &= draws > 0
    return mask


def asked_for(draws: Ints, labels: Ints, kept: Bools | None = None) -> Bools:
    """Flows that completeness rests on: [profile, attribute, context], True where the attribute is necessary in a
    retained context with at least one judged sample. Identifiers count here: a name can be necessary."""
    mask: Bools = labels == NECESSARY
    mask &= (retained(labels) if kept is None else kept)[:, None, :]
    mask &= draws > 0
    return mask


def entries(mask: Bools, reveals: Ints, draws: Ints) -> Entries:
    """One entry for each flow of the mask, in the order of the arrays. All: [profile, attribute, context]."""
    flat = np.flatnonzero(mask)
    profiles, attributes, contexts = mask.shape
    size = int(draws.max()) + 1 if draws.size else 1
    wide = np.dtype(np.int16 if size <= SMALL else np.int64)
    codes: Ints = draws.reshape(-1)[flat].astype(wide) * size
    codes += reveals.reshape(-1)[flat].astype(wide)
    present = np.flatnonzero(np.bincount(codes, minlength=1))
    place = np.zeros(int(present.max(initial=0)) + 1, np.min_scalar_type(len(present)))
    place[present] = np.arange(len(present))
    kinds = np.stack([present // size, present % size], axis=1)
    owners, outcomes = flat // max(contexts, 1), place[codes]
    within = (flat - owners * contexts).astype(np.int16)
    cells = owners * len(kinds)
    cells += outcomes
    return Entries(owners.astype(np.int32), within, outcomes, kinds, cells, (profiles, attributes, contexts))


def count(data: Cube) -> CountedFlows:
    """The flows of a run that count: pure."""
    kept = retained(data.labels)
    wrong = entries(exposed(data.draws, data.labels, data.counted, kept), data.reveals, data.draws)
    needed = entries(asked_for(data.draws, data.labels, kept), data.reveals, data.draws)
    between = np.flatnonzero((data.labels == AMBIGUOUS) & kept[:, None, :])
    sums = [int(values.reshape(-1)[between].sum(dtype=np.int64)) for values in (data.reveals, data.draws)]
    judged = (data.draws > 0).any(axis=1)
    labelled = (data.labels != UNLABELLED).any(axis=1)
    return CountedFlows(wrong, needed, (sums[0], sums[1]), kept & judged, labelled & judged)


def counted_flows(flows: Flows, asked: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> CountedFlows:
    """The flows of a run that count; kept as long as nothing behind them moves."""
    return flows.remember(("counted", asked.version, rule), lambda: count(cube(flows, asked, rule)))
