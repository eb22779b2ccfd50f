"""The part of the Leaks page on why a message revealed an attribute: the plan of a replay with its cost, its progress,
and its findings, with the messages of each variant."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cimemories import launch
from cimemories.charts.bars import names_above
from cimemories.extras.why import attribution
from cimemories.extras.why.attribution import CHANGES, SAMPLES, Change
from cimemories.extras.why.chart import effects
from cimemories.extras.why.why import NAMES, Why, explain, first_reveal, variant_text
from cimemories.flows.flows import Flows
from cimemories.flows.progress import run_progress
from cimemories.flows.scope import Scope
from cimemories.leaks.message import Sample
from cimemories.manifest import AttributionPart
from cimemories.model import ResponseStatus
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import IMPORTED, RunRow
from cimemories.store.work import ACTIVE
from cimemories.text import count, sentence
from cimemories.ui import charts, exports, page, safe, shell, tables, url
from cimemories.ui.safe import Marked
from pages.evaluate.run_detail import draw_controls, draw_stages, start_button
from pages.evaluate.run_estimate import show as show_estimate

REFRESH = "1s"
Made = tuple[RunRow, AttributionPart]


def draw(flows: Flows, scope: Scope, sample: Sample, attribute: int) -> None:
    """Draw a fold that explains the leak of an attribute."""
    page.fold(
        "Why did this leak?",
        ":material/help:",
        "leaks.box.why",
        lambda: _inside(flows, scope, sample, attribute),
    )


def _inside(flows: Flows, scope: Scope, sample: Sample, attribute: int) -> None:
    """Draw how each change of the request moves the reveal, or a plan to find out."""
    profile, context = url.get_int("profile"), url.get_int("context")
    if scope.run.endpoint == IMPORTED or profile is None or context is None:
        page.notice("This run was imported from a file, so its messages cannot be requested again.")
        return
    own = (profile, context, attribute)
    made = [
        (row, part)
        for row, part in attribution.attributions(flows.store, scope.run.id)
        if (part.profile, part.context, part.attribute) == own
    ]
    if made:
        _outcome(flows, scope, _chosen(made), attribute)
        if not st.toggle("Ask again in another way", key=f"leaks.why.again.{attribute}.{context}"):
            return
    _plan(flows, scope, sample, own)


def _chosen(made: Sequence[Made]) -> RunRow:
    """Draw the choice of an attribution, by default the newest, and return it."""
    if len(made) == 1:
        return made[0][0]
    names = [
        f"{row.created[:16].replace('T', ' ')}, {count(len(part.variants), 'variant')} × {part.samples}"
        for row, part in made
    ]
    key = f"leaks.why.which.{made[0][1].attribute}.{made[0][1].context}"
    at = st.selectbox(
        "Replay", range(len(made)), format_func=safe.options(range(len(made)), names.__getitem__).__getitem__, key=key
    )
    return made[int(at or 0)][0]


# ---- the plan


def _plan(flows: Flows, scope: Scope, sample: Sample, own: tuple[int, int, int]) -> None:
    safe.inline(
        "Sends the request of this message again, as it was and with one thing changed at a time. The run's judges "
        "read the new messages.",
        muted=True,
    )
    place = ".".join(map(str, own))
    left, right = st.columns([1, 3])
    with left:
        samples = st.number_input(
            "Messages of each variant",
            min_value=1,
            max_value=500,
            value=SAMPLES,
            key=f"leaks.why.samples.{place}",
            help="The more there are, the smaller an effect that can be told from chance",
        )
    with right:
        changes = st.multiselect(
            "Changes",
            list(CHANGES),
            default=list(CHANGES),
            format_func=lambda change: NAMES[change],
            key=f"leaks.why.changes.{place}",
        )
    wording = ""
    if Change.PARAPHRASED in changes:
        wording = st.text_input(
            "Your own paraphrase",
            key=f"leaks.why.wording.{place}",
            placeholder="a short note, made from key and value",
            help="It has to state the value as the memory does",
        )
    cap = _cap(scope.run, place)
    with page.Reporting("This leak cannot be explained so.", StoreError):
        found = sample.response if own[2] in sample.revealed else first_reveal(flows, scope, *own)
        plan = attribution.prepare_attribution(
            *(flows.store, scope.run.id, found, own[2]),
            samples=int(samples),
            changes=changes,
            wording=wording.strip() or None,
            cap=cap,
        )
        estimated = attribution.estimate(flows.store, plan)
        safe.show(safe.lines([sentence(variant_text(plan, variant)) for variant in plan.variants], "ci-point"))
        page.notices(f"{NAMES[Change(change)]}: left out, {reason}" for change, reason in plan.skipped.items())
        show_estimate(estimated)
        start_button(
            flows.store,
            f"Send {count(len(plan.variants) * plan.samples, 'message')}",
            lambda: attribution.plan_attribution(flows.store, plan),
            lambda _: None,
            icon=":material/play_arrow:",
            key=f"start.why.{place}",
            refused="The replay was not started.",
            doing="Writing the plan",
        )


def _cap(run: RunRow, place: str) -> float | None:
    """Draw the input of a cost cap and return it; None if prices are unknown or no cap is set."""
    if run.manifest.model.prices is None:
        return None
    currency = str(run.manifest.model.prices.get("currency") or "")
    cap = st.number_input(
        safe.plain_label(f"Cost cap{f' ({currency})' if currency else ''}"),
        min_value=0.0,
        value=None,
        format="%.4g",
        placeholder="none",
        key=f"leaks.why.cap.{place}",
    )
    return float(cap) if cap else None


# ---- what came of it


def _outcome(flows: Flows, scope: Scope, row: RunRow, attribute: int) -> None:
    live = row.status in ACTIVE
    try:  # another user may have deleted it meanwhile
        if not row.status.is_finished or run_progress(flows.store, row.id).retriable:
            st.fragment(_live, run_every=REFRESH if live else None)(flows.store, row, live)
        why = explain(flows, scope, row)
    except StoreError as problem:
        page.error("This replay cannot be shown.", str(problem))
        return
    if not any(effect.judged for effect in why.effects):
        return
    page.badge_simulated(why.simulated)
    safe.inline(why.sentence, strong=True)
    _figure(why)
    tables.grid(why.tables()["variants"], "Effect of each change")
    page.notices(why.notes)
    _messages(why, attribute)


def _live(store: Store, row: RunRow, was_active: bool) -> None:
    """Draw the progress of an attribution and its controls; called each second while it runs."""
    try:
        now = run_progress(store, row.id)
    except StoreError as problem:
        page.error(str(problem))
        return
    if was_active and not now.active:
        st.rerun()  # the page, which then shows the outcome
    draw_stages(row, now)
    draw_controls(store, row, now)
    if now.error:
        page.error(f"{now.status}:", now.error)
    log = "" if now.active else launch.log_tail(store, row.id, 4)
    if log and not row.status.is_finished:
        st.code(log, language=None, wrap_lines=True)


def _figure(why: Why) -> None:
    drawing = effects(why)
    if drawing is None:
        return
    shown = names_above(drawing.fig) if shell.is_phone() else drawing.fig
    charts.show(shown, key=f"leaks.why.{why.run.id}", alt=drawing.alt)
    exports.buttons(
        f"why-{why.attribute.key}-{why.scope.run.id}",
        drawing.table.frame,
        fig=drawing.fig,
        key=f"leaks.why.export.{why.run.id}",
        simulated=why.simulated,
        about=why.about,
    )


def _messages(why: Why, attribute: int) -> None:
    """Draw the messages of one variant, with the revealing sentence marked."""
    names = [f"{effect.name.capitalize()} ({effect.reveals})" for effect in why.effects]
    which = st.segmented_control(
        "Messages (revealing)",
        range(len(names)),
        format_func=lambda i: names[i],
        default=0,
        key=f"leaks.why.variant.{why.run.id}",
        required=True,
    )
    effect = why.effects[int(which or 0)]
    order = sorted(effect.messages, key=lambda sample: not (sample.judged and attribute in sample.revealed))
    if not order:
        return
    found = ["reveals it" if attribute in sample.revealed else "does not reveal it" for sample in order]
    titles = [
        f"Sample {sample.number}: {what if sample.judged else 'missing'}"
        for sample, what in zip(order, found, strict=True)
    ]
    at = st.selectbox(
        "Message",
        range(len(order)),
        format_func=lambda i: titles[i],
        key=f"leaks.why.message.{why.run.id}.{effect.change}",
        label_visibility="collapsed",
    )
    shown = order[int(at or 0)]
    if not shown.judged:
        cause = shown.cause or shown.judgement_cause
        why_not = shown.status if shown.status != ResponseStatus.OK else shown.judgement
        page.notice(f"This message is missing ({why_not}{f': {cause}' if cause else ''}). It is in no count.")
    if shown.text:
        spans = [
            Marked(claim.span.start, claim.span.end, "leaked", why.attribute.key, False, None)
            for claim in shown.reveals
            if claim.attribute == attribute and claim.span is not None
        ]
        safe.message(shown.text, spans)
