"""Part of the Judge audit page: how far the judges are right, the items behind every cell, and the corrected rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pandas as pd

from cimemories.agreement.judge_audit import (
    ANSWERS,
    Counted,
    JudgeAudit,
    JudgeQuality,
    cell_items,
    judge_audit,
)
from cimemories.agreement.judges import JudgeCounts, JudgesAgreement, Places, judges_agreement, pairs_frame
from cimemories.agreement.statistics import Estimate
from cimemories.charts.bars import Bounded, IntervalSeries, interval_rows
from cimemories.charts.theme import GREY, MODEL
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import sentences
from cimemories.metrics.judge_uncertainty import (
    Correction,
    correction,
    length_dependence,
    length_sentence,
    verdicts_needed,
)
from cimemories.metrics.sentences import audit_left
from cimemories.metrics.warnings import KAPPA_WARNING
from cimemories.store.judgements import JudgeRow
from cimemories.text import count, decimal, html_escaped, percent, sentence
from cimemories.ui import charts, page, safe, tables, url
from cimemories.ui.safe import Html, join, tag
from pages.evaluate.judge_audit_attributes import wanted_width

# ---- how far the judges agree with each other, whoever is right


def draw_agreement(flows: Flows, scope: Scope) -> None:
    """The section; nothing for a run of one judge."""
    if len(catalogue.judges_of_runs(flows.store, [scope.run.id])[scope.run.id]) < 2:
        return
    agreement = judges_agreement(flows, scope.run.id, labels=scope)
    safe.heading(f"Judges against judges: {_agreement_headline(agreement)}")
    _judges(agreement)
    if not agreement.pairs:
        page.notice("No two judges of this run read the same text, so there is no agreement to show.")
        return
    _pairs(agreement)
    frame = pairs_frame(agreement)
    tables.csv_button(frame, f"judges-agreement-{agreement.run_id}.csv", key="judge_audit.csv.agreement")
    safe.inline(
        "An item is one attribute of the memory in one message that both have judged; it counts as revealed if the "
        "judge claims it in full. Agreement does not prove that judges are right: see people's verdicts above. There "
        "is no interval, because items of one message are not independent. Identifiers are attributes that repeat the "
        "biography and are inappropriate here; they never count as violations.",
        muted=True,
    )


def _agreement_headline(agreement: JudgesAgreement) -> str:
    kappas = [pair.kappa.value for pair in agreement.pairs if pair.kappa.value is not None]
    if not kappas:
        return "their agreement is undefined"
    low, high = map(decimal, (min(kappas), max(kappas)))
    span = f"kappa {low}" if len(kappas) == 1 else f"kappas from {low} to {high}"
    return f"{span}{', which is much disagreement' if min(kappas) < KAPPA_WARNING else ''}"


def _judges(agreement: JudgesAgreement) -> None:
    tables.listing(
        agreement.judges,
        range(len(agreement.judges)),
        {
            "judge": ("text", "Judge", lambda item: item.title),
            "by": ("text", "Answered by", _answered_by),
            "reads": ("text", "Reads", lambda item: item.judge.channel),
            "judged": ("count", "Messages judged", lambda item: item.judged),
            "reveals": ("count", "Items revealed", lambda item: item.reveals),
            "ungrounded": ("text", "Quotes not in the text", _ungrounded),
        },
        key=f"judge_audit.judges.{agreement.run_id}",
        alt="The judges of this run and how much each claims",
    )


def _answered_by(item: JudgeCounts) -> str:
    return "simulator" if item.judge.simulated else "rules" if item.judge.kind == "matcher" else "model"


def _ungrounded(item: JudgeCounts) -> str:
    share = f" ({percent(item.ungrounded_share)})" if item.claims else ""
    return f"{count(item.ungrounded)} of {count(item.claims)}{share}"


def _pairs(agreement: JudgesAgreement) -> None:
    names = ["First and second judge", "Both", "First alone", "Second alone", "Neither"]
    names += ["Agreement", "Cohen's kappa", "Gwet's AC1"]
    rows: list[Html] = []
    reasons: dict[str, None] = {}
    for pair in agreement.pairs:
        on = f"{count(pair.places, 'item')} of {count(pair.messages, 'message')}"
        named = join([pair.first.title, " and ", pair.second.title, tag("div", on, cls="ci-muted")])
        rows.append(tag("tr", tag("td", named), *_figures_of(pair, reasons)))
        for label, part in pair.by_label.items():
            on_label = tag("div", f"{label}: {count(part.places, 'item')}", cls="ci-muted")
            rows.append(tag("tr", tag("td", on_label), *_figures_of(part, reasons)))
    safe.show(safe.wide(safe.grid(names, rows), "Judges against judges"))
    _undefined_where(reasons)


def _figures_of(places: Places, reasons: dict[str, None]) -> list[Html]:
    (neither, second), (first, both) = places.table
    cells = [safe.number(count(n)) for n in (both, first, second, neither)]
    for figure in (places.agreement, places.kappa, places.ac1):
        if figure.value is None:
            cells.append(_undefined(figure))
            reasons[figure.why] = None
        else:
            is_share = figure is places.agreement
            cells.append(safe.number(tag("b", percent(figure.value) if is_share else decimal(figure.value))))
    return cells


def _undefined(figure: Estimate) -> Html:
    return safe.number(tag("span", "undefined", cls="ci-muted", title=figure.why))


def _undefined_where(reasons: Iterable[str]) -> None:
    if reasons:
        safe.inline(f"Undefined where {'; or where '.join(reasons)}.", muted=True)


# ---- figures of the judges with their intervals, drawn


LOOKS = {"circle-open": GREY, "diamond": MODEL}
Row = tuple[str, Estimate]  # the row's name and what is drawn in it


def shares(audit: JudgeAudit, name: Callable[[JudgeRow], str]) -> None:
    """Precision and recall of every judge that has any."""
    judges = [item for item in audit.judges if item.judge is not None and item.items]
    if not judges:
        return
    named = [(name(item.judge) if item.judge else item.name, item) for item in judges]
    title = sentences.nearest_judge(
        [(label, _or_nan(i.f1.value), _or_nan(i.f1.low), _or_nan(i.f1.high)) for label, i in named]
    )
    _interval_chart(
        {
            "precision": ("circle-open", [(label, item.precision) for label, item in named]),
            "recall": ("diamond", [(label, item.recall) for label, item in named]),
        },
        title=title,
        subtitle=f"Precision and recall with 95 % intervals, {count(audit.audited, 'audited item')}",
        key="judge_audit.chart.shares",
        maximum=1.0,
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def rates(corrections: list[Correction], name: Callable[[JudgeRow], str]) -> None:
    """The leak rate under each judge, as judged and corrected."""
    corrected = [item for item in corrections if item.corrected.value is not None]
    if not corrected:
        return
    far = max(corrected, key=lambda item: abs((item.corrected.value or 0) - (item.observed.value or 0)))
    ends = [item.corrected.high or item.corrected.value or 0 for item in corrected]
    _interval_chart(
        {
            "as judged": ("circle-open", [(name(item.judge), item.observed) for item in corrections]),
            "corrected": ("diamond", [(name(item.judge), item.corrected) for item in corrections]),
        },
        title=f"{name(far.judge)}: {percent(far.observed.value)} as judged, {percent(far.corrected.value)} corrected",
        subtitle=f"Per-exposure leak rate with 95 % intervals, {count(far.exposures, 'exposure')}, "
        f"{count(far.audited)} of them audited",
        key="judge_audit.chart.rates",
        maximum=min(1.0, 1.15 * max([0.01, *ends, *(item.observed.value or 0 for item in corrections)])),
    )


def _interval_chart(
    series: dict[str, tuple[str, list[Row]]], *, title: str, subtitle: str, key: str, maximum: float
) -> None:
    """One row a judge, one mark an estimate with its interval."""
    names = [row for row, _ in next(iter(series.values()))[1]]
    marks = [
        IntervalSeries(
            name,
            [_bounded(estimate) for _, estimate in estimates],
            LOOKS[symbol],
            symbol,
            [_hover(row, name, estimate) for row, estimate in estimates],
        )
        for name, (symbol, estimates) in series.items()
    ]
    xaxis = {"range": [-0.01 * maximum, 1.02 * maximum], "tickformat": ".0%" if maximum > 0.2 else ".1%"}
    fig = interval_rows(names, marks, xaxis=xaxis, title=title, subtitle=subtitle, row_height=46)
    charts.show(fig, key=key, alt=f"{title}. {subtitle}. The same numbers are in the table.")


def _bounded(estimate: Estimate) -> Bounded:
    return Bounded(*(math.nan if end is None else end for end in (estimate.value, estimate.low, estimate.high)))


def _hover(row: str, series: str, figure: Estimate) -> str:
    ends = "" if figure.low is None or figure.high is None else f" {_bounds(figure.low, figure.high)}"
    return f"<b>{html_escaped(row, 90)}</b><br>{series}: {percent(figure.value)}{ends}, {count(figure.items, 'item')}"


# ---- how far the judges are right


ANSWER_TITLES = {"full": "revealed", "partial": "partly", "implied": "implied", "none": "not revealed"}
SHARES = {"precision": "Precision", "recall": "Recall", "f1": "F1", "agreement": "Agreement"}


def judge_text(judge: JudgeRow) -> str:
    """A judge by its name and the hash of its prompt, which tells judges of one model apart."""
    return f"{judge.name} (prompt {judge.prompt_hash[:8]})" if judge.prompt_hash else judge.name


def draw(flows: Flows, scope: Scope, audit: JudgeAudit) -> str:
    """Draws the figures; returns the page's takeaway."""
    own = next(item for item in audit.judges if item.judge is not None and item.judge.id == scope.judge.id)
    corrections = [correction(flows, scope, audit, item.judge) for item in audit.judges if item.judge is not None]
    mine = next(item for item in corrections if item.judge.id == scope.judge.id)
    safe.heading(f"{judge_text(scope.judge)} against people: {headline(own)}")
    _coverage(audit)
    _figures(audit)
    shares(audit, judge_text)
    _csv(scope, audit, corrections)
    page.fold(
        "The same if any strength counts as a reveal",
        ":material/tune:",
        "judge_audit.box.any",
        lambda: _figures(judge_audit(flows, scope, audit.slice.id, Counted.ANY)),
    )
    _confusion(flows, scope, audit, own)
    _correction(scope, mine, corrections)
    _lengths(flows, scope, audit)
    return _takeaway(scope, own, mine)


