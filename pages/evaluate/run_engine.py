"""The engine that does new work, and the model that it serves itself: the fields of a form, and a line of a run's
page."""

from __future__ import annotations

import os
import shlex

import streamlit as st

from cimemories import extras
from cimemories.llm import engines
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.local_vllm import local_address, spec_of
from cimemories.llm.vllm import VllmError, find_program
from cimemories.store.engine import Store
from cimemories.text import sentence
from cimemories.ui import page, safe
from cimemories.ui.annotator import Draft


def draw_engine(store: Store, draft: Draft) -> str | None:
    """Draw the choice of an engine, if one can work on this record beside this machine; else a line that says what to
    set. Returns its text (llm/engines.py), or None for an invalid entry, which is shown."""
    titles = {engines.LOCAL: "This machine"}
    for name in extras.registered("engines"):
        kind = engines.kind_of(name)
        if lacking := kind.missing(store):
            safe.inline(lacking, muted=True)
        else:
            titles[name] = kind.title
    if len(titles) == 1:
        return engines.LOCAL
    try:
        usual = engines.read_engine(os.environ.get(engines.ENGINE, engines.LOCAL))
        choice, options = st.columns([3, 7])
        with choice:
            help = "An engine shares the work among several machines: docs/scale.md"
            name = draft.select("Engine", "engine", titles, usual.name if usual else engines.LOCAL, help=help)
        if name == engines.LOCAL:
            return engines.LOCAL
        with options:
            draw = extras.load(extras.panels("engine")[name])
            chosen: engines.Engine = draw(draft, usual if usual and usual.name == name else engines.kind_of(name)())
            return chosen.text
    except engines.EngineError as problem:
        page.error("This engine cannot be used.", sentence(problem))
        return None


def draw_served(draft: Draft) -> tuple[str, str]:
    """Draw the fields for a model that the work serves by a vLLM of its own. Returns its name in requests and the
    stand-in for its address; '' for both if none is named or the entry is invalid, which is shown."""
    left, right = st.columns(2)
    with left:
        help = "A name on the Hugging Face hub, or a folder; on a Ray cluster, of every machine"
        model = draft.text("Model to serve", "own.model", placeholder="Qwen/Qwen3-8B", help=help).strip()
    with right:
        help = "As of `vllm serve`. Which ones are allowed: docs/models.md"
        flags = draft.text("vLLM flags", "own.flags", placeholder="--max-model-len 32768", help=help)
    safe.inline(
        "Starts vLLM with the work, and stops it when the work ends. On a Ray cluster, in each worker.", muted=True
    )
    try:
        find_program()
    except VllmError as problem:
        page.notice(f"This machine cannot serve it: {problem}")
    if not model:
        return "", ""
    try:
        address = local_address(f"{shlex.quote(model)} {flags}")
    except EndpointError as problem:
        page.error("This model cannot be served.", sentence(problem))
        return "", ""
    return spec_of(address).name, address


def engine_text(store: Store, work_id: str) -> str:
    """Return the engine that did the work last; '' for this machine, the usual case."""
    with store.read() as connection:
        engine = engines.last(connection, work_id)
    return "" if engine in (None, engines.LOCAL) else engines.described(engine)
