"""Home: what the workspace holds, what to do next, where this person left off, and the first of the leaderboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from cimemories.flows.catalogue import Contents, contents, last_review
from cimemories.model import WorkStatus
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Newest
from cimemories.store.engine import Store, shared_store
from cimemories.store.runs import RunRow
from cimemories.text import count
from cimemories.ui import annotator, page, safe, tables, url
from pages.start import home_leaders

DEMO = "demo"
NEXT = ":material/arrow_forward:"


def main() -> None:
    store = shared_store()
    here = contents(store)
    statuses = [row.status for row in here.labellings] + [row.status for row in here.runs]
    active = sum(status in (WorkStatus.RUNNING, WorkStatus.QUEUED) for status in statuses)
    if not here.datasets:
        page.head("CIMemories Studio", "This workspace is empty.")
        page.empty(
            "No datasets yet",
            "A dataset holds profiles (synthetic users with their memories) and the contexts they are tested in. "
            "Import the authors' JSON file on the Profiles page, or create a dataset with `cimemories generate`.",
            lambda: url.page_link("profiles", "Import a file", icon=":material/upload_file:"),
        )
        return
    sizes = f"{count(len(here.datasets), 'dataset')} and {count(len(here.runs), 'run')}"
    page.head("CIMemories Studio", f"{sizes}. {active or 'Nothing'} {'are' if active > 1 else 'is'} running.")
    if all(DEMO in (row.origin, row.name) for row in here.datasets):
        _tour(here)
    else:
        _next_steps(here)
    _continue(store, here.runs)
    st.subheader("Datasets", anchor=False)
    _datasets(here)
    url.page_link("profiles", "Import a file", icon=":material/upload_file:")
    st.subheader("Runs", anchor=False)
    if here.runs:
        _runs(here.runs[::-1], {row.id: row.name for row in here.datasets})
        home_leaders.draw(store, here)
    else:
        page.empty(
            "No runs yet",
            "A run has a model write messages for every profile and context, and a judge find what each one reveals.",
            lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:", dataset=here.datasets[-1].id),
        )


def _tour(here: Contents) -> None:
    run = here.runs[-1] if here.runs else None
    run_id = run.id if run else None
    # The demo's next version has neither labels nor runs: the tour stays with the version that has.
    dataset_id = next((row.id for row in here.datasets if run and row.id == run.dataset), here.datasets[-1].id)
    st.subheader("Three things to try with the demo", anchor=False)
    steps = st.columns(3)
    with steps[0], st.container(border=True):
        st.text("1. Read a message that says too much, with its leaks marked.")
        url.page_link("leaks", "See a leak", icon=NEXT, dataset=dataset_id, run=run_id)
    with steps[1], st.container(border=True):
        st.text("2. See how three personas voted on a pair, then decide its label yourself.")
        url.page_link("review", "Decide a label", icon=NEXT, dataset=dataset_id)
    with steps[2], st.container(border=True):
        st.text("3. Watch leaks accumulate over one user's tasks. Use the arrow keys to step through them.")
        url.page_link(
            "accumulation",
            "Watch them accumulate",
            icon=NEXT,
            dataset=dataset_id,
            run=run_id,
            present=0 if run else None,
        )


def _next_steps(here: Contents) -> None:
    st.subheader("Next steps", anchor=False)
    unlabelled = [row for row in here.datasets if not any(item.dataset == row.id for item in here.labellings)]
    ended_early = (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)
    stopped = [row for row in here.runs if row.status in ended_early]
    incomplete = [row for row in here.runs if row.status == WorkStatus.FINISHED_WITH_FAILURES]
    if unlabelled:
        safe.inline(f"The dataset '{unlabelled[-1].name}' has no labels yet. Have personas vote on its pairs.")
        url.page_link("labels", "Start a labelling", icon=NEXT, dataset=unlabelled[-1].id)
    if stopped:
        safe.inline(f"The run '{stopped[-1].name}' stopped early ({stopped[-1].status}). You can resume it.")
        url.page_link("runs", "Go to the run", icon=NEXT, run=stopped[-1].id)
    elif incomplete:
        run = incomplete[-1]
        missing, expected = count(run.expected - run.judged), count(run.expected)
        safe.inline(f"The run '{run.name}' finished with failures: {missing} of {expected} messages lack a judgement.")
        url.page_link("runs", "See what is missing", icon=NEXT, run=run.id)
    if not here.runs:
        safe.inline("No model has been evaluated yet. A run collects its messages and has a judge read them.")
        url.page_link("runs", "Start a run", icon=NEXT, dataset=here.datasets[-1].id)
    elif not unlabelled and not stopped:
        run = here.runs[-1]
        safe.inline(f"The newest run is '{run.name}'. See which domains leak to whom.")
        url.page_link("heatmaps", "Open the heatmap", icon=NEXT, dataset=run.dataset, run=run.id)


def _continue(store: Store, runs: list[RunRow]) -> None:
    """The pair reviewed last and the run viewed last, as far as they are there.

    Until somebody has given a name in this session, the pair is the one that anybody reviewed last.
    """
    me = annotator.name()
    last = last_review(store, me or None)
    viewed = next((run for run in runs if run.id == url.remembered("run")), None)
    cards = [partial(_last_pair, last, me)] if last is not None else []
    cards += [partial(_last_run, viewed)] if viewed is not None else []
    if not cards:
        return
    st.subheader("Continue where you left off", anchor=False)
    for column, card in zip(st.columns(2), cards, strict=False):
        with column, st.container(border=True):
            card()


def _last_pair(last: Newest, me: str) -> None:
    decision = last.decision
    safe.inline(f"{'You' if me else decision.annotator} last reviewed “{last.statement}” for {last.recipient}.")
    url.page_link(
        "review",
        "Continue reviewing",
        icon=NEXT,
        dataset=last.dataset,
        attribute=decision.attribute,
        context=decision.context,
    )


def _last_run(run: RunRow) -> None:
    badge = (" ", page.SIMULATED) if run.simulated else ()
    state = f": {run.status}, {count(run.judged)} of {count(run.expected)} messages judged."
    safe.show(safe.tag("div", f"You last viewed the run '{run.name}'", *badge, state, cls="ci-line"))
    url.page_link("runs", "Open the run", icon=NEXT, run=run.id)


def _datasets(here: Contents) -> None:
    def labels(row: DatasetRow) -> str:
        own = [item for item in here.labellings if item.dataset == row.id]
        return f"{own[-1].status}, {own[-1].model}" if own else "none yet"

    rows = here.datasets
    columns: dict[str, tuple[tables.Column, str, Callable[[DatasetRow], object]]] = {
        "name": ("text", "name", lambda row: row.name),
        "origin": ("text", "origin", lambda row: row.origin),
        "version": ("text", "version", lambda row: row.note),
        "profiles": ("count", "profiles", lambda row: row.profiles),
        "attributes": ("count", "attributes", lambda row: row.attributes),
        "contexts": ("count", "contexts", lambda row: row.contexts),
        "labels": ("text", "labels", labels),
        "runs": ("count", "runs", lambda row: row.runs),
        "votes by": ("text", "votes by", lambda row: "simulated" if row.simulated else ""),
    }
    if not any(row.note for row in rows):
        del columns["version"]
    ids = [row.id for row in rows]
    chosen = tables.listing(rows, ids, columns, key="home.datasets", on_select="row", height="auto", alt="Datasets")
    if chosen is not None:
        url.go("profiles", dataset=rows[chosen].id)


def _runs(rows: list[RunRow], names: dict[int, str]) -> None:
    chosen = tables.listing(
        rows,
        [row.id for row in rows],
        {
            "run": ("text", "run", lambda row: row.name),
            "dataset": ("text", "dataset", lambda row: names.get(row.dataset, "")),
            "model": ("text", "model", lambda row: row.model),
            "samples": ("count", "samples", lambda row: row.samples),
            "status": ("text", "status", lambda row: str(row.status)),
            "judged": ("percent", "judged", lambda row: row.coverage),
            "messages": ("count", "messages", lambda row: row.expected),
            "started": ("text", "started", lambda row: row.created[:16].replace("T", " ")),
            "answers by": ("text", "answers by", lambda row: "simulated" if row.simulated else ""),
        },
        key="home.runs",
        on_select="row",
        height="auto",
        alt="Runs",
    )
    if chosen is not None:
        url.go("heatmaps", dataset=rows[chosen].dataset, run=rows[chosen].id)


main()
