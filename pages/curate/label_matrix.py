"""Part of the Labels page: the matrix of a profile, and its counts as tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from cimemories import launch
from cimemories.curation import labelling
from cimemories.curation.labelling import LabellingSpec
from cimemories.flows.progress import in_words
from cimemories.labels.matrix import Differs, Matrix, MatrixView, view
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, EndpointError
from cimemories.llm.worker import SIMULATOR
from cimemories.model import Label, Profile, WorkStatus
from cimemories.seeds.packs import DEFAULTS, pack_files, persona_pack
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store import labellings, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import matrix, page, safe, tables, url
from pages.curate.profile_view import words
from pages.start import database_lost

# ---- label filters
#
# Part of the Labels page: which pairs are looked at. Everything that is chosen stands in the URL.


UNLABELLED = "unlabelled"
NO_SPHERE = "none"
KINDS = (*map(str, Label), UNLABELLED)
DIFFERS = {
    Differs.DISSENT: "any persona dissents",
    Differs.DECIDED: "decided by a person",
    Differs.CHANGED: "decision differs from consensus",
}


@dataclass(frozen=True)
class Filters:
    """What is asked for; None and an empty tuple mean all. sphere '' are the contexts without one."""

    domain: str | None
    event: str | None
    sphere: str | None
    kinds: tuple[str, ...]
    differs: Differs | None

    @property
    def labels(self) -> tuple[Label | None, ...]:
        return tuple(None if kind == UNLABELLED else Label(kind) for kind in self.kinds)

    @property
    def any(self) -> bool:
        return any((self.domain, self.event, self.sphere is not None, self.kinds, self.differs))


def word(label: Label | None) -> str:
    """A label as its kind in filters and counts."""
    return UNLABELLED if label is None else str(label)


def draw_filters(profile: Profile, counts: Mapping[str, int], *, spheres: bool) -> Filters:
    """The filters; `counts` of pairs by kind stand on the labels. Without `spheres` none can be chosen. The lists are
    folded away under a button that says what is chosen: the browser takes longer for them than for the matrix."""
    left, right = st.columns([7, 4], vertical_alignment="bottom")
    with left:
        kinds = _kinds(counts)
    above = st.container()
    sphere = None
    with (
        right,
        st.popover(
            safe.plain_label(_said(spheres), 60), icon=":material/filter_alt:", key="labels.filter", width="stretch"
        ),
    ):
        domain = choice(
            "Domain", "domain", sorted({a.domain for a in profile.attributes}), words, "all domains", above=above
        )
        events = list(dict.fromkeys(a.event for a in profile.attributes))
        event = choice("Event", "event", events, words, "all events", above=above)
        if spheres:
            there = list(dict.fromkeys(c.sphere or NO_SPHERE for c in profile.contexts))
            sphere = choice("Sphere", "sphere", there, _sphere, "all spheres", above=above)
        differs = choice(
            "Disagreement",
            "differs",
            list(map(str, Differs)),
            lambda d: DIFFERS[Differs(d)],
            "all pairs",
            above=above,
        )
    return Filters(
        domain, event, "" if sphere == NO_SPHERE else sphere, tuple(kinds), Differs(differs) if differs else None
    )


def _said(spheres: bool) -> str:
    """What the button says: what is asked for, or that all pairs are."""
    chosen = [words(asked) for name in ("domain", "event") if (asked := url.get(name))]
    if spheres and (asked := url.get("sphere")):
        chosen.append(_sphere(asked))
    if (asked := url.get("differs")) in set(Differs):
        chosen.append(DIFFERS[Differs(asked)])
    return ", ".join(chosen) or "All domains, events and spheres"


def clear() -> None:
    """Ask for everything again."""
    url.put(domain=None, event=None, sphere=None, label=None, differs=None)


def _sphere(name: str) -> str:
    return "without a sphere" if name == NO_SPHERE else words(name)


def _kinds(counts: Mapping[str, int]) -> Sequence[str]:
    key = "labels.kinds"
    chosen = [kind for kind in (url.get("label") or "").split(",") if kind in KINDS]
    st.session_state[key] = chosen
    return st.pills(
        "Effective label",
        [kind for kind in KINDS if counts.get(kind) or kind in chosen],
        selection_mode="multi",
        format_func=lambda kind: f"{kind} ({count(counts.get(kind, 0))})",
        key=key,
        on_change=lambda: url.put(label=",".join(st.session_state[key]) or None),
    )


def choice(
    label: str,
    param: str,
    options: Sequence[str],
    said: Callable[[str], str],
    everything: str | None,
    *,
    above: Any = None,
) -> str | None:
    """A selectbox bound to a URL parameter, whose first option is everything, worded `everything`; without such words
    the first of the options is what holds where none is chosen. What the link asks for and is not here is said, and
    left out. Returns None where all are asked for. `label` must be a literal. above: the container for what is said of
    the link; None: where the list is."""
    key = f"filters.{param}"
    asked = url.get(param)
    if asked is not None and asked not in options:
        with above or st.container():
            page.notice(f"{label} '{safe.option(asked, 40)}' is not here: all are shown.")
        url.put(**{param: None})
        asked = None
    st.session_state[key] = asked or ("" if everything else options[0])
    st.selectbox(
        label,
        ["", *options] if everything else options,
        format_func=lambda name: safe.option(said(name)) if name else everything or "",
        key=key,
        on_change=lambda: url.put(**{param: st.session_state[key] or None}),
    )
    return asked


# ---- labelling work
#
# Part of the Labels page: a labelling is started, watched, stopped and resumed.


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
            f"{row.id}, {row.status}: {count(done)} of {count(row.expected)} ballots, "
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
            f"This labelling is {row.status}: {count(owed)} of {count(row.expected)} ballots missing.",
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
        said = "; ".join(f"{count(n)} {status}{f' ({cause})' if cause else ''}" for status, cause, n in causes[:5])
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
            labelling_id = labelling.plan(store, spec)
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


# ---- label matrix


PIXELS_ABOVE, PIXELS_OF_MATCHES = 376, 46  # of the page around the matrix, and of the line on what matches
COUNTS = {"necessary": "count", "inappropriate": "count", "ambiguous": "count"}


def draw(found: Matrix, seen: MatrixView, filters: Filters) -> tuple[int, int] | None:
    """The matrix; returns the (attribute, context) that its cursor is on, None where no cell is left."""
    if not seen.rows or not seen.columns:
        page.notice("No attribute or context is left by these filters. Clear them to see all.")
        return None
    shown = _drawing(found, seen, PIXELS_ABOVE + (PIXELS_OF_MATCHES if filters.any else 0))
    attributes, contexts = [row.id for row in shown.rows], [column.id for column in shown.columns]
    asked = url.get_int("attribute"), url.get_int("context") or _number(url.remembered("context"))
    if asked[0] is not None and asked[0] not in found.record.attribute_ids:
        page.notice(f"Attribute {asked[0]} of the link is none of this profile's. Choose a cell.")
        url.put(attribute=None)
    cursor = (
        asked[0] if asked[0] in attributes else attributes[0],
        asked[1] if asked[1] in contexts else contexts[0],
    )
    moved = matrix.matrix(shown, key="labels.matrix", cursor=cursor)
    if moved and moved.attribute in attributes and moved.context in contexts:
        url.put(attribute=moved.attribute, context=moved.context)
        return moved.attribute, moved.context
    return cursor


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _drawing(found: Matrix, seen: MatrixView, above: int) -> matrix.Drawing:
    profile = found.record.profile
    by_attribute, by_context = found.attribute_counts.tolist(), found.context_counts.tolist()
    retained = found.retained.tolist()
    return matrix.Drawing(
        title=f"Labels of {profile.name}, attributes by contexts. The arrow keys move from pair to pair.",
        rows=[
            matrix.Row(
                found.record.attribute_ids[i],
                profile.attributes[i].key,
                safe.clip(profile.attributes[i].statement, safe.FOLD),
                tuple(by_attribute[i]),
            )
            for i in seen.rows
        ],
        columns=[
            matrix.Column(
                found.record.context_ids[j],
                profile.contexts[j].recipient,
                profile.contexts[j].task,
                tuple(by_context[j]),
                retained[j],
            )
            for j in seen.columns
        ],
        blocks=[matrix.Span(words(b.name), words(b.note), b.start, b.end, b.counts) for b in seen.blocks],
        spheres=[matrix.Span(words(s.name), "", s.start, s.end, s.counts) for s in seen.spheres],
        cells=seen.cells,
        consensus=seen.consensus,
        decided=seen.decided,
        asked=seen.asked,
        above=above,
    )


def said(seen: MatrixView, found: Matrix, filters: Filters) -> str:
    """What the filters leave, in words."""
    total = found.effective.size
    hidden = len(found.record.attribute_ids) - len(seen.rows), len(found.record.context_ids) - len(seen.columns)
    parts = [f"{count(seen.matching)} of {count(total)} pairs match"]
    if any(hidden):
        parts.append(f"{hidden[0]} attributes and {hidden[1]} contexts are left out")
    if filters.kinds or filters.differs:
        parts.append("the others are dimmed; n and p go to the next and the previous match")
    return "; ".join(parts) + "."


def takeaway(found: Matrix) -> str:
    """The matrix in one sentence."""
    totals = found.totals
    kept, contexts = int(found.retained.sum()), len(found.record.context_ids)
    parts = [f"{count(totals[kind])} {kind}" for kind in Label]
    if totals[None]:
        parts.append(f"{count(totals[None])} not labelled")
    decided = int(found.decided.sum())
    people = f"; {count(decided)} decided by people" if decided else ""
    return (
        f"{safe.option(found.record.profile.name, 60)}: {', '.join(parts)} of {count(found.effective.size)} "
        f"pairs; {kept} of {contexts} contexts retained{people}."
    )


def counts(found: Matrix) -> None:
    """The counts of every context and attribute, and the whole matrix to take along."""
    profile = found.record.profile
    retained = found.retained.tolist()
    contexts = pd.DataFrame(found.context_counts.tolist(), columns=list(COUNTS))
    contexts.insert(0, "recipient", [c.recipient for c in profile.contexts])
    contexts.insert(1, "task", [c.task for c in profile.contexts])
    contexts.insert(2, "sphere", [words(c.sphere or "") for c in profile.contexts])
    contexts["retained"] = ["retained" if kept else "discarded" for kept in retained]
    attributes = pd.DataFrame(found.attribute_counts.tolist(), columns=list(COUNTS))
    attributes.insert(0, "attribute", [a.key for a in profile.attributes])
    attributes.insert(1, "statement", [a.statement for a in profile.attributes])
    attributes.insert(2, "domain", [words(a.domain) for a in profile.attributes])
    attributes.insert(3, "event", [words(a.event) for a in profile.attributes])
    left, right = st.columns(2, gap="large")
    with left:
        dropped = len(retained) - sum(retained)
        safe.heading(f"{len(retained)} contexts, {dropped} of them discarded")
        safe.inline("A context is retained where an attribute is necessary and another inappropriate.", muted=True)
        tables.table(
            contexts,
            key="labels.counts.contexts",
            columns={
                "retained": "text",
                "recipient": "text",
                **dict.fromkeys(COUNTS, "count"),
                "task": "wide",
                "sphere": "text",
            },
            height=560,
            alt="Contexts of the profile with how many attributes are necessary, inappropriate and ambiguous there",
        )
        tables.csv_button(contexts, "contexts.csv", key="labels.csv.contexts")
    with right:
        safe.heading(f"{len(attributes)} attributes")
        safe.inline("In how many contexts each is necessary, inappropriate and ambiguous.", muted=True)
        tables.table(
            attributes,
            key="labels.counts.attributes",
            columns={
                "attribute": "text",
                **dict.fromkeys(COUNTS, "count"),
                "domain": "text",
                "event": "text",
                "statement": "wide",
            },
            height=560,
            alt="Attributes of the profile with in how many contexts each is necessary, inappropriate and ambiguous",
        )
        tables.csv_button(attributes, "attributes.csv", key="labels.csv.attributes")
    tables.csv_button(_pairs(found), "pairs.csv", label="Download all pairs as CSV", key="labels.csv.pairs")


def _pairs(found: Matrix) -> pd.DataFrame:
    """Every pair with its labels, one row each."""
    everything = view(found)
    profile = found.record.profile
    names = {"N": str(Label.NECESSARY), "X": str(Label.INAPPROPRIATE), "?": str(Label.AMBIGUOUS), "-": ""}
    cells = zip(everything.cells, everything.consensus, everything.decided, strict=True)
    pairs = [(profile.attributes[i], profile.contexts[j]) for i in everything.rows for j in everything.columns]
    return pd.DataFrame(
        [
            (a.key, a.domain, a.event, c.recipient, c.task, names[label], names[consensus], decided == "1")
            for (a, c), (label, consensus, decided) in zip(pairs, cells, strict=True)
        ],
        columns=["attribute", "domain", "event", "recipient", "task", "label", "consensus", "decided"],
    )
