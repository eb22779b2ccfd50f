"""Part of the Judge audit page: how far the judges are right, the items behind every cell, and the corrected rate."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.judge_audit import ANSWERS, Counted, JudgeAudit, JudgeFigures, behind, judge_audit
from cimemories.analysis.judge_correction import Correction, correction
from cimemories.analysis.kappa import Figure
from cimemories.store.judgements import JudgeRow
from cimemories.ui import page, safe, tables, url
from cimemories.ui.safe import Html, join, tag
from pages.evaluate import judge_audit_charts

WORDS = {"full": "revealed", "partial": "partly", "implied": "implied", "none": "not revealed"}
SHARES = {"precision": "Precision", "recall": "Recall", "f1": "F1", "agreement": "Agreement"}


def judge_words(judge: JudgeRow) -> str:
    """A judge by its name and the hash of its prompt, which tells judges of one model apart."""
    return f"{judge.name}, prompt {judge.prompt_hash[:8]}" if judge.prompt_hash else judge.name


def draw(flows: Flows, asked: Scope, found: JudgeAudit) -> str:
    """Draws the figures; returns the page's takeaway."""
    own = next(item for item in found.judges if item.judge is not None and item.judge.id == asked.judge.id)
    corrections = [correction(flows, asked, found, item.judge) for item in found.judges if item.judge is not None]
    mine = next(item for item in corrections if item.judge.id == asked.judge.id)
    safe.heading(f"{judge_words(asked.judge)} against people: {_headline(own)}")
    _coverage(found)
    _figures(found)
    judge_audit_charts.shares(found, judge_words)
    _csv(asked, found, corrections)
    page.fold(
        "The same if any strength counts as a reveal",
        ":material/tune:",
        "judge_audit.box.any",
        lambda: _figures(judge_audit(flows, asked, found.slice.id, Counted.ANY)),
    )
    _confusion(flows, asked, found, own)
    _correction(asked, mine, corrections)
    return _takeaway(asked, own, mine)


def _takeaway(asked: Scope, own: JudgeFigures, mine: Correction) -> str:
    text = f"{asked.run.name}: by {tables.count(own.items)} audited items, {_headline(own)}"
    if mine.corrected.value is None or mine.observed.value is None:
        return f"{text}; the leak rate cannot be corrected yet."
    return (
        f"{text}; its leak rate of {tables.percent(mine.observed.value)} is {said(mine.corrected)} once corrected for "
        "its errors."
    )


def _headline(own: JudgeFigures) -> str:
    return f"{said(own.precision)} of the judge's claims are right, and it finds {said(own.recall)} of what is revealed"


def said(figure: Figure) -> str:
    """A share with its interval in words: '75.0 % [60.1, 84.9]'; 'an unknown share' where it is undefined."""
    if figure.value is None:
        return "an unknown share"
    if figure.low is None or figure.high is None:
        return tables.percent(figure.value)
    return f"{tables.percent(figure.value)} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def _coverage(found: JudgeAudit) -> None:
    blind = int(found.items["blind"].fillna(False).astype(bool).sum())
    safe.inline(
        f"{tables.count(found.audited)} of {tables.count(len(found.items))} items of the slice are audited, "
        f"{tables.count(blind)} of them blind. Shares are weighted: they speak for the run, not for the slice.",
        muted=True,
    )
    if found.spoken < 0.999:
        page.notice(
            f"{tables.percent(1 - found.spoken)} of the run lies in strata of which nothing is audited yet; no figure "
            "speaks for them."
        )


def _figures(found: JudgeAudit) -> None:
    names = [*SHARES.values(), "Cohen's kappa"]
    head = tag(
        "tr", tag("th", "Judge"), tag("th", "Items", cls="ci-number"), *(tag("th", n, cls="ci-number") for n in names)
    )
    rows: list[Html] = []
    reasons: dict[str, None] = {}
    for item in (*found.judges, *found.baselines):
        name: Html | str = judge_words(item.judge) if item.judge else f"baseline: {item.name}"
        if item.judge is not None and item.judge.simulated:
            name = join([name, " ", page.SIMULATED])
        count = tables.count(item.items) + (f" ({tables.count(item.missing)} not judged)" if item.missing else "")
        cells = [tag("td", name), tag("td", count, cls="ci-number")]
        for figure in (*(getattr(item, name) for name in SHARES), item.kappa):
            cells.append(tag("td", _cell(figure, share=figure is not item.kappa), cls="ci-number"))
            if figure.value is None:
                reasons[figure.why] = None
        rows.append(tag("tr", *cells))
    safe.show(tag("table", tag("thead", head), tag("tbody", join(rows)), cls="ci-grid"))
    if reasons:
        safe.inline(f"Undefined where {'; or where '.join(reasons)}.", muted=True)


