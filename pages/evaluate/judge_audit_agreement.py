"""Part of the Judge audit page: how far the judges of a run agree with each other, whoever is right."""

from __future__ import annotations

import pandas as pd

from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.judges_agreement import JudgePair, JudgesAgreement, judges_agreement
from cimemories.analysis.kappa import Figure
from cimemories.analysis.warnings import KAPPA_WARNING
from cimemories.ui import page, safe, tables
from cimemories.ui.safe import Html, join, tag


def draw(flows: Flows, asked: Scope) -> None:
    """The section; nothing for a run of one judge."""
    found = judges_agreement(flows, asked.run.id)
    if len(found.judges) < 2:
        return
    safe.heading(f"Judges against judges: {_headline(found)}")
    _judges(found)
    if not found.pairs:
        page.notice("No two judges of this run read the same text, so there is nothing to agree on.")
        return
    _pairs(found)
    _csv(found)
    safe.inline(
        "A place is one attribute of the memory in one message that both have judged; it is revealed where a judge "
        "claims it in full. Agreement is no proof of being right: that is what people's verdicts above are for. There "
        "is no interval, since places of one message are not independent of each other.",
        muted=True,
    )


def _headline(found: JudgesAgreement) -> str:
    kappas = [pair.kappa.value for pair in found.pairs if pair.kappa.value is not None]
    if not kappas:
        return "their agreement is undefined"
    low, high = (f"{round(value, 2) + 0.0:.2f}" for value in (min(kappas), max(kappas)))
    span = f"kappa {low}" if len(kappas) == 1 else f"kappas from {low} to {high}"
    return f"{span}{', which is much disagreement' if min(kappas) < KAPPA_WARNING else ''}"


def _judges(found: JudgesAgreement) -> None:
    frame = pd.DataFrame(
        [
            {
                "judge": item.title,
                "reads": item.judge.channel,
                "judged": item.judged,
                "reveals": item.reveals,
                "ungrounded": f"{tables.count(item.ungrounded)} of {tables.count(item.claims)}"
                + (f" ({tables.percent(item.ungrounded_share)})" if item.claims else ""),
                "by": "simulator" if item.judge.simulated else "rules" if item.judge.kind == "matcher" else "model",
            }
            for item in found.judges
        ]
    )
    tables.table(
        frame,
        key=f"judge_audit.judges.{found.run_id}",
        columns={
            "judge": ("text", "Judge"),
            "by": ("text", "Answered by"),
            "reads": ("text", "Reads"),
            "judged": ("count", "Messages judged"),
            "reveals": ("count", "Places revealed"),
            "ungrounded": ("text", "Quotes not in the text"),
        },
        height="content",
        alt="The judges of this run and how much each says is revealed",
    )


def _pairs(found: JudgesAgreement) -> None:
    names = ["Both", "First alone", "Second alone", "Neither", "Agreement", "Cohen's kappa", "Gwet's AC1"]
    head = tag("tr", tag("th", "First and second judge"), *(tag("th", name, cls="ci-number") for name in names))
    rows: list[Html] = []
    reasons: dict[str, None] = {}
    for pair in found.pairs:
        (neither, second), (first, both) = pair.table
        on = f"{tables.count(pair.places)} places of {tables.count(pair.messages)} messages"
        cells = [tag("td", join([pair.first.title, " and ", pair.second.title, tag("div", on, cls="ci-muted")]))]
        cells += [tag("td", tables.count(n), cls="ci-number") for n in (both, first, second, neither)]
        for figure in (pair.agreement, pair.kappa, pair.ac1):
            cells.append(tag("td", _cell(figure, share=figure is pair.agreement), cls="ci-number"))
            if figure.value is None:
                reasons[figure.why] = None
        rows.append(tag("tr", *cells))
    safe.show(tag("table", tag("thead", head), tag("tbody", join(rows)), cls="ci-grid"))
    if reasons:
        safe.inline(f"Undefined where {'; or where '.join(reasons)}.", muted=True)


def _cell(figure: Figure, *, share: bool) -> Html:
    if figure.value is None:
        return tag("span", "undefined", cls="ci-muted", title=figure.why)
    return tag("b", tables.percent(figure.value) if share else f"{round(figure.value, 2) + 0.0:.2f}")


def _csv(found: JudgesAgreement) -> None:
    frame = pd.DataFrame([_row(found, pair) for pair in found.pairs])
    tables.csv_button(frame, f"judges-agreement-{found.run_id}.csv", key="judge_audit.csv.agreement")


def _row(found: JudgesAgreement, pair: JudgePair) -> dict[str, object]:
    (neither, second), (first, both) = pair.table
    return {
        "run": found.run_id,
        "first": pair.first.title,
        "second": pair.second.title,
        "simulated": pair.first.judge.simulated or pair.second.judge.simulated,
        "messages": pair.messages,
        "places": pair.places,
        "both": both,
        "first_alone": first,
        "second_alone": second,
        "neither": neither,
        "agreement": pair.agreement.value,
        "kappa": pair.kappa.value,
        "ac1": pair.ac1.value,
        "why": pair.kappa.why,
    }
