"""Part of the Survival page: how far two labellings of the dataset agree, models with models."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from cimemories.analysis.labellings_agreement import ORDER, Agreement, agreement, agreements
from cimemories.curation.consensus import LABELS
from cimemories.store import labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import Html, join, tag
from pages.curate.pair_rows import PAIR_COLUMNS, go_to_pair
from pages.curate.survival_shares import download

MOST_ROWS = 500
NAMES = [safe.glyphed(LABELS[code]) for code in ORDER]


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset.id)
    others = {
        row.id: row
        for row in reversed(rows)
        if row.id != labelling.id and (row.imported or row.ballots.get(labellings.OK))
    }
    if not others:
        say(f"{dataset.name} has one labelling, so there is nothing to compare it with.")
        page.empty(
            "There is only one labelling",
            "Label the dataset again with another model or persona pack, or import labels; both then stand side by "
            "side here, with the pairs on which they differ.",
            lambda: url.page_link("labels", "Label it again", icon=":material/label:", dataset=dataset.id),
        )
        return
    if url.get("second") not in others:
        url.put(second=None)
    with st.columns([3, 6])[0]:
        second = page.select("Compare with", list(others), lambda i: _named(others[i]), "survival.second", "second")
    found = agreement(store, labelling.id, str(second))
    say(_takeaway(found))
    if len(others) > 1:
        _all(store, dataset)
    if not found.pairs:
        page.notice("No pair has been labelled by both, so there is nothing to compare yet.")
        return
    _rules(found)
    left, right = st.columns([4, 5], gap="large")
    with left:
        _confusion(found)
    with right:
        _domains(found)
    _differing(found, dataset, labelling)


def _takeaway(found: Agreement) -> str:
    if not found.pairs:
        return "No pair has been labelled by both."
    one, two = _words(found)
    return (
        f"{one} and {two} give the same label to {tables.percent(found.share)} of "
        f"{tables.count(found.pairs)} pairs (Cohen's kappa {_kappa(found.kappa)}); "
        f"{tables.count(int(found.differing['opposite'].sum()))} pairs get opposite labels."
    )


def _named(row: LabellingRow) -> str:
    kinds = [row.id, *["imported, no votes"] * row.imported, *["simulated"] * row.simulated]
    return f"{row.model} ({', '.join(kinds)})"


def _words(found: Agreement) -> tuple[str, str]:
    """The two labellings by their models, by their ids too where one model made both."""
    rows = (found.first, found.second)
    alike = found.first.model == found.second.model
    one, two = (f"{safe.option(row.model, 40)} ({row.id})" if alike else safe.option(row.model, 40) for row in rows)
    return one, two


def _kappa(value: float) -> str:
    return "undefined" if value != value else f"{value:.2f}"


def _rules(found: Agreement) -> None:
    for words, rule in zip(_words(found), found.rules, strict=True):
        if rule.note:
            page.notice(f"{words}: {rule.note}.")
    only = [
        f"{tables.count(n)} only by {words}"
        for n, words in zip((found.only_first, found.only_second), _words(found), strict=True)
        if n
    ]
    if only:
        safe.inline(f"Not compared, labelled by one alone: {', '.join(only)}.", muted=True)


def _confusion(found: Agreement) -> None:
    one, two = _words(found)
    safe.heading("Labels side by side")
    safe.inline(f"First, down: {one}. Second, across: {two}.", muted=True)
    total = found.pairs
    head = tag("tr", tag("th", "first \\ second"), *(tag("th", name, cls="ci-number") for name in NAMES))
    rows: list[Html] = []
    for i, name in enumerate(NAMES):
        cells = [
            tag(
                "td",
                tag("b", tables.count(n)) if i == j else tables.count(n),
                f" ({tables.percent(n / total)})",
                cls="ci-number",
            )
            for j, n in enumerate(found.confusion[i].tolist())
        ]
        rows.append(tag("tr", tag("td", name), *cells))
    safe.show(tag("table", tag("thead", head), tag("tbody", join(rows)), cls="ci-grid"))
    st.caption("Pairs by both labels; bold: the same label. This is models with models; people are not in it.")
    frame = pd.DataFrame(found.confusion, columns=NAMES)
    frame.insert(0, "first \\ second", NAMES)
    tables.csv_button(
        _marked(frame, found), f"confusion-{found.first.id}-{found.second.id}.csv", key="survival.csv.confusion"
    )


def _domains(found: Agreement) -> None:
    frame = found.by_domain.sort_values("share", kind="stable").reset_index(drop=True)
    least = frame.iloc[0]
    safe.heading(f"They agree least in {str(least['domain']).replace('_', ' ')}: {tables.percent(least['share'])}")
    tables.table(
        frame.assign(domain=frame["domain"].str.replace("_", " "), kappa=[_kappa(value) for value in frame["kappa"]]),
        key=f"survival.agreement.{found.first.id}.{found.second.id}",
        columns={
            "domain": ("text", "Domain"),
            "share": ("percent", "Same label"),
            "kappa": ("text", "Cohen's kappa"),
            "same": ("count", "Same"),
            "pairs": ("count", "Pairs"),
        },
        height="content",
        alt="Agreement by domain, least first",
    )


def _differing(found: Agreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    frame = found.differing
    safe.heading(f"{tables.count(len(frame))} pairs on which they differ")
    if frame.empty:
        page.notice("They give the same label to every pair.")
        return
    shown = frame.head(MOST_ROWS)
    picked = tables.table(
        shown.assign(
            domain=shown["domain"].str.replace("_", " "),
            opposite=["opposite" if flag else "" for flag in shown["opposite"]],
        ),
        key=f"survival.differing.{found.first.id}.{found.second.id}",
        columns={
            "opposite": ("small", ""),
            "first": ("text", "First"),
            "second": ("text", "Second"),
            **PAIR_COLUMNS,
        },
        on_select="row",
        alt="Pairs on which the two labellings differ, opposite labels first",
    )
    first = f"The first {MOST_ROWS} are shown; the download has all. " if len(frame) > MOST_ROWS else ""
    safe.inline(f"{first}Choose a row to see its votes.", muted=True)
    words = f"{found.rules[0].words} / {found.rules[1].words}"
    download(_marked(frame, found), "differing", labelling, words)
    if picked is not None:
        go_to_pair(dataset, labelling, shown.iloc[picked])


def _marked(frame: pd.DataFrame, found: Agreement) -> pd.DataFrame:
    simulated = [row.model for row in (found.first, found.second) if row.simulated]
    return frame.assign(
        first_labelling=found.first.id, second_labelling=found.second.id, simulated=", ".join(simulated)
    )


def _all(store: Store, dataset: DatasetRow) -> None:
    def table() -> None:
        found = agreements(store, dataset.id)
        frame = pd.DataFrame(
            [
                {
                    "first": _named(item.first),
                    "second": _named(item.second),
                    "share": item.share,
                    "kappa": _kappa(item.kappa),
                    "pairs": item.pairs,
                }
                for item in found
            ]
        )
        tables.table(
            frame,
            key=f"survival.agreements.{dataset.id}",
            columns={
                "first": ("text", "First"),
                "second": ("text", "Second"),
                "share": ("percent", "Same label"),
                "kappa": ("text", "Cohen's kappa"),
                "pairs": ("count", "Pairs of both"),
            },
            height="content",
            alt="Agreement of every two labellings",
        )

    page.fold("Every two labellings", ":material/table:", "survival.box.agreements", table)