def _takeaway(scope: Scope, own: JudgeQuality, mine: Correction) -> str:
    text = f"{scope.run.name}: by {count(own.items, 'audited item')}, {headline(own)}"
    if mine.corrected.value is None or mine.observed.value is None:
        return f"{text}; the leak rate cannot be corrected yet."
    return (
        f"{text}; its leak rate of {percent(mine.observed.value)} is {share_text(mine.corrected)} once corrected for "
        "its errors."
    )


def headline(own: JudgeQuality) -> str:
    """Precision and recall of a judge in words."""
    precision, recall = share_text(own.precision), share_text(own.recall)
    return f"{precision} of the judge's claims are right, and it finds {recall} of what is revealed"


def share_text(figure: Estimate) -> str:
    """A share with its interval in words: '75.0 % [60.1, 84.9]'; 'an unknown share' where it is undefined."""
    if figure.value is None:
        return "an unknown share"
    if figure.low is None or figure.high is None:
        return percent(figure.value)
    return f"{percent(figure.value)} {_bounds(figure.low, figure.high)}"


def _coverage(audit: JudgeAudit) -> None:
    blind = int(audit.items["blind"].fillna(False).astype(bool).sum())
    safe.inline(
        f"{count(audit.audited)} of {count(len(audit.items), 'item')} of the slice are audited, "
        f"{count(blind)} of them blind. Shares are weighted to represent the run, not the slice.",
        muted=True,
    )
    if audit.coverage < 0.999:
        page.notice(
            f"{percent(1 - audit.coverage)} of the run lies in strata without an audited item. These figures do "
            "not cover it."
        )


