"""Part of the Profiles page: one profile as a person would read it, and the search across all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cimemories.model import GENERAL, Attribute, Scalar, Value
from cimemories.store.datasets import ProfileRecord
from cimemories.ui import page, safe, url
from cimemories.ui.safe import Html, join, tag


@dataclass(frozen=True)
class Hit:
    """A statement that matches a search."""

    profile_id: int
    attribute_id: int
    name: str
    statement: str
    domain: str


def words(name: str) -> str:
    """'mental_health' as it is said: 'mental health'."""
    return safe.option(name.replace("_", " "))


def spoken(value: Value | dict[str, Scalar]) -> str:
    """A value as it is read: yes and no, lists with semicolons, a dash for none."""
    if isinstance(value, list):
        return "; ".join(spoken(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {spoken(part)}" for name, part in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def with_events(records: Sequence[ProfileRecord], events: Collection[str]) -> list[ProfileRecord]:
    """The profiles that have every one of these events."""
    return [r for r in records if set(events) <= set(r.profile.events)]


def search(records: Sequence[ProfileRecord], wanted: str, domains: Collection[str]) -> list[Hit]:
    """Attributes in whose statement, key or owner's name every word of `wanted` occurs, whatever its case."""
    terms = wanted.casefold().split()
    hits = []
    for record in records:
        name = record.profile.name
        for attribute_id, attribute in zip(record.attribute_ids, record.profile.attributes, strict=True):
            if domains and attribute.domain not in domains:
                continue
            text = f"{attribute.statement}\n{attribute.key}\n{name}".casefold()
            if all(term in text for term in terms):
                hits.append(Hit(record.id, attribute_id, name, attribute.statement, attribute.domain))
    return hits


def draw(record: ProfileRecord, domains: Collection[str], attribute_id: int | None) -> None:
    """The whole profile; `domains` limits its attributes where given, `attribute_id` is shown first and marked."""
    profile = record.profile
    safe.heading(profile.name)
    safe.show(
        safe.facts(
            [
                ("Age", str(profile.age)),
                ("Sex", profile.sex),
                ("Address", profile.address),
                ("Life events", ", ".join(profile.events) or "none"),
                ("Tested in", f"{len(profile.contexts)} contexts"),
            ]
        )
    )
    url.page_link(
        "labels", "Labels of this profile", icon=":material/label:", dataset=record.dataset, profile=record.id
    )
    own = dict(zip(record.attribute_ids, profile.attributes, strict=True))
    if attribute_id is not None:
        if attribute_id in own:
            found = own[attribute_id]
            safe.show(tag("div", tag("b", f"{found.key} ({words(found.domain)})"), found.statement, cls="ci-empty"))
        else:
            page.notice(f"Attribute {attribute_id} of the link is none of this profile's.")
    groups: dict[str, list[tuple[int, Attribute]]] = {}
    for key, attribute in own.items():
        if not domains or attribute.domain in domains:
            groups.setdefault(attribute.domain, []).append((key, attribute))
    if not groups:
        page.notice("This profile has no attribute in the chosen domains.")
    for domain in sorted(groups, key=lambda name: (name != GENERAL, name)):
        safe.heading(f"{words(domain).capitalize()} ({len(groups[domain])})")
        safe.show(_attribute_table(groups[domain], attribute_id))


def _attribute_table(rows: Sequence[tuple[int, Attribute]], chosen: int | None) -> Html:
    head = tag("thead", tag("tr", *(tag("th", name) for name in ("Key", "Value", "Event", "Memory statement"))))
    body: list[Html] = [
        tag(
            "tr",
            tag("td", a.key, cls="ci-key"),
            tag("td", spoken(a.value), cls="ci-value"),
            tag("td", a.event, cls="ci-event"),
            tag("td", a.statement),
            cls="ci-chosen" if attribute_id == chosen else "",
        )
        for attribute_id, a in rows
    ]
    return tag("table", head, join([tag("tbody", *body)]), cls="ci-grid")
