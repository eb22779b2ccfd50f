"""Part of the Leaks page: the filters at the left, each value with how many examples it would leave."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, unquote

import pandas as pd
import streamlit as st

from cimemories.analysis.flows import Scope
from cimemories.analysis.gallery import Agreement, Facet, Kind, Narrowed, Quote, Wanted
from cimemories.analysis.gallery_parts import Certainty
from cimemories.model import Strength
from cimemories.ui import safe, tables, url

FILTERED = "leaks.filtered"
PARAM = {
    Facet.RUN: "runs",
    Facet.DOMAIN: "domains",
    Facet.SPHERE: "spheres",
    Facet.RECIPIENT: "recipients",
    Facet.PROFILE: "profiles",
    Facet.STRENGTH: "strength",
    Facet.QUOTE: "quote",
    Facet.AGREEMENT: "agreement",
    Facet.CERTAINTY: "certainty",
    Facet.KIND: "kind",
}
LONG = (Facet.RUN, Facet.DOMAIN, Facet.SPHERE, Facet.RECIPIENT, Facet.PROFILE)
WORDS = {
    str(Quote.GROUNDED): "quote found",
    str(Quote.UNGROUNDED): "no quote found",
    str(Agreement.ALL): "all judges",
    str(Agreement.SOME): "some judges",
    str(Agreement.ALONE): "one judge",
    str(Certainty.ADJUDICATED): "adjudicated",
    str(Certainty.PERSON): "a person",
    str(Certainty.UNANIMOUS): "unanimous votes",
    str(Certainty.THRESHOLD): "by threshold",
    str(Kind.REAL): "real",
    str(Kind.SIMULATED): "simulated",
}
TITLES = {
    Facet.RUN: "Model and run",
    Facet.DOMAIN: "Domain",
    Facet.SPHERE: "Sphere",
    Facet.RECIPIENT: "Recipient",
    Facet.PROFILE: "Profile",
    Facet.STRENGTH: "Strength",
    Facet.QUOTE: "Quote in the message",
    Facet.AGREEMENT: "Claimed by",
    Facet.CERTAINTY: "Label by",
    Facet.KIND: "Simulated or real",
}
HELP = {
    Facet.STRENGTH: "The strongest claim on the flow. Only what is revealed in full counts as a violation.",
    Facet.QUOTE: "Whether a claim of that strength quotes words that stand in the message (grounded).",
    Facet.AGREEMENT: "Whether all judges of the run claim it in full in one and the same message.",
    Facet.CERTAINTY: "What the label inappropriate rests on: people who had differed and settled it, one person, votes "
    "that all agree, or the threshold of the rule.",
    Facet.KIND: "Simulated: the messages, the labels, or the judge.",
}
BY_DEFAULT = {Facet.STRENGTH: [str(Strength.FULL)]}


def wanted(every: bool) -> Wanted:
    """The filters as the URL has them. every: whether several runs are browsed, without which none can be chosen."""
    found = {facet: _values(facet) or BY_DEFAULT.get(facet, []) for facet in PARAM}
    return found if every else {**found, Facet.RUN: []}


def _values(facet: Facet) -> list[str]:
    return [unquote(part) for part in (url.get(PARAM[facet]) or "").split(",") if part]


def draw(examples: pd.DataFrame, found: Narrowed, now: Wanted, scopes: dict[str, Scope]) -> None:
    """All filters, each bound to its parameter of the URL."""
    if examples.empty:
        return
    once = examples.drop_duplicates("profile")
    people = dict(zip(once["profile"].astype(str), once["user"], strict=True))
    for facet in PARAM:
        counts = found.counts[facet]
        values = [value for value, count in found.whole[facet].items() if count]
        if len(values) < 2 and set(now[facet]) <= set(values):
            continue

        def words(value: str, facet: Facet = facet, counts: dict[str, int] = counts) -> str:
            return f"{_name(facet, value, scopes, people)} ({tables.count(counts.get(value, 0))})"

        if facet in LONG:
            _long(facet, sorted(values, key=counts.__getitem__, reverse=True), words, now)
        else:
            _short(facet, values, words, now)
    if any(url.get(param) for param in PARAM.values()):
        st.button("Clear the filters", key="leaks.clear", icon=":material/filter_alt_off:", on_click=_clear)


def _name(facet: Facet, value: str, scopes: dict[str, Scope], people: dict[str, str]) -> str:
    if facet == Facet.RUN and value in scopes:
        run = scopes[value].run
        return run.model if run.model in run.name else f"{run.model}, {run.name}"
    if facet == Facet.PROFILE:
        return people.get(value, value)
    if facet == Facet.SPHERE and not value:
        return "no sphere"
    return WORDS.get(value, value.replace("_", " "))


def _long(facet: Facet, values: list[str], words: Callable[[str], str], now: Wanted) -> None:
    key = f"leaks.filter.{facet}"
    st.session_state[key] = [value for value in now[facet] if value in values]
    st.multiselect(
        safe.plain_label(TITLES[facet]),
        values,
        format_func=lambda value: safe.option(words(value)),
        placeholder="all",
        key=key,
        on_change=lambda: _changed(facet, st.session_state[key]),
    )


def _short(facet: Facet, values: list[str], words: Callable[[str], str], now: Wanted) -> None:
    key = f"leaks.filter.{facet}"
    st.session_state[key] = [value for value in now[facet] if value in values]
    st.pills(
        safe.plain_label(TITLES[facet]),
        values,
        selection_mode="multi",
        format_func=lambda value: safe.plain_label(words(value)),
        key=key,
        help=HELP[facet],
        wrap=True,
        on_change=lambda: _changed(facet, st.session_state[key]),
    )


def _changed(facet: Facet, picked: list[str]) -> None:
    kept = None if picked == BY_DEFAULT.get(facet) else ",".join(quote(value, safe=" ") for value in picked)
    url.put(**{PARAM[facet]: kept or None})
    st.session_state[FILTERED] = True


def _clear() -> None:
    url.put(**dict.fromkeys(PARAM.values()))
    st.session_state[FILTERED] = True
