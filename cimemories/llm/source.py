"""The work that a run, labelling or generation owes, described so that any process can make its jobs.

A job holds a client and a function that writes, which no other process can take over. A description can be sent:

    source = RunSource("run-3f9a1c2e")            # its fields are plain values, so it pickles
    jobs = source.opened(store, clients, urls)    # in the process that asks: here, or a worker on another machine
    for job in jobs(Unit(profile=12)): ...        # what that profile owes now

Owed work is read from the record when a unit is started: an interrupted unit that is given out again owes only the
rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from cimemories.llm.client import Client, Confirm
from cimemories.llm.endpoint import SIMULATOR, Endpoint, ServerInfo, is_assistant
from cimemories.llm.endpoint import origin as server_of
from cimemories.llm.executor import Deferred, Job
from cimemories.llm.http.traffic import Traffic
from cimemories.llm.identity import confirmed, origin_of
from cimemories.llm.local_vllm import is_local, planned_server, serving
from cimemories.store.engine import Store

MakeClient = Callable[[Endpoint, bool], Client]


@dataclass(frozen=True)
class Unit:
    """A profile, or one of `parts` parts of it: its contexts number part, part + parts, ... A profile's prompts begin
    alike, so it is split only if there are enough workers. profile: its id; for a generation its number."""

    profile: int
    part: int = 0
    parts: int = 1

    def holds(self, position: int) -> bool:
        """Return whether the context at this position of the profile is of this part."""
        return position % self.parts == self.part


class Source(ABC):
    """The work that a run, labelling or generation owes. Subclasses are dataclasses of plain values."""

    @abstractmethod
    def servers(self, store: Store) -> Collection[str]:
        """Return the addresses that will be asked, or the word `simulator`."""

    @abstractmethod
    def key_variables(self, store: Store) -> Iterable[str]:
        """Return the environment variables with the keys of these servers."""

    @abstractmethod
    def profiles(self, store: Store) -> Sequence[int]:
        """Return the profiles in their order; some may owe nothing."""

    @abstractmethod
    def most_parts(self, store: Store) -> int:
        """Return the most parts that a profile can be split into."""

    @abstractmethod
    def opened(
        self, store: Store, client: MakeClient, urls: Mapping[str, str]
    ) -> Callable[[Unit], Iterable[Job | Deferred]]:
        """Return the function that makes the jobs of a unit in this process. store: the only one through which they
        write. urls: the server's address, by the one that `servers` gave."""


@contextmanager
def reachable(base_url: str) -> Iterator[str]:
    """Yield the server's address; the word `simulator` starts one for the block."""
    if base_url != SIMULATOR:
        yield base_url
        return
    from cimemories.simulator.server import running_simulator  # takes half a second to import

    with running_simulator() as url:
        yield url


def listed(base_url: str, key_env: str, model: str) -> ServerInfo:
    """Return a server's report of its models; for one that the work starts itself, the expected report. Raises
    EndpointError if it cannot be used, or does not serve the model."""
    if is_local(base_url):
        return planned_server(base_url, model, seed_wanted=False)
    from cimemories.llm.http.transport import probe

    with reachable(base_url) as url:
        return probe(Endpoint(url, key_env), model)


class Clients:
    """Makes the clients of one process, one an endpoint; those of one server share its traffic. at_most: requests in
    flight."""

    def __init__(self, store: Store, at_most: int) -> None:
        self._store, self._at_most = store, at_most
        self._clients: dict[tuple[Endpoint, bool], Client] = {}
        self._traffic: defaultdict[str, Traffic] = defaultdict(Traffic)

    def __call__(self, endpoint: Endpoint, simulated: bool) -> Client:
        if (endpoint, simulated) not in self._clients:
            make: type[Client] = Client
            confirm: Confirm = partial(confirmed, self._store)
            if is_assistant(endpoint.base_url):
                from cimemories.llm import assistants  # with its SDK

                make, confirm = assistants.AssistantClient, assistants.confirmed
            self._clients[endpoint, simulated] = make(
                endpoint,
                simulated=simulated,
                at_most=self._at_most,
                origin=origin_of(self._store, simulated, endpoint.server, endpoint.fresh),
                confirm=confirm,
                traffic=self._traffic[server_of(endpoint.base_url) or endpoint.base_url],
            )
        return self._clients[endpoint, simulated]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


@asynccontextmanager
async def reached(
    addresses: Collection[str], store: Store, at_most: int, stopping: Callable[[], bool]
) -> AsyncIterator[tuple[Clients, dict[str, str]]]:
    """Yield the clients of a process, and each server's address, by its address as planned. A model and its judges at
    one address share a server that is started. Raises VllmError."""
    async with AsyncExitStack() as stack:
        local = {address for address in addresses if is_local(address)}
        urls = {address: stack.enter_context(reachable(address)) for address in set(addresses) - local}
        urls |= await stack.enter_async_context(serving(local, store.workspace, stopping))
        clients = Clients(store, at_most)
        stack.push_async_callback(clients.close)
        yield clients, urls
