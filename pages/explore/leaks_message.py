"""Part of the Leaks page: the messages of one profile in one context, what each of them gives away marked."""

from __future__ import annotations

import streamlit as st

from cimemories.analysis.flows import Combine, Scope
from cimemories.analysis.leaks import LeakView, Sample
from cimemories.analysis.task_check import NO, PARTLY
from cimemories.model import JudgementStatus, Label, ResponseStatus, Strength
from cimemories.ui import page, safe, samples, url
from cimemories.ui.safe import Kind, Marked, tag

KIND_OF: dict[Label | None, Kind] = {
    Label.INAPPROPRIATE: "leaked",
    Label.NECESSARY: "conveyed",
    Label.AMBIGUOUS: "ambiguous",
    None: "ambiguous",
}
MOST_ROWS = 8


def draw(asked: Scope, view: LeakView, attribute: int | None) -> Sample:
    """The message of the chosen sample; returns it. attribute: the leak that is looked at."""
    names = [_sample_name(sample, view) for sample in view.samples]
    wanted = url.get_int("sample")
    claiming = [
        (i, r.strength != Strength.FULL, not r.grounded)
        for i, s in enumerate(view.samples)
        for r in s.reveals
        if r.attribute == attribute
    ]
    telling = min(claiming, key=lambda found: found[1:], default=(0,))[0]
    current = wanted - 1 if wanted is not None and 1 <= wanted <= len(names) else telling
    key = f"leaks.sample.{asked.run.id}.{view.context.task}.{view.profile.name}.{attribute}"
    if wanted is not None and st.session_state.get(key, current) != current:
        st.session_state[key] = current  # a link has come to another message of a place that was looked at before
    chosen = st.segmented_control(
        "Sample (inappropriate attributes revealed)",
        range(len(names)),
        format_func=lambda i: names[i],
        default=current,
        key=key,
        required=True,
        on_change=lambda: url.put(sample=int(st.session_state[key]) + 1),
    )
    sample = view.samples[int(chosen or 0)]
    _sample(asked, sample, view)
    _which(view, attribute)
    return sample


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
    safe.message(sample.text, _spans(asked, sample, view))
    safe.show(
        tag(
            "p",
            "Marked: ",
            tag("mark", "X inappropriate, leaked", cls="ci-leaked"),
            " ",
            tag("mark", "N necessary, conveyed", cls="ci-conveyed"),
            " ",
            tag("mark", "? ambiguous", cls="ci-ambiguous"),
            cls="ci-muted",
        )
    )
    if sample.ungrounded:
        left_out = ", and are left out" if asked.grounded else ""
        page.notice(
            f"{sample.ungrounded} claims of {asked.judge_words} have a quote that is not in the text "
            f"(ungrounded){left_out}."
        )


def _spans(asked: Scope, sample: Sample, view: LeakView) -> list[Marked]:
    spans = []
    for reveal in sample.reveals:
        item = view.memories[reveal.attribute]
        if reveal.span is not None:
            kind = "conveyed" if item.bio and item.label == Label.INAPPROPRIATE else KIND_OF[item.label]
            note = f"{item.key}: {item.label or 'not labelled'}, {reveal.strength}"
            if asked.combine != Combine.ONE:
                note += f", claimed by {', '.join(sample.judges[reveal.attribute])}"
            spans.append(Marked(reveal.span.start, reveal.span.end, kind, note))
    return spans


def _which(view: LeakView, attribute: int | None) -> None:
    """Which message leaks what: an attribute a row, a message a column."""
    leaked = {sample.number: set(sample.leaked(view.memories)) for sample in view.samples}
    counts = {a: sum(a in found for found in leaked.values()) for found in leaked.values() for a in found}
    if not counts:
        return
    shown = sorted(counts, key=lambda a: (a != attribute, -counts[a], a))
    samples.style()
    rows = [
        (
            view.memories[a].key,
            view.memories[a].statement,
            [_mark(sample, a in leaked[sample.number]) for sample in view.samples],
            f"{counts[a]} of {view.memories[a].draws}",
            a == attribute,
        )
        for a in shown[:MOST_ROWS]
    ]
    safe.show(samples.grid("Leaked in sample", [sample.number for sample in view.samples], rows))
    if len(shown) > MOST_ROWS:
        safe.inline(f"{len(shown) - MOST_ROWS} more attributes leak in these messages.", muted=True)


def _mark(sample: Sample, leaks: bool) -> samples.Mark:
    if sample.status != ResponseStatus.OK or sample.judgement != JudgementStatus.OK:
        return "missing"
    return "leaked" if leaks else "silent"
