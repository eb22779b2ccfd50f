"""Part of the Labels page: a labelling is started, watched, stopped and resumed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import streamlit as st

from cimemories import launch
from cimemories.analysis.progress import in_words
from cimemories.curation import labelling as labelling_
from cimemories.curation.labelling import LabellingSpec
from cimemories.llm.client import DEFAULT_KEY_ENV, EndpointError
from cimemories.llm.policy import SimulatorError
from cimemories.llm.worker import SIMULATOR
from cimemories.model import WorkStatus
from cimemories.seeds import SeedError
from cimemories.seeds.packs import DEFAULTS, pack_files, persona_pack
from cimemories.store import labellings, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables, url
from pages.start import database_lost

SIMULATED_MODEL = "sim-labeler"
RESUMABLE = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)


@dataclass(frozen=True)
class Pace:
    """Ballots settled in this session's sight: where counting began, and when."""

    since: float
    done: int

    def words(self, done: int, expected: int) -> str:
        """'14.2 ballots a second, 3 min left'; says so while there is nothing to measure yet."""
        seconds = time.time() - self.since
        if done <= self.done or seconds < 1:
            return "measuring the pace"
        rate = (done - self.done) / seconds
        left = (expected - done) / rate
        return f"{rate:,.1f} ballots a second, {in_words(left)} left"


def named(row: LabellingRow) -> str:
    """A labelling as an option: model, status, draws, personas other than Westin's, and whether it is simulated."""
    simulated = ", simulated" if row.simulated else ""
    if row.imported:
        return f"{row.model}: imported, without votes{simulated}"
    pack = "" if row.pack == DEFAULTS["personas"] else f", personas {row.pack}"
    return f"{row.model}: {row.status}, {row.draws} draws{pack}{simulated}"


def settled(row: LabellingRow) -> int:
    """Ballots that are not owed any more, usable or not."""
    return row.expected - row.ballots.get(labellings.OWED, 0)


def watch(store: Store, row: LabellingRow | None) -> None:
    """How the chosen labelling stands: nothing to say of one that is finished and whole."""
    if row is not None:
        _watch(store, row)


def start(store: Store, dataset: DatasetRow, row: LabellingRow | None) -> None:
    """The form for a new labelling, folded where there is one already."""
    page.fold(
        "Start a labelling",
        ":material/how_to_vote:",
        "labels.box.start",
        lambda: _form(store, dataset),
        expanded=row is None,
    )


def _watch(store: Store, row: LabellingRow) -> None:
    active = row.status in work.ACTIVE
    if not active:
        st.session_state.pop(f"pace.{row.id}", None)
        if row.status in RESUMABLE:
            _stopped(store, row)
        elif settled(row) > row.ballots.get(labellings.OK, 0):
            _failures(store, row.id)
            if row.ballots.get("failed") and st.button("Ask again for what failed", icon=":material/resume:"):
                _launch(store, row.id)
        return

    def live() -> None:
        with store.read() as connection:
            now = next((r for r in labellings.all_rows(connection, row.dataset) if r.id == row.id), None)
        if now is None or now.status not in work.ACTIVE:
            st.rerun()
        else:
            _running(store, now)

    database_lost.fragment(live, run_every="1s")()


def _running(store: Store, row: LabellingRow) -> None:
    done = settled(row)
    waiting = row.status == WorkStatus.QUEUED
    pace = (
        Pace(time.time(), done) if waiting else st.session_state.setdefault(f"pace.{row.id}", Pace(time.time(), done))
    )
    bar, button = st.columns([5, 1], vertical_alignment="center")
    with bar:
        st.progress(done / row.expected if row.expected else 0.0)
        safe.inline(
            f"{row.id}, {row.status}: {tables.count(done)} of {tables.count(row.expected)} ballots, "
            f"{pace.words(done, row.expected)}.",
            muted=True,
        )
    with button:
        asked = row.status == WorkStatus.CANCELLING
        if st.button("Cancel", icon=":material/stop_circle:", key=f"cancel.{row.id}", disabled=asked, width="stretch"):
            with store.write() as connection:
                work.request_cancel(connection, row.id)
            st.rerun()
    _failures(store, row.id)


def _stopped(store: Store, row: LabellingRow) -> None:
    words, button = st.columns([5, 1], vertical_alignment="center")
    with words:
        owed = row.expected - row.ballots.get(labellings.OK, 0)
        page.error(
            f"This labelling is {row.status}: {tables.count(owed)} of {tables.count(row.expected)} ballots missing.",
            f"{row.error.capitalize()}." if row.error else "",
            "What is there is kept; resume asks for the rest.",
        )
        _failures(store, row.id)
        log = launch.log_tail(store, row.id)
        if log:
            with st.expander("Last lines of the worker's log"):
                st.code(log, language=None, wrap_lines=True)
    with button:
        if st.button("Resume", icon=":material/play_arrow:", key=f"resume.{row.id}", width="stretch"):
            _launch(store, row.id)