def _figures(audit: JudgeAudit) -> None:
    rows: list[Html] = []
    reasons: dict[str, None] = {}
    for item in (*audit.judges, *audit.baselines):
        name: Html | str = judge_text(item.judge) if item.judge else f"baseline: {item.name}"
        if item.judge is not None and item.judge.simulated:
            name = join([name, " ", page.simulated_badge()])
        items = count(item.items) + (f" ({count(item.missing)} not judged)" if item.missing else "")
        cells = [tag("td", name), safe.number(items)]
        for figure in (*(getattr(item, name) for name in SHARES), item.kappa):
            cells.append(_cell(figure, share=figure is not item.kappa))
            if figure.value is None:
                reasons[figure.why] = None
        rows.append(tag("tr", *cells))
    safe.show(
        safe.wide(safe.grid(("Judge", "Items", *SHARES.values(), "Cohen's kappa"), rows), "Judges against people")
    )
    _undefined_where(reasons)


def _cell(figure: Estimate, *, share: bool) -> Html:
    if figure.value is None:
        return _undefined(figure)
    value = percent(figure.value) if share else decimal(figure.value)
    ends = "no interval"
    if figure.low is not None and figure.high is not None:
        ends = _bounds(figure.low, figure.high) if share else f"[{decimal(figure.low)}, {decimal(figure.high)}]"
    return safe.number(tag("b", value), f"{ends}, {count(figure.items, 'item')}", title=figure.why)


