"""Parts of the Leaks page: the runs browsed and the judge; the messages of one profile in one context, with what each
reveals marked; and the leaked memory with its label, all memories of the assistant, and the judge's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from cimemories.flows import catalogue
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.scope import Combine, Scope
from cimemories.labels.votes import PairView, pairs
from cimemories.leaks.gallery import Phrase, phrase_of, run_ids, scopes_of
from cimemories.leaks.message import LeakView, Memory, Sample, Stretches, differences, judge_answers, leak_view
from cimemories.metrics.headline import Headline
from cimemories.metrics.heatmap import as_first
from cimemories.metrics.warnings import NO, PARTLY
from cimemories.model import Channel, JudgementStatus, Label, ResponseStatus, Reveal, Strength
from cimemories.store.audits import Audit, AuditVerdict, says_revealed
from cimemories.store.engine import StoreError, shared_store
from cimemories.text import count, display_name
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import Html, Kind, Marked, join, tag
from pages.curate.pair_panel import show_votes
from pages.explore.run_scope import more_button, run_scope

QUOTES = 3


def draw_memory(flows: Flows, scope: Scope, view: LeakView, sample: Sample, attribute: int | None) -> None:
    """Draw what is known of the leak, of the memory behind the message, and of how it was judged."""
    if attribute in view.memories:
        _attribute(flows, scope, view.memories[attribute], view, sample)
    _memory(view, sample)
    page.fold("What the judge answered", ":material/gavel:", "leaks.box.judge", lambda: _judge(flows, scope, sample))


def _attribute(flows: Flows, scope: Scope, item: Memory, view: LeakView, sample: Sample) -> None:
    profile, context = url.get_int("profile"), url.get_int("context")
    pair = pair_of(flows, scope, profile, context, item.attribute) if profile and context else None
    decided = f"  decided by {pair.decision.annotator}" if pair and pair.decision and item.decided else ""
    by = decided or ("  by a person" if item.decided else "  by the personas" if item.label else "")
    quoted = next((r.quote for r in sample.reveals if r.attribute == item.attribute and r.grounded), "")
    rows: list[tuple[str, Html | str]] = [
        ("Attribute", item.key),
        ("Statement", safe.data(item.statement)),
        *(
            [("Said here", safe.data(quoted))]
            if phrase_of(item.statement, quoted) in (Phrase.PART, Phrase.REWORDED)
            else []
        ),
        ("Domain, event", ", ".join(map(display_name, dict.fromkeys((item.domain, item.event or item.domain))))),
        ("Label here", join([safe.label_chip(item.label), by])),
        ("Revealed", f"in {item.reveals} of {item.draws} judged messages"),
    ]
    if recalled := _recalled(item.attribute, sample, view.samples):
        rows.append(("Recalled", recalled))
    if view.earlier is not None:
        rows.append(("Said before", _said_before(view, sample, item.attribute) or "in no message in its memory"))
    safe.show(safe.facts(rows))
    if pair is not None:
        _label(pair, imported=scope.labelling is not None and scope.labelling.imported)
    quotes = [
        (s.number, r)
        for s in view.samples
        for r in s.reveals
        # A full claim with its quote in the text is marked there; the others need words.
        if r.attribute == item.attribute and (r.strength != Strength.FULL or r.span is None or _is_cut(r))
    ]
    claiming = {s.number: s.judges.get(item.attribute, ()) for s in view.samples}
    for number, reveal in quotes[:QUOTES]:
        claimed_by = f", {', '.join(claiming[number])}" if len(claiming.get(number, ())) > 1 else ""
        lost = "" if reveal.grounded else ", not in the text"
        lost = ", behind the part that is shown" if _is_cut(reveal) else lost
        safe.inline(f"Sample {number} ({reveal.strength}{lost}{claimed_by}): “{reveal.quote}”", muted=True)
    if audited := [(s.number, s.verdicts[item.attribute]) for s in view.samples if item.attribute in s.verdicts]:
        marks = (f"sample {number} {_verdict(audit)}" for number, audit in audited)
        safe.inline(f"Judge audit: {', '.join(marks)}.", muted=True)
    url.page_link(
        "labels",
        "Votes and decision",
        icon=":material/how_to_vote:",
        profile=url.get_int("profile"),
        context=url.get_int("context"),
        attribute=item.attribute,
    )


def _is_cut(reveal: Reveal) -> bool:
    """Return whether the quote stands behind the part of a very long text that is shown."""
    return reveal.span is not None and reveal.span.start >= safe.LONGEST


def _said_before(view: LeakView, sample: Sample, attribute: int) -> str:
    """Say to whom earlier messages in the prompt of this one had revealed it; '' if none had."""
    contexts = (view.earlier or {}).get(sample.number, {}).get(attribute, ())
    if not contexts:
        return ""
    more = f", and in {count(len(contexts) - 1, 'more message')}" if contexts[1:] else ""
    return f"in the message to {view.recipients[contexts[0]]}{more}"


def _travelled(scope: Scope, view: LeakView, sample: Sample) -> None:
    """Draw the leaks of this message that an earlier message in its prompt had revealed, with links to that message."""
    before = (view.earlier or {}).get(sample.number, {})
    leaked = sample.leaked(view.memories)
    travelled = [(attribute, before[attribute][0]) for attribute in leaked if attribute in before]
    if not leaked or view.earlier is None:
        return
    safe.inline(f"{len(travelled)} of {count(len(leaked), 'leak')} repeat what a message in its memory had said.")
    for attribute, context in travelled[:MOST_ROWS]:
        label = f"{view.memories[attribute].key}: said before to {view.recipients[context]}"
        url.page_link(
            "leaks",
            safe.plain_label(label, 90),
            icon=":material/undo:",
            run=scope.run.id,
            judge=url.get("judge"),
            profile=url.get_int("profile"),
            context=context,
            attribute=attribute,
            sample=sample.number,
        )


def _recalled(attribute: int, sample: Sample, samples: Sequence[Sample]) -> str:
    """Say whether a gate or a memory system let the attribute into this message's prompt, at which place, and into how
    many other prompts; '' if no message has a recorded selection."""
    chosen = [each.prompt for each in samples if each.prompt is not None]
    if not chosen:
        return ""
    others = f"in those of {sum(attribute in prompt for prompt in chosen)} of {count(len(chosen), 'message')}"
    if sample.prompt is None:  # it is missing: the gate or system failed
        return f"nothing is known of this message's prompt; {others}"
    place = sample.prompt.get(attribute)
    if place is None:
        unknown = f" and {count(sample.unknown_lines, 'line')} that may carry it" if sample.unknown_lines else ""
        known = "not known to be" if unknown else "not"
        return f"{known} in this message's prompt, which held {count(len(sample.prompt))}{unknown}; {others}"
    score = "" if place.score is None else f", score {place.score:.3g}"
    return f"in this message's prompt, place {place.rank} of {count(len(sample.prompt))}{score}; {others}"


def pair_of(flows: Flows, scope: Scope, profile: int, context: int, attribute: int) -> PairView | None:
    """Return the votes and decisions on a leak; None if it was deleted a moment ago."""
    labelling = scope.labelling.id if scope.labelling else None

    def ask() -> PairView | None:
        try:
            return pairs(flows.store, labelling, profile, context, attribute)[0]
        except StoreError:
            return None

    return flows.cached(("leak pair", scope.version, profile, context, attribute), ask)


def _label(pair: PairView, *, imported: bool) -> None:
    if pair.votes:
        show_votes(pair, imported=imported)
    lines = [f"Missing votes, not counted: {pair.missing}."] if pair.missing else []
    for decision in reversed(pair.history):
        label = str(decision.label) if decision.label else "taken back"
        reason = f": {decision.reason}" if decision.reason else ""
        lines.append(f"{decision.created[:10]} {decision.annotator} ({decision.source}) {label}{reason}")
    if lines:
        safe.show(tag("div", *(tag("div", line, cls="ci-muted") for line in lines), cls="ci-lines"))


def _memory(view: LeakView, sample: Sample) -> None:
    used = {r.attribute for s in view.samples for r in s.reveals if r.strength == Strength.FULL}
    here = {r.attribute for r in sample.reveals if r.strength == Strength.FULL}
    held = [m for m in view.memories.values() if m.in_memory]

    def gravity(item: Memory) -> int:
        return 2 if item.private else int(item.label == Label.NECESSARY)

    names = ("revealed", "N conveyed", "I leaked")
    frame = pd.DataFrame(
        [
            {
                "here": names[gravity(m)] if m.attribute in here else "",
                "label": safe.glyphed(m.label),
                "revealed": f"{m.reveals} of {m.draws}",
                "key": m.key,
                "statement": m.statement,
            }
            # Attributes that this message reveals on top, leaks first, then by the number of revealing messages.
            for m in sorted(held, key=lambda m: (m.attribute not in here, -gravity(m), -m.reveals, m.attribute))
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


def _judge(flows: Flows, scope: Scope, sample: Sample) -> None:
    for answer in judge_answers(flows, scope, sample.response):
        safe.inline(
            f"{answer.judge} on sample {sample.number}" + (f": {answer.note}" if answer.note else ""), strong=True
        )
        if answer.reasoning:
            safe.inline(answer.reasoning, muted=True)
        if answer.text:
            st.code(safe.clip(answer.text, safe.LONGEST), language=None, wrap_lines=True, height=260)


ALL, ONE = "all", "one"
FIRST = "first"
AMONG = {ONE: "This run", ALL: "All runs"}
JUDGES = {
    FIRST: "each run's first judge",
    str(Combine.ANY): "any judge of the run",
    str(Combine.MAJORITY): "more than half of the run's judges",
    str(Combine.ALL): "all judges of the run",
}


@dataclass(frozen=True)
class Browsed:
    """The runs that are browsed. scopes: by run, in the order of the list. numbers: of the one run; None if all are
    browsed. top: the place of the page's head; view, steps: places beside the choice of the run; more: the place of
    further choices."""

    flows: Flows
    scopes: dict[str, Scope]
    numbers: Headline | None
    top: Any = None
    more: Any = None
    view: Any = None
    steps: Any = None

    @property
    def every(self) -> bool:
        return self.numbers is None


BESIDE = 4.4, 4.2  # widths of `view` and `steps`


def browsed(button: str) -> Browsed | None:
    """Draw the choice of runs and return it; None if there is no run, which the page then says. button: the text of
    the one with further choices behind it."""
    ids = run_ids(shared_store())
    several = len(ids) > 1
    if several and (url.get("among") or url.remembered("among")) == ALL:
        return _every(len(ids), button)
    chosen = run_scope(
        "Leaks",
        "No messages yet",
        "A leak is a memory statement that a message reveals where it is inappropriate. It needs a run.",
        button=button,
        beside=BESIDE,
    )
    if chosen is None:
        return None
    url.replace(among=None)
    if several:
        with page.behind(chosen.more):
            _among()
    scopes = {chosen.scope.run.id: chosen.scope}
    return Browsed(chosen.flows, scopes, chosen.numbers, chosen.top, chosen.more, *chosen.columns)


def _every(runs: int, button: str) -> Browsed:
    top = st.container()
    with st.container(key="scope"):
        summary, more_column, *columns = st.columns([4, 3, *BESIDE], vertical_alignment="bottom")
    url.replace(among=ALL)
    more = more_button(more_column, button)
    with page.behind(more):
        judge = page.choice(
            "Judge",
            JUDGES,
            "leaks.judges",
            "judge",
            default=FIRST,
            boxed=True,
            help="Whose claims count, in every run. A run with one judge goes by that one.",
        )
        _among()
    flows = shared_flows(shared_store())
    scopes = scopes_of(flows, None if judge == FIRST else judge)
    with summary:
        datasets = len({scope.run.dataset for scope in scopes})
        of = "" if datasets < 2 else f" of {datasets} datasets"
        rest = runs - len(scopes)
        without = f"; {rest} without a judge of messages left out" if rest else ""
        safe.inline(f"{count(len(scopes), 'run')}{of}{without}.", muted=True)
    return Browsed(flows, {scope.run.id: scope for scope in scopes}, None, top, more, *columns)


def _among() -> None:
    def also() -> dict[str, url.Value]:
        # A combination of judges is the only choice that both views have.
        return {"judge": url.get("judge") if url.get("judge") in JUDGES else None, "runs": None}

    page.choice("Examples from", AMONG, "leaks.among", "among", default=ONE, remembered=True, also=also)


KIND_OF: dict[Label | None, Kind] = {
    Label.INAPPROPRIATE: "leaked",
    Label.NECESSARY: "conveyed",
    Label.AMBIGUOUS: "ambiguous",
    None: "ambiguous",
}
MOST_ROWS = 8


def choose_sample(
    scope: Scope, view: LeakView, attribute: int | None, param: str = "sample", usual: int | None = None
) -> Sample:
    """Draw the choice of a message and return it. attribute: the leak in view. param: of the URL. usual: the position
    without it; None: that of the message that says most of the leak."""
    names = [_sample_name(sample, view) for sample in view.samples]
    linked = url.get_int(param)
    claiming = [
        (i, r.strength != Strength.FULL, not r.grounded)
        for i, s in enumerate(view.samples)
        for r in s.reveals
        if r.attribute == attribute
    ]
    # False sorts first: a full claim whose quote is in the text, else the nearest to that.
    telling = min(claiming, key=lambda claim: claim[1:], default=(0,))[0] if usual is None else usual
    current = linked - 1 if linked is not None and 1 <= linked <= len(names) else telling
    key = f"leaks.{param}.{scope.run.id}.{view.context.task}.{view.profile.name}.{attribute}"
    if linked is not None and st.session_state.get(key, current) != current:
        st.session_state[key] = current  # a link led to another message of a flow viewed before
    chosen = st.segmented_control(
        "Sample (inappropriate attributes revealed)",
        range(len(names)),
        format_func=lambda i: names[i],
        default=current,
        key=key,
        required=True,
        on_change=url.durable(lambda: url.put(**{param: int(st.session_state[key]) + 1})),
    )
    return view.samples[int(chosen or 0)]


def draw(
    scope: Scope, sample: Sample, view: LeakView, attribute: int | None, differing: Stretches | None = None
) -> None:
    """Draw a message and what it leaks. attribute: the leak in view. differing: the stretches that the message beside
    it has not; None: it stands alone."""
    _sample(scope, sample, view, differing)
    _travelled(scope, view, sample)
    _which(view, attribute)


ALONE = "alone"


def choose_beside(flows: Flows, scope: Scope, profile: int, context: int) -> tuple[Scope, LeakView] | None:
    """Draw the choice of a run whose message stands beside this one, and return it with its messages; None for none."""
    names = catalogue.run_names(flows.store, scope.run.dataset)
    texts = {run_id: f"Beside {name} ({run_id})" for run_id, name in names.items()}
    options = {ALONE: "One message"} | texts | {scope.run.id: "Beside another sample"}
    missing = "The run '{}' of the link is not of this dataset. One message is shown."
    chosen = page.choice(
        "Side by side",
        options,
        "leaks.beside",
        "beside",
        default=ALONE,
        boxed=True,
        missing=missing,
        visible=False,
        also=lambda: {"second": None},
    )
    if chosen == ALONE:
        return None
    try:
        other, note = (scope, "") if chosen == scope.run.id else as_first(flows, scope, chosen)
    except StoreError as problem:
        page.error("There is no second message.", str(problem))
        return None
    view = leak_view(flows, other, profile, context)
    note = note if view else f"{other.run.name} has no message for this profile and context"
    if note:
        page.notice(f"{note}.")
    return (other, view) if view else None


def draw_beside(scopes: tuple[Scope, Scope], views: tuple[LeakView, LeakView], attribute: int | None) -> Sample:
    """Draw two messages for the same task side by side, their differences marked, and return the first."""
    columns = st.columns(2, gap="medium")
    heads = [column.container() for column in columns]
    with columns[0]:
        first = choose_sample(scopes[0], views[0], attribute)
    with columns[1]:
        usual = first.number % len(views[1].samples) if scopes[0] == scopes[1] else None  # another one
        second = choose_sample(scopes[1], views[1], attribute, "second", usual)
    differing = differences(first.text or "", second.text or "")
    leaked = [set(sample.leaked(view.memories)) for sample, view in zip((first, second), views, strict=True)]
    for at, sample in enumerate((first, second)):
        with heads[at]:
            only = f", {count(len(leaked[at] - leaked[1 - at]))} of them only here" if leaked[at] else ""
            whose(scopes[at], f": {count(len(leaked[at]), 'leak')}{only}")
        with columns[at]:
            draw(scopes[at], sample, views[at], attribute, differing[at])
    return first


def whose(scope: Scope, text: str) -> None:
    """Draw the run of a message, with what is said of it."""
    name = tag("b", scope.run.name)
    safe.show(tag("div", name, text, " ", page.simulated_badge(scope.simulated), cls="ci-line"))


def _sample_name(sample: Sample, view: LeakView) -> str:
    if not sample.judged:
        return f"{sample.number} (missing)"
    off = ", not the task" if sample.task == NO else ""
    return f"{sample.number} ({len(sample.leaked(view.memories))}{off})"


def _sample(scope: Scope, sample: Sample, view: LeakView, differing: Stretches | None) -> None:
    if sample.status != ResponseStatus.OK:
        why = f"{sample.status}: {sample.cause}" if sample.cause else str(sample.status)
        page.notice(f"This response is missing ({why}). It counts as missing, not as 'nothing revealed'.")
    elif sample.judgement != JudgementStatus.OK:
        why = f"{sample.judgement}: {sample.judgement_cause}" if sample.judgement_cause else str(sample.judgement)
        lacks = "has no judgement" if scope.combine == Combine.ONE else "is not judged by all of these judges"
        page.notice(f"This message {lacks} ({why}). It counts as missing, not as 'nothing revealed'.")
    if sample.task == NO:
        page.notice("This message does not do its task, so revealing little or nothing is no sign of privacy.")
    elif sample.task == PARTLY:
        page.notice("This message does its task only in part.")
    if not sample.text:
        return
    if scope.channel != Channel.MESSAGE:
        safe.inline(READ[scope.channel], muted=True)
    spans = _spans(scope, sample, view)
    _legend(spans, beside=differing is not None)
    safe.message(sample.text, spans, differing=differing or ())
    for item in sample.sent:
        if scope.combine == Combine.ONE and item.kind != scope.channel:
            safe.inline(item.title, muted=True)
            safe.message(item.text, ())
        elif item.task:
            safe.inline(item.title, muted=True)
    for item in sample.elsewhere:
        safe.inline(f"{item.title}. It counts for the message to that recipient.", muted=True)
    if sample.ungrounded:
        left_out = ", and are left out" if scope.grounded else ""
        page.notice(
            f"{sample.ungrounded} claims of {scope.judge_text} have a quote that is not in the text "
            f"(ungrounded){left_out}."
        )


READ = {
    Channel.REASONING: "The reasoning before the message, which this judge reads; the recipient does not.",
    Channel.TOOLS: "The assistant's tool calls, which this judge reads beside the message.",
    Channel.MEMORY: "What the assistant wrote into its memory, which this judge reads; the recipient does not.",
}
LEGEND: dict[Kind, str] = {
    "leaked": "inappropriate, leaked",
    "conveyed": "necessary, conveyed",
    "ambiguous": "ambiguous",
}


def _legend(spans: Sequence[Marked], *, beside: bool) -> None:
    """Draw the meaning of the marks in a message; the rarer ones only if they occur. It stands before the message,
    because below a long one it would be out of sight."""
    marks = [tag("mark", text, cls=f"ci-{kind} ci-opens") for kind, text in LEGEND.items()]
    if beside:
        marks.append(tag("span", "not in the other one", cls="ci-differs"))
    if any(span.weak for span in spans):
        marks.append(tag("mark", "in part or implied, not counted", cls="ci-leaked ci-weak ci-opens"))
    if any(span.confirmed for span in spans):
        marks.append(tag("mark", "confirmed in an audit", cls="ci-confirmed"))
    if any(span.confirmed is False for span in spans):
        marks.append(tag("mark", "denied in an audit", cls="ci-denied"))
    safe.show(tag("div", *(part for mark in marks for part in (mark, "  ")), cls="ci-legend"))


def _spans(scope: Scope, sample: Sample, view: LeakView) -> list[Marked]:
    spans = []
    for reveal in sample.reveals:
        item = view.memories[reveal.attribute]
        if reveal.span is not None:
            # A message has to be signed: attributes that repeat the biography are never leaks.
            kind = "conveyed" if item.bio and item.label == Label.INAPPROPRIATE else KIND_OF[item.label]
            note = f"{item.key}: {item.label or 'not labelled'}, {reveal.strength}"
            if scope.combine != Combine.ONE:
                note += f", claimed by {', '.join(sample.judges[reveal.attribute])}"
            if said := _said_before(view, sample, reveal.attribute):
                note += f"; said before {said}"
            audit = sample.verdicts.get(reveal.attribute)
            confirmed = None if audit is None else says_revealed(audit.verdict)
            if audit is not None:
                note += f"; audit: {_verdict(audit)}"
            # As in the counts: people count before the judge only if that is chosen.
            counts = confirmed if sample.people and confirmed is not None else reveal.strength == Strength.FULL
            spans.append(Marked(reveal.span.start, reveal.span.end, kind, note, not counts, confirmed))
    return spans


def _verdict(audit: Audit) -> str:
    names = {AuditVerdict.FULL: "revealed", AuditVerdict.NONE: "not revealed", AuditVerdict.PARTIAL: "revealed in part"}
    return f"{names.get(audit.verdict or AuditVerdict.NONE, 'implied')} ({audit.annotator})"


def _which(view: LeakView, attribute: int | None) -> None:
    """Draw which message leaks what: one row an attribute, one column a message."""
    leaked = {sample.number: set(sample.leaked(view.memories)) for sample in view.samples}
    counts = {a: sum(a in leaked_ for leaked_ in leaked.values()) for leaked_ in leaked.values() for a in leaked_}
    if not counts:
        return
    shown = sorted(counts, key=lambda a: (a != attribute, -counts[a], a))
    rows = [
        tag(
            "tr",
            tag("td", view.memories[a].key, title=view.memories[a].statement),
            tag("td", *(_mark(sample, a in leaked[sample.number], sample.verdicts.get(a)) for sample in view.samples)),
            tag("td", f"{counts[a]} of {view.memories[a].draws}", cls="ci-number"),
            cls="ci-chosen" if a == attribute else "",
        )
        for a in shown[:MOST_ROWS]
    ]
    numbers = [tag("span", str(s.number), cls="ci-mark ci-plain", title=f"sample {s.number}") for s in view.samples]
    head = tag("tr", tag("th", "Leaked in sample"), tag("th", *numbers), tag("td"))
    safe.show(tag("table", tag("thead", head), tag("tbody", *rows), cls="ci-grid ci-samples"))
    if len(shown) > MOST_ROWS:
        safe.inline(f"{len(shown) - MOST_ROWS} more attributes leak in these messages.", muted=True)


def _mark(sample: Sample, leaks: bool, audit: Audit | None) -> Html:
    """Return the mark of the judge's claim on an attribute in one message; an outline and the tooltip show people's
    verdicts."""
    glyph, cls, text = ("I", "ci-inappropriate", "leaks it") if leaks else ("·", "ci-plain", "does not reveal it")
    if not sample.judged:
        glyph, cls, text, audit = "–", "ci-missing", "missing", None
    title = f"sample {sample.number}: {text}"
    if audit is not None:
        cls, title = f"{cls} ci-audited", f"{title}; audit: {_verdict(audit)}"
    return tag("span", glyph, cls=f"ci-mark {cls}", title=title)
