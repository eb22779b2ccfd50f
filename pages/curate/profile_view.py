"""Parts of the Profiles page: one profile to read, two side by side, and the list with its search and filters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd
import streamlit as st

from cimemories.flows import catalogue
from cimemories.labels.matrix import ProfileLabels
from cimemories.model import GENERAL, Attribute, Profile, Scalar, Value
from cimemories.store.datasets import Hit, ProfileRecord, Summary
from cimemories.store.engine import Store
from cimemories.text import count
from cimemories.ui import matrix, page, safe, tables, url
from cimemories.ui.safe import Html, tag


def display_name(name: str) -> str:
    """A name for people: 'mental_health' as 'mental health'."""
    return safe.option(name.replace("_", " "))


def spoken(value: Value | dict[str, Scalar]) -> str:
    """A value for people: yes and no, lists with semicolons, a dash for null."""
    if isinstance(value, list):
        return "; ".join(spoken(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {spoken(part)}" for name, part in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def person(profile: Profile) -> None:
    """The biography, and the life events in their order."""
    safe.heading(profile.name)
    tested_in = f"{len(profile.contexts)} contexts"
    facts = ("Age", str(profile.age)), ("Sex", profile.sex), ("Address", profile.address), ("Tested in", tested_in)
    safe.show(safe.facts(facts))
    own = {event: [a for a in profile.attributes if a.event == event] for event in profile.events}
    if own:
        moments = [
            (event, f"{len(attributes)} attributes in {len({a.domain for a in attributes})} domains")
            for event, attributes in own.items()
        ]
        safe.show(matrix.timeline(moments))


def by_domain(
    record: ProfileRecord, domains: Collection[str], events: Collection[str]
) -> dict[str, list[tuple[int, Attribute]]]:
    """The attributes of a profile with their ids, by domain, `general` first; only of these domains and events."""
    groups: dict[str, list[tuple[int, Attribute]]] = {}
    for attribute_id, item in zip(record.attribute_ids, record.profile.attributes, strict=True):
        if (not domains or item.domain in domains) and (not events or item.event in events):
            groups.setdefault(item.domain, []).append((attribute_id, item))
    return {name: groups[name] for name in sorted(groups, key=lambda name: (name != GENERAL, name))}


def draw(
    record: ProfileRecord,
    labels: ProfileLabels | None,
    domains: Collection[str],
    events: Collection[str],
    attribute_id: int | None,
) -> None:
    """The whole profile, the attribute `attribute_id` first and marked. Without labels there are no strips."""
    person(record.profile)
    own = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))
    if labels is not None:
        safe.show(matrix.distribution(labels.counts()))
        people = f" {labels.decided:,} of them decided by people." if labels.decided else ""
        safe.inline(
            f"Each cell is one of the {len(record.context_ids)} contexts, in the same order in every row; hover to see "
            f"which.{people}",
            muted=True,
        )
    else:
        safe.inline("This dataset has no labels yet. Have personas vote on the Labels page.", muted=True)
    url.page_link(
        "labels", "Labels of this profile", icon=":material/label:", dataset=record.dataset, profile=record.id
    )
    if attribute_id is not None:
        if attribute_id in own:
            attribute = own[attribute_id]
            title = tag("b", f"{attribute.key} ({display_name(attribute.domain)})")
            safe.show(tag("div", title, safe.folded(attribute.statement), cls="ci-empty"))
        else:
            page.notice(f"Attribute {attribute_id} of the link is not one of this profile's.")
    groups = by_domain(record, domains, events)
    if not groups:
        page.notice("This profile has no attribute in the chosen domains and events.")
    for domain, rows in groups.items():
        safe.heading(f"{display_name(domain).capitalize()} ({len(rows)})")
        safe.show(_attribute_table(rows, labels, attribute_id))
    if labels is not None:
        matrix.colour([context.recipient for context in record.profile.contexts])


def _attribute_table(rows: Sequence[tuple[int, Attribute]], labels: ProfileLabels | None, chosen: int | None) -> Html:
    body: list[Html] = []
    for attribute_id, item in rows:
        event = "" if item.event == GENERAL else f" · {item.event}"
        below = tag("div", safe.folded(f"{item.key}: {spoken(item.value)}{event}"), cls="ci-muted")
        cells = [tag("td", safe.folded(item.statement), below)]
        if labels is not None:
            cells.append(tag("td", matrix.strip(labels.strips.get(attribute_id, ""))))
        body.append(tag("tr", *cells, cls="ci-chosen" if attribute_id == chosen else ""))
    return tag("div", tag("table", tag("tbody", *body), cls="ci-grid ci-memory"), cls="ci-far")


# ---- two profiles side by side


def other_select(names: Mapping[int, str], first: int) -> int | None:
    """Which profile is compared; None where there is no other."""
    others = [profile_id for profile_id in names if profile_id != first]
    return page.select("Compare with", others, lambda i: names[i], "profiles.other", "other")


def draw_compare(
    pair: tuple[ProfileRecord, ProfileRecord],
    labels: tuple[ProfileLabels | None, ProfileLabels | None],
    domains: Collection[str],
    events: Collection[str],
) -> None:
    """Both profiles, their domains in the same rows."""
    sides = [by_domain(record, domains, events) for record in pair]
    for column, record, side in zip(st.columns(2, gap="medium"), pair, labels, strict=True):
        with column:
            person(record.profile)
            if side is not None:
                safe.show(matrix.distribution(side.counts()))
    common = {a.key for a in pair[0].profile.attributes} & {a.key for a in pair[1].profile.attributes}
    safe.inline(f"{len(common)} keys are in both, in bold.", muted=True)
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    for domain in names:
        for column, groups, side in zip(st.columns(2, gap="medium"), sides, labels, strict=True):
            with column:
                _domain(domain, groups.get(domain, []), side, common)
    if not names:
        page.notice("Neither profile has an attribute in the chosen domains and events.")


def _domain(
    domain: str, rows: Sequence[tuple[int, Attribute]], labels: ProfileLabels | None, common: Collection[str]
) -> None:
    safe.heading(f"{display_name(domain).capitalize()} ({len(rows)})")
    if labels is not None and rows:
        counts = labels.counts([attribute_id for attribute_id, _ in rows])
        safe.inline(", ".join(f"{matrix.WORDS[glyph]} {n:,}" for glyph, n in counts.items() if n), muted=True)
    body = []
    for _, item in rows:
        key = tag("b", item.key) if item.key in common else item.key
        below = tag("div", key, safe.folded(f": {spoken(item.value)}"), cls="ci-muted")
        body.append(tag("tr", tag("td", safe.folded(item.statement), below)))
    safe.show(tag("table", tag("tbody", *body), cls="ci-grid"))


# ---- the list with its search and filters, all of them in the URL


HITS = 200
_BETWEEN = "|"  # of names in the URL: a comma may be part of one


def _filter(param: str, options: Sequence[str], text: Callable[[str], str]) -> list[str]:
    key = f"profiles.{param}"

    def changed() -> None:
        url.put(**{param: _BETWEEN.join(st.session_state[key]) or None})

    # The URL is the state: the widget gets it before it is drawn, since a default counts only once.
    st.session_state[key] = [name for name in (url.get(param) or "").split(_BETWEEN) if name in options]
    return st.multiselect(safe.plain_label(param.capitalize()), options, key=key, format_func=text, on_change=changed)


def filters(domains: Sequence[str], events: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The search and the two filters: (text to search for, domains, events)."""

    def changed() -> None:
        url.put(search=st.session_state["profiles.search"].strip() or None)

    st.session_state["profiles.search"] = url.get("search") or ""
    text = st.text_input(
        "Search statements, keys and names",
        key="profiles.search",
        icon=":material/search:",
        placeholder="rent",
        on_change=changed,
    )
    left, right = st.columns(2)
    with left:
        chosen_domains = _filter("domains", domains, display_name)
    with right:
        chosen_events = _filter("events", events, safe.option)
    return text.strip(), chosen_domains, chosen_events


