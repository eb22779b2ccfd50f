"""Settings, servers and estimates of labellings and generations, before anything of them is written."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from cimemories.curation.spec import CurationSpec
from cimemories.evaluation.estimates import Expected, StageEstimate, Traversal, limit_of, stages_of
from cimemories.evaluation.planning import LookUp, with_identity
from cimemories.evaluation.spec import BATCH
from cimemories.llm.capabilities import Server
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint, EndpointError
from cimemories.llm.local_vllm import is_local
from cimemories.llm.source import MakeClient, Source
from cimemories.store.engine import Store
from cimemories.store.generations import GenerationRow
from cimemories.store.labellings import LabellingRow

S = TypeVar("S", bound=CurationSpec)


@dataclass(frozen=True)
class Asked(Generic[S]):
    """Settings and the server that is asked by them. spec: with the server's right address."""

    spec: S
    server: Server
    asked_seed: int | None

    @property
    def parameters(self) -> dict[str, object]:
        """Return the further fields of its requests, as sent."""
        limit, fields = self.server.token_limit, self.server.accepted(self.spec.fields)
        return fields if self.spec.max_tokens is None else {limit: self.spec.max_tokens, **fields}

    @property
    def identity(self) -> dict[str, object]:
        """Return the parameters as they are asked for, whatever the server takes; a plan finds recorded work by
        them."""
        limit = {} if self.spec.max_tokens is None else {"max_tokens": self.spec.max_tokens}
        return {**limit, **self.spec.fields}

    @property
    def seed(self) -> int | None:
        """Return the seed that is sent: none to a server that refuses seeds."""
        return None if self.server.seed is False else self.asked_seed

    @property
    def manifest(self) -> dict[str, object]:
        """Return how the server is asked, for a manifest."""
        return {
            "parameters": self.parameters,
            "seed": self.seed,
            "schema": self.server.schema,
            "capabilities": self.server.as_json(),
            "prices": self.spec.prices.as_json() if self.spec.prices else None,
            "cap": self.spec.cap,
            "asked": self.spec.as_json(),
        }

    def stages(
        self,
        connection: sa.Connection,
        counter: Traversal,
        works: Sequence[LabellingRow | GenerationRow],
        used: sa.Table,
        usual: tuple[int, str] | None = None,
    ) -> tuple[tuple[StageEstimate, ...], tuple[str, ...]]:
        """Return `stages_of` what was counted. works: of which those that asked the same before teach; used: the table
        of their calls. usual: the tokens of an answer if none is recorded, and what sets them."""
        spec, server = self.spec, self.server
        before = [row.id for row in reversed(works) if row.model == spec.model and row.simulated == server.simulated]
        limit = usual or limit_of([(spec.max_tokens, server)])
        expected = Expected(server, spec.prices, before, spec.max_tokens, limit, used, is_bound=usual is None)
        return stages_of(connection, lambda kind, model: expected, counter)


def ask_server(
    store: Store, spec: S, look_up: LookUp, *, draws: int, seed: int | None, simulator_seed: int
) -> Asked[S]:
    """Look up the server of these settings. simulator_seed: that of the simulator if `seed` is None. Raises
    EndpointError if the server cannot be used."""
    if spec.base_url == BATCH:
        raise EndpointError("only runs can go by batch files. Give the address of a server (--base-url).")
    server = look_up(spec.base_url, spec.api_key_env, spec.model, draws, True, seed, json.dumps(spec.fields))
    server = with_identity(store, spec.base_url, server)
    asked_seed = simulator_seed if seed is None and server.simulated else seed
    return Asked(spec.replace(base_url=server.base_url or spec.base_url), server, asked_seed)


@dataclass(frozen=True)
class CurationSource(Source):
    """The work that a labelling or a generation owes. moved_to: where its server is now."""

    work_id: str
    moved_to: str | None = None

    @abstractmethod
    def row(self, store: Store) -> LabellingRow | GenerationRow: ...

    @abstractmethod
    def owes(self, store: Store) -> list[int]:
        """Return the profiles of which something is owed."""

    def servers(self, store: Store) -> list[str]:
        address = self.moved_to or self.row(store).endpoint
        # A server of one's own is not started where nothing is owed.
        return [] if is_local(address) and not self.owes(store) else [address]

    def key_variables(self, store: Store) -> list[str]:
        return [_how(self.row(store))["api_key_env"]]

    def client(self, row: LabellingRow | GenerationRow, make: MakeClient, urls: Mapping[str, str]) -> Client:
        """Return the client of the server. urls: as of `opened`."""
        address, how = self.moved_to or row.endpoint, _how(row)
        at_once, server = how.get("n_at_once", True), how.get("server")
        url = urls.get(address, address)
        return make(Endpoint(url, how["api_key_env"], how["timeout"], n_at_once=at_once, server=server), row.simulated)


def _how(row: LabellingRow | GenerationRow) -> Mapping[str, Any]:
    """Return what a manifest says of its server: a generation's has the key and the timeout in `asked` alone."""
    manifest: Mapping[str, Any] = row.manifest
    return {**manifest.get("asked", {}), **manifest}
