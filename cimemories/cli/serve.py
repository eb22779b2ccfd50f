"""Commands for servers: the app, the simulator, vLLM servers, and which addresses are the same server."""

from __future__ import annotations

import getpass
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli, group
from cimemories.cli.options import AllowKeys, Here, Place
from cimemories.store.engine import StoreError

if TYPE_CHECKING:
    from cimemories.llm.vllm import ServerSpec, VllmError
    from cimemories.llm.vllm_server import ServerState

LOOK_SECONDS = 0.5  # between two looks at whether the server lives


@cli.command()
def app(
    place: Place,
    port: Annotated[int, Option(min=1, max=65535, help="Port on this machine.")] = 8501,
    demo: Annotated[bool, Option(help="Fill an empty workspace with the demo.")] = True,
    allow_key: AllowKeys = None,
    token: Annotated[
        bool | None,
        Option(
            "--token/--no-token",
            help="With --token everybody needs the token in the printed address. With --no-token everybody who reaches "
            "the port can read and change everything. Default: only you and root.",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str, Option(help="Listen on this address, e.g. 0.0.0.0 in a container. Default: this machine only.")
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Answer to this host name too, e.g. behind a proxy; repeatable."),
    ] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="For a public demo: nothing is written, run or sent to a server.")
    ] = False,
) -> None:
    """Start the app. It runs on this machine only, for you alone (docs/access.md).  Example: cimemories app"""
    from cimemories.access.guard import Mode
    from cimemories.serving import serve_app

    mode = {None: Mode.AUTO, True: Mode.TOKEN, False: Mode.ANYONE}[token]
    hosts = allow_host or ()
    serve_app(port, place.workspace, demo_wanted=demo, mode=mode, address=address, hosts=hosts, read_only=read_only)


@cli.command()
def simulate(
    port: Annotated[int, Option(min=1, max=65535, help="Port on this machine.")] = 8100,
    faults: Annotated[float, Option(min=0, max=0.99, help="Share of requests that fail.")] = 0.0,
    seed: Annotated[int, Option(help="Seed of the simulated answers.")] = 0,
) -> None:
    """Serve simulated models on this machine (docs/simulator.md).  Example: cimemories simulate --port 8100"""
    from cimemories.simulator.server import serve as server_serve

    def ready() -> None:
        output.note(f"simulated models at http://127.0.0.1:{port}/v1 (stop with Ctrl-C)")

    server_serve(port, seed=seed, faults=faults, ready=ready)


# ---- vLLM


@cli.command(context_settings={"ignore_unknown_options": True})
def serve(
    place: Place,
    words: Annotated[
        list[str] | None,
        Argument(metavar="MODEL [FLAGS]", help="Name on the Hugging Face hub, or a folder, and flags of `vllm serve`."),
    ] = None,
    preset: Annotated[
        str | None, Option(help="A model of the paper with its flags, e.g. qwen3-8b; see --list.")
    ] = None,
    port: Annotated[int | None, Option(min=1, max=65535, help="Default: the first free one from 8000.")] = None,
    served_name: Annotated[str, Option(help="Model name for requests; default: its own name.")] = "",
    keep: Annotated[bool, Option("--keep", help="Return when the server is ready, and leave it running.")] = False,
    listed: Annotated[bool, Option("--list", help="List the presets, and stop.")] = False,
) -> None:
    """Serve a model with your own vLLM. It runs until Ctrl-C (docs/models.md).

    Example: cimemories serve --preset qwen3-8b

    Example: cimemories serve Qwen/Qwen3-8B --port 8000 --max-model-len 32768 --reasoning-parser qwen3 --keep
    """
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm import ServerSpec, VllmError
    from cimemories.seeds import presets

    if listed:
        from cimemories.answers import lists

        output.listing(lists.presets())
        return
    flags = tuple(words or ())
    model = flags[0] if flags and not flags[0].startswith("-") else ""
    try:
        spec = ServerSpec(model, flags[1:] if model else flags, port, served_name, keep, trusted=True)
        if preset is not None:
            spec = spec.filled(presets.preset(preset))
        if not spec.model:
            raise StoreError("which model? Give a name, a folder, or --preset KEY from `cimemories serve --list`.")
        _attend(place.workspace, vllm_server.start(place.workspace, spec, started_by="cimemories serve"), spec)
    except VllmError as error:
        raise _store_error(error) from error


