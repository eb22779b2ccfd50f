"""Part of the Profiles page: the list at the left, with search and filters that all stand in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from cimemories.store import profile_lists
from cimemories.store.engine import Store
from cimemories.store.profile_lists import Hit, Summary
from cimemories.ui import page, safe, tables, url
from pages.curate.profile_view import words

HITS = 200
_BETWEEN = "|"


def chosen(param: str, options: Sequence[str]) -> list[str]:
    """What the URL says of a filter with several values, as far as there are such values."""
    asked = (url.get(param) or "").split(_BETWEEN)
    return [name for name in asked if name in options]


def _filter(label: str, param: str, options: Sequence[str], key: str) -> list[str]:
    def changed() -> None:
        url.put(**{param: _BETWEEN.join(st.session_state[key]) or None})

    st.session_state[key] = chosen(param, options)
    # The label is one of two literals below.
    if label == "Domains":
        return st.multiselect("Domains", options, key=key, format_func=words, on_change=changed)
    return st.multiselect("Events", options, key=key, format_func=safe.option, on_change=changed)


def filters(domains: Sequence[str], events: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The search and the two filters: (what is searched, domains, events)."""

    def changed() -> None:
        url.put(search=st.session_state["profiles.search"].strip() or None)

    st.session_state["profiles.search"] = url.get("search") or ""
    wanted = st.text_input(
        "Search in statements, keys and names",
        key="profiles.search",
        icon=":material/search:",
        placeholder="rent",
        on_change=changed,
    )
    left, right = st.columns(2)
    with left:
        chosen_domains = _filter("Domains", "domains", domains, "profiles.domains")
    with right:
        chosen_events = _filter("Events", "events", events, "profiles.events")
    return wanted.strip(), chosen_domains, chosen_events


def profile_table(rows: Sequence[Summary], ambiguous: Mapping[int, float], current: int | None) -> int | None:
    """The profiles; returns the one that is clicked, else `current`."""
    frame = pd.DataFrame(
        [
            {
                "name": r.name,
                "age": r.age,
                "attributes": r.attributes,
                "ambiguous": ambiguous.get(r.id),
                "events": ", ".join(r.events),
            }
            for r in rows
        ],
        index=[r.id for r in rows],
    )
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "name": "text",
        "age": "number",
        "attributes": "count",
        **({"ambiguous": "percent"} if ambiguous else {}),
        "events": "text",
    }
    ids = [r.id for r in rows]
    position = tables.table(
        frame,
        key="profiles.table",
        columns=columns,
        on_select="row",
        selected=ids.index(current) if current in ids else None,
        alt="The profiles of this dataset",
    )
    return None if position is None else ids[position]


def hits_table(hits: Sequence[Hit], total: int, current: int | None) -> Hit | None:
    """The statements that match; returns the one that is clicked, else that of the attribute `current`."""
    what = "statement" if total == 1 else "statements"
    safe.inline(f"{tables.count(total)} {what} found" + (f", the first {len(hits)} shown" if total > len(hits) else ""))
    frame = pd.DataFrame(
        [{"profile": h.name, "statement": h.statement, "domain": words(h.domain)} for h in hits],
        columns=["profile", "statement", "domain"],
        index=[h.attribute for h in hits],
    )
    ids = [h.attribute for h in hits]
    position = tables.table(
        frame,
        key="profiles.hits",
        columns={"profile": "text", "domain": "text", "statement": "wide"},
        on_select="row",
        selected=ids.index(current) if current in ids else None,
        alt="Statements that match the search",
    )
    return None if position is None else hits[position]


def browse(
    store: Store, dataset_id: int, rows: Sequence[Summary], domains: Sequence[str], ambiguous: Mapping[int, float]
) -> tuple[int | None, list[str], list[str]]:
    """The list with its filters; returns the chosen profile, and the domains and events that are to be shown of it."""
    events = sorted({event for row in rows for event in row.events})
    wanted, chosen_domains, chosen_events = filters(domains, events)
    asked, attribute = url.get_int("profile"), url.get_int("attribute")
    known = {row.id for row in rows}
    if asked is not None and asked not in known:
        page.notice(f"Profile {asked} of the link is not in this dataset. Choose one from the list.")
        asked = attribute = None
        url.put(profile=None, attribute=None)
    shown = [row for row in rows if set(chosen_events) <= set(row.events)]
    if not shown:
        page.notice("No profile has these events." if rows else "This dataset has no profiles.")
    elif wanted:
        asked = _found(store, dataset_id, wanted, chosen_domains, shown if chosen_events else None, asked, attribute)
    else:
        remembered = url.remembered("profile") or ""
        current = asked or (int(remembered) if remembered.isdigit() else None)
        if current not in known:
            current = shown[0].id
        clicked = profile_table(shown, ambiguous, current)
        if clicked is not None and clicked != asked:
            url.put(profile=clicked, attribute=None)
            asked = clicked
        asked = asked or current
    return asked, chosen_domains, chosen_events


def _found(
    store: Store,
    dataset_id: int,
    wanted: str,
    domains: Sequence[str],
    shown: Sequence[Summary] | None,
    asked: int | None,
    attribute: int | None,
) -> int | None:
    ids = None if shown is None else [row.id for row in shown]
    with store.read() as connection:
        hits, total = profile_lists.search(connection, dataset_id, wanted, domains=domains, profiles=ids, limit=HITS)
    if not hits:
        page.notice("No statement, key or name matches. Try fewer words or other filters.")
        return asked
    hit = hits_table(hits, total, attribute)
    if hit is not None and hit.attribute != attribute:
        url.put(profile=hit.profile, attribute=hit.attribute)
        return hit.profile
    return asked or hits[0].profile
