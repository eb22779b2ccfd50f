"""Servers."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AllowKeys, AsJson, Workspace
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store
from cimemories.text import percent

if TYPE_CHECKING:
    from cimemories.llm.vllm import ServerSpec, VllmError
    from cimemories.llm.vllm_reports import ServerFigures
    from cimemories.llm.vllm_server import ServerState


@cli.command()
def simulate(
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8100,
    faults: Annotated[float, typer.Option("--faults", min=0, max=0.99, help="Share of requests that go wrong.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the leak policy.")] = 0,
) -> None:
    """Serve simulated models on loopback; see docs/simulator.md.  Example: cimemories simulate --port 8100"""
    from cimemories.simulator.server import serve as server_serve

    def ready() -> None:
        output.note(f"simulated models at http://127.0.0.1:{port}/v1 (stop with Ctrl-C)")

    server_serve(port, seed=seed, faults=faults, ready=ready)


@cli.command()
def app(
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
    demo: Annotated[bool, typer.Option(help="Fill an empty workspace with the demo.")] = True,
    allow_key: AllowKeys = None,
    token: Annotated[
        bool | None,
        typer.Option(
            "--token/--no-token",
            help="Ask everybody for the token in the printed address, or nobody: then all who reach the port may read "
            "and change everything. By default only the user who starts the app comes in, and root.",
            show_default=False,
        ),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Start the app for the user who starts it, on this machine only (docs/access.md).  Example: cimemories app"""
    from cimemories.access.guard import Mode
    from cimemories.serving import serve_app

    mode = {None: Mode.AUTO, True: Mode.TOKEN, False: Mode.ANYONE}[token]
    serve_app(port, workspace, demo_wanted=demo, mode=mode)


FIGURES_SECONDS = 10.0


LOOK_SECONDS = 0.5


