"""Letta (https://github.com/letta-ai/letta) under test: a separate server, asked by the package letta-client.

Only its archival memory is used, and no agent: each profile gets its own archive, into which its statements go as
passages, and a passage carries its position. Letta embeds them with its own model and searches them. The archive is
deleted when the profile is done, or when the process ends."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from importlib.metadata import version
from typing import Any, ClassVar
from uuid import uuid4

from cimemories.llm.endpoint import EndpointError, checked_address
from cimemories.memory.recalled import Line, MemorySystemError, Needs, Recalled
from cimemories.memory.retrieval import Ranked, query_of
from cimemories.model import Context, Profile

LOCAL = "http://localhost:8283"  # the default address of a Letta server
MOST = 100  # passages that Letta gives for one search
_AT_ONCE = 32  # passages in one call: Letta embeds them before it answers
_SECRETS = ("LETTA_API_KEY", "LETTA_CUSTOM_HEADERS")  # letta-client sends these to any address that it is given


class LettaError(RuntimeError):
    """A Letta server that does not answer, or an answer that its archives cannot hold."""


class Letta(Ranked):
    """The k passages that Letta's search finds for the task. embedding: the handle of the embedding model on that
    server ('' for its default). address: of the server (''; that of LETTA_BASE_URL, or LOCAL). The key of LETTA_API_KEY
    is sent only to LETTA_BASE_URL, never to an address that a run names."""

    name, about = "letta", "Letta: the k passages that a Letta server finds for the task"
    help: ClassVar = {
        "embedding": "The server's embedding model, such as openai/text-embedding-3-small. Empty for its default.",
        "address": "Where the server is. Empty for LETTA_BASE_URL, or http://localhost:8283. It gets the statements.",
    }
    needs: ClassVar = Needs("letta-client", ("letta_client",), "`pip install 'cimemories-studio[letta]'`")
    # A plan asks no server: as many statements stand in for the recalled passages.
    stand_in: ClassVar = "embedding"

    def __init__(self, k: int = 20, order: str = "profile", embedding: str = "", address: str = "") -> None:
        if not 1 <= k <= MOST:
            raise MemorySystemError(f"k is a whole number from 1 to {MOST}, not {k}: Letta gives no more for a search.")
        super().__init__(k, order)
        own = os.environ.get("LETTA_BASE_URL", "").rstrip("/")
        self.embedding = embedding
        self.address = address.rstrip("/") or own or LOCAL
        try:
            checked_address(self.address)
        except EndpointError as error:
            raise MemorySystemError(str(error)) from None
        if address and self.address != own and (named := [name for name in _SECRETS if os.environ.get(name)]):
            raise MemorySystemError(
                f"{' and '.join(named)} would be sent to {self.address}. Set LETTA_BASE_URL to this address, or unset "
                f"{'it' if len(named) == 1 else 'them'}."
            )
        self.version = f"1, letta-client {version('letta-client')}"

    def ingest(self, profile: Profile) -> None:
        from letta_client import APIConnectionError
        from letta_client import Letta as Client

        self.statements = tuple(attribute.statement for attribute in profile.attributes)
        self._client = Client(base_url=self.address)
        handle = {"embedding": self.embedding} if self.embedding else {}
        description = "Statements of one profile, from a run of CIMemories Studio, which deletes them at its end."
        try:
            made = self._client.archives.create(name=f"cimemories-{uuid4().hex}", description=description, **handle)
        except APIConnectionError as error:  # whose text is "Connection error."
            raise LettaError(
                f"no answer from {self.address}. Start the Letta server, or name its address by LETTA_BASE_URL or "
                "address=URL"
            ) from error
        self._archive = made.id
        # The instance ends with its profile, even if that fails or is only priced; at the latest with the process.
        weakref.finalize(self, _delete, self._client, made.id)
        passages = [{"text": text, "metadata": {"position": p}} for p, text in enumerate(self.statements)]
        for start in range(0, len(passages), _AT_ONCE):
            some = passages[start : start + _AT_ONCE]
            stored = self._client.archives.passages.create_many(made.id, passages=some)
            if len(stored) != len(some):
                raise LettaError(f"Letta stored {len(stored)} of {len(some)} passages")

    def recall(self, context: Context, prompt: str) -> Recalled:
        wanted = min(self.k, len(self.statements))
        found = self._client.passages.search(archive_id=self._archive, query=query_of(context), limit=wanted or 1)
        if any(item.passage.archive_id not in (self._archive, None) for item in found):
            raise LettaError("Letta gave a passage of another archive")
        # Letta always returns k passages, whatever the scores: fewer mean an index that lags behind.
        if len(found) < wanted:
            raise LettaError(f"Letta gave {len(found)} passages, not {wanted}")
        # On PostgreSQL it orders by distance and gives every passage the score 0.
        scored = any(item.score for item in found)
        lines = [self._line(item.passage, float(item.score) if scored else None) for item in found[:wanted]]
        if self.order == "profile":
            # Passages that are no known statement stay last.
            lines.sort(key=lambda line: line.attributes[0] if line.attributes else len(self.statements))
        return Recalled(tuple(lines))

    def _line(self, passage: Any, score: float | None) -> Line:
        """Return a passage with the attribute whose statement it is; in a changed passage the attributes are searched
        for."""
        position = (passage.metadata or {}).get("position")
        if type(position) is int and self.statements[position : position + 1] == (passage.text,):
            return Line(passage.text, (position,), score)
        return Line(passage.text, None, score)


def _delete(client: Any, archive: str) -> None:
    # At the end of a process a server that is gone needs no handling.
    with suppress(Exception):
        client.with_options(timeout=5, max_retries=0).archives.delete(archive)
