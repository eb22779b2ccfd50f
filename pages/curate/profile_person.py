"""Parts of the Profiles page: one person, a row for each domain, edited where it stands; two people side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import streamlit as st

from cimemories.labels.matrix import ProfileLabels
from cimemories.model import GENERAL, Attribute, Profile
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store
from cimemories.text import count, display_name, spoken
from cimemories.ui import matrix, page, safe, url
from cimemories.ui.safe import Html, tag
from pages.curate import profile_edit

ATTRIBUTES, BIOGRAPHY = "attributes", "biography"  # views in which an attribute, or the biography, is being edited
Rows = list[tuple[int, Attribute]]


def facts(profile: Profile) -> None:
    """Draw the biography, in one line."""
    contexts = count(len(profile.contexts), "context")
    address = safe.join([safe.data(profile.address), " · "] if profile.address else [])
    before = "".join(f"{text} · " for text in (count(profile.age, "year"), profile.sex) if text)
    safe.show(tag("div", before, address, f"tested in {contexts}", cls="ci-line"))


def events(profile: Profile) -> None:
    """Draw the life events in their order."""
    moments = []
    for event in profile.events:
        attributes = [a for a in profile.attributes if a.event == event]
        domains = count(len({a.domain for a in attributes}), "domain")
        moments.append((event, f"{count(len(attributes), 'attribute')} in {domains}"))
    if moments:
        safe.show(matrix.timeline(moments))


def by_domain(record: ProfileRecord, domains: Collection[str], events: Collection[str]) -> dict[str, Rows]:
    """Return the attributes of a profile with their ids, by domain, `general` first, of these domains and events
    only."""
    groups: dict[str, Rows] = {}
    for attribute_id, item in zip(record.attribute_ids, record.profile.attributes, strict=True):
        if (not domains or item.domain in domains) and (not events or item.event in events):
            groups.setdefault(item.domain, []).append((attribute_id, item))
    return {name: groups[name] for name in sorted(groups, key=lambda name: (name != GENERAL, name))}


def _edit(view: str | None, **more: int) -> None:
    """Begin to edit, or end it with None."""
    profile_edit.drop()
    url.put(view=view, **more)


def draw(
    store: Store,
    dataset: DatasetRow,
    record: ProfileRecord,
    labels: ProfileLabels | None,
    domains: Collection[str],
    chosen_events: Collection[str],
    attribute_id: int | None,
) -> None:
    """Draw one profile; the row with the attribute `attribute_id` is open. Without labels there are no strips."""
    editing = None if store.read_only else url.get("view")
    _head(store, dataset, record, editing == BIOGRAPHY)
    events(record.profile)
    if labels is not None:
        safe.show(matrix.distribution(labels.counts()))
        people = f" {labels.decided:,} of them decided by people, with a bar below the cell." if labels.decided else ""
        safe.inline(
            f"In a strip each cell is one of the {len(record.context_ids)} contexts, in the same order in every row; "
            f"hover to see which.{people}",
            muted=True,
        )
    groups = by_domain(record, domains, chosen_events)
    if editing == ATTRIBUTES and attribute_id not in record.attribute_ids and attribute_id != profile_edit.NEW:
        attribute_id = next(iter(record.attribute_ids), profile_edit.NEW)
    if editing == ATTRIBUTES and attribute_id == profile_edit.NEW:
        _form(store, dataset, record, profile_edit.NEW)
    elif attribute_id is not None and attribute_id not in record.attribute_ids:
        page.notice(f"Attribute {attribute_id} of the link is not one of this profile's.")
    if not groups:
        page.notice("This profile has no attribute in the chosen domains and events.")
    with st.container(horizontal=True, vertical_alignment="center"):
        every = len(groups) > 1 and st.toggle("Open all domains", key="person.all")
        if not store.read_only:
            st.button("Add an attribute", icon=":material/add:", key="person.add", type="tertiary",
                      on_click=url.durable(_edit), args=(ATTRIBUTES,),
                      kwargs={"attribute": profile_edit.NEW})  # fmt: skip
    for number, (domain, rows) in enumerate(groups.items()):
        ids = [i for i, _ in rows]
        first = number == 0 and attribute_id not in record.attribute_ids
        page.fold(
            f"{display_name(domain).capitalize()} ({len(ids)})" + (f": {_counts(labels, ids)}" if labels else ""),
            ":material/topic:",
            f"person.box.{domain}",
            partial(_domain, store, dataset, record, rows, labels, attribute_id, editing == ATTRIBUTES),
            expanded=every or first or domain in domains or attribute_id in ids,
        )
    if labels is not None:
        matrix.colour([context.recipient for context in record.profile.contexts])


def _head(store: Store, dataset: DatasetRow, record: ProfileRecord, editing: bool) -> None:
    safe.heading(record.profile.name)
    if editing:
        with st.container(border=True):
            profile_edit.biography(store, dataset, record)
            st.button("Cancel", key="person.cancel", type="tertiary", on_click=url.durable(_edit), args=(None,))
            profile_edit.draw(store, dataset, record)
        return
    facts(record.profile)
    with st.container(horizontal=True, vertical_alignment="center"):
        if not store.read_only:
            st.button("Edit biography", icon=":material/edit:", key="person.bio", type="tertiary",
                      on_click=url.durable(_edit), args=(BIOGRAPHY,))  # fmt: skip
        url.page_link(
            "labels", "Labels of this profile", icon=":material/label:", dataset=record.dataset, profile=record.id
        )


def _counts(labels: ProfileLabels, ids: Sequence[int]) -> str:
    return ", ".join(f"{n:,} {matrix.WORDS[glyph]}" for glyph, n in labels.counts(ids).items() if n)


def _domain(
    store: Store,
    dataset: DatasetRow,
    record: ProfileRecord,
    rows: Rows,
    labels: ProfileLabels | None,
    chosen: int | None,
    editing: bool,
) -> None:
    for attribute_id, item in rows:
        if editing and attribute_id == chosen:
            _form(store, dataset, record, attribute_id)
            continue
        event = "" if item.event == GENERAL else f" · {item.event}"
        below = f"{item.key}: {spoken(item.value)}{event}"
        strip = (
            ""
            if labels is None
            else matrix.strip(labels.strips.get(attribute_id, ""), labels.people.get(attribute_id, ""))
        )
        text = tag("div", safe.folded(item.statement), cls="ci-text", data=True)
        muted = tag("div", safe.folded(below), cls="ci-muted") if store.read_only else ""
        safe.show(tag("div", text, strip, muted, cls="ci-memory ci-chosen" if attribute_id == chosen else "ci-memory"))
        if not store.read_only:
            # The line of key and value is the button: each has its own name, for screen readers.
            st.button(
                safe.plain_label(below),
                key=f"person.edit.{attribute_id}",
                icon=":material/edit:",
                type="tertiary",
                help="Edit this attribute",
                on_click=url.durable(_edit),
                args=(ATTRIBUTES,),
                kwargs={"attribute": attribute_id},
            )


def _form(store: Store, dataset: DatasetRow, record: ProfileRecord, attribute_id: int) -> None:
    with st.container(border=True):
        profile_edit.attribute(store, dataset, record, attribute_id)
        st.button("Cancel", key="person.cancel", type="tertiary", on_click=url.durable(_edit), args=(None,))
        profile_edit.draw(store, dataset, record)


# ---- two profiles side by side


def compare(
    pair: tuple[ProfileRecord, ProfileRecord],
    labels: tuple[ProfileLabels | None, ProfileLabels | None],
    domains: Collection[str],
    chosen_events: Collection[str],
) -> None:
    """Draw both profiles; attributes of the same key share a row, and the others follow."""
    first, second = (by_domain(record, domains, chosen_events) for record in pair)
    for column, record, side in zip(st.columns(2, gap="medium"), pair, labels, strict=True):
        with column:
            safe.heading(record.profile.name)
            facts(record.profile)
            events(record.profile)
            if side is not None:
                safe.show(matrix.distribution(side.counts()))
    shared = len({a.key for a in pair[0].profile.attributes} & {a.key for a in pair[1].profile.attributes})
    verb = "is in both and stands" if shared == 1 else "are in both and stand"
    safe.inline(f"{count(shared, 'key')} {verb} side by side." if shared else "No key is in both.", muted=True)
    names = list(dict.fromkeys([*first, *second]))
    for domain in names:
        sides = [{item.key: item for _, item in groups.get(domain, [])} for groups in (first, second)]
        both = [key for key in sides[0] if key in sides[1]]
        keys = [*both, *(key for side in sides for key in side if key not in both)]
        safe.heading(f"{display_name(domain).capitalize()} ({len(sides[0])} and {len(sides[1])})")
        titles = ["Key", *(safe.option(record.profile.name) for record in pair)]
        rows = [_aligned(key, sides) for key in keys]
        safe.show(tag("div", safe.grid(titles, rows, texts=range(3)), cls="ci-aligned"))
    if not names:
        page.notice("Neither profile has an attribute in the chosen domains and events.")


def _aligned(key: str, sides: Sequence[Mapping[str, Attribute]]) -> Html:
    cells = [
        tag(
            "td",
            safe.folded(side[key].statement),
            tag("div", safe.folded(spoken(side[key].value)), cls="ci-muted"),
            data=True,
        )
        if key in side
        else tag("td", "–", cls="ci-muted")
        for side in sides
    ]
    return tag("tr", tag("td", tag("b", key) if all(key in side for side in sides) else key), *cells)
