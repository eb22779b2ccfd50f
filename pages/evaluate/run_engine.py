"""Which engine does new work, and which model it serves itself: the fields of a form, and the line of a run's page."""

from __future__ import annotations

import shlex

import streamlit as st

from cimemories.llm import engines
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.engines import Engine
from cimemories.llm.local_vllm import local_address, spec_of
from cimemories.llm.ray_engine import Cluster, ClusterError
from cimemories.llm.vllm import VllmError, find_program
from cimemories.store.engine import Store
from cimemories.text import sentence
from cimemories.ui import login, page, safe
from cimemories.ui.annotator import Draft

MOST_WORKERS = 1000
TITLES = {engines.LOCAL: "This machine", engines.RAY: "Ray cluster"}


def draw_engine(store: Store, draft: Draft) -> Engine | None:
    """Draw the choice of an engine, if a cluster can work on this record; else a line that says what to set. None for
    an entry that cannot be used, which is shown."""
    if lacking := engines.missing(store):
        safe.inline(lacking, muted=True)
        return Engine()
    try:
        usual = engines.usual()
    except ClusterError as problem:
        page.error("The environment of the app cannot be used.", sentence(problem))
        return None
    cluster = usual.cluster or Cluster()
    default = engines.RAY if usual.cluster else engines.LOCAL
    kind, address, least, most = st.columns([3, 3, 2, 2])
    with kind:
        help = "A Ray cluster shares the work among the workers of several machines: docs/scale.md"
        if draft.select("Engine", "engine", TITLES, default, help=help) == engines.LOCAL:
            return Engine()
    with address:
        text = cluster.address
        # A cluster gets the database's address and the servers' keys, so a user may not name one.
        if login.configured():
            safe.inline(f"Cluster: {text}, as set where the app is started", muted=True)
        else:
            help = "auto (the cluster of this machine), local (one on this machine alone) or HOST:PORT"
            text = draft.text("Cluster address", "engine.address", text, help=help)
    with least:
        help = "Each takes one processor core, and sends its own requests"
        fewest = draft.integer("Workers, at least", "engine.least", cluster.workers[0], 1, MOST_WORKERS, help=help)
    with most:
        help = "Added while all are busy and the cluster has room"
        usual_most = max(fewest, cluster.workers[1])
        upper = draft.integer("Workers, at most", "engine.most", usual_most, fewest, MOST_WORKERS, help=help)
    try:
        return Engine(Cluster(engines.checked_address(text), (fewest, upper)))
    except ClusterError as problem:
        page.error("This address cannot be used.", sentence(problem))
        return None


def draw_served(draft: Draft) -> tuple[str, str]:
    """Draw the fields for a model that the work serves by a vLLM of its own. Returns its name in requests and what
    stands for its address; empty texts if none is named or the entry cannot be used, which is shown."""
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
    """Return the cluster that did the work last; '' for this machine, the usual case."""
    with store.read() as connection:
        engine = engines.last(connection, work_id)
    return str(engine) if engine and engine.cluster else ""