def _failures(store: Store, labelling_id: str) -> None:
    with store.read() as connection:
        causes = labellings.failures(connection, labelling_id)
    if causes:
        said = "; ".join(
            f"{tables.count(n)} {status}{f' ({cause})' if cause else ''}" for status, cause, n in causes[:5]
        )
        safe.inline(f"Ballots that are missing, by cause: {said}.", muted=True)


def _form(store: Store, dataset: DatasetRow) -> None:
    left, right = st.columns([5, 3])
    place = left.radio(
        "Who votes",
        ["A model behind an OpenAI-compatible address", "The simulator (no model, for trying things out)"],
        horizontal=True,
        key="start.place",
    )
    with right:
        personas = _personas(store)
    simulator = place is not None and place.startswith("The simulator")
    with st.form("start", enter_to_submit=False, border=False):
        first, second, third = st.columns([2, 3, 2])
        model = first.text_input(
            "Model",
            value=SIMULATED_MODEL if simulator else "",
            key=f"start.model.{simulator}",
            placeholder="Qwen/Qwen3-8B",
        )
        address = second.text_input(
            "Base URL",
            value="" if simulator else "http://localhost:8000/v1",
            disabled=simulator,
            key=f"start.url.{simulator}",
        )
        key_env = third.text_input(
            "Environment variable that holds the key", value=DEFAULT_KEY_ENV, disabled=simulator, key="start.key"
        )
        a, b, c, d, e, f = st.columns(6)
        draws = a.number_input("Draws for each persona", 1, 100, 10, key="start.draws")
        profiles = b.number_input(
            "Profiles", 1, max(1, dataset.profiles), max(1, dataset.profiles), key=f"start.profiles.{dataset.id}"
        )
        contexts = c.number_input(
            "Contexts", 1, max(1, dataset.contexts), max(1, dataset.contexts), key=f"start.contexts.{dataset.id}"
        )
        temperature = d.number_input(
            "Temperature", 0.0, 2.0, value=None, step=0.1, placeholder="server's default", key="start.temperature"
        )
        st.session_state.setdefault("start.max_tokens", 2048)
        max_tokens = e.number_input(
            "Token limit", 16, 65536, value=None, step=128, key="start.max_tokens", placeholder="the server's",
            help="Of one answer. Empty: no limit is sent, the server's own holds.",
        )  # fmt: skip
        timeout = f.number_input(
            "Patience in seconds", 1, 3600, 120, step=60, key="start.timeout", help="Doubled by each retry of a request"
        )
        started = st.form_submit_button("Start", type="primary", icon=":material/play_arrow:")
    if started:
        spec = LabellingSpec(
            dataset=dataset.name,
            model=model.strip(),
            base_url=SIMULATOR if simulator else address.strip(),
            draws=int(draws),
            profiles=int(profiles),
            contexts=int(contexts),
            api_key_env=key_env.strip() or DEFAULT_KEY_ENV,
            temperature=temperature,
            max_tokens=None if max_tokens is None else int(max_tokens),
            timeout=float(timeout),
            personas=personas,
        )
        _start(store, spec)


def _personas(store: Store) -> str:
    """The pack whose personas vote, and who they are; a choice only where there is one."""
    names = list(dict.fromkeys(file.name for file in pack_files("personas", store.workspace)))
    chosen = st.selectbox(
        "In the person of", names, key="start.personas", help="A pack of personas; a folder of the workspace adds more"
    )
    try:
        pack = persona_pack(chosen, store.workspace)
    except SeedError as problem:
        page.error("This pack cannot be used.", str(problem))
    else:
        safe.inline("; ".join(f"{p.name} {p.prior * 100:.4g} %" for p in pack.personas), muted=True)
    return chosen


def _start(store: Store, spec: LabellingSpec) -> None:
    if not spec.model or not spec.base_url:
        page.error("Nothing was started.", "A labelling needs a model and the address where it is served.")
        return
    try:
        with st.spinner("Asking the server and writing down what is wanted"):
            labelling_id = labelling_.plan(store, spec)
    except (EndpointError, StoreError, SeedError, SimulatorError) as problem:
        page.error("Nothing was started.", str(problem))
        return
    url.put(labelling=labelling_id)
    _launch(store, labelling_id)


def _launch(store: Store, labelling_id: str) -> None:
    try:
        launch.launch(store, labelling_id)
    except StoreError as problem:
        page.error("The worker was not started.", str(problem))
        return
    st.rerun()
