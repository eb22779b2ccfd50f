"""Labels: what the personas voted on each pair of a profile and a context, and what a person decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from cimemories.analysis.labels import default_labelling
from cimemories.analysis.pairs import PairView, pairs, profile_names
from cimemories.model import Label
from cimemories.store import datasets, labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.ui import page, safe, tables, url
from pages.curate import labelling_work, pair_panel
from pages.curate.profile_view import words

UNLABELLED = "not labelled"
ALL_DOMAINS = ""


def _scope(store: Store, rows: list[DatasetRow]) -> tuple[DatasetRow, LabellingRow | None, int | None, int | None]:
    """The scope bar: dataset, labelling, profile, context."""
    columns = st.columns([2, 3, 2, 4])
    by_id = {row.id: row for row in rows}
    with columns[0]:
        chosen = page.select("Dataset", list(by_id), lambda i: by_id[i].name, "labels.dataset", "dataset")
    dataset = by_id[chosen] if chosen is not None else rows[0]
    with store.read() as connection:
        labelled = {row.id: row for row in labellings.all_rows(connection, dataset.id)}
    default = default_labelling(store, dataset.id)
    newest_first = list(labelled)[::-1]
    order = sorted(newest_first, key=lambda i: default is None or i != default.id)
    with columns[1]:
        labelling = page.select(
            "Labelling", order, lambda i: labelling_work.named(labelled[i]), "labels.labelling", "labelling"
        )
    names = profile_names(store, dataset.id)
    with columns[2]:
        profile = page.select("Profile", list(names), lambda i: names[i], "labels.profile", "profile")
    if profile is None:
        return dataset, labelled.get(labelling or ""), None, None
    with store.read() as connection:
        record = datasets.profile_record(connection, profile)
    contexts = dict(zip(record.context_ids, record.profile.contexts, strict=True))
    with columns[3]:
        context = page.select(
            "Context",
            list(contexts),
            lambda i: f"{contexts[i].recipient}: {contexts[i].task}",
            "labels.context",
            "context",
        )
    return dataset, labelled.get(labelling or ""), profile, context


def _filtered(views: Sequence[PairView]) -> list[PairView]:
    left, right = st.columns([3, 2])
    counts = Counter(_word(v.effective) for v in views)
    kinds = [*map(str, Label), UNLABELLED]
    with left:
        wanted = st.pills(
            "Effective label",
            [kind for kind in kinds if counts[kind]],
            selection_mode="multi",
            format_func=lambda kind: f"{kind} ({counts[kind]})",
            key="labels.kinds",
        )
    domains = sorted({v.attribute.domain for v in views})
    with right:
        domain = st.selectbox(
            "Domain",
            [ALL_DOMAINS, *domains],
            format_func=lambda name: words(name) if name else "all domains",
            key="labels.domain",
        )
    return [
        v for v in views if (not wanted or _word(v.effective) in wanted) and domain in (ALL_DOMAINS, v.attribute.domain)
    ]


def _word(label: Label | None) -> str:
    return UNLABELLED if label is None else str(label)


def _pair_table(views: Sequence[PairView], chosen: int | None) -> int | None:
    personas = [v.persona.key for v in views[0].votes]
    frame = pd.DataFrame(
        [
            {
                "attribute": v.attribute.key,
                "effective": safe.glyphed(v.effective) or UNLABELLED,
                **{f"votes{n}": item.strip for n, item in enumerate(v.votes)},
                "statement": v.attribute.statement,
                "domain": words(v.attribute.domain),
                "consensus": safe.glyphed(v.consensus),
                "decision": safe.glyphed(v.decision.label) if v.decision else "",
            }
            for v in views
        ],
        index=[v.attribute_id for v in views],
    )
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "attribute": "text",
        "effective": ("text", "label"),
        **({"decision": "text"} if any(v.decision for v in views) else {}),
        **{f"votes{n}": ("text", key) for n, key in enumerate(personas)},
        "statement": "wide",
        "domain": "text",
        "consensus": "text",
    }
    ids = [v.attribute_id for v in views]
    position = tables.table(
        frame,
        key="labels.pairs",
        columns=columns,
        on_select="row",
        selected=ids.index(chosen) if chosen in ids else None,
        height=640,
        alt="Pairs with votes by persona, consensus, decision and effective label",
    )
    return None if position is None else ids[position]


def _takeaway(views: Sequence[PairView]) -> str:
    counts = Counter(_word(v.effective) for v in views)
    decided = sum(v.decision is not None for v in views)
    parts = [f"{counts[kind]} {kind}" for kind in (*map(str, Label), UNLABELLED) if counts[kind]]
    people = f"; {decided} decided by people" if decided else ""
    return (
        f"Of {len(views)} attributes towards '{safe.option(views[0].context.recipient)}': {', '.join(parts)}{people}."
    )


def _pairs(store: Store, dataset: DatasetRow, views: Sequence[PairView]) -> None:
    asked = url.get_int("attribute")
    own = {v.attribute_id: v for v in views}
    if asked is not None and asked not in own:
        page.notice(f"Attribute {asked} of the link is none of this profile's. Choose a row.")
        url.put(attribute=None)
        asked = None
    left, right = st.columns([5, 3], gap="large")
    with left:
        shown = _filtered(views)
        clicked = _pair_table(shown, asked) if shown else None
        if not shown:
            page.notice("No pair has this label and domain.")
        elif views[0].votes:
            safe.inline(
                "Votes, one character a draw: N necessary, X inappropriate, ? abstained, - missing.", muted=True
            )
    if clicked is not None and clicked != asked:
        url.put(attribute=clicked)
        asked = clicked
    with right:
        view = own[asked] if asked is not None else shown[0] if shown else None
        if view is None:
            page.empty("No pair chosen", "Click a row of the table to see its votes and to decide its label.")
        else:
            pair_panel.draw(store, dataset.id, view)


def main() -> None:
    store = shared_store()
    with store.read() as connection:
        rows = datasets.all_rows(connection)
    top = st.container()
    if not rows:
        with top:
            page.head("Labels", "There is nothing to label yet.")
        page.empty(
            "No datasets yet",
            "Labels are given to pairs of an attribute and a context. Import profiles first.",
            lambda: url.page_link("profiles", "Import a file", icon=":material/upload_file:"),
        )
        return
    dataset, labelling, profile, context = _scope(store, rows)
    labelling_work.draw(store, dataset, labelling)
    simulated = labelling is not None and labelling.simulated
    if profile is None or context is None:
        with top:
            page.head("Labels", "There is no pair to label in this scope.", simulated=simulated)
        page.empty("No contexts", "This profile is tested in no context, so it has no pairs.")
        return
    try:
        views = pairs(store, labelling.id if labelling else None, profile, context)
    except StoreError as problem:
        page.error("These pairs cannot be read.", str(problem))
        return
    with top:
        page.head("Labels", _takeaway(views) if views else "This profile has no attributes.", simulated=simulated)
    if views:
        _pairs(store, dataset, views)


main()
