"""From votes to a label: the persona mixture and the consensus rule (paper, Section 4.1.2).

Pure functions on counts, vectorised over pairs. Codes of labels are small integers, so that they fit dense arrays.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cimemories.model import Label

UNLABELLED: Final = -1
AMBIGUOUS: Final = 0
NECESSARY: Final = 1
INAPPROPRIATE: Final = 2
CODES: Final = {Label.AMBIGUOUS: AMBIGUOUS, Label.NECESSARY: NECESSARY, Label.INAPPROPRIATE: INAPPROPRIATE}
LABELS: Final = {code: label for label, code in CODES.items()}


def mixture(votes: npt.ArrayLike, priors: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """P(verdict | pair) = sum over personas of prior x share of votes.

    votes: counts [..., personas, 3] of necessary, inappropriate, abstain; votes that could not be parsed, or that
    contradict themselves, are not among them. priors: [personas], adding up to 1. Returns shares [..., 3]; nan where
    a persona with a prior above 0 has no counted vote, since its share is then unknown.
    """
    counts = np.asarray(votes, dtype=np.float64)
    weights = np.asarray(priors, dtype=np.float64)
    total = counts.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        # 0 / 0 where a persona has no counted vote: nan, which is what it is to be.
        shares = counts / total
    # A persona without a prior may lack votes: 0 x nan would be nan.
    shares = np.where((weights == 0)[:, None], 0.0, shares)
    mixed: npt.NDArray[np.float64] = (weights[:, None] * shares).sum(axis=-2)
    return mixed


def consensus(votes: npt.ArrayLike, priors: npt.ArrayLike, threshold: float = 1.0) -> npt.NDArray[np.int8]:
    """The label code of each pair: the verdict whose mixture probability reaches the threshold, else AMBIGUOUS.

    votes: counts [..., personas, 3] of necessary, inappropriate, abstain. threshold in (0.5, 1]; 1 is the paper's rule
    (no entropy: every counted vote of every persona agrees), decided on whole counts and not on rounded shares. A pair
    for which some persona with a prior above 0 has no counted vote is AMBIGUOUS where others voted, and UNLABELLED
    where nobody did. Raises ValueError for a threshold outside its range or priors that are negative or
    do not add up to 1.
    """
    counts = np.asarray(votes)
    weights = np.asarray(priors, dtype=np.float64)
    # Above one half at most one verdict can reach it.
    if not 0.5 < threshold <= 1.0:
        raise ValueError(f"the threshold must lie above 0.5 and not above 1, this is {threshold}")
    if not abs(weights.sum() - 1.0) <= 1e-6:  # written so that nan is refused too
        raise ValueError(f"the priors of the personas must add up to 1, these add up to {weights.sum():g}")
    if (weights < 0).any():
        raise ValueError(f"the priors of the personas must not be below 0, the least is {weights.min():g}")
    with_prior = weights > 0
    totals = counts.sum(axis=-1)
    complete = (totals[..., with_prior] > 0).all(axis=-1)
    result = np.full(counts.shape[:-2], AMBIGUOUS, dtype=np.int8)
    if threshold == 1.0:
        # Whole counts: the mixture of unanimous votes is the sum of the priors, which floating point can put below 1.
        reached = (counts[..., with_prior, :] == totals[..., with_prior, None]).all(axis=-2)
    else:
        # Shares summed in floating point may fall short of a threshold that they reach. nan (no votes) reaches none.
        reached = np.nan_to_num(mixture(counts, weights)) >= threshold - 1e-12
    result[complete & reached[..., 0]] = NECESSARY
    result[complete & reached[..., 1]] = INAPPROPRIATE
    result[totals.sum(axis=-1) == 0] = UNLABELLED
    return result