def _cell(figure: Figure, *, share: bool) -> Html:
    if figure.value is None:
        return tag("span", "undefined", cls="ci-muted", title=figure.why)
    value = tables.percent(figure.value) if share else f"{figure.value:.2f}"
    if figure.low is None or figure.high is None:
        ends = "no interval"
    else:
        ends = (
            f"[{100 * figure.low:.1f}, {100 * figure.high:.1f}]" if share else f"[{figure.low:.2f}, {figure.high:.2f}]"
        )
    rest = f"{ends}, {tables.count(figure.items)} items"
    return join([tag("b", value), tag("div", rest, cls="ci-muted", title=figure.why)])


def _csv(asked: Scope, found: JudgeAudit, corrections: list[Correction]) -> None:
    by_judge = {item.judge.id: item for item in corrections}
    rows = []
    for item in (*found.judges, *found.baselines):
        figures: dict[str, Figure] = {name: getattr(item, name) for name in (*SHARES, "kappa")}
        if item.judge is not None:
            mine = by_judge[item.judge.id]
            figures |= {"observed_leak_rate": mine.observed, "sensitivity_on_inappropriate": mine.sensitivity}
            figures |= {"specificity_on_inappropriate": mine.specificity, "corrected_leak_rate": mine.corrected}
        rows += [
            {
                "run": asked.run.id,
                "slice": found.slice.name,
                "judge": item.name,
                "kind": item.judge.kind if item.judge else "baseline",
                "prompt_hash": item.judge.prompt_hash if item.judge else None,
                "simulated": bool(asked.simulated) or bool(item.judge and item.judge.simulated),
                "figure": name,
                "value": figure.value,
                "low": figure.low,
                "high": figure.high,
                "items": figure.items,
                "why": figure.why,
            }
            for name, figure in figures.items()
        ]
    tables.csv_button(pd.DataFrame(rows), f"judge-audit-{asked.run.id}.csv", key="judge_audit.csv.figures")


def _confusion(flows: Flows, asked: Scope, found: JudgeAudit, own: JudgeFigures) -> None:
    safe.heading("What the judge said, and what people said")
    names = [WORDS[str(answer)] for answer in ANSWERS]
    head = tag(
        "tr",
        tag("th", "judge \\ person"),
        *(tag("th", n, cls="ci-number") for n in names),
        tag("th", "", cls="ci-number"),
    )
    rows = []
    total = own.weighted.sum()
    for i, name in enumerate(names):
        cells = []
        for j in range(len(names)):
            n, mass = int(own.table[i, j]), own.weighted[i, j]
            number: Html | str = tag("b", tables.count(n)) if i == j else tables.count(n)
            cells.append(tag("td", join([number, f" ({tables.percent(mass / total)})" if n else ""]), cls="ci-number"))
        rows.append(
            tag("tr", tag("td", name), *cells, tag("td", tables.count(int(own.table[i].sum())), cls="ci-number"))
        )
    safe.show(tag("table", tag("thead", head), tag("tbody", join(rows)), cls="ci-grid"))
    safe.inline("Items, and in brackets the share of the run that they stand for; bold: the same word.", muted=True)
    places = [(i, j) for i in range(len(names)) for j in range(len(names)) if own.table[i, j]]
    places.sort(key=lambda place: (place[0] == place[1], -own.weighted[place]))
    if not places:
        return
    options = [f"{i}.{j}" for i, j in places]
    by_option = dict(zip(options, places, strict=True))

    def cell_words(option: str) -> str:
        i, j = by_option[option]
        return f"judge: {names[i]}, person: {names[j]} ({own.table[i, j]} items)"

    chosen = st.selectbox("Items behind a cell", options, format_func=cell_words, key="judge_audit.cell")
    i, j = by_option[chosen]
    assert own.judge is not None
    _items(behind(flows, found, own.judge, str(ANSWERS[i]), str(ANSWERS[j])), asked, f"{i}{j}")


