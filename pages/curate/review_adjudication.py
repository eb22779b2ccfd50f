"""Part of the Review page: pairs on which people differ, one settled after the other, and those that were settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from cimemories.labels.votes import pairs
from cimemories.model import Label
from cimemories.review.adjudication import Cause, Disputed, Disputes, disputes, pseudonyms, settle
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, page, safe, tables, url
from cimemories.ui.safe import tag
from pages.curate.profile_view import words

HIDDEN = "review.adjudication.hidden"
LONGEST_REASON = 500
Names = Mapping[str, str]


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Draws the part; returns the page's takeaway."""
    found = disputes(store, dataset.id)
    if not found.shared and not found.settled:
        page.empty(
            "Nothing to adjudicate yet",
            "Where two people or more decide the same pair and differ, it comes here. The queue says how many see it.",
        )
        return "No pair has been decided by two or more people yet."
    names = _names(store, dataset)
    if found.open:
        _open(store, dataset, labelling, found, names)
    else:
        page.empty("No pair is in dispute", "People agree wherever two or more have decided, or it has been settled.")
    if found.settled:
        page.fold(
            f"Adjudicated ({len(found.settled)})",
            ":material/gavel:",
            "review.box.adjudicated",
            lambda: _settled(dataset, labelling, found, names),
        )
    verb = "is" if len(found.open) == 1 else "are"
    return f"{count(len(found.open))} of {count(found.shared)} pairs decided by two or more people {verb} in dispute."


def _names(store: Store, dataset: DatasetRow) -> Names:
    """What people are called on this page: letters while names are hidden, else what they are."""
    hidden = st.toggle(
        "Hide names",
        value=True,
        key=HIDDEN,
        help="Everybody is a letter, the same on all pairs of the dataset. Names are not on the page then.",
    )
    letters = pseudonyms(store, dataset.id)
    return letters if hidden else {name: name for name in letters}


def _labels(item: Disputed) -> str:
    """'2 N, 1 X'."""
    return ", ".join(f"{count} {safe.GLYPHS[label]}" for label, count in item.labels.most_common())


def _rows(items: Sequence[Disputed]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "statement": item.statement,
                "recipient": item.recipient,
                "task": item.task,
                "domain": words(item.domain),
                "people": len(item.words),
                "labels": _labels(item),
            }
            for item in items
        ],
        index=[f"{item.attribute}-{item.context}" for item in items],
    )


def _open(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, found: Disputes, names: Names) -> None:
    frame = _rows(found.open)
    chosen = st.session_state.get("review.adjudication.pair")
    at = tables.table(
        frame,
        key=f"review.disputes.{dataset.id}",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "domain": ("text", "Domain"),
            "people": ("count", "People"),
            "labels": ("text", "Labels"),
        },
        on_select="row",
        selected=list(frame.index).index(chosen) if chosen in frame.index else 0,
        height=min(38 + 35 * len(frame), 250),
        alt="Pairs on which people differ, those that most people decided first",
    )
    item = found.open[at if at is not None and at < len(found.open) else 0]
    st.session_state["review.adjudication.pair"] = f"{item.attribute}-{item.context}"
    with st.container(key="dispute"):
        _pair(dataset, labelling, item)
        safe.heading("What people said")
        _history(item.words, names)
        if item.adjudication is not None:
            page.notice("It was settled once, and somebody has decided since.")
        if labelling is not None:
            page.fold(
                "Votes of the personas",
                ":material/how_to_vote:",
                "review.box.votes",
                lambda: _votes(store, labelling, item),
            )
        page.fold(
            "Every decision on this pair",
            ":material/history:",
            "review.box.history",
            lambda: _history(item.history, names),
        )
        _form(store, dataset, item)


def _pair(dataset: DatasetRow, labelling: LabellingRow | None, item: Disputed) -> None:
    safe.heading(item.statement)
    safe.show(
        safe.facts(
            [
                ("Attribute", f"{item.key} of {item.profile_name}"),
                ("Recipient", item.recipient),
                ("Task", item.task),
            ]
        )
    )
    url.page_link(
        "labels",
        "Show it on the Labels page, where names are in sight",
        icon=":material/label:",
        dataset=dataset.id,
        labelling=labelling.id if labelling else None,
        profile=item.profile,
        context=item.context,
        attribute=item.attribute,
    )


