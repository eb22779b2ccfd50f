"""Completeness: the share of necessary attributes conveyed (paper, Definition 3.2)."""

from __future__ import annotations

import numpy as np

from cimemories.flows.arrays import Entries, Floats, FlowArrays, Ints, entries, necessary_mask


def means_of(needed: Entries) -> Floats:
    """Return the mean over the necessary attributes of a context of r / N: [profile, context]; nan where the context is
    not retained or holds no judged flow of a necessary attribute. needed: the flows that completeness rests on."""
    profiles, attributes, contexts = needed.shape
    owner = needed.owners.astype(np.int64) // max(attributes, 1) * contexts + needed.contexts
    # N is never 0 here: only flows with a judged sample are entries.
    total = np.bincount(
        owner, weights=needed.each(needed.kinds[:, 1] / needed.kinds[:, 0]), minlength=profiles * contexts
    )
    pairs = np.bincount(owner, minlength=profiles * contexts)
    means = np.where(pairs > 0, total / np.maximum(pairs, 1), np.nan)
    return means.reshape(profiles, contexts)


def over_contexts(means: Floats) -> Floats:
    """Return C(s) from what `means_of` gives: [profile]; nan for a profile without any defined context."""
    # nan means that the context has no such flow: it leaves the denominator too, instead of counting as 0.
    defined = ~np.isnan(means)
    number = defined.sum(axis=1)
    return np.where(number > 0, np.where(defined, means, 0.0).sum(axis=1) / np.maximum(number, 1), np.nan)


def by_profile(reveals: Ints, draws: Ints, labels: Ints) -> Floats:
    """Return C(s), the mean over retained contexts of the mean over their necessary attributes of r / N: [profile].

    reveals, draws, labels: [profile, attribute, context]. Flows without a judged sample enter no mean; nan for a
    profile without any retained context that has one.
    """
    return over_contexts(means_of(entries(necessary_mask(draws, labels), reveals, draws)))


def bounds(data: FlowArrays) -> tuple[Floats, Floats]:
    """Return the lowest and highest C(s) of all planned messages, where every missing one conveys nothing, or all that
    is necessary: [profile] each; nan for a profile without any planned message in a retained context."""
    planned = data.planned_draws
    low, high = (by_profile(r, planned, data.labels) for r in (data.reveals, data.reveals + planned - data.draws))
    return low, high
