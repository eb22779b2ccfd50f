"""Part of the Leaks page: from one example to the next, by keys, buttons or the list, and into the basket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
import streamlit as st

from cimemories.analysis import basket, basket_rows, gallery
from cimemories.analysis.flows import Flows
from cimemories.analysis.gallery import Narrowed
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, presses, safe, tables, url
from cimemories.ui.safe import tag
from pages.explore import leaks_basket, leaks_filters
from pages.explore.leaks_scope import Browsed

KEYS = (("j", "next"), ("k", "previous"), ("s", "basket"))
KEY, PLACE = "leaks.keys", "leaks.place"
SEVERITY = (
    "Severest first: by strength of the claim (full, partial, implied); then by the share of judged messages that "
    "reveal it; then those with a quote that stands in a message; then by certainty of the label (adjudicated, a "
    "person, unanimous votes, a threshold); then those that all judges of the run claim in one message; then in the "
    "order of the record. How sensitive a domain is plays no part, since the seeds do not say it."
)


@dataclass
class _Place:
    """Where a session's presses led. at: the last time. target: where the URL does not say so yet. problems: what could
    not be done, and was not shown yet."""

    at: str | None = None
    target: str | None = None
    problems: list[str] = field(default_factory=list)


def _place() -> _Place:
    place: _Place = st.session_state.setdefault(PLACE, _Place())
    return place


def current(found: Browsed, examples: pd.DataFrame, ids: Sequence[str]) -> str | None:
    """The example that is looked at: what the URL names, else the first, and on from there by what was pressed. The URL
    names it afterwards. None where it names a message but no attribute, or there is nothing."""
    run = url.get("run") if found.every else next(iter(found.scopes))
    profile, context, attribute = (url.get_int(name) for name in ("profile", "context", "attribute"))
    somewhere = profile is not None and context is not None and run in found.scopes
    named = f"{run}.{attribute}.{context}" if somewhere and attribute is not None else None
    filtered = st.session_state.get(leaks_filters.FILTERED, False)
    place, into = _place(), leaks_basket.name()
    with presses.taken(KEY) as taken:
        # A target is left from a run that ended before the URL could say it.
        at = place.target or (place.at if taken.led else None) or named
        if (filtered and at not in ids) or (at is None and not somewhere):
            at = next(iter(ids), None)
        for key in taken.keys:
            if key == "s":
                _star(found, examples, at, into, place)
            else:
                at = gallery.step(ids, at, 1 if key == "j" else -1) or at
        place.target = place.at = at
    row = examples[examples["id"] == at] if at is not None and at != named else examples[:0]
    if len(row):
        where = row.iloc[0]
        _at_once(where)
        url.put(
            run=str(where["run"]),
            profile=int(where["profile"]),
            context=int(where["context"]),
            attribute=int(where["attribute"]),
            sample=None,
        )
    st.session_state[leaks_filters.FILTERED] = False
    if place.target == at:  # else a run that began meanwhile has gone on from it
        place.target = None
    return at


def _at_once(where: pd.Series) -> None:
    """All parameters in one change of the address: Back must not come to a half of one place and a half of another."""
    place = {name: str(where[name]) for name in ("run", "profile", "context", "attribute")}
    kept = {name: value for name, value in st.query_params.items() if name != "sample"}
    st.query_params.from_dict({**kept, **place})


def _star(found: Browsed, examples: pd.DataFrame, wanted: str | None, into: str, place: _Place) -> None:
    """Put it into the basket of this name, or take it out. Touches nothing of Streamlit's: see presses.taken."""
    row = examples[examples["id"] == wanted]
    if row.empty:
        place.problems.append("Only a leak goes into the basket: this flow is none.")
        return
    where = row.iloc[0]
    item = basket_rows.item_of(
        found.scopes[str(where["run"])], int(where["profile"]), int(where["context"]), int(where["attribute"])
    )
    try:
        basket.change(found.flows.store, into, basket.toggled(item))
    except StoreError as problem:
        place.problems.append(f"The basket is as it was: {problem}")


def bar(flows: Flows, ids: Sequence[str], at: str | None, *, of: int) -> None:
    """Where one is, the keys, and the same as buttons. of: how many examples there are without any filter."""
    place = _place()
    for problem in place.problems[:]:
        page.notice(problem)
        place.problems.remove(problem)
    tab, where, keys, back, on, star = st.columns([2.4, 3.2, 2.1, 1.2, 1, 1.4], vertical_alignment="center")
    with tab:
        leaks_basket.views(flows.store)
    number = None if at is None or at not in ids else list(ids).index(at) + 1
    with where:
        left = tables.count(len(ids))
        words = f"{tables.count(number)} of {left}" if number else f"{left} examples"
        without = f" ({tables.count(of)} without filters)" if len(ids) != of else ""
        safe.show(
            tag(
                "div",
                tag("b", words),
                tag("span", f"{without}, severest first (?)"),
                title=SEVERITY,
            )
        )
    with keys:
        presses.draw(KEYS, key=KEY)
    with back:
        _button("Previous", ":material/chevron_left:", "k", disabled=number in (None, 1))
    with on:
        _button("Next", ":material/chevron_right:", "j", disabled=not ids or number == len(ids))
    with star:
        _starred(flows.store, at)


def _starred(store: Store, at: str | None) -> None:
    try:
        inside = any(item.id == at for item in basket.items(store, leaks_basket.name()))
    except StoreError:
        inside = False  # the basket itself says what is wrong with it
    if inside:
        _button("In basket", ":material/star:", "s", primary=True, disabled=at is None)
    else:
        _button("To basket", ":material/star_border:", "s", disabled=at is None)


def _button(label: str, icon: str, key: str, *, disabled: bool, primary: bool = False) -> None:
    st.button(
        safe.plain_label(label),
        icon=icon,
        key=f"leaks.press.{key}",
        disabled=disabled,
        type="primary" if primary else "secondary",
        width="stretch",
        on_click=lambda: presses.press(KEY, key),
    )


def listed(examples: pd.DataFrame, left: Narrowed, found: Browsed, at: str | None) -> None:
    """All examples that the filters leave, folded; a click leads to one."""
    page.fold(
        "All of them as a list",
        ":material/list:",
        "leaks.box.list",
        lambda: _list(examples.iloc[left.shown], found, at),
    )


def _list(shown: pd.DataFrame, found: Browsed, at: str | None) -> None:
    ids = shown["id"].tolist()
    frame = shown.assign(
        revealed=[f"{r} of {d}" for r, d in zip(shown["claimed"], shown["draws"], strict=True)],
        source=[found.scopes[run].run.name for run in shown["run"].astype(str)],
        domain=shown["domain"].astype(str),
        recipient=shown["recipient"].astype(str),
        strength=shown["strength"].astype(str),
    )
    frame.index = pd.Index(ids)
    columns: dict[str, tables.Column | tuple[tables.Column, str]] = {
        "revealed": ("text", "Revealed in"),
        "strength": ("text", "Strength"),
        "domain": ("text", "Domain"),
        "key": ("text", "Attribute"),
        "statement": ("wide", "Memory statement"),
        "recipient": ("text", "Recipient"),
        "user": ("text", "Profile"),
        **({"source": ("text", "Run")} if found.every else {}),
    }
    position = ids.index(at) if at in ids else None
    picked = tables.table(
        frame[list(columns)],
        key="leaks.list",
        columns=columns,
        on_select="row",
        selected=position,
        height=250,
        alt="Leaks that the filters leave, the severest first",
    )
    if picked is not None and picked != position:
        _place().target = ids[picked]
        st.rerun()
