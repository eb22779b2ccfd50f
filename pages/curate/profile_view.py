"""Part of the Profiles page: one profile as a person would read it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cimemories.analysis.profile_labels import ProfileLabels
from cimemories.model import GENERAL, Attribute, Profile, Scalar, Value
from cimemories.store.datasets import ProfileRecord
from cimemories.ui import page, safe, strips, url
from cimemories.ui.safe import Html, tag


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


def person(profile: Profile) -> None:
    """Who it is, and what has happened to them."""
    safe.heading(profile.name)
    safe.show(
        safe.facts(
            [
                ("Age", str(profile.age)),
                ("Sex", profile.sex),
                ("Address", profile.address),
                ("Tested in", f"{len(profile.contexts)} contexts"),
            ]
        )
    )
    own = {event: [a for a in profile.attributes if a.event == event] for event in profile.events}
    if own:
        moments = [
            (event, f"{len(held)} attributes in {len({a.domain for a in held})} domains") for event, held in own.items()
        ]
        safe.show(strips.timeline(moments))


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
    """The whole profile; `attribute_id` is shown first and marked. Without labels there are no strips."""
    person(record.profile)
    own = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))
    if labels is not None:
        safe.show(strips.distribution(labels.counts()))
        people = f" {labels.decided:,} of them decided by people." if labels.decided else ""
        safe.inline(
            f"A cell is one of its {len(record.context_ids)} contexts, in the same order in every line; hover to see "
            f"which.{people}",
            muted=True,
        )
    else:
        safe.inline("This dataset has no labels yet: have personas vote on its pairs on the Labels page.", muted=True)
    url.page_link(
        "labels", "Labels of this profile", icon=":material/label:", dataset=record.dataset, profile=record.id
    )
    if attribute_id is not None:
        if attribute_id in own:
            found = own[attribute_id]
            title = tag("b", f"{found.key} ({words(found.domain)})")
            safe.show(tag("div", title, safe.folded(found.statement), cls="ci-empty"))
        else:
            page.notice(f"Attribute {attribute_id} of the link is none of this profile's.")
    groups = by_domain(record, domains, events)
    if not groups:
        page.notice("This profile has no attribute in the chosen domains and events.")
    for domain, rows in groups.items():
        safe.heading(f"{words(domain).capitalize()} ({len(rows)})")
        safe.show(_attribute_table(rows, labels, attribute_id))
    if labels is not None:
        strips.colour([context.recipient for context in record.profile.contexts])


def _attribute_table(rows: Sequence[tuple[int, Attribute]], labels: ProfileLabels | None, chosen: int | None) -> Html:
    body: list[Html] = []
    for attribute_id, item in rows:
        event = "" if item.event == GENERAL else f" · {item.event}"
        below = tag("div", safe.folded(f"{item.key}: {spoken(item.value)}{event}"), cls="ci-muted")
        cells = [tag("td", safe.folded(item.statement), below)]
        if labels is not None:
            cells.append(tag("td", strips.strip(labels.strips.get(attribute_id, ""))))
        body.append(tag("tr", *cells, cls="ci-chosen" if attribute_id == chosen else ""))
    return tag("div", tag("table", tag("tbody", *body), cls="ci-grid ci-memory"), cls="ci-far")
