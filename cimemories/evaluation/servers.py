"""What a run has to know of a server before it is planned: found out by one probe, and worked around where it lacks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from cimemories.llm import worker
from cimemories.llm.capabilities import find_out
from cimemories.llm.client import Endpoint, ServerInfo
from cimemories.llm.identity import server_id
from cimemories.store import servers
from cimemories.store.engine import Store

BATCH = "batch"  # the word for no server at all: calls go out and come back as batch files


@dataclass(frozen=True)
class Server:
    """n: takes several samples a request. schema: the form of response_format that it holds to. seed: takes one; None:
    nobody asked. token_limit: its name of the token limit. notes: what is worked around, in words. root, revision: of
    the model, as it reports them. identity: which server it is, as in the keys of its calls; None where it has not been
    told yet, and in work from before servers were told apart."""

    simulated: bool
    n: bool = True
    schema: str = "json_schema"
    seed: bool | None = None
    token_limit: str = "max_tokens"
    version: str | None = None
    max_model_len: int | None = None
    notes: tuple[str, ...] = ()
    root: str | None = None
    revision: str | None = None
    identity: str | None = None

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "notes": list(self.notes)}


def look_up(
    base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None, *, retries: int = 3
) -> Server:
    """Ask a server what it serves and can do. Raises EndpointError where it cannot be used.

    For the word `batch` nobody is asked: one request a sample, and a JSON schema, as batch servers take them.
    """
    if base_url == BATCH:
        return Server(
            simulated=False,
            n=False,
            notes=("nobody was asked what it can do: calls go by batch files",),
            identity=servers.BATCH,
        )
    with worker.reachable(base_url) as url:
        found = find_out(
            Endpoint(url, key_env),
            model,
            schema_wanted=wants_schema,
            seed_wanted=seed is not None,
            samples=samples,
            retries=retries,
        )
    return Server(
        simulated=found.simulated,
        n=found.n,
        schema=found.schema,
        seed=found.seed,
        token_limit=found.token_limit,
        version=found.version,
        max_model_len=found.max_model_len,
        notes=found.notes,
        root=found.root,
        revision=found.revision,
    )


def told_apart(store: Store, base_url: str, server: Server) -> Server:
    """The same with its identity, where it has none yet."""
    if server.identity is not None:
        return server
    info = ServerInfo((), server.simulated, server.max_model_len, server.root, server.revision)
    return replace(server, identity=server_id(base_url, info, store).text)
