"""Home: what the app is, the state of each room with one next step, and where the user left off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import streamlit as st

from cimemories.answers import lists
from cimemories.answers.lists import Contents
from cimemories.compare.difference import takeaway
from cimemories.compare.leaderboard import MANY, MOST_UNCHOSEN, leaderboard, scopes_of_rows
from cimemories.flows.catalogue import last_review
from cimemories.flows.flows import shared_flows
from cimemories.flows.progress import ACTIVE
from cimemories.flows.scope import BEHIND, is_behind
from cimemories.model import WorkStatus
from cimemories.review.assignments import UNITS, assigned_to
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.runs import RunRow
from cimemories.text import Parts, count, percent
from cimemories.ui import annotator, answers, page, safe, url

DEMO = "demo"
NEXT = ":material/arrow_forward:"
WHAT = (
    "Measures how much of what an assistant remembers about a user it tells the wrong people (Violation@n, lower is "
    "better) and how much of what a task needs it tells the right ones (completeness, higher is better)."
)
MOST_JUDGEMENTS = 8_000_000  # three seconds, once after a start; above, Home does not rank
ENDED_EARLY = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED, WorkStatus.PAUSED)


@dataclass(frozen=True)
class Next:
    """The state of a room, and the next step there: the label of a link, its page, and its parameters."""

    state: str
    label: str
    page: str
    params: Mapping[str, url.Value]
    simulated: Parts = False


def main() -> None:
    store = shared_store()
    here = lists.contents(store)
    page.head("CIMemories Studio", WHAT)
    if not here.datasets:
        page.empty(
            "No datasets yet",
            "A dataset holds profiles (synthetic users with their memories) and the contexts they are tested in. "
            "On the Profiles page you import the authors' JSON file, or create new profiles from templates.",
            lambda: url.page_link("profiles", "Import a file", icon=":material/upload_file:"),
        )
        return
    _assigned(store)
    if st.button("Evaluate my model", type="primary", icon=":material/play_circle:", key="show.home.evaluate"):
        url.go("runs", tab="new")
    explore, ranked = _explore(here)
    for name, room in (("Curate", _curate(here)), ("Evaluate", _evaluate(here)), ("Explore", explore)):
        with st.container(border=True):
            title, state, action = st.columns([2, 8, 3], vertical_alignment="center")
            with title:
                safe.heading(name)
            with action:
                url.page_link(room.page, room.label, icon=NEXT, **room.params)
        if room is not explore or not ranked:
            with state:
                _state(room)
    _continue(store, here.runs)
    if all(DEMO in (row.origin, row.name) for row in here.datasets):
        _tour(here)

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
    if ranked:
        # Last, so that nothing else waits for it: it takes a second the first time, and more on a busy machine.
        with state, st.spinner("Ranking the runs", show_time=True):
            try:
                flows = shared_flows(store)
                scopes = scopes_of_rows(store, ranked)
                board = leaderboard(flows, scopes, warned=False)
                behind = f" {BEHIND}" if len(scopes) > MANY and is_behind(store, scopes[0]) else ""
                text = f"{takeaway(flows, board)}{behind}"
                explore = replace(explore, state=f"{explore.state} {text}", simulated=board.simulated)
            except StoreError as problem:
                explore = replace(explore, state=f"{explore.state} They could not be ranked: {problem}")
        with state:
            _state(explore)


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


def _state(room: Next) -> None:
    badge = (" ", page.simulated_badge(room.simulated)) if room.simulated else ()
    safe.show(safe.tag("div", safe.folded(room.state), *badge, cls="ci-line"))


def _curate(here: Contents) -> Next:
    unlabelled = [row for row in here.datasets if not any(item.dataset == row.id for item in here.labellings)]
    newest = here.datasets[-1]
    active = [row for row in here.labellings if row.status in ACTIVE]
    if active:
        text = f"A labelling by {active[-1].model} is {active[-1].status}."
        return Next(text, "Watch the labelling", "labels", {"dataset": active[-1].dataset})
    if unlabelled:
        text = f"The dataset '{unlabelled[-1].name}' has no labels yet. Have personas vote on its pairs."
        return Next(text, "Label this dataset", "labels", {"dataset": unlabelled[-1].id})
    sizes = f"{count(newest.profiles, 'profile')}, {count(newest.contexts, 'context')}"
    more = f" of {count(len(here.datasets), 'dataset')}, the newest" if len(here.datasets) > 1 else ""
    text = f"'{newest.name}'{more}: {sizes}, labelled. People's decisions override the votes of models."
    return Next(text, "Review labels", "review", {"dataset": newest.id})


def _evaluate(here: Contents) -> Next:
    active = [row for row in here.runs if row.status in ACTIVE]
    stopped = [row for row in here.runs if row.status in ENDED_EARLY]
    incomplete = [row for row in here.runs if row.status == WorkStatus.FINISHED_WITH_FAILURES]
    number = count(len(here.runs), "run")
    if active:
        run, others = active[-1], f", and {count(len(active) - 1, 'other run')}" if len(active) > 1 else ""
        text = f"{number}. '{run.name}' is {run.status}{others}: {percent(run.coverage)} judged."
        return Next(text, "Watch the run", "runs", {"run": run.id})
    if stopped:
        text = f"{number}. '{stopped[-1].name}' stopped early ({stopped[-1].status}). You can resume it."
        return Next(text, "Go to the run", "runs", {"run": stopped[-1].id})
    if incomplete:
        run = incomplete[-1]
        missing, expected = count(run.expected - run.judged), count(run.expected, "message")
        text = f"{number}. '{run.name}' finished with failures: {missing} of {expected} lack a judgement."
        return Next(text, "See what is missing", "runs", {"run": run.id})
    if not here.runs:
        text = "No runs yet. In a run, a model writes messages, and a judge says what each one reveals."
        return Next(text, "Start a run", "runs", {"tab": "new"})
    return Next(f"{number}, all finished.", "Compare prompts in a sweep", "runs", {"tab": "sweeps"})


def _explore(here: Contents) -> tuple[Next, list[RunRow]]:
    """Return the state of Explore without a ranking, and the runs to rank: none if ranking is of no use or takes too
    long."""
    judged = [run for run in here.runs if run.judged]
    if not judged:
        return Next("Nothing to see until a run is judged.", "Go to Runs", "runs", {}), []
    counts = {row.id: sum(run.dataset == row.id for run in judged) for row in here.datasets}
    dataset = max(here.datasets, key=lambda row: (counts[row.id], row.id))
    runs = [run for run in judged if run.dataset == dataset.id]
    if len(runs) < 2:
        run = judged[-1]
        text = f"The newest judged run is '{run.name}'. See which domains leak to whom."
        return Next(text, "Open the heatmap", "heatmaps", {"dataset": run.dataset, "run": run.id}), []
    text = f"{len(runs)} runs of the dataset '{dataset.name}' are judged."
    judgements = sum(run.judged for run in runs) * dataset.attributes / max(dataset.profiles, 1)
    room = Next(text, "Compare the runs", "compare", {"dataset": dataset.id})
    return room, runs if judgements <= MOST_JUDGEMENTS and len(runs) <= MOST_UNCHOSEN else []


def _tour(here: Contents) -> None:
    run = here.runs[-1] if here.runs else None
    run_id = run.id if run else None
    # The demo's next version has neither labels nor runs: the tour stays with the version that has them.
    dataset_id = next((row.id for row in here.datasets if run and row.id == run.dataset), here.datasets[-1].id)
    st.subheader("Three things to try with the demo", anchor=False)
    with st.container(horizontal=True):
        url.page_link("leaks", "See a leak", icon=NEXT, dataset=dataset_id, run=run_id)
        url.page_link("review", "Decide a label", icon=NEXT, dataset=dataset_id)
        presented = {"dataset": dataset_id, "run": run_id, "present": 0 if run else None}
        url.page_link("accumulation", "Watch leaks accumulate", icon=NEXT, **presented)


def _continue(store: Store, runs: list[RunRow]) -> None:
    """Draw links to the pair reviewed last and the run viewed last. Before the user has given a name, the pair is the
    one that any person reviewed last."""
    me = annotator.name()
    last = last_review(store, me or None)
    viewed = next((run for run in runs if run.id == url.remembered("run")), None)
    if last is None and viewed is None:
        return
    st.subheader("Continue where you left off", anchor=False)
    columns = iter(st.columns(2))
    if last is not None:
        with next(columns), st.container(border=True):
            pair = {"attribute": last.decision.attribute, "context": last.decision.context}
            who = "You" if me else last.decision.annotator
            safe.inline(f"{who} last reviewed “{last.statement}” for {last.recipient}.")
            url.page_link("review", "Continue reviewing", icon=NEXT, dataset=last.dataset, **pair)
    if viewed is not None:
        with next(columns), st.container(border=True):
            badge = (" ", page.simulated_badge()) if viewed.simulated else ()
            state = f": {viewed.status}, {count(viewed.judged)} of {count(viewed.expected, 'message')} judged."
            safe.show(safe.tag("div", f"You last viewed the run '{viewed.name}'", *badge, state, cls="ci-line"))
            url.page_link("runs", "Open the run", icon=NEXT, run=viewed.id)


main()