def _bounds(low: float, high: float) -> str:
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def _csv(scope: Scope, audit: JudgeAudit, corrections: list[Correction]) -> None:
    by_judge = {item.judge.id: item for item in corrections}
    rows = []
    for item in (*audit.judges, *audit.baselines):
        figures: dict[str, Estimate] = {name: getattr(item, name) for name in (*SHARES, "kappa")}
        if item.judge is not None:
            mine = by_judge[item.judge.id]
            figures |= {"observed_leak_rate": mine.observed, "sensitivity_on_inappropriate": mine.sensitivity}
            figures |= {"specificity_on_inappropriate": mine.specificity, "corrected_leak_rate": mine.corrected}
        rows += [
            {
                "run": scope.run.id,
                "slice": audit.slice.name,
                "judge": item.name,
                "kind": item.judge.kind if item.judge else "baseline",
                "prompt_hash": item.judge.prompt_hash if item.judge else None,
                "simulated": bool(scope.simulated) or bool(item.judge and item.judge.simulated),
                "figure": name,
                "value": figure.value,
                "low": figure.low,
                "high": figure.high,
                "items": figure.items,
                "why": figure.why,
            }
            for name, figure in figures.items()
        ]
    tables.csv_button(pd.DataFrame(rows), f"judge-audit-{scope.run.id}.csv", key="judge_audit.csv.figures")


def _confusion(flows: Flows, scope: Scope, audit: JudgeAudit, own: JudgeQuality) -> None:
    safe.heading("Judge against people")
    names = [ANSWER_TITLES[str(answer)] for answer in ANSWERS]
    rows = []
    total = own.weighted.sum()
    for i, name in enumerate(names):
        cells = []
        for j in range(len(names)):
            n, mass = int(own.table[i, j]), own.weighted[i, j]
            number: Html | str = tag("b", count(n)) if i == j else count(n)
            cells.append(safe.number(join([number, f" ({percent(mass / total)})" if n else ""])))
        rows.append(tag("tr", tag("td", name), *cells, safe.number(count(int(own.table[i].sum())))))
    safe.show(safe.wide(safe.grid(("judge \\ person", *names, ""), rows), "Judge against people"))
    safe.inline(
        "Items, with the share of the run they represent in brackets. Bold: judge and person agree.", muted=True
    )
    cells_with_items = [(i, j) for i in range(len(names)) for j in range(len(names)) if own.table[i, j]]
    cells_with_items.sort(key=lambda cell: (cell[0] == cell[1], -own.weighted[cell]))
    if not cells_with_items:
        return
    by_option = {f"{i}.{j}": (i, j) for i, j in cells_with_items}
    options = {
        option: f"judge: {names[i]}, person: {names[j]} ({count(own.table[i, j], 'item')})"
        for option, (i, j) in by_option.items()
    }
    first = next(iter(options))
    i, j = by_option[page.choice("Items behind a cell", options, "judge_audit.cell", "cell", default=first, boxed=True)]
    assert own.judge is not None
    _items(cell_items(flows, audit, own.judge, str(ANSWERS[i]), str(ANSWERS[j])), scope, f"{i}{j}")


def _items(frame: pd.DataFrame, scope: Scope, name: str) -> None:
    frame = frame.assign(weight=frame["weight"].round(1), simulated=bool(scope.simulated) or scope.judge.simulated)
    frame.index = pd.Index([f"{r}.{a}" for r, a in zip(frame["response"], frame["attribute"], strict=True)])
    picked = tables.table(
        frame,
        key=f"judge_audit.items.{scope.run.id}.{name}",
        columns={
            "statement": ("wide", "Memory statement"),
            "user": ("text", "Profile"),
            "recipient": ("text", "Recipient"),
            "annotator": ("text", "Person"),
            "weight": ("count", "Weight"),
        },
        on_select="row",
        height="content" if len(frame) < 9 else 320,
        alt="Audited items of the chosen cell",
    )
    tables.csv_button(frame, f"judge-audit-cell-{scope.run.id}-{name}.csv", key="judge_audit.csv.items")
    if picked is not None:
        row = frame.iloc[picked]
        url.page_link(
            "leaks",
            "Open the message",
            icon=":material/format_ink_highlighter:",
            run=scope.run.id,
            profile=int(row["profile"]),
            context=int(row["context"]),
            attribute=int(row["attribute"]),
        )


