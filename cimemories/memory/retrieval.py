"""Retrieval: the k statements that fit the task best, by words (BM25), or by vectors.

The query is the task and its recipient. Equal scores keep the order of the profile, so that the same task always
recalls the same. The lines stand in the profile's order (order=profile), so that k = all is exactly the whole memory,
or from the best to the worst (order=score)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import version
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

from cimemories.memory.recalled import Line, MemorySystemError, Needs, Question, Recalled
from cimemories.model import Context, Profile

MOST = 100_000  # of statements; a profile has hundreds
_WORD = re.compile(r"[^\W_]+")
ORDERS = ("profile", "score")
AT_ONCE = 32  # texts in one call for vectors; as base64 they stay below the record's limit of one answer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float64]


class Ranked:
    """Recalls the statements with the k highest scores."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"order": ORDERS}

    def __init__(self, k: int, order: str) -> None:
        if not 1 <= k <= MOST:
            raise MemorySystemError(f"k is a whole number from 1 to {MOST:,}, not {k}.")
        if order not in ORDERS:
            raise MemorySystemError(f"order is {' or '.join(ORDERS)}, not '{order}'.")
        self.k, self.order = k, order
        self.statements: tuple[str, ...] = ()

    def best(self, scores: Sequence[float]) -> Recalled:
        """Return the lines of the k highest of these scores, one a statement in the profile's order."""
        # Stable: statements with equal scores stay in the profile's order.
        ranked = sorted(range(len(scores)), key=lambda position: -scores[position])[: self.k]
        chosen = ranked if self.order == "score" else sorted(ranked)
        return Recalled(tuple(Line(self.statements[p], (p,), round(float(scores[p]), 6)) for p in chosen))


def query_of(context: Context) -> str:
    """Return the query: the task and its recipient."""
    return f"{context.task} {context.recipient}"


class Bm25(Ranked):
    """BM25 as in Lucene, by the library bm25s (the extra `memory`). Words are runs of letters and digits in lower case.
    k1: how much a repeated word counts; b: how much a long statement is penalised."""

    name, about = "bm25", "bm25: the k statements that share words with the task"
    needs: ClassVar = Needs("bm25s", ("bm25s",), "`pip install 'cimemories-studio[memory]'`")

    def __init__(self, k: int = 20, order: str = "profile", k1: float = 1.5, b: float = 0.75) -> None:
        super().__init__(k, order)
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
        # Each word once: repeating "landlord" does not make a task more about landlords.
        words = [w for w in dict.fromkeys(_WORD.findall(query_of(context).lower())) if w in self._known]
        scores = self._index.get_scores(words) if words else [0.0] * len(self.statements)
        return self.best([float(score) for score in scores])


class Embedding(Ranked):
    """The statements whose vectors are nearest to the task's, by cosine. Without a model the vectors are TF-IDF of
    words and pairs of words of the profile's own statements; with one they come from an OpenAI embeddings endpoint,
    once for a profile and AT_ONCE texts a call."""

    name, about = "embedding", "embedding: the k statements nearest to the task"
    embeds = True

    def __init__(self, k: int = 20, order: str = "profile", model: str = "", base_url: str = "") -> None:
        super().__init__(k, order)
        self.model, self.base_url = model, base_url
        self.version = "1" if model else f"1, scikit-learn {version('scikit-learn')}"

    def vectors(self, profile: Profile) -> Generator[Question, str, tuple[list[str], Vectors]]:
        """Take in the statements; return all texts, statements and then queries, and a row for each."""
        self.statements = tuple(attribute.statement for attribute in profile.attributes)
        # A task that stands in a profile twice is one text.
        queries = list(dict.fromkeys(map(query_of, profile.contexts)))
        texts = [*self.statements, *queries]
        return texts, (yield from self._asked(texts)) if self.model else _tfidf(self.statements, texts)

    def ingest(self, profile: Profile) -> Generator[Question, str, None]:
        import numpy as np  # here and below: a run without vectors does not wait for it

        texts, vectors = yield from self.vectors(profile)
        queries = texts[len(self.statements) :]
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        kept, wanted = vectors[: len(self.statements)], vectors[len(self.statements) :]
        self._scores = dict(zip(queries, wanted @ kept.T, strict=True))

    def recall(self, context: Context, prompt: str) -> Recalled:
        # Rounded, so that ties do not depend on a machine's order of summation.
        return self.best([round(float(score), 6) for score in self._scores[query_of(context)]])

    def _asked(self, texts: Sequence[str]) -> Generator[Question, str, Vectors]:
        import numpy as np

        parts: list[Vectors] = []
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            answer = yield Question(json.dumps(some, ensure_ascii=False), (json.dumps(["AAAAAA=="] * len(some)),))
            parts.append(read_vectors(answer, len(some)))
        if len({part.shape[1] for part in parts}) > 1:
            raise ValueError("the embedding model gave vectors of several lengths")
        return np.concatenate(parts)


def _tfidf(statements: Sequence[str], texts: Sequence[str]) -> Vectors:
    """Return vectors of these texts, by how rare a word is among the statements."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    maker = TfidfVectorizer(token_pattern=_WORD.pattern, ngram_range=(1, 2), sublinear_tf=True)
    try:
        maker.fit(statements)
    except ValueError:  # no statement has a word
        return np.zeros((len(texts), 1))
    vectors: Vectors = maker.transform(texts).toarray()
    return vectors


def read_vectors(text: str, count: int) -> Vectors:
    """Return the vectors of a recorded answer, a JSON list of base64 of little-endian 32-bit floats. Shape: (count,
    dimensions). Raises ValueError for anything else."""
    import numpy as np

    given = json.loads(text)
    if not isinstance(given, list) or len(given) != count:
        raise ValueError(f"{count} vectors were asked for")
    vectors = [np.frombuffer(base64.b64decode(item, validate=True), dtype="<f4") for item in given]
    if not count or len({len(vector) for vector in vectors}) != 1 or not len(vectors[0]):
        raise ValueError("the vectors are not of one length")
    matrix = np.stack(vectors).astype(float)
    if not np.isfinite(matrix).all():
        raise ValueError("a vector holds what is no number")
    return matrix