@cli.command()
def serve(
    model: Annotated[str | None, typer.Argument(help="Name on the Hugging Face hub, or a folder.")] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="A model of the paper with its flags, e.g. qwen3-8b; `serve --list`.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the presets, and start nothing.")] = False,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Left out: the first free one from 8000.")
    ] = None,
    served_name: Annotated[
        str, typer.Option("--served-name", help="What requests call the model; left out: its own name.")
    ] = "",
    gpu_memory: Annotated[
        float | None, typer.Option("--gpu-memory", min=0.01, max=1, help="Share of each GPU's memory.")
    ] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option("--tensor-parallel", min=1, help="GPUs that one copy of the model is spread over.")
    ] = None,
    data_parallel: Annotated[int | None, typer.Option("--data-parallel", min=1, help="Copies of the model.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", min=1, help="Tokens of prompt and answer together.")
    ] = None,
    reasoning_parser: Annotated[
        str | None, typer.Option("--reasoning-parser", help="Keeps the thinking apart from the message.")
    ] = None,
    quantisation: Annotated[
        str | None, typer.Option("--quantisation", "--quantization", help="E.g. fp8, for weights that are not yet.")
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Option("--extra", help='Further flags of vLLM, e.g. --extra "--enforce-eager".')
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave it running; the command returns when the server is ready.")
    ] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Serve a model by your own vLLM until Ctrl-C; see docs/models.md.

    Example: cimemories serve --preset qwen3-8b
    Example: cimemories serve Qwen/Qwen3-8B --port 8000 --max-model-len 32768 --reasoning-parser qwen3 --keep
    """
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm import ServerSpec, VllmError, split_extra
    from cimemories.seeds.presets import load_presets
    from cimemories.seeds.presets import preset as named_preset

    if listed:
        rows = [(p.key, p.name, p.gpus or p.base_url or "", ", ".join(p.roles)) for p in load_presets()]
        output.table([("preset", False), ("model", False), ("GPUs (a hint), or where", False), ("role", False)], rows)
        return
    try:
        spec = ServerSpec(
            model=model or "",
            port=port,
            served_name=served_name,
            gpu_memory=gpu_memory,
            tensor_parallel=tensor_parallel,
            data_parallel=data_parallel,
            max_model_len=max_model_len,
            reasoning_parser=reasoning_parser or "",
            quantisation=quantisation or "",
            extra=split_extra(extra or ()),
            keep=keep,
            trusted=True,
        )
        if preset is not None:
            spec = spec.filled(named_preset(preset))
        if not spec.model:
            raise StoreError("which model? Give a name or a folder, or --preset KEY; `cimemories serve --list`.")
        state = vllm_server.start(workspace, spec, started_by="cimemories serve")
        _attend(workspace, state, spec)
    except VllmError as problem:
        raise _told(problem) from problem


def _attend(workspace: Path, state: ServerState, spec: ServerSpec) -> None:
    """Say how the server comes up, then watch it until it ends; one that is to be kept is left when it is ready."""
    from cimemories.llm import vllm_server

    output.note(f"{state.id}: {shlex.join(state.command)}")
    output.note(f"log: {state.log}")
    ready: ServerState | None = None
    try:
        ready = vllm_server.wait(workspace, state.id, on_change=_teller())
        output.note(f"ready after {(ready.ready or time.time()) - ready.created:.0f} s")
        output.line(ready.base_url)
        if spec.keep:
            output.note(f"it goes on until: cimemories stop-server {ready.port}")
        else:
            output.note(f"serving '{ready.served_name}' (stop with Ctrl-C)")
            _watch(workspace, ready)
    except KeyboardInterrupt:
        if ready is None:
            raise
        # Once it is ready, that is how it is meant to end.
    finally:
        if ready is None or not spec.keep:
            ended = vllm_server.stop(workspace, state.id)
            if ended.phase == vllm_server.Phase.STOPPED:
                output.note(f"stopped {ended.error}")


def _teller() -> Callable[[ServerState], None]:
    """Says each step once, with the seconds since the start."""
    told = ""

    def tell(state: ServerState) -> None:
        nonlocal told
        words = f"{state.phase}{f': {state.step}' if state.step else ''}"
        if words != told:
            output.note(f"{time.time() - state.created:5.0f} s  {words}")
        told = words

    return tell


def _watch(workspace: Path, state: ServerState) -> None:
    """Print the live figures while something happens, until the server ends. Raises VllmError where it failed."""
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm import VllmError
    from cimemories.llm.vllm_reports import read_metrics

    before, told, looked = read_metrics(state.base_url), True, time.monotonic()
    while True:
        time.sleep(LOOK_SECONDS)
        now = vllm_server.state_named(workspace, state.id)
        if now.phase == vllm_server.Phase.FAILED:
            raise VllmError(f"{now.served_name} on port {now.port}: {now.error}", now.cause, now.lines)
        if not now.live:
            return
        if time.monotonic() - looked < FIGURES_SECONDS:
            continue
        looked = time.monotonic()
        after = read_metrics(state.base_url)
        if after is not None:
            busy = bool(after.running or after.waiting or (before and after.generated_tokens > before.generated_tokens))
            if busy or told:  # once more when it comes to rest
                output.note(figures_line(before, after))
            told = busy
        before = after


def figures_line(before: ServerFigures | None, after: ServerFigures) -> str:
    """The live figures in one line; the prefix cache since the server started where nothing was looked up just now."""
    from cimemories.llm.vllm_reports import figures_between

    live = figures_between(before, after)
    speed = "–" if live.tokens_per_second is None else f"{live.tokens_per_second:,.0f}"
    hits = live.hit_rate if live.hit_rate is not None else after.hit_rate
    return (
        f"{live.running} running, {live.waiting} waiting, {speed} tokens/s, prefix cache hits {percent(hits)}, "
        f"KV cache {percent(live.kv_use)} full"
    )


def _told(problem: VllmError) -> StoreError:
    """vLLM's own last lines for people, and the error that ends the command."""
    for line in problem.lines:
        output.note(f"  vllm: {line}")
    return StoreError(str(problem))


