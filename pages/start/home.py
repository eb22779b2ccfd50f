"""Home: what is here, how it stands, and what to do next."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.model import WorkStatus
from cimemories.store import datasets, labellings, runs
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.ui import page, safe, tables, url
from pages.start import home_continue, home_leaders

DEMO = "demo"


def _datasets(rows: list[DatasetRow], labelled: list[LabellingRow]) -> None:
    def labels(dataset_id: int) -> str:
        own = [row for row in labelled if row.dataset == dataset_id]
        return f"{own[-1].status}, {own[-1].model}" if own else "none yet"

    frame = pd.DataFrame(
        [
            {
                "name": row.name,
                "origin": row.origin,
                "version": row.said,
                "profiles": row.profiles,
                "attributes": row.attributes,
                "contexts": row.contexts,
                "labels": labels(row.id),
                "runs": row.runs,
                "votes by": "simulated" if row.simulated else "",
            }
            for row in rows
        ],
        index=[row.id for row in rows],
    )
    columns: dict[str, tables.Column] = {
        "name": "text",
        "origin": "text",
        **({"version": "text"} if any(row.said for row in rows) else {}),
        "profiles": "count",
        "attributes": "count",
        "contexts": "count",
        "labels": "text",
        "runs": "count",
        "votes by": "text",
    }
    chosen = tables.table(frame, key="home.datasets", columns=columns, on_select="row", alt="The datasets")
    if chosen is not None:
        url.go("profiles", dataset=rows[chosen].id)


def _runs(rows: list[RunRow], names: dict[int, str]) -> None:
    frame = pd.DataFrame(
        [
            {
                "run": row.name,
                "dataset": names.get(row.dataset, ""),
                "model": row.model,
                "samples": row.samples,
                "status": str(row.status),
                "judged": row.coverage,
                "responses": row.expected,
                "started": row.created[:16].replace("T", " "),
                "answers by": "simulated" if row.simulated else "",
            }
            for row in rows
        ],
        index=[row.id for row in rows],
    )
    columns: dict[str, tables.Column] = {
        "run": "text",
        "dataset": "text",
        "model": "text",
        "samples": "count",
        "status": "text",
        "judged": "percent",
        "responses": "count",
        "started": "text",
        "answers by": "text",
    }
    chosen = tables.table(frame, key="home.runs", columns=columns, on_select="row", alt="The runs")
    if chosen is not None:
        url.go("heatmaps", dataset=rows[chosen].dataset, run=rows[chosen].id)


def _tour(dataset: DatasetRow, run: RunRow | None) -> None:
    st.subheader("Three things to try with the demo", anchor=False)
    steps = st.columns(3)
    with steps[0], st.container(border=True):
        st.text("1. Read a message that tells too much, with what leaked marked in it.")
        url.page_link(
            "leaks", "See a leak", icon=":material/arrow_forward:", dataset=dataset.id, run=run.id if run else None
        )
    with steps[1], st.container(border=True):
        st.text("2. Look at how three personas voted on a pair, and decide it yourself.")
        url.page_link("review", "Decide a label", icon=":material/arrow_forward:", dataset=dataset.id)
    with steps[2], st.container(border=True):
        st.text("3. Watch leaks pile up, task by task, over one user's tasks. The arrow keys play it.")
        url.page_link(
            "accumulation",
            "Watch them accumulate",
            icon=":material/arrow_forward:",
            dataset=dataset.id,
            run=run.id if run else None,
            present=0 if run else None,
        )


def _next_steps(rows: list[DatasetRow], labelled: list[LabellingRow], ran: list[RunRow]) -> None:
    st.subheader("What to do next", anchor=False)
    newest = rows[-1]
    unlabelled = [row for row in rows if not any(item.dataset == row.id for item in labelled)]
    stopped = [row for row in ran if row.status in (WorkStatus.INTERRUPTED, WorkStatus.CANCELLED, WorkStatus.FAILED)]
    incomplete = [row for row in ran if row.status == WorkStatus.FINISHED_WITH_FAILURES]
    if unlabelled:
        safe.inline(f"The dataset '{unlabelled[-1].name}' has no labels yet: have personas vote on its pairs.")
        url.page_link("labels", "Start a labelling", icon=":material/arrow_forward:", dataset=unlabelled[-1].id)
    if stopped:
        safe.inline(f"The run '{stopped[-1].name}' stopped before its end ({stopped[-1].status}); it can be resumed.")
        url.page_link("runs", "Go to the run", icon=":material/arrow_forward:", run=stopped[-1].id)
    elif incomplete:
        missing = incomplete[-1].expected - incomplete[-1].judged
        safe.inline(
            f"The run '{incomplete[-1].name}' finished with failures: {tables.count(missing)} of "
            f"{tables.count(incomplete[-1].expected)} planned responses are missing or not judged."
        )
        url.page_link("runs", "See what is missing", icon=":material/arrow_forward:", run=incomplete[-1].id)
    if not ran:
        safe.inline("No model has been evaluated yet: a run collects its messages and has a judge read them.")
        url.page_link("runs", "Start a run", icon=":material/arrow_forward:", dataset=newest.id)
    elif not unlabelled and not stopped:
        safe.inline(f"The newest run is '{ran[-1].name}': see which domains leak to whom.")
        url.page_link(
            "heatmaps", "Open the heatmap", icon=":material/arrow_forward:", dataset=ran[-1].dataset, run=ran[-1].id
        )


def main() -> None:
    store = shared_store()
    with store.read() as connection:
        rows = datasets.all_rows(connection)
        labelled = labellings.all_rows(connection)
        ran = runs.all_rows(connection)
    what = f"{len(rows)} {'dataset' if len(rows) == 1 else 'datasets'}, {len(ran)} {'run' if len(ran) == 1 else 'runs'}"
    statuses = [row.status for row in labelled] + [row.status for row in ran]
    going = sum(status in (WorkStatus.RUNNING, WorkStatus.QUEUED) for status in statuses)
    page.head(
        "CIMemories Studio", f"{what}; {going or 'nothing'} at work right now." if rows else "Nothing is here yet."
    )
    if not rows:
        page.empty(
            "No datasets yet",
            "A dataset holds profiles: synthetic users with their memories, and the tasks they are tested in. Import "
            "the authors' JSON file on the Profiles page, or make one with `cimemories generate`.",
            lambda: url.page_link("profiles", "Import a file", icon=":material/upload_file:"),
        )
        return
    if all(DEMO in (row.origin, row.name) for row in rows):
        # The demo's next version has neither labels nor runs: the tour stays with the one that has.
        toured = next((row for row in rows if ran and row.id == ran[-1].dataset), rows[-1])
        _tour(toured, ran[-1] if ran else None)
    else:
        _next_steps(rows, labelled, ran)
    home_continue.draw(store, ran)
    st.subheader("Datasets", anchor=False)
    _datasets(rows, labelled)
    url.page_link("profiles", "Import a file", icon=":material/upload_file:")
    st.subheader("Runs", anchor=False)
    if ran:
        _runs(ran[::-1], {row.id: row.name for row in rows})
        home_leaders.draw(store, rows, ran)
    else:
        page.empty(
            "No runs yet",
            "A run has a model write a message for every profile and context, and a judge read what it reveals.",
            lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:", dataset=rows[-1].id),
        )


main()
