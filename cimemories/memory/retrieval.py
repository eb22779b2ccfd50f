"""Retrieval: the k statements that fit the task best, by words (BM25).

The query is the task and its recipient. Equal scores are ordered as the profile has the statements, so that the same
task always recalls the same. The lines stand in the profile's order (order=profile), so that k = all is the whole
memory to the letter, or from the best to the worst (order=score)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from math import isfinite

import numpy as np

from cimemories.memory.recalled import Line, MemorySystemError, Recalled
from cimemories.model import Context, Profile

MOST = 100_000  # of statements; a profile has hundreds
_WORD = re.compile(r"[^\W_]+")
ORDERS = ("profile", "score")


class _Ranked:
    """Recalls the statements with the k highest scores."""

    def __init__(self, k: int, order: str) -> None:
        if not 1 <= k <= MOST:
            raise MemorySystemError(f"k is a whole number from 1 to {MOST:,}, not {k}.")
        if order not in ORDERS:
            raise MemorySystemError(f"order is {' or '.join(ORDERS)}, not '{order}'.")
        self.k, self.order = k, order
        self.statements: tuple[str, ...] = ()

    def best(self, scores: Sequence[float]) -> Recalled:
        """The lines of the k highest of these scores, one a statement in the profile's order."""
        # Stable: statements with equal scores stay in the profile's order.
        ranked = sorted(range(len(scores)), key=lambda position: -scores[position])[: self.k]
        chosen = ranked if self.order == "score" else sorted(ranked)
        return Recalled(tuple(Line(self.statements[p], (p,), round(float(scores[p]), 6)) for p in chosen))


def query_of(context: Context) -> str:
    """What is looked for: the task and who the message is for."""
    return f"{context.task} {context.recipient}"


class Bm25(_Ranked):
    """BM25 as Lucene has it, by the library bm25s (the extra `memory`). Words are runs of letters and digits in lower
    case. k1: how much a repeated word counts; b: how much a long statement is held back."""

    name = "bm25"

    def __init__(self, k: int = 20, order: str = "profile", k1: float = 1.5, b: float = 0.75) -> None:
        super().__init__(k, order)
        if find_spec("bm25s") is None:
            raise MemorySystemError(
                "the memory system bm25 needs the library bm25s: pip install 'cimemories-studio[memory]'."
            )
        if not (isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
            raise MemorySystemError("k1 is 0 or more, and b from 0 to 1.")
        self.k1, self.b = k1, b
        self.version = f"1, bm25s {version('bm25s')}"
        self._known: frozenset[str] = frozenset()

    def ingest(self, profile: Profile) -> None:
        import bm25s

        self.statements = tuple(attribute.statement for attribute in profile.attributes)
        words = [_WORD.findall(statement.lower()) for statement in self.statements]
        self._known = frozenset(word for own in words for word in own)
        self._index = bm25s.BM25(k1=self.k1, b=self.b, method="lucene")
        if self._known:
            self._index.index(words, show_progress=False)

    def recall(self, context: Context, prompt: str) -> Recalled:
        # Each word once: a task that says "landlord" twice is not about landlords twice as much.
        words = [w for w in dict.fromkeys(_WORD.findall(query_of(context).lower())) if w in self._known]
        scores = self._index.get_scores(words) if words else np.zeros(len(self.statements))
        return self.best([float(score) for score in scores])
