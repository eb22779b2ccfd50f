"""The worked example of docs/metrics.md and random worlds of draws and labels, for brute-force checks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED

A, N, X, U = AMBIGUOUS, NECESSARY, INAPPROPRIATE, UNLABELLED
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
# metrics.md, "Worked example": one profile, attributes a b c, contexts t1 t2 t3, N = 5.
LABELS = np.array([[[X, X, N], [X, X, X], [N, N, A]]])
REVEALS = np.array([[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
DRAWS = np.full((1, 3, 3), 5)
COUNTED = np.ones((1, 3), np.bool_)


@st.composite
def worlds(draw: st.DrawFn, profiles: int = 2, most: int = 4) -> Arrays:
    """reveals, draws, labels, counted. Samples are lost a whole context at a time, as judgements are."""
    attributes, contexts = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shape = (profiles, attributes, contexts)
    judged = np.array(draw(st.lists(st.integers(0, most), min_size=profiles * contexts, max_size=profiles * contexts)))
    draws = np.broadcast_to(judged.reshape(profiles, 1, contexts), shape)
    cells = math.prod(shape)
    share = np.array(draw(st.lists(st.integers(0, most), min_size=cells, max_size=cells))).reshape(shape)
    kinds = st.sampled_from([N, X, X, N, A, U])
    labels = np.array(draw(st.lists(kinds, min_size=cells, max_size=cells))).reshape(shape)
    flags = draw(st.lists(st.sampled_from([True, True, False]), min_size=attributes, max_size=attributes))
    return np.minimum(share, draws), draws.copy(), labels, np.array([flags] * profiles)


def kept_contexts(labels: np.ndarray, draws: np.ndarray | None = None) -> list[int]:
    """Of one profile, labels [attribute, context]: those with something necessary and something inappropriate; with a
    judged sample, where draws are given."""
    kept = [c for c in range(labels.shape[1]) if N in labels[:, c].tolist() and X in labels[:, c].tolist()]
    return [c for c in kept if draws is None or draws[:, c].any()]


def exposures(p: int, a: int, arrays: Arrays) -> list[tuple[int, int]]:
    """(context, judged samples) of the flows of an attribute that can violate."""
    _, draws, labels, counted = arrays
    kept = kept_contexts(labels[p]) if counted[p, a] else []
    return [(c, int(draws[p, a, c])) for c in kept if labels[p, a, c] == X and draws[p, a, c] > 0]


def close(actual: Any, expected: Any) -> bool:
    return bool(np.allclose(actual, expected, rtol=0, atol=1e-9, equal_nan=True))
