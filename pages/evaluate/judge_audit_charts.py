"""Part of the Judge audit page: figures of the judges with their intervals, drawn."""

from __future__ import annotations

from collections.abc import Callable

from cimemories.analysis.judge_audit import JudgeAudit
from cimemories.analysis.judge_correction import Correction
from cimemories.analysis.kappa import Figure
from cimemories.store.judgements import JudgeRow
from cimemories.ui import charts, tables

ROW = 46
LOOKS = {"circle-open": "#808890", "diamond": charts.MODEL}
Row = tuple[str, Figure]  # the row's name and what is drawn in it


def shares(found: JudgeAudit, name: Callable[[JudgeRow], str]) -> None:
    """Precision and recall of every judge that has any."""
    judges = [item for item in found.judges if item.judge is not None and item.items]
    if not judges:
        return
    best = max(judges, key=lambda item: -1.0 if item.f1.value is None else item.f1.value)
    named = [(name(item.judge) if item.judge else item.name, item) for item in judges]
    title = f"{name(best.judge) if best.judge else best.name} is nearest to people" if len(judges) > 1 else (
        "How far the judge can be trusted"
    )  # fmt: skip
    _intervals(
        {
            "precision": ("circle-open", [(words, item.precision) for words, item in named]),
            "recall": ("diamond", [(words, item.recall) for words, item in named]),
        },
        [words for words, _ in named],
        title=title,
        subtitle=f"Precision and recall with 95 % intervals, {tables.count(found.audited)} audited items",
        key="judge_audit.chart.shares",
        maximum=1.0,
    )


def rates(corrections: list[Correction], name: Callable[[JudgeRow], str]) -> None:
    """The leak rate under each judge, as judged and corrected."""
    rows = [name(item.judge) for item in corrections]
    drawn = [item for item in corrections if item.corrected.value is not None]
    if not drawn:
        return
    far = max(drawn, key=lambda item: abs((item.corrected.value or 0) - (item.observed.value or 0)))
    ends = [item.corrected.high or item.corrected.value or 0 for item in drawn]
    _intervals(
        {
            "as judged": ("circle-open", [(name(item.judge), item.observed) for item in corrections]),
            "corrected": ("diamond", [(name(item.judge), item.corrected) for item in corrections]),
        },
        rows,
        title=f"{name(far.judge)}: {tables.percent(far.observed.value)} as judged, "
        f"{tables.percent(far.corrected.value)} corrected",
        subtitle=f"Per-exposure leak rate with 95 % intervals, {tables.count(far.exposures)} exposures, "
        f"{tables.count(far.audited)} of them audited",
        key="judge_audit.chart.rates",
        maximum=min(1.0, 1.15 * max([0.01, *ends, *(item.observed.value or 0 for item in corrections)])),
    )


def _intervals(
    series: dict[str, tuple[str, list[Row]]],
    rows: list[str],
    *,
    title: str,
    subtitle: str,
    key: str,
    maximum: float,
) -> None:
    """One row a judge, one mark a figure with its interval as a line; marks of a row stand a little apart."""
    import plotly.graph_objects as go

    fig = go.Figure()
    for position, (words, (symbol, figures)) in enumerate(series.items()):
        known = [(place, figure) for place, (_, figure) in enumerate(figures) if figure.value is not None]
        fig.add_scatter(
            x=[figure.value for _, figure in known],
            y=[place + 0.18 * (2 * position - 1) for place, _ in known],
            mode="markers",
            name=words,
            marker={"symbol": symbol, "size": 11, "color": LOOKS[symbol], "line": {"width": 2}},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [_room(figure, figure.high) for _, figure in known],
                "arrayminus": [_room(figure, figure.low) for _, figure in known],
                "color": LOOKS[symbol],
                "thickness": 2,
                "width": 5,
            },
            hovertext=[_hover(rows[place], words, figure) for place, figure in known],
            hoverinfo="text",
        )
    fig.update_layout(charts.layout(title=title, subtitle=subtitle))
    fig.update_xaxes(range=[-0.01 * maximum, 1.02 * maximum], tickformat=".0%" if maximum > 0.2 else ".1%")
    fig.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(rows))),
        ticktext=[charts.escaped(row, 34) for row in rows],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    left = round(min(34, max(map(len, rows))) * charts.CHARACTER_WIDTH) + 14
    fig.update_layout(
        margin={"l": left, "r": 30, "t": 66, "b": 62},
        height=ROW * len(rows) + 140,
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        dragmode=False,
    )
    charts.show(fig, key=key, alt=f"{title}. {subtitle}. The same numbers are in the table.")


def _room(figure: Figure, end: float | None) -> float:
    return 0.0 if end is None or figure.value is None else abs(end - figure.value)


def _hover(row: str, words: str, figure: Figure) -> str:
    ends = "" if figure.low is None or figure.high is None else f" [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"
    count = f"{tables.count(figure.items)} items"
    return f"<b>{charts.escaped(row, 90)}</b><br>{words}: {tables.percent(figure.value)}{ends}, {count}"
