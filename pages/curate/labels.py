"""Labels: what the personas voted on each pair of a profile and a context, and what a person decided.

One profile at a time: as the matrix of its attributes and contexts, as the table of one context, or as counts. The
chosen pair is beside it with its votes and decisions. All of the view is in the URL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

import pandas as pd
import streamlit as st

from cimemories.flows import catalogue
from cimemories.labels.matrix import Flags, Matrix, differing, matrix, view
from cimemories.labels.votes import PairView, pairs
from cimemories.review.recording import record
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, content_hash, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, page, safe, tables, url, workbench
from pages.curate import label_matrix, pair_panel
from pages.curate.label_matrix import Filters, word
from pages.curate.profile_view import display_name

MATRIX, CONTEXT, COUNTS = "matrix", "context", "counts"
VIEWS = {MATRIX: "Matrix", CONTEXT: "One context", COUNTS: "Counts"}
SetTakeaway = Callable[[str], None]


def _context(record: ProfileRecord) -> int:
    contexts = dict(zip(record.context_ids, record.profile.contexts, strict=True))
    texts = {i: f"{context.recipient}: {context.task}" for i, context in contexts.items()}
    chosen = page.select("Context", list(texts), texts.__getitem__, "labels.context", "context")
    return record.context_ids[0] if chosen is None else chosen


def _filtered(
    views: Sequence[PairView], filters: Filters, record: ProfileRecord, flags: Flags | None
) -> list[PairView]:
    differs = None if flags is None else flags[:, record.context_ids.index(views[0].context_id)].tolist()
    return [
        v
        for n, v in enumerate(views)
        if (not filters.kinds or word(v.kind) in filters.kinds)
        and filters.domain in (None, v.attribute.domain)
        and filters.event in (None, v.attribute.event)
        and (differs is None or differs[n])
    ]


def _pair_table(views: Sequence[PairView], chosen: int | None) -> int | None:
    personas = [v.persona.key for v in views[0].votes]
    frame = pd.DataFrame(
        [
            {
                "attribute": v.attribute.key,
                "effective": safe.glyphed(v.effective) or v.kind or "not labelled",
                **{f"votes{n}": item.strip for n, item in enumerate(v.votes)},
                "statement": v.attribute.statement,
                "domain": display_name(v.attribute.domain),
                "consensus": safe.glyphed(v.consensus),
                "decision": safe.glyphed(v.decision.label) if v.decision else "",
            }
            for v in views
        ],
        index=[v.attribute_id for v in views],
    )
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "attribute": "text",
        "statement": "wide",
        "effective": ("text", "label"),
        **({"decision": "text"} if any(v.decision for v in views) else {}),
        **{f"votes{n}": ("text", key) for n, key in enumerate(personas)},
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


def _one_context(
    views: list[PairView], labels: Matrix, labelling: LabellingRow | None, filters: Filters, flags: Flags | None
) -> PairView | None:
    """The table of one context; returns the chosen pair."""
    own = {v.attribute_id: v for v in views}
    attribute = url.get_int("attribute")
    if attribute is not None and attribute not in own:
        page.notice(f"Attribute {attribute} of the link is not one of this profile's. Choose a row.")
        url.replace(attribute=None)
        attribute = None
    shown = _filtered(views, filters, labels.record, flags)
    clicked = _pair_table(shown, attribute) if shown else None
    if not shown:
        page.notice("No pair of this context matches the filters.")
    elif views[0].votes and not (labelling and labelling.imported):
        safe.inline("Votes, one character per vote: N necessary, X inappropriate, ? abstain, - missing.", muted=True)
    if clicked is not None and clicked != attribute:
        url.put(attribute=clicked)
        attribute = clicked
    return own[attribute] if attribute is not None else shown[0] if shown else None


def _takeaway(views: Sequence[PairView]) -> str:
    counts = Counter(word(v.kind) for v in views)
    decided = sum(v.decision is not None for v in views)
    parts = [f"{counts[kind]} {kind}" for kind in label_matrix.KINDS if counts[kind]]
    people = f"; {decided} decided by people" if decided else ""
    return (
        f"Of {len(views)} attributes towards '{safe.option(views[0].context.recipient)}': {', '.join(parts)}{people}."
    )


def _owner(store: Store, dataset_id: int) -> str:
    """Under what the browser keeps what is decided, until the record has it; empty while nobody is named."""
    me = annotator.name()
    if not me:
        return ""
    # A record of another workspace, or of the next dataset with this id, is not to get it.
    created = {row.id: row.created for row in catalogue.all_datasets(store)}[dataset_id]
    owner = content_hash([str(store.engine.url), dataset_id, created, me])
    workbench.set_owner(label_matrix.MATRIX, owner, (dataset_id, me))
    return owner


def _record(store: Store) -> None:
    """Record what the keys of the matrix decided since the last run. Where that fails, the browser sends it again."""
    waiting = [e for e in workbench.pending(label_matrix.MATRIX) if workbench.owner(label_matrix.MATRIX, e)]
    with page.Reporting("Your decisions are not saved yet; this page goes on trying.", StoreError):
        for (dataset_id, who), group in groupby(waiting, lambda e: workbench.owner(label_matrix.MATRIX, e)):
            events = list(group)
            done = record(store, dataset_id, who, events, source="single")
            if done.gone:
                page.notice(f"{count(len(done.gone), 'decision')} not saved: an edit has removed the pair.")
            workbench.confirm(label_matrix.MATRIX, [event.uid for event in events])


def _matrix(
    store: Store, labels: Matrix, labelling: LabellingRow | None, filters: Filters, flags: Flags | None
) -> PairView | None:
    """The matrix; returns the pair that its cursor is on."""
    seen = view(
        labels, domain=filters.domain, event=filters.event, sphere=filters.sphere, labels=filters.labels, differs=flags
    )
    if filters.any:
        left, button = st.columns([6, 1], vertical_alignment="center")
        with left:
            safe.inline(label_matrix.filter_summary(seen, labels, filters), muted=True)
        button.button("Clear", icon=":material/filter_alt_off:", key="labels.clear", on_click=label_matrix.clear)
    keys = () if store.read_only else pair_panel.DECIDING
    cursor = label_matrix.draw(labels, seen, filters, keys, _owner(store, labels.record.dataset))
    if cursor is None:
        return None
    attribute, context = cursor
    return pairs(store, labelling.id if labelling else None, labels.record.id, context, attribute)[0]


def _profile(
    store: Store, labelling: LabellingRow | None, labels: Matrix, shown: str, set_takeaway: SetTakeaway
) -> None:
    """One profile in the chosen view with the pair beside it; the takeaway is shown as soon as it is known."""
    if shown == COUNTS:
        set_takeaway(label_matrix.takeaway(labels))
        label_matrix.counts(labels)
        return
    top = st.container()
    left, right = st.columns([2, 1] if shown == MATRIX else [5, 3], gap="medium")
    with left:
        context = None if shown == MATRIX else _context(labels.record)
    views = None if context is None else pairs(store, labelling.id if labelling else None, labels.record.id, context)
    set_takeaway(label_matrix.takeaway(labels) if views is None else _takeaway(views))
    with top:
        totals = labels.totals if context is None else labels.context_totals(context)
        counts = {word(label): number for label, number in totals.items()}
        filters = label_matrix.draw_filters(labels.record.profile, counts, spheres=context is None)
    # Only where it is filtered by: dissent takes the votes of every pair of the profile.
    flags = differing(store, labels, labelling.id if labelling else None, filters.differs) if filters.differs else None
    with left:
        if views is None:
            chosen = _matrix(store, labels, labelling, filters, flags)
        else:
            chosen = _one_context(views, labels, labelling, filters, flags)
    with right:
        if chosen is None:
            page.empty("No pair chosen", "Choose a pair to see its votes and decide its label.")
        else:
            pair_panel.draw(store, labels.record, labelling, chosen)


def main() -> None:
    store = shared_store()
    rows = catalogue.all_datasets(store)
    if not rows:
        page.no_datasets(
            "Labels",
            "There is nothing to label yet.",
            "Labels belong to pairs of an attribute and a context. Import profiles first.",
        )
        return
    top = st.container()
    first, second, third, fourth = st.columns([5, 6, 5, 6], vertical_alignment="bottom")
    dataset, labelling = label_matrix.draw_scope(store, rows, "labels", first, second)
    names = catalogue.profile_names(store, dataset.id)
    with third:
        profile = page.select("Profile", list(names), lambda i: names[i], "labels.profile", "profile")
    with fourth:
        shown = page.choice("View", VIEWS, "labels.show", "show", default=MATRIX)
    label_matrix.watch(store, labelling)
    _record(store)
    if labelling is None:
        label_matrix.start(store, dataset, labelling)
    simulated = labelling is not None and labelling.simulated
    takeaways = []

    def set_takeaway(takeaway: str) -> None:
        takeaways.append(takeaway)
        with top:
            page.head("Labels", takeaway, simulated=simulated)

    try:
        _shown(store, labelling, profile, shown, set_takeaway)
    except StoreError as problem:
        page.error("These pairs could not be read.", str(problem))
        if not takeaways:
            set_takeaway("Nothing is shown.")
    if labelling is not None:
        label_matrix.start(store, dataset, labelling)


def _shown(
    store: Store, labelling: LabellingRow | None, profile: int | None, shown: str, set_takeaway: SetTakeaway
) -> None:
    if profile is None:
        set_takeaway("There are no pairs to label.")
        page.empty("No profiles", "This dataset has no profiles, so it has no pairs.")
        return
    record = catalogue.profile_of(store, profile)
    if not record.context_ids:
        set_takeaway("There are no pairs to label.")
        page.empty("No contexts", "This profile is not tested in any context, so it has no pairs.")
    elif not record.attribute_ids:
        set_takeaway("This profile has no attributes.")
        page.empty("No attributes", "This profile has no memory statements, so it has no pairs.")
    else:
        _profile(store, labelling, matrix(store, labelling.id if labelling else None, record), shown, set_takeaway)


main()
