"""A vLLM for as long as work lasts, started by each process that asks it: `--base-url local-vllm --serve MODEL`.

    address = local_address("Qwen/Qwen3-8B --dtype float16")      # 'local-vllm:Qwen/Qwen3-8B --dtype float16'
    async with serving(address, workspace, stopping) as url: ...  # http://127.0.0.1:8000/v1

The address stands in the record where that of a server stands. On a Ray cluster every worker starts one on the machine
and the GPUs that Ray gave it. What a managed server is, and that it ends with the process that started it, even of
SIGKILL, is in vllm_server.py.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cimemories.llm import vllm_server
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import LOCAL_VLLM as PREFIX
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.vllm import ServerSpec, VllmError, server_command, split_extra

WORD = PREFIX.removesuffix(":")
LOOK_SECONDS = 0.5  # between two looks whether the work is to stop
_NAMED = {"--tensor-parallel-size": "tensor_parallel", "--data-parallel-size": "data_parallel"}
_NAMED |= {"--max-model-len": "max_model_len"}


def is_local(address: str) -> bool:
    """Whether an address asks for a server of one's own."""
    return address.startswith(PREFIX)


def local_address(words: str) -> str:
    """The address for a model, by its name or folder, and vLLM's flags as typed. Raises EndpointError for what a
    managed server must not be given: flags that load code or name files among them, since a record may come from
    others."""
    try:
        address = PREFIX + shlex.join(split_extra([words]))
        command_of(address)
    except VllmError as error:
        raise EndpointError(str(error)) from None
    return address


def spec_of(address: str) -> ServerSpec:
    """What is to be served. Raises VllmError for an address that names no model or cannot be read."""
    model, *flags = split_extra([address.removeprefix(PREFIX)]) or ("",)
    numbers: dict[str, int] = {}
    rest: list[str] = []
    words = iter(flags)
    for word in words:
        name, _, value = word.partition("=")
        if name in _NAMED and (value := value or next(words, "")).isascii() and value.isdigit():
            numbers[_NAMED[name]] = int(value)
        else:
            rest += [word] if name not in _NAMED else [name, value]
    return ServerSpec(model, extra=tuple(rest), **numbers)  # type: ignore[arg-type]


def gpus_of(address: str) -> int:
    """How many GPUs its server takes."""
    spec = spec_of(address)
    return (spec.tensor_parallel or 1) * (spec.data_parallel or 1)


def planned_server(address: str, model: str, *, seed_wanted: bool) -> Server:
    """What work is planned on: nobody can be asked yet, and vLLM takes n, JSON schemas and seeds. Raises EndpointError
    where requests would call the model by another name than its server does."""
    try:
        spec = spec_of(address)
        command_of(address)
    except VllmError as error:
        raise EndpointError(str(error)) from None
    if model != spec.name:
        raise EndpointError(f"{address} serves '{spec.name}', not '{model}'. Ask for it by that name.")
    return Server(
        models=(spec.name,),
        simulated=False,
        max_model_len=spec.max_model_len,
        seed=True if seed_wanted else None,
        notes=("nobody was asked what it can do: each worker starts a vLLM of its own",),
    )


def command_of(address: str) -> list[str]:
    """The command of its server, on some port. Raises VllmError as `server_command` does."""
    return server_command(Path("vllm"), spec_of(address), vllm_server.FIRST_PORT)


@asynccontextmanager
async def serving(address: str, workspace: Path, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Start the server and wait until it is ready, which takes minutes for a large model, or until `stopping`; gives
    its address, and stops it at the end. Raises VllmError where it cannot be started, or fails."""
    state = await asyncio.to_thread(vllm_server.start, workspace, spec_of(address), started_by="work")
    try:
        ready = False
        while not ready and not stopping():
            try:
                await asyncio.to_thread(vllm_server.wait, workspace, state.id, timeout=LOOK_SECONDS)
                ready = True
            except VllmError as error:
                if error.cause != "not ready":
                    raise
        yield state.base_url
    finally:
        await asyncio.to_thread(vllm_server.stop, workspace, state.id)
