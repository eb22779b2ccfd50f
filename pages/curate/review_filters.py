"""Part of the Review page: which pairs come, in what order, who sees them; all of it in the URL, or under a name."""

from __future__ import annotations

import streamlit as st

from cimemories.analysis.review_index import PairIndex
from cimemories.analysis.review_select import UNLABELLED_NAME, Filters, Order
from cimemories.analysis.review_shape import Facet
from cimemories.model import Label
from cimemories.store import claims, saved_views, slices
from cimemories.store.claims import Plan
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, tables, url
from pages.curate.label_filters import choice
from pages.curate.profile_view import words

ORDERS = {
    Order.EFFECT: "effect on results",
    Order.ENTROPY: "divided votes first",
    Order.CONTEXT: "one recipient at a time",
    Order.ATTRIBUTE: "one attribute at a time",
    Order.RANDOM: "at random",
}
LABELS = (*map(str, Label), UNLABELLED_NAME)
YES_NO = {"yes": True, "no": False}
PARAMETERS = (
    *("profile", "domain", "event", "sphere", "label", "dissenter", "undecided", "others", "revealed", "flagged"),
    *("slice", "order", "seed", "blind"),
)


def draw(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> tuple[Filters, Order, int]:
    """The filters and the order that the URL asks for, with the controls that change them."""
    first, second, third, fourth, fifth = st.columns([3, 3, 3, 3, 3], vertical_alignment="bottom")
    with first:
        # A slice that is left half done is a sample still only where its pairs came at random.
        first_order = Order.RANDOM if url.get("slice") else Order.EFFECT
        orders = [str(o) for o in sorted(Order, key=lambda o: o is not first_order)]
        order = choice("Order", "order", orders, lambda o: ORDERS[Order(o)], None)
    names = index.shape.names
    with second:
        domain = choice("Domain", "domain", sorted(names[Facet.DOMAIN]), words, "all domains")
    with third:
        label = choice("Current label", "label", list(LABELS), _label, "all labels")
    with fourth:
        undecided = choice("Decided", "undecided", ["no"], lambda _: "by me too", "not by me yet")
    with fifth, st.popover("More filters, views, overlap", icon=":material/tune:", width="stretch"):
        event = choice("Event", "event", sorted(names[Facet.EVENT]), words, "all events")
        spheres = sorted(name for name in names[Facet.SPHERE] if name)
        sphere = choice("Sphere", "sphere", spheres, words, "all spheres")
        profile = _profile(index)
        dissenter = None
        if index.rule is not None:
            dissenter = choice("Dissenting persona", "dissenter", list(index.rule.keys), str, "any or none")
        others = choice("Decided differently by others", "others", ["yes"], str, "does not matter")
        revealed = choice("Revealed in a recorded run", "revealed", list(YES_NO), str, "does not matter")
        flagged = choice("Flagged as a bad item", "flagged", list(YES_NO), str, "does not matter")
        chosen_slice = _slice(store, dataset)
        _views(store, me)
        _overlap(store, dataset, me)
    filters = Filters(
        profile=profile,
        domain=domain,
        event=event,
        sphere=sphere,
        labels=(label,) if label else (),
        dissenter=dissenter,
        undecided_by=me if undecided is None else None,
        others_differ_from=me if others else None,
        revealed=YES_NO[revealed] if revealed else None,
        flagged=YES_NO[flagged] if flagged else None,
        slice=chosen_slice,
    )
    return filters, Order(order or first_order), url.get_int("seed") or 0


def _label(name: str) -> str:
    return "not labelled" if name == UNLABELLED_NAME else safe.glyphed(Label(name))


def _profile(index: PairIndex) -> int | None:
    ids = [str(i) for i in index.shape.profile_ids.tolist()]
    named = dict(zip(ids, index.shape.names[Facet.PROFILE], strict=True))
    chosen = choice("Profile", "profile", ids, lambda i: named[i], "all profiles")
    return None if chosen is None else int(chosen)


def _slice(store: Store, dataset: DatasetRow) -> int | None:
    with store.read() as connection:
        drawn = {str(row.id): row for row in slices.all_rows(connection, dataset.id, "labels")}
    chosen = choice("Audit slice", "slice", list(drawn), lambda i: f"{drawn[i].name} ({drawn[i].items})", "none")
    return None if chosen is None else int(chosen)


def _views(store: Store, me: str) -> None:
    safe.heading("Saved views")
    with store.read() as connection:
        views = saved_views.of_page(connection, "review")
    for view in views:
        known = {name: value for name, value in view.query.items() if name in url.PARAMETERS}
        url.page_link("review", safe.plain_label(view.name), icon=":material/bookmark:", **known)
    with st.form("review.view", border=False, clear_on_submit=True):
        name = st.text_input("Name of this view", max_chars=saved_views.LONGEST_NAME)
        if st.form_submit_button("Save this view", icon=":material/bookmark_add:"):
            query = {p: v for p in ("dataset", "labelling", *PARAMETERS) if (v := url.get(p)) is not None}
            try:
                with store.write() as connection:
                    saved_views.save(connection, name, "review", query, me)
            except StoreError as problem:
                page.error("The view was not saved.", str(problem))
            else:
                st.rerun()


def _overlap(store: Store, dataset: DatasetRow, me: str) -> None:
    safe.heading("Overlap")
    with store.read() as connection:
        now = claims.plan(connection, dataset.id)
    share = tables.percent(now.share)
    safe.inline(f"{share} of the pairs are given to {now.people} people, the others to one.", muted=True)
    with st.form("review.overlap", border=False):
        percent = st.number_input("Share of pairs given to several people, in %", 0, 100, round(100 * now.share))
        people = st.number_input("How many people see those", 2, 20, max(2, now.people))
        if st.form_submit_button("Set overlap", icon=":material/group:"):
            with store.write() as connection:
                claims.set_plan(connection, dataset.id, Plan(percent / 100, int(people), now.seed), me)
            st.rerun()
