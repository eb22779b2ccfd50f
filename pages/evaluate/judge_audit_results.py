"""Part of the Judge audit page: how far the judges are right, the items behind every cell, and the corrected rate."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from cimemories.agreement.judge_audit import ANSWERS, Counted, JudgeAudit, JudgeQuality, cell_items, judge_audit
from cimemories.answer import Column, Rows, Table, cell
from cimemories.answers.judges import (
    ANSWER_TITLES,
    QUALITY,
    confusion,
    headline,
    judge_text,
    judges_together,
    leak_rates,
    lengths,
    quality,
)
from cimemories.charts.bars import Bounded, IntervalSeries, interval_rows
from cimemories.charts.theme import GREY, MODEL
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.judge_uncertainty import Correction, correction, verdicts_needed
from cimemories.text import count, html_escaped, percent, sentence
from cimemories.ui import answers, charts, page, safe, tables, url

WIDTH = 3.0  # default target half-width of an interval, in points


def draw_agreement(flows: Flows, scope: Scope) -> None:
    """Draw the agreement of the judges with each other; nothing for a run of one judge."""
    if len(catalogue.judges_of_runs(flows.store, [scope.run.id])[scope.run.id]) < 2:
        return
    result = judges_together(flows, scope.run.id, labels=scope)
    safe.heading(result.sentence or "Judges against judges")
    tables.grid(result.judges, "The judges of this run and how much each claims")
    if result.pairs.frame.empty:
        page.notice("No two judges of this run read the same text, so there is no agreement to show.")
        return
    tables.grid(result.pairs, "Judges against judges")
    answers.export(result.pairs, f"judge_audit.agreement-{result.run}", {}, result.simulated)
    safe.show(safe.lines(map(sentence, result.notes)))


# ---- how far the judges are right


def draw(flows: Flows, scope: Scope, audit: JudgeAudit) -> str:
    """Draw the figures; returns the page's takeaway."""
    about = {"run": scope.run.id, "slice": audit.slice.name}
    judge_result = next(item for item in audit.judges if item.judge is not None and item.judge.id == scope.judge.id)
    corrections = [correction(flows, scope, audit, item.judge) for item in audit.judges if item.judge is not None]
    mine = next(item for item in corrections if item.judge.id == scope.judge.id)
    safe.heading(f"{judge_text(scope.judge)} against people, {headline(judge_result)}")
    result = quality(audit)
    _quality(result)
    _shares(result.rows, audit)
    answers.export(result.rows, f"judge_audit.figures-{scope.run.id}", about, scope.simulated)
    page.fold(
        "The same if any strength counts as a reveal",
        ":material/tune:",
        "judge_audit.box.any",
        lambda: _quality(quality(judge_audit(flows, scope, audit.slice.id, Counted.ANY))),
    )
    _confusion(flows, scope, audit, judge_result, about)
    _correction(scope, mine, corrections, about)
    if audit.audited:
        answers.show(lengths(flows, scope, audit), f"judge_audit.lengths-{scope.run.id}", about)
    text = f"{scope.run.name}, {headline(judge_result)}"
    if mine.corrected.value is None or mine.observed.value is None:
        return f"{text}. The leak rate cannot be corrected yet."
    return (
        f"{text}. The leak rate of {percent(mine.observed.value)} is {mine.corrected.text()} once corrected for the "
        "judge's errors."
    )


def _quality(result: Rows) -> None:
    tables.grid(result.rows, result.rows.caption)
    safe.show(safe.lines(map(sentence, result.notes)))


def _shares(table: Table, audit: JudgeAudit) -> None:
    """Draw precision and recall of every judge that has them."""
    frame = table.frame[(table.frame["kind"] != "baseline") & (table.frame["audited"] > 0)]
    if frame.empty:
        return
    title = sentences.nearest_judge(
        list(frame[["judge", "f1", "f1_low", "f1_high"]].itertuples(index=False, name=None))
    )
    _interval_chart(
        Table(frame, {name: QUALITY[name] for name in ("precision", "recall")}),
        title=title,
        subtitle=f"Precision and recall with 95 % intervals, {count(audit.audited, 'audited item')}",
        key="judge_audit.chart.shares",
        maximum=1.0,
    )