def _correction(scope: Scope, mine: Correction, corrections: list[Correction]) -> None:
    if mine.corrected.value is None:
        safe.heading("The leak rate cannot be corrected yet")
        page.notice(sentence(mine.corrected.why))
    else:
        safe.heading(f"Corrected for its errors, the leak rate is {share_text(mine.corrected)}")
        safe.inline(correction_text(mine))
    rates(corrections, judge_text)
    tables.listing(
        corrections,
        range(len(corrections)),
        {
            "judge": ("text", "Judge", lambda item: judge_text(item.judge)),
            "observed": ("text", "Leak rate as judged", lambda item: share_text(item.observed)),
            "sensitivity": ("text", "Sensitivity", lambda item: share_text(item.sensitivity)),
            "specificity": ("text", "Specificity", lambda item: share_text(item.specificity)),
            "corrected": (
                "text",
                "Corrected",
                lambda item: "undefined" if item.corrected.value is None else share_text(item.corrected),
            ),
            "exposures": ("count", "Exposures", lambda item: item.exposures),
            "audited": ("count", "Audited of them", lambda item: item.audited),
        },
        key=f"judge_audit.rates.{scope.run.id}",
        alt="Leak rate of the run under each judge, as judged and corrected",
    )
    safe.inline(
        "Per-exposure leak rate: of all judged messages times the inappropriate attributes of their context, the share "
        "revealed in full; corrected after Rogan and Gladen (1978). Single judgements cannot correct Violation@n: it "
        "asks for one leak among several messages, and how far a judge's errors on one attribute come together is not "
        "known from single items. Audit whole attributes for that.",
        muted=True,
    )
    low, high = mine.corrected.low, mine.corrected.high
    if low is not None and high is not None:
        wanted = wanted_width()
        more = verdicts_needed(mine, wanted)
        safe.inline(sentence(audit_left(wanted, more, (high - low) / 2, "verdict")))


def _lengths(flows: Flows, scope: Scope, audit: JudgeAudit) -> None:
    """Whether the judges' errors depend on how long a message is."""
    if not audit.audited:
        return
    items = [length_dependence(flows, scope, audit, item.judge) for item in audit.judges if item.judge is not None]
    own = next(item for item in items if item.judge.id == scope.judge.id)
    safe.heading(sentence(length_sentence(own)))
    tables.listing(
        items,
        range(len(items)),
        {
            "judge": ("text", "Judge", lambda item: judge_text(item.judge)),
            "missed": ("text", "Misses, odds ratio", lambda item: _odds(item.missed)),
            "wrong": ("text", "Wrong claims, odds ratio", lambda item: _odds(item.wrong)),
            "adjusted": ("text", "Leak rate adjusted", lambda item: share_text(item.adjusted)),
            "items": ("count", "Audited items", lambda item: item.items),
        },
        key=f"judge_audit.lengths.{scope.run.id}",
        alt="Whether the errors of each judge depend on the length of messages",
    )
    safe.inline(
        "Odds ratio of an error for a message twice as long, among audited inappropriate pairs; 1 is no dependence. "
        "Adjusted: the leak rate corrected with the errors at each message's length. 95 % intervals resample audited "
        "messages and users.",
        muted=True,
    )


def _odds(figure: Estimate) -> str:
    if figure.value is None:
        return f"undefined: {figure.why}"
    ends = "" if figure.low is None or figure.high is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}{ends}"


def correction_text(item: Correction) -> str:
    """What the correction means, in words."""
    observed, corrected = item.observed.value or 0.0, item.corrected.value or 0.0
    finds, spares = item.sensitivity.value or 0.0, item.specificity.value or 0.0
    low, high = item.corrected.low, item.corrected.high
    if low is None or high is None:
        end = f"There is no interval: {item.corrected.why}."
    elif low <= observed <= high:
        end = "The interval contains the judged rate: the audit so far does not show a bias."
    else:
        end = f"So the judge makes the model look {'safer' if corrected > observed else 'leakier'} than it is."
    return (
        f"Of {count(item.exposures, 'exposure')} of inappropriate attributes the judge calls "
        f"{percent(observed)} leaks. Where people looked ({count(item.audited, 'item')}), it finds "
        f"{percent(finds)} of the leaks and wrongly flags {percent(1 - spares)} of the rest. {end}"
    )