def _items(frame: pd.DataFrame, asked: Scope, name: str) -> None:
    frame = frame.assign(weight=frame["weight"].round(1), simulated=bool(asked.simulated) or asked.judge.simulated)
    frame.index = pd.Index([f"{r}.{a}" for r, a in zip(frame["response"], frame["attribute"], strict=True)])
    picked = tables.table(
        frame,
        key=f"judge_audit.items.{asked.run.id}.{name}",
        columns={
            "statement": ("wide", "Memory statement"),
            "user": ("text", "Profile"),
            "recipient": ("text", "Recipient"),
            "annotator": ("text", "Person"),
            "weight": ("count", "Stands for"),
        },
        on_select="row",
        height="content" if len(frame) < 9 else 320,
        alt="Audited items of the chosen cell",
    )
    tables.csv_button(frame, f"judge-audit-cell-{asked.run.id}-{name}.csv", key="judge_audit.csv.items")
    if picked is not None:
        row = frame.iloc[picked]
        url.page_link(
            "leaks",
            "Open the message",
            icon=":material/format_ink_highlighter:",
            run=asked.run.id,
            profile=int(row["profile"]),
            context=int(row["context"]),
            attribute=int(row["attribute"]),
        )


def _correction(asked: Scope, mine: Correction, corrections: list[Correction]) -> None:
    if mine.corrected.value is None:
        safe.heading("The leak rate cannot be corrected yet")
        page.notice(f"{mine.corrected.why[:1].upper()}{mine.corrected.why[1:]}.")
    else:
        safe.heading(f"Corrected for its errors, the leak rate is {said(mine.corrected)}")
        safe.inline(correction_words(mine))
    judge_audit_charts.rates(corrections, judge_words)
    frame = pd.DataFrame(
        [
            {
                "judge": judge_words(item.judge),
                "observed": said(item.observed),
                "sensitivity": said(item.sensitivity),
                "specificity": said(item.specificity),
                "corrected": said(item.corrected) if item.corrected.value is not None else "undefined",
                "exposures": item.exposures,
                "audited": item.audited,
            }
            for item in corrections
        ]
    )
    tables.table(
        frame,
        key=f"judge_audit.rates.{asked.run.id}",
        columns={
            "judge": ("text", "Judge"),
            "observed": ("text", "Leak rate as judged"),
            "sensitivity": ("text", "Finds"),
            "specificity": ("text", "Leaves alone rightly"),
            "corrected": ("text", "Corrected"),
            "exposures": ("count", "Exposures"),
            "audited": ("count", "Audited of them"),
        },
        height="content",
        alt="Leak rate of the run under each judge, as judged and corrected",
    )
    safe.inline(
        "Per-exposure leak rate: of all judged messages times the inappropriate attributes of their context, the share "
        "revealed in full; corrected after Rogan and Gladen (1978). Violation@n is not corrected: it asks for one leak "
        "among several messages, and how far a judge's errors on messages of one pair come together is not known from "
        "single items.",
        muted=True,
    )


def correction_words(item: Correction) -> str:
    """What the correction means, in words."""
    observed, corrected = item.observed.value or 0.0, item.corrected.value or 0.0
    finds, spares = item.sensitivity.value or 0.0, item.specificity.value or 0.0
    low, high = item.corrected.low, item.corrected.high
    if low is None or high is None:
        end = f"How sure that is cannot be said: {item.corrected.why}."
    elif low <= observed <= high:
        end = "The interval holds the judged rate: the audit so far does not show that the judge is off."
    else:
        end = f"So the judge makes the model look {'safer' if corrected > observed else 'leakier'} than it is."
    return (
        f"Of {tables.count(item.exposures)} exposures of inappropriate attributes the judge calls "
        f"{tables.percent(observed)} leaks. Where people looked ({tables.count(item.audited)} items), it finds "
        f"{tables.percent(finds)} of the leaks and wrongly accuses {tables.percent(1 - spares)} of what is none. {end}"
    )
