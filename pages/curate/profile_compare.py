"""Part of the Profiles page: two profiles side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import streamlit as st

from cimemories.analysis.profile_labels import ProfileLabels
from cimemories.model import Attribute
from cimemories.store.datasets import ProfileRecord
from cimemories.ui import page, safe, strips
from cimemories.ui.safe import tag
from pages.curate.profile_view import by_domain, person, spoken, words

Group = list[tuple[int, Attribute]]


def other_select(names: Mapping[int, str], first: int) -> int | None:
    """Which profile stands at the right; None where there is no other."""
    others = [profile_id for profile_id in names if profile_id != first]
    return page.select("Beside it", others, lambda i: names[i], "profiles.other", "other")


def draw(
    pair: tuple[ProfileRecord, ProfileRecord],
    labels: tuple[ProfileLabels | None, ProfileLabels | None],
    domains: Collection[str],
    events: Collection[str],
) -> None:
    """Both as a person would read them, domain by domain in the same lines."""
    sides = [by_domain(record, domains, events) for record in pair]
    for column, record, found in zip(st.columns(2, gap="medium"), pair, labels, strict=True):
        with column:
            person(record.profile)
            if found is not None:
                safe.show(strips.distribution(found.counts()))
    common = {a.key for a in pair[0].profile.attributes} & {a.key for a in pair[1].profile.attributes}
    safe.inline(f"{len(common)} keys are in both; they are marked in bold.", muted=True)
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    for domain in names:
        for column, groups, found in zip(st.columns(2, gap="medium"), sides, labels, strict=True):
            with column:
                _domain(domain, groups.get(domain, []), found, common)
    if not names:
        page.notice("Neither has an attribute in the chosen domains and events.")


def _domain(domain: str, rows: Group, labels: ProfileLabels | None, common: Collection[str]) -> None:
    safe.heading(f"{words(domain).capitalize()} ({len(rows)})")
    if labels is not None and rows:
        counts = labels.counts([attribute_id for attribute_id, _ in rows])
        safe.inline(", ".join(f"{strips.WORDS[glyph]} {n:,}" for glyph, n in counts.items() if n), muted=True)
    body = [
        tag(
            "tr",
            tag(
                "td",
                safe.folded(item.statement),
                tag(
                    "div",
                    tag("b", item.key) if item.key in common else item.key,
                    safe.folded(f": {spoken(item.value)}"),
                    cls="ci-muted",
                ),
            ),
        )
        for _, item in rows
    ]
    safe.show(tag("table", tag("tbody", *body), cls="ci-grid"))
