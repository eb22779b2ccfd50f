"""A vLLM for as long as work lasts, started by each process that asks it: `--base-url local-vllm --serve MODEL`.

    address = Servers(["Qwen/Qwen3-8B --dtype float16"]).at("local-vllm", "Qwen/Qwen3-8B")
    address                                                        # 'local-vllm:Qwen/Qwen3-8B --dtype float16'
    async with serving([address], workspace, stopping) as urls: ... # {address: 'http://127.0.0.1:8000/v1'}

The record has this address in place of a server's. On a Ray cluster every worker starts one on the machine and the GPUs
that Ray gave it. Managed servers, which end with the process that started them, even by SIGKILL, are in
vllm_server.py."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path

from cimemories.llm import vllm_server
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import LOCAL_VLLM as PREFIX
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.vllm import ServerSpec, VllmError, server_command, split_words

WORD = PREFIX.removesuffix(":")
ANOTHER_PORT = 3  # restarts on another port of a server whose port was taken while it loaded
LOOK_SECONDS = 0.5  # between two looks whether the work is to stop


def is_local(address: str) -> bool:
    """Return whether an address asks for a vLLM of the work's own."""
    return address.startswith(PREFIX)


def local_address(words: str) -> str:
    """Return the address for a model, a name or folder, and vLLM's flags as typed. Raises EndpointError for flags that
    a managed server must not be given, since a record may come from others."""
    _checked(words)
    return PREFIX + shlex.join(split_words(words))


def _checked(address: str) -> ServerSpec:
    try:
        spec = spec_of(address)
        server_command(Path("vllm"), spec, vllm_server.FIRST_PORT)
    except VllmError as error:
        raise EndpointError(str(error)) from None
    return spec


class Servers:
    """The models of `--serve` with vLLM's flags, for the word `local-vllm` in place of an address. Raises EndpointError
    for an invalid one, and for two of one name."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        addresses = [local_address(text) for text in words]
        self._given = {spec_of(address).name: address for address in addresses}
        if len(self._given) < len(addresses):
            raise EndpointError("--serve names a model twice: write all of its flags into one.")
        self._asked: set[str] = set()

    def at(self, base_url: str, model: str) -> str:
        """Return the address for a model: for the word that of its own server, with its flags."""
        if base_url != WORD:
            return base_url
        self._asked.add(model)
        return self._given.get(model) or local_address(shlex.quote(model))

    def checked(self) -> None:
        """Raise EndpointError if a served model is not asked by this name, once all addresses are known."""
        for name in self._given.keys() - self._asked:
            if not self._asked:
                raise EndpointError(f"--serve goes with the base URL {WORD}: a server that runs needs no other.")
            asked = ", ".join(f"'{model}'" for model in sorted(self._asked))
            raise EndpointError(f"--serve names '{name}', and {WORD} is asked for {asked}. Use one name for both.")


def single_address(base_url: str, model: str, serve: Iterable[str]) -> str:
    """Return the address of a single model. Raises as Servers does."""
    servers = Servers(serve)
    address = servers.at(base_url, model)
    servers.checked()
    return address


def spec_of(address: str) -> ServerSpec:
    """Return the spec of the server. Raises VllmError for an address that names no model or cannot be read."""
    model, *flags = split_words(address.removeprefix(PREFIX)) or ("",)
    return ServerSpec(model, tuple(flags))


def planned_server(address: str, model: str, *, seed_wanted: bool) -> Server:
    """Return the server that work is planned on before it runs: vLLM takes n, JSON schemas and seeds. Raises
    EndpointError if requests would call the model by another name than its server does."""
    spec = _checked(address)
    if model != spec.name:
        raise EndpointError(f"{address} serves '{spec.name}', not '{model}'. Ask for it by that name.")
    return Server(
        models=(spec.name,),
        simulated=False,
        max_model_len=spec.number("max-model-len"),
        seed=True if seed_wanted else None,
        notes=("no server was asked what it can do: each worker starts a vLLM of its own",),
    )


@asynccontextmanager
async def serving(
    addresses: Collection[str], workspace: Path, stopping: Callable[[], bool]
) -> AsyncIterator[dict[str, str]]:
    """Start the servers one after the other, wait until they are ready or `stopping`, yield their addresses, and stop
    them at the end. Within `keep_running` a running one is reused, and left running. Raises VllmError if one fails."""
    kept = _kept.get()
    started: dict[str, str] = {} if kept is None else kept
    urls: dict[str, str] = {}
    try:
        # Before any is started: two may not fit into the memory of one GPU.
        await _stop(workspace, started, set(started) - set(addresses))
        for address in addresses:
            urls[address] = await _ready(address, workspace, started, stopping)
        yield urls
    finally:
        if kept is None:
            await _stop(workspace, started, started)


_kept: ContextVar[dict[str, str] | None] = ContextVar("kept", default=None)  # ids of servers by address


@contextmanager
def keep_running(workspace: Path) -> Iterator[None]:
    """Leave servers that are started in this block running until work asks others, or to its end: the runs of a sweep
    share theirs."""
    servers: dict[str, str] = {}
    token = _kept.set(servers)
    try:
        yield
    finally:
        _kept.reset(token)
        for server_id in servers.values():
            vllm_server.stop(workspace, server_id)


async def _ready(address: str, workspace: Path, started: dict[str, str], stopping: Callable[[], bool]) -> str:
    """Return the address of a server once it is ready; '' if the work is stopped before that."""
    if address in started and not vllm_server.find_state(workspace, started[address]).live:
        del started[address]  # it failed since
    again = ANOTHER_PORT
    while not stopping():
        if address not in started:
            state = await asyncio.to_thread(vllm_server.start, workspace, spec_of(address), started_by="work")
            started[address] = state.id
        try:
            state = await asyncio.to_thread(vllm_server.wait, workspace, started[address], timeout=LOOK_SECONDS)
            return state.base_url
        except VllmError as error:
            if error.cause == "port in use" and again:
                again -= 1
                del started[address]
            elif error.cause != "not ready":
                raise
    return ""


async def _stop(workspace: Path, started: dict[str, str], addresses: Iterable[str]) -> None:
    for address in list(addresses):
        await asyncio.to_thread(vllm_server.stop, workspace, started.pop(address))