def _attend(workspace: Path, state: ServerState, spec: ServerSpec) -> None:
    """Report how the server starts, then wait until it ends; with --keep return once it is ready."""
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm import VllmError

    output.note(f"{state.id}: {shlex.join(state.command)}")
    output.note(f"log: {state.log}")
    ready: ServerState | None = None
    last = ""

    def print_step(now: ServerState) -> None:
        nonlocal last
        text = f"{now.phase}{f': {now.step}' if now.step else ''}"
        if text != last:
            output.note(f"{time.time() - now.created:5.0f} s  {text}")
        last = text

    try:
        ready = vllm_server.wait(workspace, state.id, on_change=print_step)
        output.note(f"ready after {(ready.ready or time.time()) - ready.created:.0f} s")
        output.line(ready.base_url)
        if spec.keep:
            output.note(f"running until: cimemories servers stop {ready.port}")
        else:
            output.note(f"serving '{ready.served_name}' (stop with Ctrl-C)")
            now = ready
            while now.live:
                time.sleep(LOOK_SECONDS)
                now = vllm_server.find_state(workspace, state.id)
            if now.phase == vllm_server.Phase.FAILED:
                raise VllmError(f"{now.served_name} on port {now.port}: {now.error}", now.cause, now.lines)
    except KeyboardInterrupt:
        if ready is None:
            raise
        # Once it is ready, that is how it is meant to end.
    finally:
        if ready is None or not spec.keep:
            ended = vllm_server.stop(workspace, state.id)
            if ended.phase == vllm_server.Phase.STOPPED:
                output.note(f"stopped {ended.error}")


def _store_error(error: VllmError) -> StoreError:
    """vLLM's own last lines on standard error, and the error that ends the command."""
    for line in error.lines:
        output.note(f"  vllm: {line}")
    return StoreError(str(error))


servers = group(
    "servers",
    "List the vLLM servers started here, or stop one.\n\n"
    "Listed are stopped ones too.\n\nExample: cimemories servers --json",
)


@servers.listing
def list_servers(here: Here) -> None:
    from cimemories.answers import lists

    here.listing(lists.servers(here.workspace))


@servers.command("stop")
def stop_server(
    place: Place, server: Annotated[str, Argument(help="Id or port; `cimemories servers` lists them.")]
) -> None:
    """Stop a vLLM server.  Example: cimemories servers stop 8000"""
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm import VllmError

    try:
        before = vllm_server.find_state(place.workspace, server)
        state = vllm_server.stop(place.workspace, before.id)
    except VllmError as error:
        raise _store_error(error) from error
    already = "" if before.live else "already "
    output.line(f"{state.id} ({state.served_name}, port {state.port}): {already}{state.phase} {state.error}".rstrip())


# ---- the same server


@servers.command("same")
def same_server(
    here: Here,
    one: Annotated[str | None, Argument(metavar="URL", help="Address of a server. Without any: list them.")] = None,
    other: Annotated[
        str | None, Argument(metavar="URL", help="Another address, or 'server not known' for older answers.")
    ] = None,
    undo: Annotated[bool, Option("--undo", help="The two are not the same after all.")] = False,
    by: Annotated[str, Option(help="Your name; default: your login.")] = "",
) -> None:
    """List servers with recorded answers, or declare two addresses to be the same.

    Answers of one are then used for runs on the other, if both
    report the same model. No answer is changed.

    Example: cimemories servers same http://gpu1:8000/v1 http://gpu2:8000/v1
    """
    from cimemories.store import calls

    if (one is None) != (other is None) or (one is None and undo):
        raise StoreError("give two addresses, or none to list the servers.")
    if one is not None and other is not None:
        with here.store.write() as connection:
            if undo:
                calls.untie(connection, one, other)
                output.note("the two no longer share answers; runs that already use shared answers keep them")
            else:
                tie = calls.tie(connection, one, other, by.strip() or getpass.getuser())
                output.line(f"{tie.first} and {tie.second} are the same server (declared by {tie.author})")
        return
    from cimemories.answers import lists

    output.answer(lists.answer_servers(here.store), here.as_json)
