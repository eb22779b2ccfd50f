"""Part of the Profiles page: new profiles, from templates at once or by a model in a worker of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass

import streamlit as st

from cimemories import launch
from cimemories.analysis.progress import in_words
from cimemories.curation import authoring
from cimemories.curation.authoring_report import live, report
from cimemories.curation.authoring_spec import AuthoringSpec, cost, estimate
from cimemories.curation.generating import generate_dataset
from cimemories.curation.locales import LOCALES
from cimemories.llm.client import DEFAULT_KEY_ENV, EndpointError
from cimemories.llm.policy import SimulatorError
from cimemories.llm.worker import SIMULATOR
from cimemories.model import WorkStatus
from cimemories.seeds import SeedError, packs
from cimemories.store import deleting, generations, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.generations import GenerationRow
from cimemories.ui import page, safe, tables, url
from pages.start import database_lost

TEMPLATES, BY_MODEL, BY_SIMULATOR = "Templates, no model", "A model", "The simulator"
SIMULATED_MODELS = ("sim-average", "sim-careful", "sim-oversharing")
AT_ONCE = 200  # profiles from templates that a page makes while somebody waits
RESUMABLE = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)
WIDE, NARROW = 260, 108  # pixels: fields flow into as many rows as the place has room for
_LOCALE = "Of names and addresses; the sentences are English"
_SEED = "The same seed gives the same people and events"
_PER_DOMAIN = (
    "Attributes for each of the nine domains of each event. The paper asks a model for 7, the released data has 5"
)
_GENERAL = "Attributes that belong to no event: employer, income, marital status and the like"
_PRICE_IN = "For a million prompt tokens, in any currency; 0 leaves the cost out"
_PRICE_OUT = "For a million completion tokens, in any currency; 0 leaves the cost out"
_MADE, _WATCHED = "new.made", "new.watched"


def draw(store: Store) -> None:
    """What is being written and what came of it, then the form for more."""
    _made()
    with store.read() as connection:
        rows = generations.all_rows(connection)
    watched = st.session_state.setdefault(_WATCHED, set())
    for row in reversed(rows):
        if row.status in work.ACTIVE:
            watched.add(row.id)
            _watch(store, row)
        elif row.dataset is None and (row.status in RESUMABLE or row.settled < row.expected):
            _stopped(store, row)
        elif row.id in watched:
            _finished(store, row)
    _form(store)


def _made() -> None:
    """What templates have just become; said once more after the rerun that it caused."""
    made = st.session_state.get(_MADE)
    if made:
        dataset_id, words = made
        page.notice(words)
        url.page_link("profiles", "Show the new profiles", icon=":material/group:", dataset=dataset_id)


# ---- what is under way


def _watch(store: Store, row: GenerationRow) -> None:
    def look() -> None:
        with store.read() as connection:
            status = work.shown_status(work.load(connection, row.id))
        if status not in work.ACTIVE:
            st.rerun()
        _running(store, row, status)

    database_lost.fragment(look, run_every="1s")()


def _running(store: Store, row: GenerationRow, status: WorkStatus) -> None:
    now = live(store, row.id)
    _title(row, f"is being written: {status}")
    st.progress(now.settled / now.expected if now.expected else 0.0)
    turned_down = sum(now.rejected.values())
    words = [
        f"{tables.count(now.settled)} of {tables.count(now.expected)} calls answered in full",
        _pace(row, status, now.settled, now.expected),
        f"{tables.count(now.prompt_tokens)} prompt and {tables.count(now.completion_tokens)} completion tokens"
        + _money(row, now.prompt_tokens, now.completion_tokens),
    ]
    if turned_down:
        words.append(f"asked again for {tables.count(turned_down)} faults")
    safe.inline(f"{'; '.join(words)}.", muted=True)
    _failures(now.failures)
    asked = status == WorkStatus.CANCELLING
    if st.button("Cancel", icon=":material/stop_circle:", key=f"new.cancel.{row.id}", disabled=asked):
        with store.write() as connection:
            work.request_cancel(connection, row.id)
        st.rerun()


def _pace(row: GenerationRow, status: WorkStatus, done: int, expected: int) -> str:
    """'1.4 calls a second, 3 min left', measured since this session first saw the work running."""
    key = f"new.pace.{row.id}"
    if status == WorkStatus.QUEUED:
        return "waiting for the worker"
    since, first = st.session_state.setdefault(key, (time.time(), done))
    seconds = time.time() - since
    if done <= first or seconds < 1:
        return "measuring the pace"
    rate = (done - first) / seconds
    return f"{rate:,.2f} calls a second, {in_words((expected - done) / rate)} left"


def _money(row: GenerationRow, prompt_tokens: int, completion_tokens: int) -> str:
    asked = row.manifest.get("asked")
    prices = [float(asked.get(name) or 0) for name in ("price_in", "price_out")] if isinstance(asked, dict) else [0, 0]
    return f", cost {cost(prompt_tokens, completion_tokens, *prices):,.2f}" if any(prices) else ""


def _title(row: GenerationRow, what: str) -> None:
    parts: list[safe.Html | str] = [safe.tag("b", row.name), f" by {row.model} {what} "]
    safe.show(safe.tag("div", *parts, page.SIMULATED if row.simulated else "", cls="ci-line"))


def _failures(failures: tuple[tuple[str, str, int], ...]) -> None:
    if failures:
        said = "; ".join(f"{tables.count(n)} {status}{f' ({cause})' if cause else ''}" for status, cause, n in failures)
        safe.inline(f"Calls that went wrong or fell short, by cause: {said}.", muted=True)


# ---- what has ended


def _stopped(store: Store, row: GenerationRow) -> None:
    nothing_owed = row.settled == row.expected
    _title(row, f"is {row.status}.")
    page.error(
        "There is no dataset of it.",
        f"{row.error.rstrip('.').capitalize()}." if row.error else "",
        "Try another model, or a larger token limit."
        if nothing_owed
        else f"{tables.count(row.settled)} of {tables.count(row.expected)} calls are answered and kept; "
        "Resume asks for the rest.",
    )
    log = launch.log_tail(store, row.id)
    if log:
        with st.expander("Last lines of the worker's log"):
            st.code(log, language=None, wrap_lines=True)
    with st.container(horizontal=True):
        if not nothing_owed and st.button("Resume", icon=":material/play_arrow:", key=f"new.resume.{row.id}"):
            _launch(store, row.id)
        if st.button("Discard", icon=":material/delete:", key=f"new.discard.{row.id}"):
            with store.read() as connection:
                planned = deleting.of_work(connection, row.id)
            deleting.delete(store, planned)
            st.rerun()


def _finished(store: Store, row: GenerationRow) -> None:
    """What came of a generation that this session has seen at work."""
    found = report(store, row.id)
    if found.dataset is None:
        return
    _title(row, f"is written: {tables.count(found.kept)} of {tables.count(found.wanted)} attributes.")
    url.page_link("profiles", "Show the new profiles", icon=":material/group:", dataset=found.dataset)
    with st.expander("What was turned down, and what it cost"):
        counted = [(what, tables.count(count)) for what, count in found.turned_down()]
        tokens = f"{tables.count(found.prompt_tokens)} prompt, {tables.count(found.completion_tokens)} completion"
        costs = [] if found.cost is None else [("cost", f"{found.cost:,.2f}")]
        left_out = [("profiles left out: nothing could be kept", str(found.left_out))] if found.left_out else []
        safe.show(safe.facts([*counted, ("missing in the end", tables.count(found.missing)), *left_out]))
        safe.show(safe.facts([("tokens", tokens), *costs]))


# ---- the form


@dataclass(frozen=True)
class _Who:
    """What is asked for whoever writes it."""

    name: str
    profiles: int
    locale: str
    seed: int
    contexts: tuple[str, ...]


def _form(store: Store) -> None:
    how = st.segmented_control(
        "Who writes them?", [TEMPLATES, BY_MODEL, BY_SIMULATOR], default=TEMPLATES, key="new.how", required=True
    )
    with st.container(horizontal=True):
        name = st.text_input("Name of the new dataset", key="new.name", placeholder="my profiles", width=WIDE).strip()
        most = AT_ONCE if how == TEMPLATES else 1000
        profiles = st.number_input("Profiles", 1, most, 10, key=f"new.count.{how}", width=NARROW)
        locale = st.selectbox("Locale", LOCALES, LOCALES.index("en_US"), key="new.locale", help=_LOCALE, width=NARROW)
        seed = st.number_input("Seed", 0, value=0, key="new.seed", help=_SEED, width=NARROW)
        there = [file.name for file in packs.pack_files("contexts", store.workspace)]
        chosen = st.multiselect("Contexts", there, packs.CORE, key="new.contexts", format_func=safe.option, width=WIDE)
    who = _Who(name, int(profiles), str(locale), int(seed), tuple(chosen))
    if how == TEMPLATES:
        _from_templates(store, who)
    else:
        _by_model(store, who, simulator=how == BY_SIMULATOR)


def _from_templates(store: Store, who: _Who) -> None:
    with st.container(horizontal=True):
        per_domain = st.number_input(
            "Per domain", 1, 7, 5, key="new.templates.per_domain", help=_PER_DOMAIN, width=NARROW
        )
        events = st.number_input("Life events", 1, 12, 3, key="new.templates.events", width=NARROW)
    safe.inline(
        f"This comes to {tables.count(who.profiles)} profiles with about {tables.count(events * 9 * per_domain + 14)} "
        "attributes each, made at once. More than that: cimemories generate --offline.",
        muted=True,
    )
    if not st.button("Make the profiles", type="primary", icon=":material/person_add:", disabled=not who.name):
        return
    try:
        with st.spinner("Making the profiles"):
            row = generate_dataset(
                store,
                who.name,
                who.profiles,
                seed=who.seed,
                locale=who.locale,
                per_domain=per_domain,
                events=events,
                contexts=who.contexts,
            )
    except (StoreError, SeedError, ValueError) as problem:
        page.error("Nothing was made.", str(problem))
        return
    words = f"'{row.name}': {tables.count(row.profiles)} profiles, {tables.count(row.attributes)} attributes."
    st.session_state[_MADE] = (row.id, words)
    st.rerun()


_PER_DOMAIN = (
    "Attributes for each of the nine domains of each event; the paper asks a model for 7, the released data has 5"
)


def _by_model(store: Store, who: _Who, *, simulator: bool) -> None:
    base_url, key_env = SIMULATOR, DEFAULT_KEY_ENV
    price_in = price_out = 0.0
    timeout = 300
    if simulator:
        model = str(st.selectbox("Model", SIMULATED_MODELS, key="new.simulated", width=WIDE))
        st.caption("Answers follow docs/simulator.md. The dataset is marked as simulated wherever it appears.")
    else:
        with st.container(horizontal=True):
            model = st.text_input("Model", key="new.model", placeholder="openai/gpt-oss-120b", width=WIDE).strip()
            base_url = st.text_input("Base URL", value="http://localhost:8000/v1", key="new.url", width=WIDE).strip()
            key_env = st.text_input(
                "Variable that holds the key", value=DEFAULT_KEY_ENV, key="new.key", width=WIDE
            ).strip()
    with st.container(horizontal=True):
        per_domain = st.number_input("Per domain", 1, 20, 7, key="new.per_domain", help=_PER_DOMAIN, width=NARROW)
        events = st.number_input("Life events", 1, 31, 3, key="new.events", width=NARROW)
        general = st.number_input("General ones", 1, 50, 10, key="new.general", help=_GENERAL, width=NARROW)
        st.session_state.setdefault("new.max_tokens", 8192)
        max_tokens = st.number_input(
            "Token limit", 256, 131072, value=None, step=1024, key="new.max_tokens", width=NARROW,
            placeholder="the server's", help="Of one answer. Empty: no limit is sent, the server's own holds.",
        )  # fmt: skip
        temperature = st.number_input(
            "Temperature", 0.0, 2.0, value=None, step=0.1, placeholder="default", key="new.temperature", width=NARROW
        )
        if not simulator:
            timeout = st.number_input(
                "Patience in s", 1, 3600, 300, key="new.timeout", help="Doubled by each retry", width=NARROW
            )
            price_in = st.number_input("Price in", 0.0, value=0.0, key="new.price_in", help=_PRICE_IN, width=NARROW)
            price_out = st.number_input("Price out", 0.0, value=0.0, key="new.price_out", help=_PRICE_OUT, width=NARROW)
    spec = AuthoringSpec(
        name=who.name,
        profiles=who.profiles,
        model=model,
        base_url=base_url,
        seed=who.seed,
        locale=who.locale,
        per_domain=per_domain,
        events=events,
        general=general,
        contexts=who.contexts,
        api_key_env=key_env or DEFAULT_KEY_ENV,
        temperature=temperature,
        max_tokens=max_tokens,
        timeout=float(timeout),
        price_in=price_in,
        price_out=price_out,
    )
    safe.inline(
        f"This comes to {estimate(spec).words(price_in, price_out)}. It can be cancelled and resumed at any time.",
        muted=True,
    )
    ready = bool(who.name and model and base_url)
    if st.button("Start writing", type="primary", icon=":material/play_arrow:", disabled=not ready):
        _start(store, spec)


def _start(store: Store, spec: AuthoringSpec) -> None:
    try:
        with st.spinner("Asking the server and drawing the people"):
            generation_id = authoring.plan(store, spec)
    except (EndpointError, StoreError, SeedError, SimulatorError) as problem:
        page.error("Nothing was started.", str(problem))
        return
    st.session_state[_WATCHED].add(generation_id)
    _launch(store, generation_id)


def _launch(store: Store, generation_id: str) -> None:
    try:
        launch.launch(store, generation_id)
    except StoreError as problem:
        page.error("The worker was not started.", str(problem))
        return
    st.rerun()