def profile_table(rows: Sequence[Summary], ambiguous: Mapping[int, float], current: int | None) -> int | None:
    """The profiles; returns the one that is clicked, else `current`."""
    ids = [r.id for r in rows]
    frame = pd.DataFrame(
        [(r.name, r.age, r.attributes, ambiguous.get(r.id), ", ".join(r.events)) for r in rows],
        columns=["name", "age", "attributes", "ambiguous", "events"],
        index=ids,
    )
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "name": "text",
        "age": "number",
        "attributes": "count",
        **({"ambiguous": "percent"} if ambiguous else {}),
        "events": "text",
    }
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
    cut = f", the first {len(hits)} shown" if total > len(hits) else ""
    safe.inline(f"{count(total, 'statement')} found{cut}")
    frame = pd.DataFrame(
        [{"profile": h.name, "statement": h.statement, "domain": display_name(h.domain)} for h in hits],
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
    text, chosen_domains, chosen_events = filters(domains, events)
    profile, attribute = url.get_int("profile"), url.get_int("attribute")
    known = {row.id for row in rows}
    if profile is not None and profile not in known:
        page.notice(f"Profile {profile} of the link is not in this dataset. Choose one from the list.")
        profile = attribute = None
        url.put(profile=None, attribute=None)
    shown = [row for row in rows if set(chosen_events) <= set(row.events)]
    if not shown:
        page.notice("No profile has these events." if rows else "This dataset has no profiles.")
    elif text:
        # None searches all: there is no list of every id in the query then.
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
            url.put(profile=clicked, attribute=None)
            profile = clicked
        profile = profile or current
    return profile, chosen_domains, chosen_events
