"""Parts of the Profiles page: the list of people with its search and filters, and how names and values are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from cimemories.flows import catalogue
from cimemories.store.datasets import Hit, Summary
from cimemories.store.engine import Store
from cimemories.text import count, display_name
from cimemories.ui import page, safe, tables, url

# ---- the list with its search and filters, all of them in the URL


HITS = 200
_BETWEEN = "|"  # of names in the URL: a comma may be part of one


def filters(domains: Sequence[str], events: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Draw the search and the two filters, and return them: (text to search for, domains, events)."""
    text = page.bound(
        st.text_input,
        "Search statements, keys and names",
        key="profiles.search",
        value=url.get("search") or "",
        put=lambda text: url.put(search=text.strip() or None),
        typed=True,
        icon=":material/search:",
        placeholder="rent",
    )
    # Folded under the current choice: on a phone the people come sooner.
    names = [display_name(name) for name in (url.get("domains") or "").split(_BETWEEN) if name]
    names += [safe.option(name) for name in (url.get("events") or "").split(_BETWEEN) if name]
    chosen = ", ".join(names) or "All domains and events"
    with st.popover(safe.plain_label(chosen, 60), icon=":material/filter_alt:", key="profiles.filter", width="stretch"):
        texts = {name: display_name(name) for name in domains}
        chosen_domains = page.several("Domains", texts, "profiles.domains", "domains", between=_BETWEEN)
        texts = dict(zip(events, events, strict=True))
        chosen_events = page.several("Events", texts, "profiles.events", "events", between=_BETWEEN)
    return text.strip(), chosen_domains, chosen_events


def profile_table(rows: Sequence[Summary], ambiguous: Mapping[int, float], current: int | None) -> int | None:
    """Draw the profiles. Returns the clicked one, else `current`."""
    ids = [r.id for r in rows]
    frame = pd.DataFrame(
        [(r.name, r.age, r.attributes, ambiguous.get(r.id), ", ".join(r.events)) for r in rows],
        columns=["name", "age", "attributes", "ambiguous", "events"],
        index=ids,
    )
    columns: dict[str, tables.Column] = {
        "name": "text",
        "age": "number",
        "attributes": "count",
        **({"ambiguous": "percent"} if ambiguous else {}),
        "events": "text",
    }
    return _clicked(frame, "profiles.table", columns, current, "The profiles of this dataset")


def hits_table(hits: Sequence[Hit], total: int, current: int | None) -> Hit | None:
    """Draw the matching statements. Returns the clicked one, else that of the attribute `current`."""
    cut = f", the first {len(hits)} shown" if total > len(hits) else ""
    safe.inline(f"{count(total, 'statement')} found{cut}")
    frame = pd.DataFrame(
        [{"profile": h.name, "statement": h.statement, "domain": display_name(h.domain)} for h in hits],
        columns=["profile", "statement", "domain"],
        index=[h.attribute for h in hits],
    )
    columns: dict[str, tables.Column] = {"profile": "text", "domain": "text", "statement": "wide"}
    clicked = _clicked(frame, "profiles.hits", columns, current, "Statements that match the search")
    return next((hit for hit in hits if hit.attribute == clicked), None)


def _clicked(
    frame: pd.DataFrame, key: str, columns: Mapping[str, tables.Column], current: int | None, alt: str
) -> int | None:
    """Draw a table of rows with these ids as their index. Returns the clicked id, else `current` if it is among
    them."""
    ids: list[int] = frame.index.tolist()
    at = ids.index(current) if current in ids else None
    position = tables.table(frame, key=key, columns=columns, on_select="row", selected=at, alt=alt)
    return None if position is None else ids[position]


def browse(
    store: Store, dataset_id: int, rows: Sequence[Summary], domains: Sequence[str], ambiguous: Mapping[int, float]
) -> tuple[int | None, list[str], list[str]]:
    """Draw the list with its filters. Returns the chosen profile, and the domains and events to show of it."""
    events = sorted({event for row in rows for event in row.events})
    text, chosen_domains, chosen_events = filters(domains, events)
    profile, attribute = url.get_int("profile"), url.get_int("attribute")
    known = {row.id for row in rows}
    if profile is not None and profile not in known:
        page.notice(f"Profile {profile} of the link is not in this dataset. Choose one from the list.")
        profile = attribute = None
        url.replace(profile=None, attribute=None)
    shown = [row for row in rows if set(chosen_events) <= set(row.events)]
    if not shown:
        page.notice("No profile has these events." if rows else "This dataset has no profiles.")
    elif text:
        # None searches all, without a list of every id in the query.
        within = [row.id for row in shown] if chosen_events else None
        hits, total = catalogue.search_profiles(
            store, dataset_id, text, domains=chosen_domains, profiles=within, limit=HITS
        )
        if not hits:
            page.notice("No statement, key or name matches. Try fewer words or other filters.")
        else:
            hit = hits_table(hits, total, attribute)
            if hit is not None and hit.attribute != attribute:
                url.put(profile=hit.profile, attribute=hit.attribute)
                profile = hit.profile
            profile = profile or hits[0].profile
    else:
        last = url.remembered("profile") or ""
        current = profile or (int(last) if last.isdigit() else None)
        if current not in known:
            current = shown[0].id
        clicked = profile_table(shown, ambiguous, current)
        if clicked is not None and clicked != profile:
            # The table's first row is selected at first, without a click.
            (url.put if profile is not None else url.replace)(profile=clicked, attribute=None)
            profile = clicked
        profile = profile or current
    return profile, chosen_domains, chosen_events
