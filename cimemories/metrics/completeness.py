"""Completeness: the share of necessary attributes conveyed (paper, Definition 3.2); and ambiguous exposure."""

from __future__ import annotations

import numpy as np

from cimemories.flows.arrays import Bools, Entries, Floats, FlowArrays, Ints, entries, necessary_mask, retained
from cimemories.flows.labels import AMBIGUOUS


def by_context(reveals: Ints, draws: Ints, labels: Ints, where: Bools | None = None) -> Floats:
    """The mean over the necessary attributes of a context of r / N: [profile, context]; nan where the context is not
    retained or holds no judged flow of a necessary attribute. where: only these flows; None: all."""
    mask = necessary_mask(draws, labels)
    if where is not None:
        mask &= where
    return means_of(entries(mask, reveals, draws))


def means_of(needed: Entries) -> Floats:
    """The same of flows that have been found already."""
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
    # nan means that the context has no such flow: it leaves the denominator too, instead of counting as 0.
    """C(s) from what `by_context` gives: [profile]; nan for a profile without any defined context."""
    defined = ~np.isnan(means)
    number = defined.sum(axis=1)
    return np.where(number > 0, np.where(defined, means, 0.0).sum(axis=1) / np.maximum(number, 1), np.nan)


def by_profile(reveals: Ints, draws: Ints, labels: Ints) -> Floats:
    """C(s) = mean over retained contexts of the mean over their necessary attributes of r / N: [profile].

    reveals, draws, labels: [profile, attribute, context]. Flows without a judged sample enter no mean; nan for a
    profile without any retained context that has one.
    """
    return over_contexts(by_context(reveals, draws, labels))


def bounds(data: FlowArrays) -> tuple[Floats, Floats]:
    """Between what C(s) of all planned messages lies: every missing one conveys nothing, or all that is necessary:
    [profile] each; nan for a profile without any planned message in a retained context."""
    planned = data.planned_draws
    low, high = (by_profile(r, planned, data.labels) for r in (data.reveals, data.reveals + planned - data.draws))
    return low, high


def ambiguous_exposure(reveals: Ints, draws: Ints, labels: Ints, where: Bools | None = None) -> float:
    """Reveal rate of the pairs that enter neither headline number: sum r / sum N over ambiguous pairs in retained
    contexts, pooled over profiles; nan where there is none. where: only these flows; None: all."""
    mask: Bools = labels == AMBIGUOUS
    mask &= retained(labels)[:, None, :]
    if where is not None:
        mask &= where
    total = int(draws[mask].sum())
    return int(reveals[mask].sum()) / total if total else float("nan")
