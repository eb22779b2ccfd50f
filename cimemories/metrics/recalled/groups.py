"""Counts of judged samples by what was recalled and said, by domain, context, or another side of a heatmap, pooled over
profiles; and the heatmap of what was recalled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from cimemories.flows.arrays import IdentifierRule, Ints, arrays_with
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import LABELS
from cimemories.flows.recalled import recalled_arrays, recalled_blocks
from cimemories.flows.scope import Scope
from cimemories.metrics.heatmap import Grid, grid_of
from cimemories.metrics.places import By, places
from cimemories.metrics.recalled.split import OF_LABELS, OUTCOMES, label_mask, outcome_counts


@cached
def recalled_by(flows: Flows, scope: Scope, by: By, rule: IdentifierRule = IdentifierRule.EXACT) -> pd.DataFrame:
    """Return one row a place of this side (heatmap.places) and label, places without a judged flow left out: id, place
    (in full), name (short), label, flows, draws, recalled, exposure (recalled / draws), and how many draws came to each
    of OUTCOMES, which add up to draws."""
    side = places(flows, scope, by)
    sums = np.zeros((len(OF_LABELS), 1 + len(OUTCOMES), len(side)), np.int64)
    for counts in recalled_blocks(flows, scope, rule):
        data = counts.data
        parts = outcome_counts(counts)
        for at, label in enumerate(OF_LABELS):
            p, a, c = np.nonzero(label_mask(counts, label))
            place = side.of(data, p * data.draws.shape[1] + a, c)
            for row, values in enumerate([np.ones(len(p)), *(part[p, a, c] for part in parts)]):
                sums[at, row] += np.bincount(place, weights=values, minlength=len(side)).astype(np.int64)
    flows_of, outcomes = sums[:, 0], sums[:, 1:]
    # By place, labels of one beneath each other.
    spots, kinds = np.nonzero(flows_of.T)
    frame = pd.DataFrame(
        {
            "id": [side.ids[i] for i in spots],
            "place": [side.titles[i] for i in spots],
            "name": [side.names[i] for i in spots],
            "label": [str(LABELS[OF_LABELS[i]]) for i in kinds],
            "flows": flows_of[kinds, spots],
            "draws": outcomes[kinds, :, spots].sum(axis=1),
            **{outcome: outcomes[kinds, k, spots] for k, outcome in enumerate(OUTCOMES)},
        }
    )
    recalled = frame["recalled_and_said"] + frame["recalled_not_said"]
    frame.insert(6, "recalled", recalled)
    frame.insert(7, "exposure", recalled / frame["draws"])
    return frame


def recalled_draws(flows: Flows, scope: Scope, pairs: pd.DataFrame) -> Ints:
    """Count the judged samples in which each of these flows (profile, attribute, context: ids) was recalled: [rows].
    For a large run pass a page of flows: profiles are read one by one."""
    result = np.zeros(len(pairs), np.int64)
    people = pairs["profile"].to_numpy(np.int64)
    for profile in np.unique(people).tolist():
        counts = recalled_arrays(flows, scope, arrays_with(flows, scope, profile))
        of, data = pairs[people == profile], counts.data
        p = np.searchsorted(data.profiles, of["profile"].to_numpy(np.int64))
        c = np.searchsorted(data.contexts, of["context"].to_numpy(np.int64))
        a = (data.names.attribute[p] == of["attribute"].to_numpy(np.int64)[:, None]).argmax(axis=1)
        result[people == profile] = counts.recalled[p, a, c]
    return result


@cached
def recalled_grid(
    flows: Flows, scope: Scope, rows: By, columns: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> Grid:
    """Return the heatmap of a run with 'recalled' in the place of 'revealed': its violation is the share of
    inappropriate pairs recalled in n samples, its completeness the share of necessary samples that recalled. Raises
    ValueError where both sides are the same, or n < 1."""
    every = (replace(counts.data, reveals=counts.recalled) for counts in recalled_blocks(flows, scope, rule))
    return grid_of(flows, scope, rows, columns, n, every)
