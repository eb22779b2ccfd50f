"""The identity of the server at an address, as the keys of its calls hold it (store/calls.py).

A server is identified by its address in one spelling, with the root and revision of the model that it reports. A vLLM
that this project manages gets another port at each start, so it is identified by its model and those of its flags that
affect answers; the simulator by its policy and seed."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from cimemories.access.roles import Role
from cimemories.llm import vllm_server
from cimemories.llm.endpoint import Endpoint, EndpointError, ServerInfo
from cimemories.llm.local_vllm import is_local, spec_of
from cimemories.llm.vllm import server_command
from cimemories.store import calls
from cimemories.store.calls import Origin, ServerId, address_of, is_loopback
from cimemories.store.engine import Store

# Flags of vLLM that move or speed up a server, without an effect on answers. All others are part of its identity.
_PLACEMENT = frozenset(
    {
        *("host", "port", "served-model-name", "download-dir", "swap-space"),
        *("gpu-memory-utilization", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
        *("api-server-count", "max-num-seqs", "max-num-queued-reqs", "max-num-batched-tokens", "enable-prefix-caching"),
        *("uvicorn-log-level", "disable-uvicorn-access-log", "disable-access-log"),
        *("disable-log-requests", "disable-log-stats"),
    }
)


def server_id(base_url: str, info: ServerInfo, store: Store) -> ServerId:
    """Return the identity of the server at an address, which reported `info`. In a database that several machines
    share, an address of this machine has the machine's name too."""
    if info.simulated:
        return ServerId(calls.SIMULATED.address, info.root, info.revision)
    if is_local(base_url):
        spec = spec_of(base_url)
        return managed_id(spec.model, server_command(Path("vllm"), spec, vllm_server.FIRST_PORT))
    address = address_of(base_url)
    if is_loopback(address):
        port = urlsplit(address).port
        for state in vllm_server.servers(store.workspace):
            # `here`: the same port on another machine is another server.
            if state.live and state.here and state.port == port:
                return managed_id(state.model, state.command)
        # Each machine has its own 127.0.0.1, and other machines write to this record as well.
        if store.engine.dialect.name != "sqlite":
            address = f"{address} on {socket.gethostname()}"
    return ServerId(address, info.root, info.revision)


def managed_id(model: str, command: Sequence[str]) -> ServerId:
    """Return the identity of a managed vLLM: its model, and the flags of its command that affect answers, sorted."""
    groups: list[list[str]] = []
    for argument in command[list(command).index(model) + 1 :] if model in command else command:
        if argument.startswith("--"):
            name, sign, value = argument.partition("=")
            # One spelling, as argparse takes several: --max_model_len=8 and --max-model-len 8 are the same flag.
            groups.append([f"--{name[2:].replace('_', '-').lower()}", *([value] if sign else [])])
        elif groups:
            groups[-1].append(argument)
    kept = {group[0]: group for group in groups if group[0][2:] not in _PLACEMENT}  # of a flag given twice the last
    flags = [re.sub(r"\s+", " ", " ".join(kept[name])) for name in sorted(kept)]
    return ServerId(" ".join(["vllm serve", model, *flags]))


def origin_of(store: Store, simulated: bool, server: str | None, fresh: str | None = None) -> Origin:
    """Return whose recorded answers may serve calls to a server: its own, and those of servers marked as the same."""
    if server is None:
        return Origin(simulated)
    with store.read() as connection:
        same = calls.declared_same(connection, server)
    return Origin(simulated, server, fresh, same.servers, same.before)


async def confirmed(store: Store, endpoint: Endpoint, model: str, planned: Origin) -> Origin:
    """Return whose answers will be recorded, looked up before the first call: a server may have been moved or replaced
    since the plan. Raises EndpointError if a simulator answers for a real model, or the other way round."""
    from cimemories.llm.http.transport import look_up

    assert planned.server is not None
    was = ServerId.read(planned.server)
    try:
        # Without retries: the calls that follow have their own.
        info = await look_up(endpoint, model, retries=0)
    except EndpointError:
        # The calls will show the problem. At another address, nothing recorded for the planned one may serve.
        address = address_of(endpoint.base_url)
        moved = was.address.startswith("http") and was.address.split(" on ")[0] != address
        return origin_of(store, planned.simulated, address, planned.fresh) if moved else planned
    if info.simulated != planned.simulated:
        now, before = ("a simulator", "a real model") if info.simulated else ("not a simulator", "a simulator")
        raise EndpointError(
            f"{endpoint.base_url} is {now}, and this was planned with {before}. Give the planned server's address "
            "(on the command line: --base-url), or start new work on this one"
        )

    def recorded() -> Origin:
        server = server_id(endpoint.base_url, info, store)
        if server == was:
            return planned
        with store.write(Role.OPERATOR, relaxed=True) as connection:
            calls.keep_servers(connection, [server.text])
        current = origin_of(store, planned.simulated, server.text, planned.fresh)
        # A server that only moved keeps its answers from before the move; another build of the model shares none.
        return replace(current, tied=(was.text, *current.tied)) if server.may_be(was) else current

    return await asyncio.to_thread(store.retry, recorded)
