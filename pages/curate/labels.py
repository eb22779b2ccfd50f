"""Labels: the personas' votes on each pair of a profile and a context, and people's decisions.

One profile at a time: as the matrix of its attributes and contexts, as the table of one context, or as counts. The
chosen pair is beside it with its votes and decisions. All of the view is in the URL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from cimemories.access.roles import Role
from cimemories.charts.theme import VOTES
from cimemories.desk.labels import LabelsDesk, version
from cimemories.flows import catalogue
from cimemories.labels.matrix import Flags, Matrix, differing, matrix, view
from cimemories.labels.votes import PairView, pairs
from cimemories.review.recording import pair_of
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.labellings import LabellingRow
from cimemories.text import display_name
from cimemories.ui import annotator, login, once, page, safe, tables, url
from cimemories.ui import matrix as matrix_ui
from cimemories.ui.matrix import Deciding
from pages.curate import label_matrix, pair_panel
from pages.curate.label_matrix import Filters, word

MATRIX, CONTEXT, COUNTS = "matrix", "context", "counts"
LIST = "labels.list"
VIEWS = {MATRIX: "Matrix", CONTEXT: "One context", COUNTS: "Counts"}
SetTakeaway = Callable[[str], None]


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


def _pair_list(views: Sequence[PairView], chosen: int | None, deciding: Deciding) -> int | None:
    """Draw the pairs with votes, consensus and label; returns the attribute of the one that the user moved to."""
    personas = [v.persona.key for v in views[0].votes]
    columns = [
        ("Attribute", "name"),
        ("Memory statement", "wide"),
        ("Label", "plain"),
        *((key, "marks more") for key in personas),
        ("Domain", "plain more"),
        ("Consensus", "plain more"),
    ]
    rows = [
        matrix_ui.Listed(
            v.attribute_id,
            [
                v.attribute.key,
                v.attribute.statement,
                "",
                *(item.strip.translate(VOTES) for item in v.votes),
                display_name(v.attribute.domain),
                safe.glyphed(v.consensus),
            ],
            glyph=safe.GLYPHS[v.effective] if v.effective else "",
            word=str(v.effective or v.kind or "not labelled"),
            by=f"decided by {v.decision.annotator}" if v.decision else "",
        )
        for v in views
    ]
    ids = [row.id for row in rows]
    moved = matrix_ui.pair_list(
        f"Pairs towards {views[0].context.recipient}. The arrow keys move from pair to pair.",
        columns,
        rows,
        label=2,
        key=LIST,
        context=views[0].context_id,
        cursor=chosen if chosen in ids else ids[0],
        deciding=deciding,
    )
    return moved if moved in ids else None


@dataclass(frozen=True)
class Shown:
    """The labels of a profile, filtered, as the matrix and the list of one context show them. differs: the pairs that
    the filter on disagreement asks for; None: all."""

    store: Store
    labels: Matrix
    labelling: LabellingRow | None
    filters: Filters
    differs: Flags | None
    deciding: Deciding


def _one_context(shown: Shown, views: list[PairView]) -> PairView | None:
    """Draw the pairs of one context. Returns the chosen one."""
    own = {v.attribute_id: v for v in views}
    attribute = url.get_int("attribute")
    if attribute is not None and attribute not in own:
        page.notice(f"Attribute {attribute} of the link is not one of this profile's. Choose a row.")
        url.replace(attribute=None)
        attribute = None
    listed = _filtered(views, shown.filters, shown.labels.record, shown.differs)
    if not listed:
        page.notice("No pair of this context matches the filters.")
        return own.get(attribute) if attribute is not None else None
    moved = _pair_list(listed, attribute, shown.deciding)
    if views[0].votes and not (shown.labelling and shown.labelling.imported):
        safe.inline("Votes, one character per vote: N necessary, I inappropriate, U abstain, - missing.", muted=True)
    tables.csv_button(_frame(shown, listed), f"pairs-{listed[0].context_id}.csv", key="labels.csv.context")
    if moved is not None and moved != attribute:
        url.replace(attribute=moved)
        attribute = moved
    return own[attribute] if attribute is not None else listed[0]


def _frame(shown: Shown, listed: Sequence[PairView]) -> pd.DataFrame:
    """Return the listed pairs as a file has them."""
    simulated = shown.labelling is not None and shown.labelling.simulated
    return pd.DataFrame(
        [
            {
                "profile": shown.labels.record.profile.name,
                "recipient": v.context.recipient,
                "task": v.context.task,
                "attribute": v.attribute.key,
                "statement": v.attribute.statement,
                "label": word(v.kind),
                "decided by": v.decision.annotator if v.decision else "",
                **{item.persona.key: item.strip for item in v.votes},
                "domain": v.attribute.domain,
                "event": v.attribute.event,
                "consensus": str(v.consensus or ""),
                "labels": "simulated" if simulated else "",
            }
            for v in listed
        ]
    )


def _takeaway(views: Sequence[PairView]) -> str:
    counts = Counter(word(v.kind) for v in views)
    decided = sum(v.decision is not None for v in views)
    parts = [f"{counts[kind]} {kind}" for kind in label_matrix.KINDS if counts[kind]]
    people = f"; {decided} decided by people" if decided else ""
    return (
        f"Of {len(views)} attributes towards '{safe.option(views[0].context.recipient)}': {', '.join(parts)}{people}."
    )


def _deciding(store: Store, dataset: DatasetRow) -> Deciding:
    """Return the keys that decide, and the desk that records them."""
    # Without the role no key decides: the decision would stay in the browser, refused at each try to record it.
    if store.read_only or login.refusal(Role.ANNOTATOR):
        return Deciding()

    def back(card: str) -> None:
        pair = pair_of(card)
        if pair is None:
            return
        for key in (label_matrix.MATRIX, LIST):
            matrix_ui.leave_place(key)
        url.put(profile=catalogue.profile_with(store, dataset.id, pair[0]), attribute=pair[0], context=pair[1])

    me = annotator.name()
    desk = LabelsDesk(store, dataset, me) if me else None
    return Deciding(pair_panel.DECIDING, desk, version(store, dataset.id), back)


def _matrix(shown: Shown) -> PairView | None:
    """Draw the matrix. Returns the pair that its cursor is on."""
    labels, filters, labelling = shown.labels, shown.filters, shown.labelling
    seen = view(
        labels,
        domain=filters.domain,
        event=filters.event,
        sphere=filters.sphere,
        labels=filters.labels,
        differs=shown.differs,
    )
    if filters.any:
        left, button = st.columns([6, 1], vertical_alignment="center")
        with left:
            safe.inline(label_matrix.filter_summary(seen, labels, filters), muted=True)
        button.button(
            "Clear", icon=":material/filter_alt_off:", key="show.labels.clear", on_click=url.durable(label_matrix.clear)
        )
    cursor = label_matrix.draw(labels, seen, filters, shown.deciding, voting=label_matrix.is_voting(labelling))
    if cursor is None:
        return None
    attribute, context = cursor
    return pairs(shown.store, labelling.id if labelling else None, labels.record.id, context, attribute)[0]


def _profile(
    store: Store,
    labelling: LabellingRow | None,
    labels: Matrix,
    view_name: str,
    deciding: Deciding,
    set_takeaway: SetTakeaway,
) -> None:
    """Draw one profile in the chosen view with the pair beside it; the takeaway is shown as soon as it is known."""
    voting = label_matrix.is_voting(labelling)
    if view_name == COUNTS:
        set_takeaway(label_matrix.takeaway(labels, voting=voting))
        label_matrix.counts(labels, labelling, voting=voting)
        return
    top = st.container()
    left, right = st.columns([2, 1] if view_name == MATRIX else [5, 3], gap="medium")
    context = None
    if view_name == CONTEXT:
        contexts = zip(labels.record.context_ids, labels.record.profile.contexts, strict=True)
        texts = {i: f"{context.recipient}: {context.task}" for i, context in contexts}
        with left:
            context = page.select("Context", list(texts), texts.__getitem__, "labels.context", "context")
    views = None if context is None else pairs(store, labelling.id if labelling else None, labels.record.id, context)
    set_takeaway(label_matrix.takeaway(labels, voting=voting) if views is None else _takeaway(views))
    with top:
        totals = labels.totals if context is None else labels.context_totals(context)
        counts = {word(label): number for label, number in totals.items()}
        filters = label_matrix.draw_filters(labels.record.profile, counts, spheres=context is None)
    # Only if the filter needs it: dissent takes the votes of every pair of the profile.
    flags = differing(store, labels, labelling.id if labelling else None, filters.differs) if filters.differs else None
    shown = Shown(store, labels, labelling, filters, flags, deciding)
    with left:
        chosen = _matrix(shown) if views is None else _one_context(shown, views)
    with right:
        if chosen is None:
            page.empty("No pair chosen", "Choose a pair to see its votes and decide its label.")
        else:
            pair_panel.draw(store, labels.record, labelling, chosen)


def _default(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> None:
    """Say which labelling numbers rest on, if it is another than the one in view, and draw the button that changes
    it."""
    default = next(iter(catalogue.labellings_of(store, dataset.id, voted=True).values()), None)
    if labelling is None or default is None or labelling.id == default.id:
        return
    safe.inline(f"Numbers of this dataset rest on another labelling: {default.id}, by {default.model}.", muted=True)
    with page.Reporting("The labelling was not changed.", StoreError):
        choose = partial(catalogue.choose_labelling, store, labelling.id)
        once.button("Rest all numbers on this labelling", choose, key="labels.choose", icon=":material/check:")


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
    with st.container(key="scope_grid"):
        first, second, third, fourth = st.columns([4, 6, 4.6, 7.8], vertical_alignment="bottom")
    dataset, labelling = label_matrix.draw_scope(store, rows, "labels", first, second)
    names = catalogue.profile_names(store, dataset.id)
    with third:
        profile = page.select("Profile", list(names), lambda i: names[i], "labels.profile", "profile")
    with fourth:
        shown = page.choice("View", VIEWS, "labels.show", "show", default=MATRIX)
    _default(store, dataset, labelling)
    label_matrix.watch(store, labelling, profile)
    deciding = _deciding(store, dataset)
    if labelling is None:
        label_matrix.start(store, dataset, labelling)
    simulated = ("labels",) if labelling is not None and labelling.simulated else ()
    takeaways = []

    def set_takeaway(takeaway: str) -> None:
        takeaways.append(takeaway)
        with top:
            page.head("Labels", takeaway, simulated=simulated)

    try:
        _shown(store, labelling, profile, shown, deciding, set_takeaway)
    except StoreError as problem:
        page.error("These pairs could not be read.", str(problem))
        if not takeaways:
            set_takeaway("Nothing is shown.")
    if labelling is not None:
        label_matrix.start(store, dataset, labelling)


def _shown(
    store: Store,
    labelling: LabellingRow | None,
    profile: int | None,
    shown: str,
    deciding: Deciding,
    set_takeaway: SetTakeaway,
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
        _profile(
            store, labelling, matrix(store, labelling.id if labelling else None, record), shown, deciding, set_takeaway
        )


main()
