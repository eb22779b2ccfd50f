"""Home: one leak and the numbers of the newest run, what to do next in each room, and where the user left off."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import streamlit as st

from cimemories.answers import lists
from cimemories.answers.lists import Contents
from cimemories.answers.overview import overview
from cimemories.flows.catalogue import last_review
from cimemories.flows.flows import shared_flows
from cimemories.flows.progress import ACTIVE
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.warnings import is_covered
from cimemories.model import ResponseStatus, WorkStatus
from cimemories.review.assignments import UNITS, assigned_to
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.runs import RunRow
from cimemories.text import CELL_LIMIT, count, percent, sentence, shortened
from cimemories.ui import annotator, answers, once, page, safe, url
from cimemories.ui.safe import Html, tag
from pages.start import home_picture
from pages.start.home_picture import NEXT

WHAT = (
    "Assistants that remember you can tell the wrong person. This measures how often, and whether the job still gets "
    "done."
)
MOST_JUDGEMENTS = 8_000_000  # three seconds, once after a start; a larger run is not counted unasked
ENDED_EARLY = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED, WorkStatus.PAUSED)
PREPARING = "home.demo"
CURES: Mapping[str, str] = {  # by the status of what is missing
    ResponseStatus.OWED: "Retry the calls that are left.",
    ResponseStatus.FAILED: "Retry the failed calls.",
    ResponseStatus.TRUNCATED: "Most were cut at the token limit: run it again with a higher one.",
    ResponseStatus.REFUSED: "The server refused most of them: its settings or another model may help.",
}


@dataclass(frozen=True)
class Next:
    """The state of a room, and the next step there: the label of a link, its page, and its parameters."""

    state: Html
    label: str
    page: str
    params: Mapping[str, url.Value]


def main() -> None:
    store = shared_store()
    page.head("CIMemories Studio", WHAT)
    if once.under_way(PREPARING, lambda _: None, key=PREPARING):
        return
    here = lists.contents(store)
    if not here.datasets:
        home_picture.example()
        _begin(store)
        return
    _assigned(store)
    shown = _shown(here)
    top = st.container(key="home_top" if shown else "home_nothing")
    if shown is None:
        with top:
            home_picture.example()
    with st.container(horizontal=True, vertical_alignment="center", key="home_next"):
        st.subheader("What to do next", anchor=False)
        if st.button("Evaluate my model", type="primary", icon=":material/play_circle:", key="show.home.evaluate"):
            url.go("runs", tab="new")
    rooms = {"Curate": _curate(here), "Evaluate": _evaluate(here), "Explore": _explore(here)}
    for column, (name, room) in zip(st.columns(3), rooms.items(), strict=True):
        with column, st.container(border=True, key=f"home_{name.lower()}"):
            safe.show(safe.lines([tag("h3", name, cls="ci-heading"), room.state], "ci-line"))
            url.page_link(room.page, room.label, icon=NEXT, **room.params)
    _continue(store, here.runs)

    def datasets() -> None:
        chosen = answers.twin(lists.datasets(here), "home.datasets", on_select="row")
        if chosen is not None:
            url.go("profiles", dataset=here.datasets[chosen].id)
        url.page_link("profiles", "Import a file", icon=":material/upload_file:")

    def runs() -> None:
        rows = here.runs[::-1]
        chosen = answers.twin(lists.runs(rows, here.dataset_names), "home.runs", on_select="row")
        if chosen is not None:
            url.go("heatmaps", dataset=rows[chosen].dataset, run=rows[chosen].id)

    page.fold("All datasets", ":material/table:", "home.box.datasets", datasets)
    if here.runs:
        page.fold("All runs", ":material/table:", "home.box.runs", runs)
    if shown is not None:
        # Last, so that nothing waits for it: it takes half a second the first time.
        with top, page.Reporting("The newest run cannot be shown.", StoreError), st.spinner("Reading the newest run"):
            scope = resolve_scope(store, shown.id)
            home_picture.draw(scope, overview(shared_flows(store), scope))


def _shown(here: Contents) -> RunRow | None:
    """Return the newest finished run; one that lacks messages only if there is no other."""
    sizes = {row.id: row.attributes / max(row.profiles, 1) for row in here.datasets}
    ended = [run for run in here.runs if run.judged and run.status.is_finished]
    fits = [run for run in ended if run.judged * sizes[run.dataset] <= MOST_JUDGEMENTS]
    covered = [run for run in fits if is_covered(run.judged, run.expected)]
    return next(reversed(covered or fits), None)


def _begin(store: Store) -> None:
    """Draw the three ways to begin."""

    def prepare(report: once.Report) -> None:
        from cimemories import demo  # takes seconds

        with suppress(once.StoppedError):  # the next start of the app finishes it
            demo.prepare(store, lambda text: report(None, sentence(text)))

    st.subheader("Three ways to begin", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        begin = partial(once.begin, PREPARING, prepare)
        once.button("Open the demo", begin, key=PREPARING, type="primary", icon=":material/play_circle:")
        url.page_link("profiles", "Import a file", icon=":material/upload_file:")
        url.page_link("profiles", "Create profiles", icon=":material/person_add:")


def _assigned(store: Store) -> None:
    """Draw the open assignments of the user, with the link to the next item."""
    me = annotator.name()
    for number, item in enumerate(assigned_to(store, me) if me else []):
        with st.container(border=True):
            text, action = st.columns([10, 3], vertical_alignment="center")
            with text:
                safe.inline(f"You are assigned {item.sentence}.")
            with action:
                unit = UNITS[item.of.kind]
                label = f"Your next {unit}" if number == 0 else f"Next {unit} of this slice"
                where, query = item.place
                url.page_link(where, safe.plain_label(label), icon=NEXT, **query)


def _text(words: str, *names: object) -> Html:
    """Return words with these names in place of {}, each of its own direction."""
    start, *others = words.split("{}")
    filled = zip((tag("span", shortened(name, CELL_LIMIT), data=True) for name in names), others, strict=True)
    return safe.join([start, *(part for pair in filled for part in pair)])


def _curate(here: Contents) -> Next:
    unlabelled = [row for row in here.datasets if not any(item.dataset == row.id for item in here.labellings)]
    newest = here.datasets[-1]
    active = [row for row in here.labellings if row.status in ACTIVE]
    if active:
        row = active[-1]
        text = _text(f"A labelling by {{}} is {row.status}.", row.model)
        return Next(text, "Watch the labelling", "labels", {"dataset": row.dataset})
    if unlabelled:
        text = _text("The dataset '{}' has no labels yet. Have personas vote on its pairs.", unlabelled[-1].name)
        return Next(text, "Label this dataset", "labels", {"dataset": unlabelled[-1].id})
    sizes = f"{count(newest.profiles, 'profile')}, {count(newest.contexts, 'context')}"
    more = f" of {count(len(here.datasets), 'dataset')}, the newest" if len(here.datasets) > 1 else ""
    text = _text(f"'{{}}'{more}: {sizes}, labelled. People's decisions override the votes of models.", newest.name)
    return Next(text, "Review labels", "review", {"dataset": newest.id})


def _evaluate(here: Contents) -> Next:
    active = [row for row in here.runs if row.status in ACTIVE]
    stopped = [row for row in here.runs if row.status in ENDED_EARLY]
    incomplete = [row for row in here.runs if row.status == WorkStatus.FINISHED_WITH_FAILURES]
    number = count(len(here.runs), "run")
    if active:
        run, others = active[-1], f", and {count(len(active) - 1, 'other run')}" if len(active) > 1 else ""
        text = _text(f"{number}. '{{}}' is {run.status}{others}: {percent(run.coverage)} judged.", run.name)
        return Next(text, "Watch the run", "runs", {"run": run.id})
    if stopped:
        run = stopped[-1]
        text = _text(f"{number}. '{{}}' stopped early ({run.status}). You can resume it.", run.name)
        return Next(text, "Go to the run", "runs", {"run": run.id})
    if incomplete:
        run = incomplete[-1]
        missing, expected = count(run.expected - run.judged), count(run.expected, "message")
        text = _text(f"{number}. '{{}}' lacks {missing} of {expected}. {_cure(run)}", run.name)
        return Next(text, "See what is missing", "runs", {"run": run.id})
    if not here.runs:
        text = _text("No runs yet. In a run, a model writes messages, and a judge says what each one reveals.")
        return Next(text, "Start a run", "runs", {"tab": "new"})
    return Next(_text(f"{number}, all finished."), "Compare prompts in a sweep", "runs", {"tab": "sweeps"})


def _cure(run: RunRow) -> str:
    """Return what helps against most of what a run lacks."""
    written = run.responses.get(ResponseStatus.OK, 0) == run.expected
    counts = run.judgements if written else run.responses
    lacking = {status: number for status, number in counts.items() if status != ResponseStatus.OK}
    return CURES.get(max(lacking, key=lacking.__getitem__, default=""), "Its page says why.")


def _explore(here: Contents) -> Next:
    judged = [run for run in here.runs if run.judged]
    if not judged:
        return Next(_text("Nothing to see until a run is judged."), "Go to Runs", "runs", {})
    counts = {row.id: sum(run.dataset == row.id for run in judged) for row in here.datasets}
    dataset = max(here.datasets, key=lambda row: (counts[row.id], row.id))
    if counts[dataset.id] < 2:
        run = judged[-1]
        text = _text("The newest judged run is '{}'. See which domains leak to whom.", run.name)
        return Next(text, "Open the heatmap", "heatmaps", {"dataset": run.dataset, "run": run.id})
    runs = count(counts[dataset.id], "run")
    text = _text(f"{runs} of '{{}}' are judged. See which leaks less, and which does the job.", dataset.name)
    return Next(text, "Compare the runs", "compare", {"dataset": dataset.id})


def _continue(store: Store, runs: list[RunRow]) -> None:
    """Draw links to the pair that the user reviewed last and the run that they viewed last."""
    me = annotator.name()
    last = last_review(store, me) if me else None
    viewed = next((run for run in runs if run.id == url.remembered("run")), None)
    if last is None and viewed is None:
        return
    st.subheader("Continue where you left off", anchor=False)
    columns = iter(st.columns(2))
    if last is not None:
        with next(columns), st.container(border=True):
            pair = {"attribute": last.decision.attribute, "context": last.decision.context}
            said = _text("You last reviewed “{}” for {}.", last.statement, last.recipient)
            safe.show(tag("div", said, cls="ci-line"))
            url.page_link("review", "Continue reviewing", icon=NEXT, dataset=last.dataset, **pair)
    if viewed is not None:
        with next(columns), st.container(border=True):
            badge = (" ", page.simulated_badge()) if viewed.simulated else ()
            state = f": {viewed.status}, {count(viewed.judged)} of {count(viewed.expected, 'message')} judged."
            safe.show(safe.tag("div", _text("You last viewed the run '{}'", viewed.name), *badge, state, cls="ci-line"))
            url.page_link("runs", "Open the run", icon=NEXT, run=viewed.id)


main()
