"""Part of the Labels page: one pair with its votes, the rule, its decisions, and the form to decide it."""

from __future__ import annotations

import streamlit as st

from cimemories.analysis.pairs import PairView
from cimemories.model import Label
from cimemories.store import decisions
from cimemories.store.engine import Store
from cimemories.ui import page, safe, tables, votes
from cimemories.ui.safe import join, tag
from pages.curate.profile_view import words

_ANNOTATOR = "annotator"


def draw(store: Store, dataset_id: int, view: PairView) -> None:
    """Everything about the pair, the form at the end."""
    safe.heading(view.attribute.statement)
    safe.show(
        safe.facts(
            [
                ("Attribute", f"{view.attribute.key} ({words(view.attribute.domain)})"),
                ("Event", view.attribute.event),
                ("Task", view.context.task),
                ("Recipient", view.context.recipient),
                ("Label", join([safe.label_chip(view.effective), f"  {_source(view)}"])),
            ]
        )
    )
    if view.votes:
        _votes(view)
    _history(view)
    _form(store, dataset_id, view)


def _source(view: PairView) -> str:
    if view.decision:
        return f"decided by {view.decision.annotator}"
    return "by consensus of the personas" if view.consensus else ""


def _votes(view: PairView) -> None:
    st.subheader("Votes", anchor=False)
    votes.votes((item.persona.key, item.persona.prior, item.draws) for item in view.votes)
    if view.mixture is not None:
        necessary, inappropriate, abstain = (tables.percent(share).replace(" ", "\u00a0") for share in view.mixture)
        safe.inline(f"Mixture: necessary {necessary}, inappropriate {inappropriate}, abstain {abstain}.")
    safe.inline(view.explanation)
    if view.missing:
        safe.inline(f"Missing, and counted as nothing: {view.missing}.", muted=True)


def _history(view: PairView) -> None:
    if not view.history:
        return
    st.subheader("Decisions", anchor=False)
    rows = [
        tag(
            "tr",
            tag("td", d.created[:16].replace("T", " ")),
            tag("td", d.annotator),
            tag("td", safe.label_chip(d.label) if d.label else "taken back"),
            tag("td", d.reason),
        )
        for d in reversed(view.history)
    ]
    safe.show(tag("table", tag("tbody", *rows), cls="ci-grid"))


def _form(store: Store, dataset_id: int, view: PairView) -> None:
    st.subheader("Decide", anchor=False)
    key = f"decide.{view.attribute_id}.{view.context_id}"
    known = st.session_state.get(_ANNOTATOR, "")
    # Enter ends the typing of a name or a reason; it must never decide a label that nobody chose.
    with st.form(key, enter_to_submit=False, border=False):
        label = st.radio(
            "Label",
            list(Label),
            index=None if view.effective is None else list(Label).index(view.effective),
            format_func=safe.glyphed,
            horizontal=True,
            key=f"{key}.label",
        )
        reason = st.text_input("Reason", key=f"{key}.reason", max_chars=500)
        annotator = st.text_input("Your name", value=known, key=f"{key}.annotator", max_chars=80)
        decided = st.form_submit_button("Set decision", type="primary", icon=":material/check:")
    if decided:
        name = " ".join(annotator.split())
        if label is None or not name:
            page.error("Nothing was decided.", "A decision needs a label and your name.", "Give both and try again.")
            return
        st.session_state[_ANNOTATOR] = name
        _write(store, dataset_id, view, name, label, reason.strip())
    mine = [d for d in view.history if d.annotator == known]
    if (
        mine
        and mine[-1].label is not None
        and st.button("Take my decision back", icon=":material/undo:", key=f"{key}.undo")
    ):
        _write(store, dataset_id, view, known, None, "")


def _write(store: Store, dataset_id: int, view: PairView, annotator: str, label: Label | None, reason: str) -> None:
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=dataset_id,
            attribute=view.attribute_id,
            context=view.context_id,
            annotator=annotator,
            label=label,
            reason=reason,
        )
    st.rerun()
