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
from pages.curate.profile_view import display_name

HIDDEN = "review.adjudication.hidden"
LONGEST_REASON = 500
Names = Mapping[str, str]


def draw(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> str:
    """Draws the part; returns the page's takeaway."""
    disputed = disputes(store, dataset.id)
    if not disputed.shared and not disputed.settled:
        page.empty(
            "Nothing to adjudicate yet",
            "Pairs that two or more people decide differently appear here. Set the overlap in the queue.",
        )
        return "No pair has been decided by two or more people yet."
    hidden = st.toggle(
        "Hide names",
        value=True,
        key=HIDDEN,
        help="Each person is a letter, the same on all pairs of the dataset. Their names are then not on the page.",
    )
    letters = pseudonyms(store, dataset.id)
    names = letters if hidden else {name: name for name in letters}
    if disputed.open:
        _open(store, dataset, labelling, disputed, names)
    else:
        page.empty("No pair is in dispute", "People agree wherever two or more have decided, or it has been settled.")
    if disputed.settled:
        page.fold(
            f"Adjudicated ({len(disputed.settled)})",
            ":material/gavel:",
            "review.box.adjudicated",
            lambda: _settled(dataset, labelling, disputed, names),
        )
    verb = "is" if len(disputed.open) == 1 else "are"
    return (
        f"{count(len(disputed.open))} of {count(disputed.shared)} pairs decided by two or more people "
        f"{verb} in dispute."
    )


def _rows(items: Sequence[Disputed]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "statement": item.statement,
                "recipient": item.recipient,
                "task": item.task,
                "domain": display_name(item.domain),
                "people": len(item.decisions),
                "labels": ", ".join(f"{n} {safe.GLYPHS[label]}" for label, n in item.labels.most_common()),
            }
            for item in items
        ],
        index=[f"{item.attribute}-{item.context}" for item in items],
    )


def _open(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, disputed: Disputes, names: Names) -> None:
    frame = _rows(disputed.open)
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
        # By the pair, not its row: once one is settled the others move up.
        selected=list(frame.index).index(chosen) if chosen in frame.index else 0,
        height=min(38 + 35 * len(frame), 250),
        alt="Pairs on which people differ, those decided by most people first",
    )
    item = disputed.open[at if at is not None and at < len(disputed.open) else 0]
    st.session_state["review.adjudication.pair"] = f"{item.attribute}-{item.context}"
    with st.container(key="dispute"):
        _pair(dataset, labelling, item)
        safe.heading("Decisions")
        _history(item.decisions, names)
        if item.adjudication is not None:
            page.notice("This pair was settled before, and somebody has decided it again since.")
        if labelling is not None:
            page.fold(
                "Votes of the personas",
                ":material/how_to_vote:",
                "review.box.votes",
                lambda: _votes(store, labelling, item),
            )
        page.fold(
            "All decisions on this pair",
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
        "Show on the Labels page (names are visible there)",
        icon=":material/label:",
        dataset=dataset.id,
        labelling=labelling.id if labelling else None,
        profile=item.profile,
        context=item.context,
        attribute=item.attribute,
    )


def _history(made: Sequence[Decision], names: Names) -> None:
    rows = [
        tag(
            "tr",
            # Never the name itself in place of a missing letter: names may be hidden.
            tag("td", tag("b", names.get(d.annotator, "?"))),
            tag("td", safe.label_chip(d.label) if d.label else "taken back"),
            tag("td", d.created[:16].replace("T", " ")),
            tag("td", ", ".join(filter(None, (d.source, "blind" if d.blind else "", d.cause)))),
            tag("td", d.reason),
        )
        for d in made
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
    safe.heading("Settle")
    # The number of decisions in the key: after another one the form is empty again, since it answered fewer.
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
    safe.inline("This adds a decision, which sets the label. Everybody's own decision stays.", muted=True)
    if not done:
        return
    if label is None or cause is None or not who:
        page.error("Nothing was settled.", "A label, a cause and your name are needed.", "Enter them and try again.")
        return
    try:
        settle(store, dataset.id, item, who, label, cause, reason)
    except StoreError as problem:
        page.error("Nothing was settled.", str(problem))
        return
    st.rerun()


def _settled(dataset: DatasetRow, labelling: LabellingRow | None, disputed: Disputes, names: Names) -> None:
    causes = ", ".join(f"{cause} {count}" for cause, count in disputed.causes.items())
    if causes:
        safe.inline(f"Why people differed: {causes}.")
    endings = [item.adjudication for item in disputed.settled]
    frame = _rows(disputed.settled).assign(
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
            "labels": ("text", "Decided"),
            "label": ("text", "Settled as"),
            "cause": ("text", "Cause"),
            "reason": ("wide", "Reason"),
            "by": ("text", "By"),
            "when": ("text", "When"),
        },
        on_select="row",
        alt="Adjudicated pairs, the newest first",
    )
    tables.csv_button(
        frame.assign(dataset=dataset.name, simulated="simulated" if dataset.simulated else ""),
        f"adjudicated-{dataset.id}.csv",
        key="review.adjudicated.csv",
    )
    if at is None or at >= len(disputed.settled):
        safe.inline("Select a row to see all decisions on the pair.", muted=True)
        return
    item = disputed.settled[at]
    _pair(dataset, labelling, item)
    _history(item.history, names)