def _history(said: Sequence[Decision], names: Names) -> None:
    rows = [
        tag(
            "tr",
            tag("td", tag("b", names.get(d.annotator, "?"))),
            tag("td", safe.label_chip(d.label) if d.label else "taken back"),
            tag("td", d.created[:16].replace("T", " ")),
            tag("td", ", ".join(filter(None, (d.source, "blind" if d.blind else "", d.cause)))),
            tag("td", d.reason),
        )
        for d in said
    ]
    head = tag("tr", *(tag("th", title) for title in ("Who", "Label", "When", "How", "Reason")))
    safe.show(tag("table", tag("thead", head), tag("tbody", *rows), cls="ci-grid"))


def _votes(store: Store, labelling: LabellingRow, item: Disputed) -> None:
    (view,) = pairs(store, labelling.id, item.profile, item.context, item.attribute)
    if labelling.imported:
        page.vote_shares((v.persona.key, v.prior, v.shares or (0.0, 0.0, 0.0)) for v in view.votes)
    else:
        page.vote_rows((v.persona.key, v.prior, v.draws) for v in view.votes)
    safe.inline(view.explanation, muted=True)


def _form(store: Store, dataset: DatasetRow, item: Disputed) -> None:
    safe.heading("Settle it")
    key = f"review.settle.{item.attribute}.{item.context}.{len(item.history)}"
    who = annotator.ask()
    with st.form(key, enter_to_submit=False, border=False):
        label = st.radio(
            "Label", list(Label), index=None, format_func=safe.glyphed, horizontal=True, key=f"{key}.label"
        )
        cause = st.radio(
            "Why did they differ?", list(Cause), index=None, format_func=str, horizontal=True, key=f"{key}.cause"
        )
        reason = st.text_input("Reason", key=f"{key}.reason", max_chars=LONGEST_REASON)
        done = st.form_submit_button("Settle", type="primary", icon=":material/gavel:")
    safe.inline("What each person said stays; this is one more decision, and the label from now on.", muted=True)
    if not done:
        return
    if label is None or cause is None or not who:
        page.error("Nothing was settled.", "It needs a label, a cause and your name.", "Give all three and try again.")
        return
    try:
        settle(store, dataset.id, item, who, label, cause, reason)
    except StoreError as problem:
        page.error("Nothing was settled.", str(problem))
        return
    st.rerun()


def _settled(dataset: DatasetRow, labelling: LabellingRow | None, found: Disputes, names: Names) -> None:
    causes = ", ".join(f"{cause} {count}" for cause, count in found.causes.items())
    if causes:
        safe.inline(f"Why people had differed: {causes}.")
    endings = [item.adjudication for item in found.settled]
    frame = _rows(found.settled).assign(
        label=[safe.glyphed(d.label) if d else "" for d in endings],
        cause=[(d.cause or "") if d else "" for d in endings],
        reason=[d.reason if d else "" for d in endings],
        by=[names.get(d.annotator, "?") if d else "" for d in endings],
        when=[d.created[:16].replace("T", " ") if d else "" for d in endings],
    )
    at = tables.table(
        frame,
        key=f"review.adjudicated.{dataset.id}",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "labels": ("text", "Had said"),
            "label": ("text", "Settled as"),
            "cause": ("text", "Cause"),
            "reason": ("wide", "Reason"),
            "by": ("text", "By"),
            "when": ("text", "When"),
        },
        on_select="row",
        alt="Pairs that were adjudicated, the newest first",
    )
    tables.csv_button(
        frame.assign(dataset=dataset.name, simulated="simulated" if dataset.simulated else ""),
        f"adjudicated-{dataset.id}.csv",
        key="review.adjudicated.csv",
    )
    if at is None or at >= len(found.settled):
        safe.inline("Choose a row to see everything that was said of the pair.", muted=True)
        return
    item = found.settled[at]
    _pair(dataset, labelling, item)
    _history(item.history, names)
