"""The part of the Review page in which pairs are decided one at a time at the desk, in batches of a hundred.

The URL, or a saved filter, determines which pairs are shown, in what order, and to whom."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from cimemories import extras
from cimemories.desk.queue import BATCH, TITLES, Ordering, QueueDesk
from cimemories.flows.catalogue import all_runs
from cimemories.model import Label
from cimemories.review import queue
from cimemories.review.assignments import assignment_of
from cimemories.review.index import Facet, PairIndex, pair_index
from cimemories.review.queue import UNLABELLED_NAME, Filters, Order
from cimemories.review.recording import card_id
from cimemories.review.sampling import label_slices
from cimemories.review.status import guidelines
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import Guideline
from cimemories.text import display_name, listed
from cimemories.ui import desk as desk_ui
from cimemories.ui import once, page, presses, safe, url
from pages.curate import review_bulk
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import DECIDING, lead_on

LABEL_OPTIONS = (*map(str, Label), UNLABELLED_NAME)
YES_NO = {"yes": True, "no": False}
PARAMETERS = (
    *("profile", "domain", "event", "sphere", "label", "dissenter", "undecided", "others", "revealed", "flagged"),
    *("slice", "order", "seed", "blind", "target", "run", "runs", "width", "share", "batch"),
)
KEY = "review"
ACTIONS = "szkjfceb?"
NOTHING_LEFT = "No pairs left for you here. Change the filters to go on."


def draw_filters(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> tuple[Filters, Ordering]:
    """Draw the controls of filters and order, and return both as the URL has them."""
    names = index.shape.names
    of_extras = {name: extras.load(place) for name, place in extras.panels("review").items()}
    titles = {name: order.TITLE for name, order in of_extras.items()} | {str(o): TITLES[o] for o in Order}
    # A half-done slice is still a sample only if its pairs came at random.
    first = str(Order.RANDOM) if url.get("slice") else next(iter(titles))
    orders = sorted(titles, key=lambda name: name != first)
    slices = {str(row.id): f"{row.name} ({row.items})" for row in label_slices(store, dataset.id)}
    left, right = st.columns(2)
    with left:
        order = choice("Order", "order", orders, titles.__getitem__, None)
        domain = choice("Domain", "domain", sorted(names[Facet.DOMAIN]), display_name, "all domains")
        undecided_only = choice("Pairs", "undecided", ["no"], lambda _: "all", "not decided by me")
    with right:
        label = choice("Current label", "label", list(LABEL_OPTIONS), _label, "all labels")
        chosen_slice = choice("Audit slice", "slice", list(slices), slices.__getitem__, "none")
    with st.expander("More filters", icon=":material/filter_list:"):
        safe.heading("Whose, what and to whom")
        left, right = st.columns(2)
        with left:
            profiles = {str(i): name for i, name in zip(index.shape.profile_ids, names[Facet.PROFILE], strict=True)}
            profile = choice("Profile", "profile", list(profiles), profiles.__getitem__, "all profiles")
            event = choice("Event", "event", sorted(names[Facet.EVENT]), display_name, "all events")
        with right:
            spheres = sorted(name for name in names[Facet.SPHERE] if name)
            sphere = choice("Sphere", "sphere", spheres, display_name, "all spheres")
        safe.heading("What people, personas and runs say")
        left, right = st.columns(2)
        with left:
            others = choice("Others decided differently", "others", ["yes"], str, "any")
            flagged = choice("Flagged as a bad item", "flagged", list(YES_NO), str, "any")
        with right:
            dissenter = None
            if index.rule is not None:
                dissenter = choice("Dissenting persona", "dissenter", list(index.rule.keys), str, "any or none")
            revealed = choice("Revealed in a recorded run", "revealed", list(YES_NO), str, "any")
        name, seed = order or first, url.get_int("seed") or 0
        own = of_extras.get(name)  # the order of an extra draws its settings
        ordering: Ordering = own.ordering(store, dataset.id, seed) if own else Ordering(Order(name), seed)
    with st.expander("Saved views", icon=":material/bookmark:"):
        _views(store, me)
    filters = Filters(
        profile=int(profile) if profile else None,
        domain=domain,
        event=event,
        sphere=sphere,
        labels=(label,) if label else (),
        dissenter=dissenter,
        undecided_by=me if undecided_only is None else None,
        others_differ_from=me if others else None,
        revealed=YES_NO[revealed] if revealed else None,
        flagged=YES_NO[flagged] if flagged else None,
        slice=int(chosen_slice) if chosen_slice else None,
    )
    return filters, replace(ordering, batch=desk_ui.batch_size(BATCH))


def _label(name: str) -> str:
    return "not labelled" if name == UNLABELLED_NAME else safe.glyphed(Label(name))


def _views(store: Store, me: str) -> None:
    for view in queue.saved_views(store):
        known = {name: value for name, value in view.query.items() if name in url.PARAMETERS}
        url.page_link("review", safe.plain_label(view.name), icon=":material/bookmark:", **known)
    with st.form("review.view", border=False, clear_on_submit=True):
        name = st.text_input("Name of this view", max_chars=reviews.LONGEST_VIEW_NAME)
        query = {p: v for p in ("dataset", "labelling", *PARAMETERS) if (v := url.get(p)) is not None}
        with page.Reporting("The view was not saved.", StoreError):
            once.button(
                "Save this view",
                lambda: queue.save_view(store, name, query, me),
                key="review.view.save",
                submits=True,
                icon=":material/bookmark_add:",
            )


def context_line(store: Store, dataset: DatasetRow, filters: Filters, ordering: Ordering | None = None) -> str:
    """Describe the content of the queue: 'demo (simulated), health, ambiguous, most informative first'."""
    slices = {row.id: f"slice {row.name}" for row in label_slices(store, dataset.id)} if filters.slice else {}
    parts = [
        f"{dataset.name} (simulated)" if dataset.simulated else dataset.name,
        slices.get(filters.slice or 0),
        *(display_name(name) if name else None for name in (filters.domain, filters.event, filters.sphere)),
        "one profile" if filters.profile else None,
        *("not labelled" if name == UNLABELLED_NAME else name for name in filters.labels),
        f"{filters.dissenter} dissents" if filters.dissenter else None,
        "decided differently by others" if filters.others_differ_from else None,
        None if filters.revealed is None else "revealed in a run" if filters.revealed else "not revealed in a run",
        None if filters.flagged is None else "flagged" if filters.flagged else "not flagged",
        None if filters.undecided_by else "decided ones too",
        ordering.title if ordering else None,
    ]
    return ", ".join(part for part in parts if part)


def draw(desk: QueueDesk) -> None:
    """Draw the queue, or instead the pairs to which the last decision could be spread."""
    store, dataset = desk.store, desk.dataset
    spreads = st.session_state.get(review_bulk.SPREAD) and not review_bulk.spread_by_keys(store, dataset, desk.me)
    review_bulk.draw_notice()
    if store.read_only:
        page.notice("This workspace is read-only, so nothing can be decided here. Copy it to a writable folder.")
        return
    if spreads:
        _spread(desk)
        return
    assigned = assignment_of(store, desk.filters.slice)
    if assigned is not None and desk.me not in assigned.people:
        page.notice(f"This slice is assigned to {listed(assigned.people)}. You can look at it on Agreement.")
        return
    if desk.is_done:
        lead_on(store, desk.filters.slice, "Every pair of this queue is decided.", lambda: _results(desk))
    first = url.get_int("attribute"), url.get_int("context")
    desk_ui.draw(
        desk,
        desk.name,
        key=KEY,
        keys=DECIDING,
        actions=ACTIONS,
        blind=url.get("blind") != "0",
        batch=desk.batch,
        start=card_id((first[0], first[1])) if first[0] is not None and first[1] is not None else None,
        address=("attribute", "context"),
        context=context_line(store, dataset, desk.filters, desk.ordering),
        empty="No pairs left for you in this slice." if desk.filters.slice else NOTHING_LEFT,
        hiding="Votes, consensus and past leaks show after your answer.",
        asked=_asked,
    )
    draw_guideline(store)
    page.fold(
        "Your batches",
        ":material/done_all:",
        "review.box.batches",
        lambda: review_bulk.own_batches(store, dataset, desk.me),
    )
    if note := desk.ordering.note(desk.filters):
        safe.inline(note, muted=True)
    effect = "See what all decisions do to a run"
    url.page_link("review", effect, icon=":material/trending_up:", dataset=dataset.id, tab="agreement")


def _results(desk: QueueDesk) -> None:
    """Draw links to the audit of a judge, and to what the decisions came to."""
    dataset, agree = desk.dataset.id, "See how far people agree"
    if judged := [run.id for run in all_runs(desk.store) if run.dataset == dataset and run.judged]:
        url.page_link("judge_audit", "Audit the judge", icon=":material/gavel:", run=judged[-1])
    slice_id = desk.filters.slice
    url.page_link("review", agree, icon=":material/query_stats:", dataset=dataset, tab="agreement", slice=slice_id)


def _asked(what: str) -> None:
    if what == "spread":
        st.session_state[review_bulk.SPREAD] = True
        url.replace(attribute=None, context=None)  # the queue goes on afterwards; what is known here is where it began
    elif what in ("blind", "seeing"):
        url.put(blind=0 if what == "seeing" else None)


def draw_guideline(store: Store) -> None:
    """Draw the guideline, folded."""
    page.fold("Guideline", ":material/menu_book:", "review.box.norms", lambda: _guideline(guidelines(store)[-1]))


def _guideline(guideline: Guideline) -> None:
    safe.inline(f"Version {guideline.version}. Earlier versions are on the Guideline tab.", muted=True)
    safe.show(safe.document(guideline.text))


def _spread(desk: QueueDesk) -> None:
    # On top, since the list of proposals is long.
    above = st.container(horizontal=True, vertical_alignment="center")
    above.button(
        "Back to the queue",
        key="review.spread.back",
        icon=":material/arrow_back:",
        on_click=url.durable(lambda: st.session_state.pop(review_bulk.SPREAD, None)),
    )
    safe.heading("Spread your last decision")
    index = pair_index(desk.store, desk.dataset.id, desk.labelling.id if desk.labelling else None)
    keys = review_bulk.spread(desk.store, desk.dataset, desk.labelling, index, desk.me)
    with above:
        presses.draw([*keys, "k"], key=f"{review_bulk.SPREAD}.keys")
