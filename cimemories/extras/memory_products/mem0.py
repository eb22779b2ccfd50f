"""mem0 (https://github.com/mem0ai/mem0) under test: in this process, as a vector store in memory with its own ranking.

It is given the vectors that the run has requested, so that all calls are recorded. Its language model is not used:
statements are stored as they are (`infer=False`)."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from cimemories.memory.recalled import Line, MemorySystemError, Needs, Question, Recalled
from cimemories.memory.retrieval import Embedding, query_of
from cimemories.model import Context, Profile

_USER = "user"
# fastembed and spacy are optional parts of mem0: with them its ranking uses words and names too.
_PARTS = ("mem0ai", "qdrant-client", "fastembed", "spacy")
_importing = threading.Lock()


class Mem0(Embedding):
    """The open-source mem0, `Memory.add(infer=False)` and `Memory.search`. Vectors are those of the system embedding:
    of a served model, or TF-IDF. threshold: mem0 recalls nothing that scores below it, so fewer than k lines."""

    name, about = "mem0", "mem0: the k statements that mem0 finds for the task"
    help: ClassVar = {"threshold": "mem0 recalls nothing that scores below it. From 0 to 1"}
    # It requires an older protobuf than the pinned one, so it is no extra.
    needs: ClassVar = Needs(
        "mem0ai",
        ("mem0", "qdrant_client"),
        "`pip install cimemories-studio 'mem0ai>=2.2,<3'` in an environment of its own, without constraints.txt",
    )

    def __init__(
        self, k: int = 20, order: str = "profile", threshold: float = 0.1, model: str = "", base_url: str = ""
    ) -> None:
        super().__init__(k, order, model, base_url)
        if not 0 <= threshold <= 1:
            raise MemorySystemError(f"threshold is from 0 to 1, not {threshold}.")
        self.threshold = threshold
        for part in _PARTS:
            with suppress(PackageNotFoundError):
                self.version += f", {part} {version(part)}"

    def ingest(self, profile: Profile) -> Generator[Question, str, None]:
        texts, vectors = yield from self.vectors(profile)
        self._memory = _memory({_key(text): vector for text, vector in zip(texts, vectors.tolist(), strict=True)})
        for position, statement in enumerate(self.statements):
            self._memory.add(statement, user_id=_USER, infer=False, metadata={"position": position})

    def recall(self, context: Context, prompt: str) -> Recalled:
        found = self._memory.search(
            query_of(context), top_k=self.k, filters={"user_id": _USER}, threshold=self.threshold
        )["results"]
        scored = [(item["metadata"]["position"], round(float(item["score"]), 6)) for item in found]
        # mem0 leaves the order of equal scores open: here it is the profile's.
        scored.sort(key=lambda one: one[0] if self.order == "profile" else (-one[1], one[0]))
        return Recalled(tuple(Line(self.statements[position], (position,), score) for position, score in scored))


class _Given:
    """An embedder of mem0 that has its vectors already."""

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self._vectors = vectors

    def embed(self, text: str, memory_action: str | None = None) -> Sequence[float]:
        return self._vectors[_key(text)]


def _memory(vectors: Mapping[str, Sequence[float]]) -> Any:
    """Return a mem0 in memory that sends no requests."""
    from qdrant_client import QdrantClient

    with _importing:
        # Read when mem0 is imported: otherwise it reports home, and writes into the home directory.
        os.environ["MEM0_TELEMETRY"] = "False"
        if "MEM0_DIR" not in os.environ:
            os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")
            atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)
        from mem0 import Memory
        from mem0.memory import main
    if main.MEM0_TELEMETRY:
        raise MemorySystemError("mem0 was imported with its telemetry on: set MEM0_TELEMETRY=False.")
    unused = {"api_key": "none", "openai_base_url": "http://127.0.0.1:9/v1"}
    store = {
        "collection_name": "statements",
        "client": QdrantClient(":memory:"),
        "embedding_model_dims": len(next(iter(vectors.values()))),
    }
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "embedder": {"provider": "openai", "config": unused},
            "llm": {"provider": "openai", "config": unused},
            "history_db_path": ":memory:",
        }
    )
    memory.embedding_model = _Given(vectors)
    return memory


def _key(text: str) -> str:
    return text.strip()
