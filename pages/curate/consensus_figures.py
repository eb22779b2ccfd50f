"""Parts of the Consensus page: shares by group, agreement of labellings, contexts and Table 2, and who labelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from cimemories.agreement.models import DIFFERING, Agreement, agreement, agreements, name_of
from cimemories.answer import Table
from cimemories.answers import consensus
from cimemories.answers.consensus import Shares
from cimemories.charts.bars import LABEL_PARTS, BarPart, count_bars, share_bars
from cimemories.flows import catalogue
from cimemories.labels.survival import (
    ALL_ABSTAIN,
    ANY_OF_SEVERAL,
    NEITHER,
    NO_INAPPROPRIATE,
    NO_NECESSARY,
    SEVERAL,
    Contexts,
    contexts,
    survival,
)
from cimemories.labels.votes import GroupBy
from cimemories.metrics import sentences
from cimemories.metrics.separation import largest_count
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, percent, sentence
from cimemories.ui import answers, charts, page, safe, tables, url
from pages.curate.pair_panel import go_to_pair, pair_table

SetTakeaway = Callable[[str], None]  # draws the head of the page as soon as its sentence is known
MOST_BARS = 60
PLURALS = {
    GroupBy.DOMAIN: "domains",
    GroupBy.SPHERE: "spheres",
    GroupBy.CONTEXT: "contexts",
    GroupBy.PROFILE: "profiles",
}


def group_control(key: str) -> GroupBy:
    """Draw the choice of the groups that shares are broken down by, and return it."""
    return GroupBy(page.choice("By", {by: by for by in map(str, GroupBy)}, key, "by", default=str(GroupBy.DOMAIN)))


def chart_and_table(fig: go.Figure, table: Table, name: str, box: str, labelling: LabellingRow, rule: str) -> None:
    """Draw a chart, under it the same folded as a table, with their exports. name: of files and widgets."""
    alt = f"{table.caption}. The same numbers are in the table below."
    charts.show(fig, key=f"consensus.{name}.{labelling.id}", alt=alt)

    def drawn() -> None:
        answers.twin(table, f"consensus.table.{name}.{labelling.id}")
        export(table, name, labelling, rule, fig)

    page.fold("The same as a table", ":material/table:", f"consensus.box.{box}", drawn)


def export(table: Table, name: str, labelling: LabellingRow, rule: str, fig: go.Figure | None = None) -> None:
    """Draw the exports of a table; every row names its labels."""
    about = {"labelling": labelling.id, "model": labelling.model, "rule": rule}
    answers.export(table, f"consensus.{name}", about, ("labels",) * labelling.simulated, fig)


# ---- shares: of pairs with a consensus by group, and who dissents on the others


WHO = {
    ALL_ABSTAIN: "all personas abstain",
    ANY_OF_SEVERAL: "any one of several personas",
    SEVERAL: "several personas together",
}


def draw_shares(store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: SetTakeaway) -> None:
    """Draw how many pairs have a consensus by group, and who dissents."""
    result = consensus.shares(survival(store, labelling.id), labelling)
    set_takeaway(result.sentence)
    if not result.labelled:
        if result.too_few:
            page.empty("No pair has enough votes for a label", "Ask for the lost votes again, or try another rule.")
            return
        page.empty("No vote is counted yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    _group_bars(result, group_control("consensus.by"), labelling)
    _dissent(result, labelling)
    safe.show(safe.lines(map(sentence, result.notes)))
    if result.decisions.pairs:
        of: dict[str, str | int | None] = {"dataset": dataset.id, "labelling": labelling.id}
        url.page_link("labels", "Look at the labels", icon=":material/label:", **of)


def _group_bars(result: Shares, by: GroupBy, labelling: LabellingRow) -> None:
    table = result.by[by]
    frame = table.frame.sort_values("survival", ascending=False, kind="stable").reset_index(drop=True)
    defined = frame.dropna(subset="survival")
    names = [safe.option(name, 60) for name in defined["name"]]
    title = f"Pairs with a consensus: {sentences.ends(names, defined['survival'].tolist())}"
    cut = f"; the first {MOST_BARS} of {len(frame)} {PLURALS[by]} shown" if len(frame) > MOST_BARS else ""
    fig = share_bars(
        frame.head(MOST_BARS),
        LABEL_PARTS,
        name="name",
        title=title,
        subtitle=f"{count(result.labelled, 'labelled pair')} by {by}, the largest share on top{cut}",
        unit="pairs",
    )
    chart_and_table(fig, replace(table, frame=frame), f"by-{by}", "shares", labelling, result.rule.text)


def _dissent(result: Shares, labelling: LabellingRow) -> None:
    frame = result.dissent.frame
    if frame.empty:
        page.notice("Every labelled pair has a consensus, so no persona dissents.")
        return
    by_who = frame.groupby("who", sort=False)["pairs"].sum().sort_values(ascending=False)
    names = [WHO.get(who, f"{who} alone") for who in by_who.index]
    # WHO has the cases without a single persona as the reason.
    alone = by_who[[who not in WHO for who in by_who.index]]
    title = "No persona alone prevents a consensus"
    if len(alone):
        share = percent(alone.iloc[0] / result.ambiguous)
        title = f"The {alone.index[0]} persona alone prevents a consensus on {share} of the ambiguous pairs"
    fig = count_bars(
        pd.DataFrame({"name": names, "pairs": by_who.to_numpy()}),
        name="name",
        column="pairs",
        colour=safe.AMBIGUOUS,
        title=title,
        subtitle=f"{count(result.ambiguous)} ambiguous pairs, by the persona without which there would be a consensus",
        unit="ambiguous pairs",
    )
    chart_and_table(fig, result.dissent, "dissent", "dissent", labelling, result.rule.text)


# ---- agreement: how far two labellings of the dataset agree, models with models


def draw_agreement(store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: SetTakeaway) -> None:
    """Draw the agreement of the labelling with another one of the dataset."""
    others = catalogue.labellings_of(store, dataset.id, voted=True)
    others.pop(labelling.id, None)
    if not others:
        set_takeaway(f"{dataset.name} has one labelling, so there is nothing to compare it with.")
        page.empty(
            "There is only one labelling",
            "Label the dataset again with another model or persona pack, or import labels, to see here how far the two "
            "agree and which pairs they differ on.",
            lambda: url.page_link("labels", "Label it again", icon=":material/label:", dataset=dataset.id),
        )
        return
    # A link may name the labelling itself or one of another dataset; then the first of the others is shown.
    if url.get("second") not in others:
        url.replace(second=None)
    with st.columns([3, 6])[0]:
        second = page.select("Compare with", list(others), lambda i: name_of(others[i]), "consensus.second", "second")
    result = agreement(store, labelling.id, str(second))
    set_takeaway(result.sentence)
    if len(others) > 1:
        page.fold(
            "Every two labellings",
            ":material/table:",
            "consensus.box.agreements",
            lambda: answers.twin(agreements(store, dataset.id).every, f"consensus.agreements.{dataset.id}"),
        )
    if result.pairs:
        _side_by_side(result, dataset, labelling)
    safe.show(safe.lines(map(sentence, result.notes)))


def _side_by_side(result: Agreement, dataset: DatasetRow, labelling: LabellingRow) -> None:
    both = f"{result.first}.{result.second}"
    about = {"first_labelling": result.first, "second_labelling": result.second}
    about["rules"] = f"{result.rules[0].text} / {result.rules[1].text}"
    left, right = st.columns([4, 5], gap="large")
    with left:
        safe.heading("Labels side by side")
        safe.inline(result.confusion.caption, muted=True)
        tables.grid(result.confusion, result.confusion.caption)
        answers.export(result.confusion, f"consensus.confusion-{both}", about, result.simulated)
    with right:
        domains = result.by_domain.frame
        safe.heading(
            f"The same label by domain: {sentences.ends(domains['domain'].tolist(), domains['share'].tolist())}"
        )
        answers.twin(result.by_domain, f"consensus.agreement.{both}", height="content")
    frame = result.differing.frame
    safe.heading(f"{count(len(frame), 'pair')} on which they differ")
    if frame.empty:
        page.notice("They give the same label to every pair.")
        return
    selected = pair_table(
        frame.assign(opposite=["opposite" if flag else "" for flag in frame["opposite"]]),
        f"consensus.differing.{both}",
        DIFFERING,
        result.differing.caption,
        "Choose a row to see its votes.",
    )
    answers.export(result.differing, f"consensus.differing-{both}", about, result.simulated)
    if selected is not None:
        go_to_pair(dataset, labelling, frame.iloc[selected])


# ---- contexts: retained or discarded and why, and the statistics of the paper's Table 2


CONTEXT_PARTS = (
    BarPart("retained", "retained", "", "#56B4E9"),
    BarPart(NO_NECESSARY, f"discarded: {NO_NECESSARY}", "I", safe.INAPPROPRIATE, "/"),
    BarPart(NO_INAPPROPRIATE, f"discarded: {NO_INAPPROPRIATE}", "N", safe.NECESSARY, "\\"),
    BarPart(NEITHER, "discarded: neither, all ambiguous", "U", safe.AMBIGUOUS, "x"),
)


def draw_contexts(store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: SetTakeaway) -> None:
    """Draw which contexts of profiles are retained, and Table 2."""
    counted = contexts(store, labelling.id)
    if counted.frame.empty:
        set_takeaway("No context has a label yet.")
        page.empty("No context has a label yet", "Wait for the labelling, or look at its failures on the Labels page.")
        return
    result = consensus.retained(store, labelling, counted)
    set_takeaway(result.sentence)
    _context_bars(counted, labelling)
    _contexts_table(counted, dataset, labelling)
    safe.heading(result.table2.caption)
    tables.grid(result.table2, result.table2.caption)
    export(result.table2, "table2", labelling, "effective labels")
    safe.show(safe.lines(map(sentence, result.notes)))


def _context_bars(contexts: Contexts, labelling: LabellingRow) -> None:
    reasons = contexts.frame["reason"].replace("", "retained")
    table = pd.crosstab(contexts.frame["profile"], reasons)
    names = dict(zip(contexts.frame["profile"], contexts.frame["user"], strict=True))
    frame = pd.DataFrame({"name": [names[i] for i in table.index]}, index=table.index)
    for part in CONTEXT_PARTS:
        # Reasons that no context has are not columns of the crosstab.
        frame[part.column] = table.get(part.column, 0)
    frame = frame.sort_values("retained", ascending=False, kind="stable")
    totals = frame[[part.column for part in CONTEXT_PARTS]].sum(axis=1)
    lost = (totals - frame["retained"]).tolist()
    most = largest_count(lost)
    title = (
        "Every labelled context is retained" if contexts.unlabelled else "Every context of every profile is retained"
    )
    if most is not None and most.value:
        name, total = safe.option(frame["name"].iloc[most.first], 60), int(totals.iloc[most.first])
        title = sentences.contexts_discarded(name, lost[most.first], total, most)
    cut = f"; the first {MOST_BARS} of {len(frame)} profiles shown" if len(frame) > MOST_BARS else ""
    fig = share_bars(
        frame.head(MOST_BARS),
        CONTEXT_PARTS,
        name="name",
        title=title,
        subtitle=f"{count(len(contexts.frame), 'labelled context')} of {count(len(frame), 'profile')}, by effective "
        f"labels{cut}",
        unit="contexts",
    )
    charts.show(
        fig,
        key=f"consensus.contexts.{labelling.id}",
        alt="Contexts retained and discarded by profile. The same is in the table below.",
    )


def _contexts_table(contexts: Contexts, dataset: DatasetRow, labelling: LabellingRow) -> None:
    discarded = contexts.frame[contexts.frame["reason"] != ""].reset_index(drop=True)

    def drawn() -> None:
        which = {"discarded": "Only discarded ones", "all": "All contexts"}
        only = len(discarded) > 0 and page.choice(
            "Which contexts", which, "consensus.contexts.show", "show", default="discarded", visible=False
        )
        shown = discarded if only == "discarded" else contexts.frame.reset_index(drop=True)
        worded = shown.assign(reason=shown["reason"].replace("", "retained"))
        table = Table(worded, consensus.CONTEXTS, "Contexts by profile, with what is necessary and inappropriate")
        selected = answers.twin(table, f"consensus.contexts.table.{labelling.id}", on_select="row")
        st.caption("Choose a row to see its labels. A person's decision overrides the consensus, here and in runs.")
        export(table, "contexts", labelling, "effective labels")
        if selected is not None:
            go_to_pair(dataset, labelling, shown.iloc[selected])

    page.fold(
        "All contexts as a table",
        ":material/table:",
        "consensus.box.contexts",
        drawn,
        expanded=0 < len(discarded) <= 12,
    )


# ---- models: who labelled, and which models under test are of the same family


def draw_models(store: Store, dataset: DatasetRow, labelling: LabellingRow, set_takeaway: SetTakeaway) -> None:
    """Draw the families of the models under test. Raises SeedError if seeds/models.yaml is not valid."""
    result = consensus.models(store, labelling)
    set_takeaway(result.sentence)
    if result.rows.frame.empty:
        page.empty(
            "No run on this dataset yet",
            "Models of one family tend to judge alike. This compares the family of each model under test.",
            lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"),
        )
        return
    answers.twin(result.rows, f"consensus.models.{labelling.id}", alt="Runs of this dataset with both families")
    safe.show(safe.lines(map(sentence, result.notes)))