def _interval_chart(table: Table, *, title: str, subtitle: str, key: str, maximum: float) -> None:
    """Draw one row a judge, one mark a column of the table with its interval."""
    rows = table.frame.to_dict("records")
    looks = ((GREY, "circle-open"), (MODEL, "diamond"))
    marks = [
        IntervalSeries(
            column.title.lower(),
            [Bounded(row[name], row[f"{name}_low"], row[f"{name}_high"]) for row in rows],
            colour,
            symbol,
            [
                f"<b>{html_escaped(row['judge'], 90)}</b><br>{column.title}: {cell(column.kind, name, row)}"
                for row in rows
            ],
        )
        for (name, column), (colour, symbol) in zip(table.columns.items(), looks, strict=True)
    ]
    xaxis = {"range": [-0.01 * maximum, 1.02 * maximum], "tickformat": ".0%" if maximum > 0.2 else ".1%"}
    names = [row["judge"] for row in rows]
    fig = interval_rows(names, marks, xaxis=xaxis, title=title, subtitle=subtitle, row_height=46)
    charts.show(fig, key=key, alt=f"{title}. {subtitle}. The same numbers are in the table.")


def _confusion(
    flows: Flows, scope: Scope, audit: JudgeAudit, judge_result: JudgeQuality, about: Mapping[str, object]
) -> None:
    safe.heading("Judge against people")
    table = confusion(judge_result)
    tables.grid(table, "Judge against people")
    safe.inline(f"{table.caption}. On the diagonal judge and person agree.", muted=True)
    cells = [(i, j) for i in range(len(ANSWERS)) for j in range(len(ANSWERS)) if judge_result.table[i, j]]
    if not cells:
        return
    cells.sort(key=lambda place: (place[0] == place[1], -judge_result.weighted[place]))
    names = [ANSWER_TITLES[str(answer)] for answer in ANSWERS]
    options = {
        f"{i}.{j}": f"judge: {names[i]}, person: {names[j]} ({count(judge_result.table[i, j], 'item')})"
        for i, j in cells
    }
    chosen = page.choice(
        "Items behind a cell", options, "judge_audit.cell", "cell", default=next(iter(options)), boxed=True
    )
    i, j = map(int, chosen.split("."))
    assert judge_result.judge is not None
    frame = cell_items(flows, audit, judge_result.judge, str(ANSWERS[i]), str(ANSWERS[j]))
    frame = frame.assign(weight=frame["weight"].round(1), simulated=bool(scope.simulated) or scope.judge.simulated)
    frame.index = pd.Index([f"{r}.{a}" for r, a in zip(frame["response"], frame["attribute"], strict=True)])
    items = Table(frame, ITEMS, "Audited items of the chosen cell")
    picked = answers.twin(
        items,
        f"judge_audit.items.{scope.run.id}.{i}{j}",
        on_select="row",
        height="content" if len(frame) < 9 else 320,
    )
    answers.export(items, f"judge_audit.cell-{scope.run.id}-{i}{j}", about, scope.simulated)
    if picked is not None:
        place = {name: int(frame.iloc[picked][name]) for name in ("profile", "context", "attribute")}
        url.page_link("leaks", "Open the message", icon=":material/format_ink_highlighter:", run=scope.run.id, **place)


ITEMS = {
    "statement": Column("wide", "Memory statement"),
    "user": Column("text", "Profile"),
    "recipient": Column("text", "Recipient"),
    "annotator": Column("text", "Person"),
    "weight": Column("count", "Weight"),
}


def _correction(scope: Scope, mine: Correction, corrections: list[Correction], about: Mapping[str, object]) -> None:
    result = leak_rates(corrections, mine)
    safe.heading(result.sentence)
    frame = result.rows.frame
    defined = frame[frame["corrected"].notna()]
    if len(defined):
        far = defined.iloc[int((defined["corrected"] - defined["observed"]).abs().to_numpy().argmax())]
        ends = [0.01, *defined["corrected_high"].fillna(defined["corrected"]), *frame["observed"].fillna(0)]
        columns = {name: result.rows.columns[name] for name in ("observed", "corrected")}
        _interval_chart(
            Table(frame, columns),
            title=f"{far['judge']}: {percent(far['observed'])} as judged, {percent(far['corrected'])} corrected",
            subtitle=f"Per-exposure leak rate with 95 % intervals, {count(far['exposures'], 'exposure')}, "
            f"{count(far['audited'])} of them audited",
            key="judge_audit.chart.rates",
            maximum=min(1.0, 1.15 * max(ends)),
        )
    tables.grid(result.rows, result.rows.caption)
    answers.export(result.rows, f"judge_audit.leak-rates-{scope.run.id}", about, scope.simulated)
    safe.show(safe.lines(map(sentence, result.notes)))
    low, high = mine.corrected.low, mine.corrected.high
    if low is not None and high is not None:
        width = wanted_width()
        left = sentences.audit_left(width, verdicts_needed(mine, width), (high - low) / 2, "verdict")
        safe.inline(sentence(left))


def wanted_width() -> float:
    """Draw the input of the target half-width, and return it as a share."""
    left, _ = st.columns([2, 7])
    with left:
        return float(st.number_input("Wanted: ± points", 0.5, 25.0, WIDTH, 0.5, key="judge_audit.width")) / 100
