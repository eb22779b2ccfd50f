"""Part of the Survival page: contexts retained or discarded and why, and the statistics of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from cimemories.analysis.survival import NEITHER, NO_INAPPROPRIATE, NO_NECESSARY, Contexts, contexts
from cimemories.analysis.table2 import PAPER, Statistic, table2
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import bars, page, safe, style, tables
from cimemories.ui.bars import Part
from pages.curate.pair_rows import go_to_pair
from pages.curate.survival_shares import download

MOST_BARS = 60
PARTS = (
    Part("retained", "retained", "", "#56B4E9"),
    Part(NO_NECESSARY, f"discarded: {NO_NECESSARY}", "X", style.INAPPROPRIATE, "/"),
    Part(NO_INAPPROPRIATE, f"discarded: {NO_INAPPROPRIATE}", "N", style.NECESSARY, "\\"),
    Part(NEITHER, "discarded: neither, all ambiguous", "?", style.AMBIGUOUS, "x"),
)


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow, say: Callable[[str], None]) -> None:
    """Draws the part; `say` draws the head with the page's takeaway, as early as it is known."""
    found = contexts(store, labelling.id)
    if found.frame.empty:
        say("No context has a label yet.")
        page.empty("No context has a label yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    say(_takeaway(found))
    _chart(found, labelling)
    _discarded(found, dataset, labelling)
    _statistics(table2(store, labelling.id), labelling)


def _takeaway(found: Contexts) -> str:
    total = len(found.frame)
    gone = total - found.retained
    reasons = ", ".join(f"{tables.count(n)} with {reason}" for reason, n in found.discarded.items() if n)
    return (
        f"{tables.count(found.retained)} of {tables.count(total)} contexts of profiles are retained; "
        + (f"{tables.count(gone)} are discarded, {reasons}." if gone else "none is discarded.")
    ).replace(f"with {NEITHER}", "with neither a necessary nor an inappropriate attribute")


def _chart(found: Contexts, labelling: LabellingRow) -> None:
    reasons = found.frame["reason"].replace("", "retained")
    table = pd.crosstab(found.frame["profile"], reasons)
    names = dict(zip(found.frame["profile"], found.frame["user"], strict=True))
    frame = pd.DataFrame({"name": [names[i] for i in table.index]}, index=table.index)
    for part in PARTS:
        frame[part.column] = table.get(part.column, 0)
    frame = frame.sort_values("retained", ascending=False, kind="stable")
    least = frame.iloc[-1]
    total = int(least[[part.column for part in PARTS]].sum())
    title = (
        "Every context of every profile is retained"
        if found.retained == len(found.frame)
        else f"{safe.option(least['name'], 60)} loses most: {int(least['retained'])} of {total} contexts retained"
    )
    cut = f"; the first {MOST_BARS} of {len(frame)} profiles drawn" if len(frame) > MOST_BARS else ""
    bars.share_bars(
        frame.head(MOST_BARS),
        PARTS,
        name="name",
        title=title,
        subtitle=f"{tables.count(len(found.frame))} contexts of {len(frame)} profiles, by effective labels{cut}",
        key=f"survival.contexts.{labelling.id}",
        unit="contexts",
        alt="Contexts retained and discarded by profile. The same is in the table below.",
    )


def _discarded(found: Contexts, dataset: DatasetRow, labelling: LabellingRow) -> None:
    gone = found.frame[found.frame["reason"] != ""].reset_index(drop=True)

    def table() -> None:
        only = len(gone) > 0 and st.toggle("Only discarded ones", value=True, key="survival.contexts.only")
        shown = gone if only else found.frame.reset_index(drop=True)
        worded = shown.assign(reason=shown["reason"].replace("", "retained"))
        picked = tables.table(
            worded,
            key=f"survival.contexts.table.{labelling.id}",
            columns={
                "user": ("text", "Profile"),
                "name": ("wide", "Context"),
                "sphere": ("text", "Sphere"),
                "attributes": ("count", "Labelled"),
                "necessary": ("count", "N necessary"),
                "inappropriate": ("count", "X inappropriate"),
                "reason": ("text", "Retained, or why not"),
            },
            on_select="row",
            alt="Contexts by profile, with what is necessary and inappropriate in them",
        )
        st.caption("Choose a row to see its labels. A person's decision goes before the consensus, as runs count it.")
        download(worded, "contexts", labelling, "effective labels")
        if picked is not None:
            go_to_pair(dataset, labelling, shown.iloc[picked])

    page.fold(
        "All contexts as a table",
        ":material/table:",
        "survival.box.contexts",
        table,
        expanded=0 < len(gone) <= 12,
    )


def _statistics(lines: tuple[Statistic, ...], labelling: LabellingRow) -> None:
    safe.heading("The statistics of the paper's Table 2")
    frame = pd.DataFrame(
        [
            {
                "name": line.name,
                "here": _mean_and_sd(line),
                "over": f"{tables.count(line.over)} {line.unit}" if line.sd is not None else "",
                "published": line.published.figure if line.published else "not at hand",
                "place": f"{PAPER}, {line.published.place}" if line.published else "",
            }
            for line in lines
        ]
    )
    tables.table(
        frame,
        key=f"survival.table2.{labelling.id}",
        columns={
            "name": ("text", "Statistic"),
            "here": ("text", "This labelling, mean ± sd"),
            "over": ("text", "Over"),
            "published": ("text", "Published"),
            "place": ("text", "Source of the published figure"),
        },
        height="content",
        alt="Statistics of Table 2 of this labelling beside the published ones",
    )
    st.caption(
        "By effective labels under the rule that holds; sd with n - 1. The published column is of the authors' own "
        "labels, not of the ones here."
    )
    download(frame, "table2", labelling, "effective labels")


def _mean_and_sd(line: Statistic) -> str:
    if line.mean != line.mean:
        return "undefined: no context is retained"
    if line.sd is None:
        return tables.count(line.mean)
    return f"{line.mean:.1f}" + (f" ± {line.sd:.1f}" if line.sd == line.sd else "")
