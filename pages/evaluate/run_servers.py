"""Servers on the Runs page: managed vLLM servers with figures and logs, a form to start one, and the servers of
recorded answers, two of which the user can link as the same."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from cimemories.flows import catalogue
from cimemories.llm import vllm_server
from cimemories.llm.vllm import ServerSpec, VllmError, find_program, server_command, split_words
from cimemories.llm.vllm_reports import ServerFigures, read_metrics
from cimemories.llm.vllm_server import Phase, ServerState
from cimemories.seeds import SeedError
from cimemories.seeds.presets import Kind, load_presets
from cimemories.store.calls import NOT_KNOWN
from cimemories.store.engine import Store, StoreError
from cimemories.text import count, sentence, visible
from cimemories.ui import annotator, once, page, safe
from cimemories.ui.annotator import Draft

LOOK_SECONDS = 2
SPAN_SECONDS = 10  # the span of a rate: over shorter ones it jumps
LOG_LINES = 14
OTHER = "another model"
START_HERE = "Start one here, or with the command: cimemories serve"
START_BY_COMMAND = "An operator of the app can start one with the command: cimemories serve"
GLYPHS = {Phase.STARTING: "◌", Phase.READY: "●", Phase.STOPPED: "■", Phase.FAILED: "✕"}


class Served(NamedTuple):
    """A managed server that is ready: its address, and the name of its model there."""

    base_url: str
    model: str


def running(store: Store) -> list[Served]:
    """Return the managed servers of this machine that are ready."""
    return [Served(state.base_url, state.served_name) for state in vllm_server.running(store.workspace)]


def draw(store: Store) -> None:
    """Draw the servers, repeatedly while one lives, and the form that starts one."""
    workspace = store.workspace
    states = vllm_server.servers(workspace)
    live = [state for state in states if state.live]
    ended = [state for state in states if not state.live]
    mine = annotator.runs_the_app()
    if not live:
        safe.inline(f"No managed server is running. {START_HERE if mine else START_BY_COMMAND}", muted=True)
    st.fragment(_live, run_every=LOOK_SECONDS if live else None)(workspace, _marks(states))
    newest = max(states, key=lambda state: state.created, default=None)
    if newest is not None and newest.phase == Phase.FAILED:
        ended.remove(newest)
        _server(workspace, newest)
    if mine:
        page.fold(
            "Start a server", ":material/add:", "run_servers.box.start", lambda: _form(workspace), expanded=not live
        )

    def past() -> None:
        for state in ended:
            _server(workspace, state)

    if ended:
        page.fold(f"{count(len(ended), 'server')} that ended", ":material/history:", "run_servers.box.ended", past)
    page.fold(
        "Servers of recorded answers",
        ":material/fingerprint:",
        "run_servers.box.same",
        lambda: _recorded(store),
    )


def _marks(states: list[ServerState]) -> tuple[tuple[str, str], ...]:
    return tuple((state.id, str(state.phase)) for state in states)


def _live(workspace: Path, seen: tuple[tuple[str, str], ...]) -> None:
    states = vllm_server.servers(workspace)
    if _marks(states) != seen:
        st.rerun()  # one appeared, became ready or ended: the whole page changes
    for state in states:
        if state.live:
            _server(workspace, state)


def _server(workspace: Path, state: ServerState) -> None:
    """Draw one server, live or ended: its description, figures, buttons and log."""
    with st.container(border=True):
        title, how, control = st.columns([4, 6, 2], vertical_alignment="center")
        with title:
            chip = safe.tag("span", f"{GLYPHS[state.phase]} {state.phase}", cls="ci-chip")
            ends = "keeps running when the app ends" if state.keep else "stops with the app"
            by = f"{state.base_url}, by {state.started_by} ({ends})" if state.live else f"port {state.port}"
            safe.show(safe.tag("div", safe.tag("b", state.served_name), " ", chip, cls="ci-line"))
            safe.inline(by, muted=True)
        with how:
            if state.phase == Phase.FAILED:
                page.error(sentence(state.cause or "failed"), sentence(state.error))
            elif not state.live:
                safe.inline(f"stopped {state.error}", muted=True)
            elif not state.here:
                safe.inline("on another machine", muted=True)
            elif state.phase == Phase.READY:
                now = figures(state.base_url)
                safe.inline(now.text if now else "No figures from the server right now.", muted=now is None)
            else:
                safe.inline(f"{state.step or 'starting'}, {max(0, time.time() - state.created):.0f} s", muted=True)
        with control:
            stop = ("Stop server", "stop_circle", "stop", vllm_server.stop, "Stopping the server")
            remove = ("Remove", "delete", "forget", vllm_server.forget, "Removing it")
            label, icon, name, act, doing = stop if state.live else remove
            if annotator.runs_the_app() and (state.here or not state.live):
                _button(
                    label,
                    lambda: act(workspace, state.id),
                    icon=f":material/{icon}:",
                    key=f"run_servers.{name}.{state.id}",
                    width="stretch",
                    doing=doing,
                )
        if state.lines and not state.live:
            st.code(visible("\n".join(state.lines)), language=None, wrap_lines=True)

        def log() -> None:
            st.code(vllm_server.server_log_tail(state, LOG_LINES) or "nothing yet", language=None, wrap_lines=True)
            safe.inline(f"The whole log: {state.log}", muted=True)

        page.fold("Log", ":material/notes:", f"run_servers.log.{state.id}", log)


def figures(base_url: str) -> ServerFigures | None:
    """Return the figures of a vLLM server, its rates over the last seconds; None if it gives none."""
    key = f"run_servers.figures.{base_url}"
    after = read_metrics(base_url)
    if after is None:
        return None
    # Against the oldest reading of the span: between neighbours a rate would jump.
    readings = [seen for seen in st.session_state.get(key, []) if after.at - seen.at <= SPAN_SECONDS]
    st.session_state[key] = [*readings, after]
    return after.since(readings[0] if readings else None)


def _button(label: str, act: Callable[[], object], *, key: str, **options: Any) -> None:
    try:
        once.button(label, act, key=key, **options)
    except (VllmError, StoreError) as problem:
        page.error(sentence(problem))


def _form(workspace: Path) -> None:
    try:
        program = find_program()
    except VllmError as problem:
        page.error("vLLM is not installed.", sentence(problem))
        return
    try:
        presets = {item.key: item for item in load_presets() if item.kind == Kind.LOCAL}
    except SeedError as problem:
        page.notice(f"The presets cannot be read: {problem}")
        presets = {}
    left, middle, right = st.columns(3)
    draft = Draft("run_servers")
    with left:
        titles = {name: item.title for name, item in presets.items()} | {OTHER: "Another model"}
        key = draft.select("Model of the paper", "preset", titles)
    preset = presets.get(key)
    with middle:
        help = "A name on the Hugging Face hub, which vLLM fetches at the first start, or a folder of this machine"
        usual = preset.name if preset else ""
        model = draft.text(
            "Name or folder", f"model.{key}", usual, placeholder="maker/name, or /models/folder", help=help
        )
    with right:
        port = draft.optional(
            "Port", "port", None, 1, 65535, placeholder="the first free one from 8000", help="Of this machine"
        )
    if preset is not None:
        safe.inline(" ".join(filter(None, [f"GPUs, as a hint: {preset.gpus}.", preset.notes])), muted=True)
    one, two = st.columns([2, 1])
    with one:
        help = "Of `vllm serve`, such as --max-model-len or --tensor-parallel-size: docs/models.md"
        usual = preset.serve.flags if preset and preset.serve else ""
        flags = draft.text("vLLM flags", f"flags.{key}", usual, placeholder="--max-model-len 32768", help=help)
    with two:
        name = draft.text("Served name", f"name.{key}", placeholder="the model's own")
    try:
        number = None if port is None else int(port)
        spec = ServerSpec(model.strip(), split_words(flags), number, name.strip())
        line = (
            server_command(Path(program.name), spec, spec.port or vllm_server.free_port(workspace))
            if model.strip()
            else []
        )
    except VllmError as problem:
        page.error("The server cannot be started with these settings.", sentence(problem))
        return
    if line:
        st.code(shlex.join(line), language=None, wrap_lines=True)
    keep = st.toggle("Leave it running when the app ends", key="run_servers.keep")
    spec = replace(spec, keep=keep)
    _button(
        "Start the server",
        lambda: vllm_server.start(workspace, spec, started_by="the app"),
        type="primary",
        icon=":material/play_arrow:",
        disabled=not line,
        key="run_servers.start",
    )


# ---- servers of recorded answers


LINKING = (
    "Recorded answers belong to the server that gave them: its address, and the model root and revision it reports. If "
    "two addresses are the same server, link them here: new runs on one then reuse answers of the other, if both "
    "report the same model. Nothing is rewritten, and you can unlink them."
)


def _recorded(store: Store) -> None:
    """Draw the servers of recorded answers, their links, and the form to link two."""
    safe.inline(LINKING, muted=True)
    known, ties = catalogue.known_servers(store)
    if known:
        safe.show(safe.lines((item.text for item in known), "ci-line"))
    else:
        safe.inline("No server yet. Each run and labelling adds the servers it uses.", muted=True)
    for tie in ties:
        left, act = st.columns([8, 2], vertical_alignment="center")
        with left:
            made = f"linked by {tie.author} on {tie.created[:10]}"
            safe.inline(f"{tie.first} and {tie.second} are the same server, {made}")
        with act:
            key = f"run_servers.same.undo.{tie.first}.{tie.second}"
            _button("Unlink", partial(catalogue.untie_servers, store, tie.first, tie.second), key=key, width="stretch")
    addresses = list(dict.fromkeys(item.address for item in known))
    one, two, act = st.columns([4, 4, 2], vertical_alignment="bottom")
    with one:
        first = st.selectbox(
            "Address",
            addresses,
            key="run_servers.same.first",
            accept_new_options=True,
            format_func=safe.option,
            placeholder="http://localhost:8000/v1",
        )
    with two:
        second = st.selectbox(
            "is the same server as",
            [*addresses, NOT_KNOWN],
            index=None,
            key="run_servers.same.second",
            accept_new_options=True,
            format_func=safe.option,
            placeholder="another address",
            help=f"'{NOT_KNOWN}': answers recorded at this address before servers were distinguished",
        )
    with act:
        me = annotator.name() or "the app"
        _button(
            "Link",
            lambda: catalogue.tie_servers(store, str(first), str(second), me),
            key="run_servers.same.say",
            disabled=not (first and second),
            width="stretch",
        )