@cli.command()
def servers(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the managed vLLM servers, those that ended among them.  Example: cimemories servers --json"""
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm_reports import read_metrics

    states = vllm_server.servers(workspace)
    figures = {s.id: read_metrics(s.base_url) for s in states if s.phase == vllm_server.Phase.READY and s.here}
    if as_json:
        output.line(output.as_json_text([_as_json(state, figures.get(state.id)) for state in states]))
        return
    output.table(
        [("id", False), ("state", False), ("port", True), ("model", False), ("running", True), ("", False)],
        [
            (
                state.id,
                state.phase,
                state.port,
                state.served_name,
                found.running if (found := figures.get(state.id)) else "",
                " ".join(filter(None, [state.step, state.error, "kept" if state.keep and state.live else ""])),
            )
            for state in states
        ],
    )


def _as_json(state: ServerState, figures: ServerFigures | None) -> dict[str, object]:
    shown = state.model_dump(mode="json", exclude={"owner", "supervisor", "server", "phase"})
    found = None
    if figures is not None:
        found = {
            "running": figures.running,
            "waiting": figures.waiting,
            "generated_tokens": figures.generated_tokens,
            "prompt_tokens": figures.prompt_tokens,
            "prefix_cache_hit_rate": figures.hit_rate,
            "kv_cache_use": figures.kv_use,
        }
    process = state.server.pid if state.server else None
    return {**shown, "status": str(state.phase), "base_url": state.base_url, "process": process, "figures": found}


@cli.command("stop-server")
def stop_server(
    server: Annotated[str, typer.Argument(help="Its id or its port; `cimemories servers` lists them.")],
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Stop a managed vLLM server.  Example: cimemories stop-server 8000"""
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm import VllmError

    try:
        before = vllm_server.state_named(workspace, server)
        state = vllm_server.stop(workspace, before.id)
    except VllmError as problem:
        raise _told(problem) from problem
    had = "" if before.live else "already "
    output.line(f"{state.id} ({state.served_name}, port {state.port}): {had}{state.phase} {state.error}".rstrip())


@cli.command("same-server")
def same_server(
    one: Annotated[str | None, typer.Argument(metavar="URL", help="An address. Left out: list what is known.")] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="URL", help="Another, or 'server not known' for records of before.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who says so.")] = "",
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the servers whose answers the record holds, or say that two addresses are the same server.

    Answers of one then serve runs on the other, where both report the same model root. Nothing is rewritten.
    Example: cimemories same-server http://gpu1:8000/v1 http://gpu2:8000/v1
    """
    import getpass

    from cimemories.store import calls

    if (one is None) != (other is None) or (one is None and undo):
        raise StoreError("give two addresses, or none to list what is known.")
    store = open_store(workspace)
    if one is not None and other is not None:
        with store.write() as connection:
            if undo:
                calls.untie(connection, one, other)
                output.note(
                    "taken back: answers of one serve runs on the other no longer; runs that have them keep them"
                )
            else:
                tie = calls.tie(connection, one, other, by.strip() or getpass.getuser())
                output.line(f"{tie.first} and {tie.second} are the same server (said by {tie.author})")
        return
    with store.read() as connection:
        known, counts, ties = calls.known(connection), calls.counts(connection), calls.ties(connection)
    texts = dict.fromkeys([*(item.text for item in known), *counts])
    if as_json:
        rows = [{"server": text, "answers": counts.get(text, 0)} for text in texts]
        said = [{"first": t.first, "second": t.second, "by": t.author, "created": t.created} for t in ties]
        output.line(output.as_json_text({"servers": rows, "same": said}))
        return
    output.table(
        [("server", False), ("answers", True)], [(text, f"{counts.get(text, 0):,}") for text in texts], whole=True
    )
    for tie in ties:
        output.line(f"{tie.first} = {tie.second} (said by {tie.author}, {tie.created[:10]})")
    if not texts:
        output.note("no answer is recorded yet.")
