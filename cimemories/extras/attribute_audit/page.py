"""The part of the Judge audit page for samples of attributes, and for Violation@n corrected by people's verdicts on
them."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.answer import Column, Table
from cimemories.extras.attribute_audit.sampling import (
    SIZE,
    attribute_plan,
    attribute_population,
    attributes_needed,
    draw_attribute_slice,
    pilot_of,
)
from cimemories.extras.attribute_audit.violation import ViolationAudit, correction_text, violation_audit
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.uncertainty import PARTS
from cimemories.store.audits import SliceRow
from cimemories.store.engine import StoreError
from cimemories.text import count, sentence
from cimemories.ui import answers, once, page, safe, url
from pages.evaluate.judge_audit_results import wanted_width

TITLE = "Whole attributes"


# ---- a new slice


def slice_form(flows: Flows, scope: Scope, me: str) -> None:
    """Draw the form of a slice of attributes, and the button that samples it."""
    judged = attribute_population(flows, scope, 1)
    if not len(judged.id):
        page.notice("No judged attribute can be violated yet, so there is nothing to audit.")
        return
    first, second, third, button = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    with first:
        n = int(
            st.number_input(
                "Messages per context",
                1,
                judged.most,
                1,
                key=f"judge_audit.attributes.n.{scope.run.id}",
                help="The n of the Violation@n to correct. Each context of an attribute is read so often.",
            )
        )
    with second:
        most = len(judged.id)
        number = int(st.number_input("Attributes", 1, most, min(SIZE, most), key="judge_audit.attributes.size"))
    with third:
        seed = int(st.number_input("Seed", 0, 999_999, 1, key="judge_audit.attributes.seed"))
    only = st.checkbox(
        "Only attributes with a claim",
        key="judge_audit.attributes.only",
        help="Gives a lower bound alone, for much less reading: what the judge missed is not looked for.",
    )
    judged = attribute_population(flows, scope, n)
    # Earlier audits of this n give the spread of attributes; without any it is assumed.
    pilot = pilot_of(flows, scope, n)
    try:
        planned = attribute_plan(judged, number, pilot, claimed_only=only)
    except StoreError as unfit:
        page.notice(sentence(unfit))
        return
    safe.inline(planned.sentence)

    def make() -> int:
        return draw_attribute_slice(
            flows, scope, number=number, n=n, seed=seed, annotator=me, pilot=pilot, claimed_only=only
        )

    if not me:
        safe.inline("Enter your name first.", muted=True)
    with page.Reporting("The slice was not created.", StoreError), button:
        once.button(
            "Sample the attributes",
            make,
            lambda new: url.put(slice=new),
            key="judge_audit.attributes.make",
            type="primary",
            disabled=not me,
        )


# ---- the figures


def draw(flows: Flows, scope: Scope, row: SliceRow) -> str:
    """Draw Violation@n corrected by the slice, and return the page's takeaway."""
    audit = violation_audit(flows, scope, row)
    result = audit.result
    heading, *others = audit.texts
    safe.heading(sentence(heading))
    for text in others:
        safe.inline(sentence(text))
    _progress(audit)
    intervals = {
        "by the judge alone": result.raw,
        "corrected": result.corrected,
        "confirmed claims alone": result.lower,
    }
    rows = [
        {"number": name, "value": item.value, "value_low": item.low, "value_high": item.high}
        | (item.parts.half_widths() if item.parts else dict.fromkeys(PARTS))
        for name, item in intervals.items()
    ]
    columns = {"number": Column("text", f"Violation@{result.n}"), "value": Column("percent", "Value")}
    columns |= {name: Column("percent", f"±{name}") for name in PARTS}
    table = Table(pd.DataFrame(rows).dropna(subset="value"), columns, "Violation of the run as the audit corrects it")
    answers.twin(table, f"judge_audit.attributes.{scope.run.id}", height="content")
    safe.inline(
        "± is 1.96 standard errors of each part alone: users, samples, contexts, labels, and the sample of audited "
        "attributes (judge). Prediction-powered inference (Angelopoulos et al. 2023), with attributes weighted as in "
        "Violation@n.",
        muted=True,
    )
    about = {"run": scope.run.id, "n": result.n, "slice": row.name}
    answers.export(table, f"judge_audit.violation-{scope.run.id}", about, scope.simulated or scope.judge.simulated)
    if result.correction is not None:
        width = wanted_width()
        now = (result.corrected.high - result.corrected.low) / 2
        more = attributes_needed(result, width)
        safe.inline(sentence(sentences.audit_left(width, more, now, "attribute")))
    return f"{scope.run.name}: {correction_text(result)}."


def _progress(audit: ViolationAudit) -> None:
    safe.inline(
        f"{count(audit.read)} of {count(audit.read + audit.open + audit.outdated)} attributes are settled, by "
        f"{count(audit.messages, 'verdict')}.",
        muted=True,
    )
    waiting = audit.read - sum(audit.result.audited)
    if waiting > 0:
        page.notice(
            f"{count(waiting, 'settled attribute')} not counted yet: attributes that leak are settled sooner, so only "
            "those before the first open one count. Finish what you skipped."
        )
    if audit.outdated:
        page.notice(
            f"{count(audit.outdated, 'attribute')} left out: since the slice was sampled, more contexts or messages of "
            "theirs have come to count. Sample again with the same seed; verdicts given so far are kept."
        )
