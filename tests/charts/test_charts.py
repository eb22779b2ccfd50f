"""Charts as the browser gets them: one drawing for both themes, and none drawn anew without a reason."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.colors import hex_to_rgb, sample_colorscale, unlabel_rgb

from cimemories.charts import bars, svg, theme
from cimemories.charts.bars import LABEL_PARTS, count_bars, interval_parts, share_bars
from cimemories.charts.heatmap import PLOT_WIDTH, Map, MapPart, Ticks, heatmap_figure, phone_width
from cimemories.charts.lines import Line, line_figure
from cimemories.metrics.uncertainty import UNDEFINED, Interval, Parts
from cimemories.text import shortened
from cimemories.ui import ASSETS, charts, shell

STYLE = (ASSETS / "style.css").read_text(encoding="utf-8")


def figure(*y: float, **layout: Any) -> go.Figure:
    bar = {"type": "bar", "x": ["a", "b"], "y": y}
    return go.Figure({"data": [bar], "layout": {**theme.layout(title="Two bars", subtitle="2 of 2"), **layout}})


def dressed(fig: go.Figure) -> dict[str, Any]:
    layout: dict[str, Any] = charts.dressed(fig).to_dict()["layout"]
    return layout


def test_the_name_of_the_data_is_their_content() -> None:
    """Plotly draws a figure anew where the name differs, and only there: what has changed must have another."""
    assert dressed(figure(1, 2))["datarevision"] == dressed(figure(1, 2))["datarevision"]
    assert dressed(figure(1, 2))["datarevision"] != dressed(figure(1, 3))["datarevision"]
    assert dressed(figure(1, 2))["datarevision"] != dressed(figure(1, 2, height=300))["datarevision"]


def test_nothing_comes_from_a_template_and_the_figure_for_exports_stays_as_it_was() -> None:
    fig = figure(1, 2)
    before = fig.to_json()
    assert "template" not in dressed(fig)
    assert fig.to_json() == before


def test_what_a_figure_sets_itself_is_kept() -> None:
    own = {"font": {"size": 20}, "xaxis": {"showgrid": True, "automargin": False}, "hoverlabel": {"bgcolor": "red"}}
    layout = dressed(figure(1, 2, **own))
    assert layout["font"]["size"] == 20
    assert layout["xaxis"]["showgrid"] is True
    assert layout["xaxis"]["automargin"] is False
    assert layout["yaxis"]["automargin"] is True
    assert layout["hoverlabel"]["bgcolor"] == "red"


def test_texts_have_the_colour_that_the_page_replaces() -> None:
    """The browser writes colours as rgb(): the rule of the page must name the one that figures are given."""
    ink = dressed(figure(1, 2))["font"]["color"]
    red, green, blue = (int(ink[i : i + 2], 16) for i in (1, 3, 5))
    assert f'[style*="fill: rgb({red}, {green}, {blue})"]' in STYLE


def test_on_a_phone_titles_are_broken_into_lines_and_the_plot_keeps_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    long = theme.layout(title="Tom & Ann's model " * 5, subtitle="of <b>all</b> pairs " * 5)
    wide = dressed(go.Figure({"data": [], "layout": {**long, "height": 300}}))
    monkeypatch.setattr(shell, "screen", lambda: shell.PHONE)
    phone = dressed(go.Figure({"data": [], "layout": {**long, "height": 300}}))
    lines = [phone["title"]["text"].split("<br>"), phone["title"]["subtitle"]["text"].split("<br>")]
    assert [len(part) for part in lines] == [3, 3]
    limits = 34, 52  # of 390 pixels Plotly fills 315, and a letter takes up to 7.6 or 5 of them
    assert all(len(html.unescape(line)) <= limit for part, limit in zip(lines, limits, strict=True) for line in part)
    assert " ".join(lines[0]) == wide["title"]["text"].strip(), "and it is the same text, escaped"
    assert phone["height"] - 300 == phone["margin"]["t"] - wide["margin"]["t"] > 0
    axis = {"height": 300, "margin": {"b": 60}, "xaxis": {"title": {"text": "points; right of 0: more than & so on"}}}
    named = dressed(go.Figure({"data": [], "layout": axis}))
    assert named["xaxis"]["title"]["text"] == "points; right of 0: more<br>than &amp; so on"
    assert named["height"] - 300 == named["margin"]["b"] - 60 > 0
    percents = dressed(
        go.Figure({"data": [], "layout": theme.layout(title="Pairs with a consensus: from 39.7 % to 71.2 %")})
    )
    assert percents["title"]["text"].replace("\xa0", " ").split("<br>")[0] == "Pairs with a consensus: from"
    assert dressed(figure(1, 2))["margin"] | {"pad": 8} == {**theme.layout(title="a", subtitle="b")["margin"], "pad": 8}


def test_on_a_narrow_screen_titles_fit_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    long = theme.layout(
        title="After 49 tasks 28.4 % are revealed at n = 3; the independence baseline (the same leak rates) ends at "
        "60.5 %",
        subtitle="short",
    )
    axis = {"xaxis": {"title": {"text": "percentage points; right of 0: more than the other"}}}
    wide = dressed(go.Figure({"data": [], "layout": {**long, **axis, "height": 300}}))
    monkeypatch.setattr(shell, "screen", lambda: shell.NARROW)
    narrow = dressed(go.Figure({"data": [], "layout": {**long, **axis, "height": 300}}))
    assert wide["title"]["text"].count("<br>") == 0 and narrow["title"]["text"].count("<br>") == 1
    assert narrow["height"] - 300 == narrow["margin"]["t"] - wide["margin"]["t"] == charts.TITLE_HEIGHT
    assert narrow["xaxis"]["title"] == wide["xaxis"]["title"]
    half = charts.dressed(go.Figure({"data": [], "layout": {**long, "height": 300}}), half=True).to_dict()["layout"]
    assert max(map(len, half["title"]["text"].split("<br>"))) <= 44
    monkeypatch.setattr(shell, "screen", lambda: shell.LAPTOP)
    laptop = dressed(go.Figure({"data": [], "layout": {**long, "height": 300}}))
    assert laptop["title"]["text"].count("<br>") == 0, "1,200 pixels have room for 122 letters"
    monkeypatch.setattr(shell, "screen", lambda: shell.TABLET)
    half = charts.dressed(go.Figure({"data": [], "layout": {**long, "height": 300}}), half=True).to_dict()["layout"]
    assert max(map(len, half["title"]["text"].split("<br>"))) <= 28, "at 769 pixels the menu leaves 200 for each half"


def test_few_steps_are_each_marked_once() -> None:
    def ticks(steps: int) -> object:
        line = Line("a", range(steps + 1), [0.1] * (steps + 1), "#0072B2")
        fig = line_figure([line], title="t", subtitle="s", x_title="tasks done", height=300)
        return fig.layout.xaxis.dtick

    assert ticks(3) == 1, "Plotly would mark halves, and write 1, 2, 2, 3, 3"
    assert ticks(49) is None


def test_on_a_phone_a_note_in_the_plot_does_not_run_over_the_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("a", range(50), [0.1] * 50, "#0072B2")
    mark = (48.0, "the first users have done all their tasks")
    fig = line_figure([line], title="t", subtitle="s", x_title="tasks done", height=300, mark=mark)
    monkeypatch.setattr(shell, "screen", lambda: shell.PHONE)
    assert dressed(fig)["annotations"][-1]["text"] == "the first users<br>have done all<br>their tasks"
    assert fig.layout.annotations[-1].text == mark[1], "the figure itself stays as it is, for exports"


def test_on_a_phone_a_legend_has_room_and_a_long_bar_holds_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "necessary": [3, 1], "ambiguous": [2, 2], "inappropriate": [1, 4]})
    shares = share_bars(frame, LABEL_PARTS, name="name")
    counts = count_bars(frame, name="name", column="necessary", colour="#000", title="t", subtitle="s", unit="pairs")
    wide = dressed(shares)
    monkeypatch.setattr(shell, "screen", lambda: shell.PHONE)
    phone = dressed(shares)
    assert phone["height"] - wide["height"] == phone["margin"]["b"] - wide["margin"]["b"] > 30, "for two more entries"
    assert charts.dressed(counts).to_dict()["data"][0]["textposition"] == "auto"
    assert counts.data[0].textposition == "outside", "in an export, which is wider"


def test_parts_of_intervals_are_shares_of_their_variance() -> None:
    known = Interval(0.4, 0.3, 0.5, 9, error=0.05, freedom=9, parts=Parts(0.0012, 0.0003, 0.001))
    whole = {"V@5": known, "C": UNDEFINED, "nothing": replace(known, parts=Parts(0.0, 0.0, 0.0))}
    fig = interval_parts(whole)
    assert fig is not None
    shares = {trace.name: trace.x[0] for trace in fig.data}
    assert shares == pytest.approx({"users": 0.48, "contexts": 0.4, "samples": 0.12})
    assert list(fig.layout.yaxis.ticktext) == ["V@5"]
    few = interval_parts({"V@5": replace(known, users=3)})
    assert few is not None and "attributes" in {trace.name for trace in few.data}
    assert interval_parts({"C": UNDEFINED}) is None
    # As a report draws it: bars one after the other, as wide as their shares.
    boxes = list(svg.draw(fig, "f", title="", alt="", simulated=False).iter("rect"))
    widths = [float(box.get("width")) for box in boxes]
    ends = [float(box.get("x")) + width for box, width in zip(boxes, widths, strict=True)]
    assert np.array(widths) / sum(widths) == pytest.approx([0.48, 0.4, 0.12], abs=0.001)
    assert [float(box.get("x")) for box in boxes[1:]] == pytest.approx(ends[:-1], abs=0.02)


@pytest.mark.parametrize("kind", ["lines", "grid"])
def test_where_margins_hold_all_labels_no_room_is_looked_for(kind: str) -> None:
    if kind == "lines":
        line = Line("n = 1", [0, 1], [0.0, 0.5], colour="#000", end="n = 1")
        fig = line_figure([line], title="t", subtitle="s", x_title="x", height=200)
    else:
        side = Ticks(["a"], ["a"])
        cell = np.full((1, 1), 0.5)
        shown = Map("Violation@5", "pairs", MapPart(cell, np.ones((1, 1), np.int64)))
        fig = heatmap_figure([shown], side, side, title="t", subtitle="s")
    layout = dressed(fig)
    assert "meta" not in layout, "every copy of it would be another layout to Plotly"
    assert "bdata" not in str(charts.dressed(fig).to_dict()["data"]), "and every packed array other data"
    axes = [layout[name] for name in layout if name.startswith(("xaxis", "yaxis"))]
    assert axes
    assert not any(axis["automargin"] for axis in axes)


@pytest.mark.parametrize("compared", [False, True])
def test_the_number_of_every_cell_can_be_read_on_its_colour(compared: bool) -> None:
    values = np.linspace(0, 1, 200).reshape(20, 10)
    values[3, 4] = np.nan
    part, pairs = MapPart(values, np.ones((20, 10), np.int64)), np.ones((20, 10), np.int64)
    before = MapPart(values[::-1], pairs) if compared else None
    rows, columns = ([f"{i}" for i in range(n)] for n in (20, 10))
    sides = Ticks(rows, rows), Ticks(columns, columns)
    fig = heatmap_figure([Map("Violation@5", "pairs", part, before)], *sides, title="t", subtitle="s")
    cells, numbers = fig.data
    shares = np.array(cells.z, dtype=float)
    there = [(y, x) for y in range(20) for x in range(10) if not np.isnan(shares[y, x])]
    assert list(zip(numbers.y, numbers.x, strict=True)) == there, "one for each cell that has a share"
    places = [(shares[cell] - cells.zmin) / (cells.zmax - cells.zmin) for cell in there]
    colours = sample_colorscale([list(stop) for stop in cells.colorscale], places)
    for cell, text, ink, colour in zip(there, numbers.text, numbers.textfont.color, colours, strict=True):
        assert float(text.rstrip("%")) == pytest.approx(100 * shares[cell], abs=0.51)
        light, dark = sorted((luminance(unlabel_rgb(colour)), luminance(hex_to_rgb(ink))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance as WCAG 2 defines it, of red, green and blue from 0 to 255."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_style_sheet_has_the_colours_of_the_figures() -> None:
    for name in ("MODEL", "NECESSARY", "INAPPROPRIATE", "AMBIGUOUS", "SIMULATED"):
        assert f"--ci-{name.lower()}: {getattr(theme, name)};" in STYLE


def test_a_report_shows_the_whole_name_of_a_tick_that_is_cut() -> None:
    long, short = "housing <and> everything that is written in a lease", "health"
    series = bars.IntervalSeries("Violation", [bars.Bounded(0.5), bars.Bounded(0.2)], theme.VIOLATION, "x")
    root = svg.draw(bars.interval_rows([long, short], [series], xaxis={}), "f", title="t", alt="a", simulated=False)
    ticks = {text.text: [hint.text for hint in text.iter("title")] for text in root.iter("text")}
    assert ticks[shortened(long, theme.LONGEST_TICK)] == [long] and ticks[short] == []


def test_a_long_title_of_a_heatmap_is_not_cut_off() -> None:
    """Plotly moves a title of one line down by the height of its letters, and one of several lines not."""
    side = Ticks(["a", "b"], ["A", "B"])
    shown = Map("Violation@5", "pairs", MapPart(np.zeros((2, 2)), np.ones((2, 2), np.int64)))

    def drawn(title: str, subtitle: str) -> tuple[go.Figure, float]:
        fig = heatmap_figure([shown], side, side, title=title, subtitle=subtitle)
        return fig, (1 - fig.layout.title.y) * fig.layout.height

    short, above = drawn("A title", "a subtitle")
    assert above == pytest.approx(8)
    long, above = drawn("many words " * 12, "of many pairs " * 20)
    lines = long.layout.title.text.count("<br>") + 1, long.layout.title.subtitle.text.count("<br>") + 1
    assert lines == (2, 2) and above >= 15, "the letters of 15 pixels stand above where the title is put"
    # What is drawn keeps its size.
    assert long.layout.height - long.layout.margin.t == short.layout.height - short.layout.margin.t
    assert "".join(long.layout.title.subtitle.text.split("<br>")).replace(" ", "") == "ofmanypairs" * 20


def test_names_of_columns_do_not_lie_on_each_other() -> None:
    """At 40 degrees lines of 13 pixels need 20 from one group to the next, and 16 of columns; upright ones 13."""

    def drawn(names: Sequence[str], groups: Sequence[str], row: str, *, phone: bool) -> tuple[int, float, go.Figure]:
        shown = Map("Violation@5", "pairs", MapPart(np.zeros((1, len(names))), np.ones((1, len(names)), np.int64)))
        pixels = phone_width([row], groups or names) if phone else PLOT_WIDTH
        sides = Ticks([row], [row]), Ticks(names, names, groups)
        fig = heatmap_figure([shown], *sides, title="t", subtitle="s", pixels=pixels)
        axis = fig.layout.xaxis
        named = [at for at, text in zip(axis.tickvals, axis.ticktext, strict=True) if text]
        # A phone of 390 pixels has 315 for a chart, and the scale takes 35.
        width = 315 - fig.layout.margin.l - 35 if phone else pixels
        return axis.tickangle, min(np.diff(named)) * width / len(names), fig

    numbers, spheres = [f"{i}" for i in range(49)], [f"sphere {i // 4}" for i in range(49)]
    angle, apart, _ = drawn(numbers, spheres, "a", phone=False)
    assert angle == -40 and apart >= 20
    angle, apart, fig = drawn(numbers, spheres, "a", phone=True)
    assert angle == -90 and apart >= 13
    assert fig.layout.margin.b > theme.text_width(["sphere 12"]) * 0.8, "upright names have room below"
    # Long names of rows leave a map the less.
    long, domains = "Lending officer at the bank", [f"domain {i}" for i in range(10)]
    for groups, names in ((spheres, numbers), ([], domains)):
        angle, apart, _ = drawn(names, groups, long, phone=True)
        assert angle == -90 and apart >= 13
    angle, apart, _ = drawn([long] * 8, [], "health", phone=True)
    assert angle == -40 and apart >= 16
