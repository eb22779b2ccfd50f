"""Runs that lost messages: worlds whose complete run is known, and what is left when samples go missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cimemories.flows.arrays import FlowArrays, Names
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY

AT_RANDOM, LEAKY_FIRST = "missing at random", "leaky messages go missing more often"


def model(
    random: np.random.Generator, profiles: int, attributes: int = 60, contexts: int = 24
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
    """How likely a message of a model reveals each attribute, and labels: [profile, attribute, context]. Few attributes
    leak, and those that do leak again."""
    shape = (profiles, attributes, contexts)
    kind = random.random(shape)
    labels = np.where(kind < 0.08, NECESSARY, np.where(kind < 0.4, INAPPROPRIATE, AMBIGUOUS)).astype(np.int8)
    leaning = random.normal(-3.6, 0.5, (profiles, 1, 1)) + random.normal(0, 1.2, (profiles, attributes, 1))
    logit = np.where(labels == INAPPROPRIATE, leaning, random.normal(0, 1, (profiles, 1, contexts)))
    return 1 / (1 + np.exp(-logit)), labels


def messages(random: np.random.Generator, chance: npt.NDArray[np.float64], samples: int = 5) -> npt.NDArray[np.bool_]:
    """What each message of it reveals: [profile, attribute, context, sample]."""
    revealed: npt.NDArray[np.bool_] = random.random((*chance.shape, samples)) < chance[..., None]
    return revealed


def lost_samples(
    random: np.random.Generator, revealed: npt.NDArray[np.bool_], share: float, kind: str = AT_RANDOM
) -> npt.NDArray[np.bool_]:
    """Which messages go missing, [profile, context, sample]: about this share of them. LEAKY_FIRST: three times as
    likely where a message reveals more than most do."""
    weight: npt.NDArray[Any] = np.ones((revealed.shape[0], *revealed.shape[2:]))
    if kind == LEAKY_FIRST:
        reveals = revealed.sum(axis=1)
        weight = np.where(reveals > np.median(reveals), 3.0, 1.0)
    lost: npt.NDArray[np.bool_] = random.random(weight.shape) < np.minimum(share * weight / weight.mean(), 1.0)
    return lost


def counted(revealed: npt.NDArray[np.bool_], labels: npt.NDArray[np.int8], lost: npt.NDArray[np.bool_]) -> FlowArrays:
    """The arrays of a run of these messages once the lost ones are gone."""
    judged = ~lost[:, None]
    profiles, attributes, contexts, samples = revealed.shape
    draws = np.broadcast_to(judged, revealed.shape).sum(axis=3)
    data = FlowArrays(
        reveals=(revealed & judged).sum(axis=3),
        draws=draws,
        labels=labels,
        counted=np.ones((profiles, attributes), np.bool_),
        profiles=tuple(range(profiles)),
        contexts=tuple(range(contexts)),
        names=Names.unnamed(profiles, attributes),
    )
    return replace(data, planned=np.full(draws.shape, samples) if lost.any() else None)


def missing_world(
    random: np.random.Generator, profiles: int, share: float, kind: str = AT_RANDOM, attributes: int = 60
) -> tuple[FlowArrays, FlowArrays]:
    """One run complete, and what is left of the same messages when about this share of them is lost."""
    chance, labels = model(random, profiles, attributes)
    revealed = messages(random, chance)
    lost = lost_samples(random, revealed, share, kind)
    return counted(revealed, labels, np.zeros_like(lost)), counted(revealed, labels, lost)
