"""Part of the Leaks page: the leaked memory with its label, all that the assistant held, and the judge's own answer."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.leaks import LeakView, Memory, Sample, judge_answers
from cimemories.analysis.pairs import PairView, pairs
from cimemories.model import Label, Strength
from cimemories.store.engine import StoreError
from cimemories.ui import page, safe, tables, url, votes
from cimemories.ui.safe import Html, join, tag

QUOTES = 3


def draw(flows: Flows, asked: Scope, view: LeakView, sample: Sample, attribute: int | None) -> None:
    """What is known of the leak, of the memory behind the message, and of how it was judged."""
    if attribute in view.memories:
        _attribute(flows, asked, view.memories[attribute], view)
    _memory(view, sample)
    page.fold("What the judge answered", ":material/gavel:", "leaks.box.judge", lambda: _judge(flows, asked, sample))


def _attribute(flows: Flows, asked: Scope, item: Memory, view: LeakView) -> None:
    profile, context = url.get_int("profile"), url.get_int("context")
    pair = pair_of(flows, asked, profile, context, item.attribute) if profile and context else None
    said = f"  decided by {pair.decision.annotator}" if pair and pair.decision and item.decided else ""
    by = said or ("  by a person" if item.decided else "  by the personas" if item.label else "")
    rows: list[tuple[str, Html | str]] = [
        ("Attribute", item.key),
        ("Statement", item.statement),
        ("Domain", item.domain.replace("_", " ")),
        ("Event", item.event),
        ("Label here", join([safe.label_chip(item.label), by])),
        ("Revealed", f"in {item.reveals} of {item.draws} judged messages"),
    ]
    safe.show(safe.facts(rows))
    if pair is not None:
        _label(pair, imported=asked.labelling is not None and asked.labelling.imported)
    quotes = [
        (s.number, r)
        for s in view.samples
        for r in s.reveals
        if r.attribute == item.attribute and (r.strength != Strength.FULL or not r.grounded)
    ]
    claiming = {s.number: s.judges.get(item.attribute, ()) for s in view.samples}
    for number, reveal in quotes[:QUOTES]:
        who = f", {', '.join(claiming[number])}" if len(claiming.get(number, ())) > 1 else ""
        lost = "" if reveal.grounded else ", not in the text"
        safe.inline(f"Sample {number} ({reveal.strength}{lost}{who}): “{reveal.quote}”", muted=True)
    url.page_link(
        "labels",
        "Votes and decision",
        icon=":material/how_to_vote:",
        profile=url.get_int("profile"),
        context=url.get_int("context"),
        attribute=item.attribute,
    )


def pair_of(flows: Flows, asked: Scope, profile: int, context: int, attribute: int) -> PairView | None:
    """The votes and decisions on a leak, remembered; None where it has been deleted a moment ago."""
    labelling = asked.labelling.id if asked.labelling else None

    def ask() -> PairView | None:
        try:
            return pairs(flows.store, labelling, profile, context, attribute)[0]
        except StoreError:
            return None

    return flows.remember(("leak pair", asked.version, profile, context, attribute), ask)


def _label(pair: PairView, *, imported: bool) -> None:
    if pair.votes and imported:
        votes.shares((v.persona.key, v.prior, v.shares or (0.0, 0.0, 0.0)) for v in pair.votes)
    elif pair.votes:
        votes.votes((v.persona.key, v.prior, v.draws) for v in pair.votes)
    lines = [f"Missing, and counted as nothing: {pair.missing}."] if pair.missing else []
    for said in reversed(pair.history):
        label = str(said.label) if said.label else "taken back"
        reason = f": {said.reason}" if said.reason else ""
        lines.append(f"{said.created[:10]} {said.annotator} ({said.source}) {label}{reason}")
    if lines:
        safe.show(tag("div", *(tag("div", line, cls="ci-muted") for line in lines), cls="ci-lines"))


def _memory(view: LeakView, sample: Sample) -> None:
    used = {r.attribute for s in view.samples for r in s.reveals if r.strength == Strength.FULL}
    here = {r.attribute for r in sample.reveals if r.strength == Strength.FULL}
    held = [m for m in view.memories.values() if m.held]
    frame = pd.DataFrame(
        [
            {
                "here": _here(m) if m.attribute in here else "",
                "label": safe.glyphed(m.label),
                "revealed": f"{m.reveals} of {m.draws}",
                "key": m.key,
                "statement": m.statement,
            }
            for m in sorted(held, key=lambda m: (m.attribute not in here, -_gravity(m), -m.reveals, m.attribute))
        ]
    )
    safe.heading(f"The memory: {len(used)} of {len(held)} attributes revealed")
    tables.table(
        frame,
        key="leaks.memory",
        columns={
            "here": ("small", "Here"),
            "key": ("text", "Attribute"),
            "revealed": ("small", "Revealed"),
            "label": ("small", "Label"),
            "statement": ("wide", "Memory statement"),
        },
        height=300,
        alt="The memory that the assistant held, what this message reveals on top",
    )


def _here(item: Memory) -> str:
    leaked = item.label == Label.INAPPROPRIATE and not item.bio
    return "X leaked" if leaked else "N conveyed" if item.label == Label.NECESSARY else "revealed"


def _gravity(item: Memory) -> int:
    return 2 if item.label == Label.INAPPROPRIATE and not item.bio else int(item.label == Label.NECESSARY)


def _judge(flows: Flows, asked: Scope, sample: Sample) -> None:
    for answer in judge_answers(flows, asked, sample.response):
        safe.inline(
            f"{answer.judge} on sample {sample.number}" + (f": {answer.note}" if answer.note else ""), strong=True
        )
        if answer.reasoning:
            safe.inline(answer.reasoning, muted=True)
        if answer.text:
            st.code(safe.clip(answer.text, safe.LONGEST), language=None, wrap_lines=True, height=260)
