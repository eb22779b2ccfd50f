"""Leaks: the messages behind a violation, with what they give away marked, and the memory they came from."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis import heatmap
from cimemories.analysis.flows import Combine, Flows, Scope
from cimemories.analysis.leaks import LeakView, Memory, Sample, leak_view
from cimemories.analysis.task_check import NO, PARTLY
from cimemories.model import JudgementStatus, Label, ResponseStatus, Strength
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import Kind, Marked
from pages.explore.run_scope import caveats, run_scope

KIND_OF: dict[Label | None, Kind] = {
    Label.INAPPROPRIATE: "leaked",
    Label.NECESSARY: "conveyed",
    Label.AMBIGUOUS: "ambiguous",
    None: "ambiguous",
}


def draw() -> None:
    chosen = run_scope(
        "Leaks",
        "Nothing has been written yet",
        "A leak is a memory that a message reveals where it does not belong. It takes a run to have messages.",
    )
    if chosen is None:
        return
    flows, asked = chosen.flows, chosen.asked
    found = heatmap.leaks(flows, asked)
    with chosen.top:
        page.head("Leaks", _takeaway(asked, found), simulated=bool(asked.simulated))
    caveats(chosen.numbers)
    place = _place(flows, asked, found)
    if place is None:
        page.empty(
            "No leak in this run",
            "No judged message reveals an attribute that is labelled inappropriate in its context. A cell of the "
            "heatmap leads to the messages all the same."
            if asked.labelling
            else "The dataset has no labels yet, so nothing can be called inappropriate.",
            (lambda: url.page_link("heatmaps", "Choose a cell", icon=":material/grid_on:", run=asked.run.id))
            if asked.labelling
            else lambda: url.page_link("labels", "Label the dataset", icon=":material/label:"),
        )
        return
    view = leak_view(flows, asked, *place)
    if view is None:
        page.notice("This run has no message of that profile in that context. Choose a leak from the list.")
        return
    _messages(asked, view, url.get_int("attribute"))


def _takeaway(asked: Scope, found: pd.DataFrame) -> str:
    if asked.labelling is None:
        return f"{asked.run.name}: without labels nothing can be called a leak yet."
    if found.empty:
        return f"{asked.run.name}: no inappropriate flow was revealed."
    always = int((found["reveals"] == found["draws"]).sum())
    return (
        f"{asked.run.name}: {tables.count(len(found))} inappropriate flows were revealed at least once, "
        f"{tables.count(always)} of them in every sample."
    )


def _place(flows: Flows, asked: Scope, found: pd.DataFrame) -> tuple[int, int] | None:
    """The profile and context to show: the leak chosen from the list, else what the URL names, else the first leak."""
    attribute, at = url.get_int("attribute"), (url.get_int("profile"), url.get_int("context"))
    shown = _filtered(found)
    if not shown.empty:
        shown.index = pd.Index([f"{a}.{c}" for a, c in zip(shown["attribute"], shown["context"], strict=True)])
        wanted = f"{attribute}.{at[1]}"
        current = list(shown.index).index(wanted) if wanted in shown.index else None
        if at == (None, None):
            current = 0
        picked = tables.table(
            shown,
            key=f"leaks.list.{asked.run.id}",
            columns={
                "revealed": ("text", "Revealed in"),
                "domain": ("text", "Domain"),
                "key": ("text", "Attribute"),
                "statement": ("wide", "Memory statement"),
                "recipient": ("text", "Recipient"),
                "user": ("text", "Profile"),
            },
            on_select="row",
            selected=current,
            height=250,
            alt="Leaks of this run, the most frequently revealed first",
        )
        if picked is not None:
            row = shown.iloc[picked]
            chosen = (int(row["profile"]), int(row["context"]))
            url.put(profile=chosen[0], context=chosen[1], attribute=int(row["attribute"]))
            return chosen
    elif not found.empty:
        page.notice("No leak fits the filters. Clear them to see all.")
    if at[0] is not None and at[1] is not None:
        return at[0], at[1]
    return None


def _filtered(found: pd.DataFrame) -> pd.DataFrame:
    if found.empty:
        return found
    left, middle, right = st.columns(3)
    with left:
        domains = st.multiselect("Domains", sorted(found["domain"].unique()), placeholder="all", key="leaks.domains")
    with middle:
        people = st.multiselect(
            "Profiles", sorted(found["user"].unique()), placeholder="all", key="leaks.users", format_func=safe.option
        )
    with right:
        recipients = st.multiselect(
            "Recipients",
            sorted(found["recipient"].unique()),
            placeholder="all",
            key="leaks.recipients",
            format_func=safe.option,
        )
    shown = found.assign(revealed=[f"{r} of {d}" for r, d in zip(found["reveals"], found["draws"], strict=True)])
    for column, values in (("domain", domains), ("user", people), ("recipient", recipients)):
        if values:
            shown = shown[shown[column].isin(values)]
    return shown.copy()


def _messages(asked: Scope, view: LeakView, attribute: int | None) -> None:
    safe.heading(f"{view.profile.name} to {view.context.recipient}: {view.context.task}")
    message, memory = st.columns([3, 2], gap="large")
    with message:
        _samples(asked, view, attribute)
    with memory:
        if attribute in view.memories:
            _attribute(view.memories[attribute], view)
        _memory(view)


def _samples(asked: Scope, view: LeakView, attribute: int | None) -> None:
    names = [_sample_name(sample, view) for sample in view.samples]
    wanted = url.get_int("sample")
    telling = next(
        (i for i, s in enumerate(view.samples) if any(r.attribute == attribute for r in s.reveals)),
        0,
    )
    current = wanted - 1 if wanted is not None and 1 <= wanted <= len(names) else telling
    key = f"leaks.sample.{view.samples[0].number}.{view.context.task}.{view.profile.name}.{attribute}"
    chosen = st.segmented_control(
        "Sample (inappropriate attributes revealed)",
        range(len(names)),
        format_func=lambda i: names[i],
        default=current,
        key=key,
        required=True,
        on_change=lambda: url.put(sample=int(st.session_state[key]) + 1),
    )
    _sample(asked, view.samples[int(chosen or 0)], view)


def _sample_name(sample: Sample, view: LeakView) -> str:
    if sample.status != ResponseStatus.OK or sample.judgement != JudgementStatus.OK:
        return f"{sample.number} (missing)"
    off = ", not the task" if sample.task == NO else ""
    return f"{sample.number} ({len(sample.leaked(view.memories))}{off})"


def _sample(asked: Scope, sample: Sample, view: LeakView) -> None:
    if sample.status != ResponseStatus.OK:
        why = f"{sample.status}: {sample.cause}" if sample.cause else str(sample.status)
        page.notice(f"This response is missing ({why}). It counts as missing, not as 'nothing revealed'.")
    elif sample.judgement != JudgementStatus.OK:
        why = f"{sample.judgement}: {sample.judgement_cause}" if sample.judgement_cause else str(sample.judgement)
        lacks = "has no judgement" if asked.combine == Combine.ONE else "is not judged by all of these judges"
        page.notice(f"This message {lacks} ({why}). It counts as missing, not as 'nothing revealed'.")
    if sample.task == NO:
        page.notice("This message does not do the task: that it reveals nothing, or little, is no merit of it.")
    elif sample.task == PARTLY:
        page.notice("This message does the task only in part.")
    if not sample.text:
        return
    if asked.reads_reasoning:
        safe.inline("The reasoning before the message, which this judge reads; the recipient does not.", muted=True)
    spans = []
    for reveal in sample.reveals:
        item = view.memories[reveal.attribute]
        if reveal.span is not None:
            kind = "conveyed" if item.bio and item.label == Label.INAPPROPRIATE else KIND_OF[item.label]
            note = f"{item.key}: {item.label or 'not labelled'}, {reveal.strength}"
            if asked.combine != Combine.ONE:
                note += f", claimed by {', '.join(sample.judges[reveal.attribute])}"
            spans.append(Marked(reveal.span.start, reveal.span.end, kind, note))
    safe.message(sample.text, spans)
    safe.show(
        safe.tag(
            "p",
            "Marked: ",
            safe.tag("mark", "X inappropriate, leaked", cls="ci-leaked"),
            " ",
            safe.tag("mark", "N necessary, conveyed", cls="ci-conveyed"),
            " ",
            safe.tag("mark", "? ambiguous", cls="ci-ambiguous"),
            cls="ci-muted",
        )
    )
    if sample.ungrounded:
        left_out = ", and are left out" if asked.grounded else ""
        page.notice(
            f"{sample.ungrounded} claims of {asked.judge_words} have a quote that is not in the text "
            f"(ungrounded){left_out}."
        )


def _attribute(item: Memory, view: LeakView) -> None:
    rows: list[tuple[str, safe.Html | str]] = [
        ("Attribute", item.key),
        ("Statement", item.statement),
        ("Domain", item.domain.replace("_", " ")),
        ("Event", item.event),
        ("Label here", safe.join([safe.label_chip(item.label), " by a person" if item.decided else ""])),
        ("Revealed", f"in {item.reveals} of {item.draws} judged messages"),
    ]
    safe.show(safe.facts(rows))
    quotes = [
        (s.number, r)
        for s in view.samples
        for r in s.reveals
        if r.attribute == item.attribute and r.strength == Strength.FULL
    ]
    claiming = {s.number: s.judges.get(item.attribute, ()) for s in view.samples}
    for number, reveal in quotes[:3]:
        who = f" ({', '.join(claiming[number])})" if len(claiming.get(number, ())) > 1 else ""
        safe.inline(f"Sample {number}{who}: “{reveal.quote}”", muted=True)
    url.page_link(
        "labels",
        "Votes and decision",
        icon=":material/how_to_vote:",
        profile=url.get_int("profile"),
        context=url.get_int("context"),
        attribute=item.attribute,
    )


def _memory(view: LeakView) -> None:
    used = {r.attribute for s in view.samples for r in s.reveals if r.strength == Strength.FULL}
    held = [m for m in view.memories.values() if m.held]
    frame = pd.DataFrame(
        [
            {
                "label": safe.glyphed(m.label),
                "revealed": f"{m.reveals} of {m.draws}",
                "key": m.key,
                "statement": m.statement,
            }
            for m in sorted(held, key=lambda m: (-m.reveals, m.attribute))
        ]
    )
    safe.heading(f"The memory: {len(used)} of {len(held)} attributes revealed")
    tables.table(
        frame,
        key="leaks.memory",
        columns={
            "revealed": ("small", "Revealed"),
            "label": ("text", "Label"),
            "key": ("text", "Attribute"),
            "statement": ("wide", "Memory statement"),
        },
        height=420,
    )


draw()
