"""Part of the Labels page: which pairs are looked at. Everything that is chosen stands in the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from cimemories.analysis.matrix import Differs
from cimemories.model import Label, Profile
from cimemories.ui import page, safe, tables, url
from pages.curate.profile_view import words

UNLABELLED = "unlabelled"
NO_SPHERE = "none"
KINDS = (*map(str, Label), UNLABELLED)
DIFFERS = {
    Differs.DISSENT: "any persona dissents",
    Differs.DECIDED: "decided by a person",
    Differs.CHANGED: "decision differs from consensus",
}


@dataclass(frozen=True)
class Filters:
    """What is asked for; None and an empty tuple mean all. sphere '' are the contexts without one."""

    domain: str | None
    event: str | None
    sphere: str | None
    kinds: tuple[str, ...]
    differs: Differs | None

    @property
    def labels(self) -> tuple[Label | None, ...]:
        return tuple(None if kind == UNLABELLED else Label(kind) for kind in self.kinds)

    @property
    def any(self) -> bool:
        return any((self.domain, self.event, self.sphere is not None, self.kinds, self.differs))


def word(label: Label | None) -> str:
    """A label as its kind in filters and counts."""
    return UNLABELLED if label is None else str(label)


def draw(profile: Profile, counts: Mapping[str, int], *, spheres: bool) -> Filters:
    """The filters; `counts` of pairs by kind stand on the labels. Without `spheres` none can be chosen. The lists are
    folded away under a button that says what is chosen: the browser takes longer for them than for the matrix."""
    left, right = st.columns([7, 4], vertical_alignment="bottom")
    with left:
        kinds = _kinds(counts)
    above = st.container()
    sphere = None
    with (
        right,
        st.popover(
            safe.plain_label(_said(spheres), 60), icon=":material/filter_alt:", key="labels.filter", width="stretch"
        ),
    ):
        domain = choice(
            "Domain", "domain", sorted({a.domain for a in profile.attributes}), words, "all domains", above=above
        )
        events = list(dict.fromkeys(a.event for a in profile.attributes))
        event = choice("Event", "event", events, words, "all events", above=above)
        if spheres:
            there = list(dict.fromkeys(c.sphere or NO_SPHERE for c in profile.contexts))
            sphere = choice("Sphere", "sphere", there, _sphere, "all spheres", above=above)
        differs = choice(
            "Disagreement",
            "differs",
            list(map(str, Differs)),
            lambda d: DIFFERS[Differs(d)],
            "all pairs",
            above=above,
        )
    return Filters(
        domain, event, "" if sphere == NO_SPHERE else sphere, tuple(kinds), Differs(differs) if differs else None
    )


def _said(spheres: bool) -> str:
    """What the button says: what is asked for, or that all pairs are."""
    chosen = [words(asked) for name in ("domain", "event") if (asked := url.get(name))]
    if spheres and (asked := url.get("sphere")):
        chosen.append(_sphere(asked))
    if (asked := url.get("differs")) in set(Differs):
        chosen.append(DIFFERS[Differs(asked)])
    return ", ".join(chosen) or "All domains, events and spheres"


def clear() -> None:
    """Ask for everything again."""
    url.put(domain=None, event=None, sphere=None, label=None, differs=None)


def _sphere(name: str) -> str:
    return "without a sphere" if name == NO_SPHERE else words(name)


def _kinds(counts: Mapping[str, int]) -> Sequence[str]:
    key = "labels.kinds"
    chosen = [kind for kind in (url.get("label") or "").split(",") if kind in KINDS]
    st.session_state[key] = chosen
    return st.pills(
        "Effective label",
        [kind for kind in KINDS if counts.get(kind) or kind in chosen],
        selection_mode="multi",
        format_func=lambda kind: f"{kind} ({tables.count(counts.get(kind, 0))})",
        key=key,
        on_change=lambda: url.put(label=",".join(st.session_state[key]) or None),
    )


def choice(
    label: str,
    param: str,
    options: Sequence[str],
    said: Callable[[str], str],
    everything: str | None,
    *,
    above: Any = None,
) -> str | None:
    """A selectbox bound to a URL parameter, whose first option is everything, worded `everything`; without such words
    the first of the options is what holds where none is chosen. What the link asks for and is not here is said, and
    left out. Returns None where all are asked for. `label` must be a literal. above: the container for what is said of
    the link; None: where the list is."""
    key = f"filters.{param}"
    asked = url.get(param)
    if asked is not None and asked not in options:
        with above or st.container():
            page.notice(f"{label} '{safe.option(asked, 40)}' is not here: all are shown.")
        url.put(**{param: None})
        asked = None
    st.session_state[key] = asked or ("" if everything else options[0])
    st.selectbox(
        label,
        ["", *options] if everything else options,
        format_func=lambda name: safe.option(said(name)) if name else everything or "",
        key=key,
        on_change=lambda: url.put(**{param: st.session_state[key] or None}),
    )
    return asked
