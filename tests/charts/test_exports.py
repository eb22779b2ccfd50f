"""Exports: an image and a table say inside what they are, and nothing in them can do harm."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import pandas as pd
import plotly.graph_objects as go
import pyarrow.parquet as pq
import pytest
import serving

from cimemories import answer
from cimemories.charts import export

HOSTILE = '<img src=x onerror="alert(1)"> & more'


def chart(title: str, subtitle: str = "") -> go.Figure:
    fig = go.Figure(go.Bar(x=[1, 2], y=[3, 4]))
    fig.update_layout(
        title={"text": title, "subtitle": {"text": subtitle}},
        paper_bgcolor="rgba(0,0,0,0)",
        margin={"t": 64},
        height=300,
    )
    return fig


def test_a_table_says_what_it_rests_on_and_runs_no_formula() -> None:
    frame = pd.DataFrame(
        {"name": ["=cmd()", "@x", "plain"], "share": [0.25, float("nan"), -1.0], "run": ["a", "b", "c"]}
    )
    about = {"run": "run-1", "judge": HOSTILE, "n": 5, "rule": None}
    back = pd.read_csv(io.BytesIO(answer.as_csv(frame, simulated=True, about=about)))
    assert back["name"].tolist() == ["'=cmd()", "'@x", "plain"]
    assert back["share"].tolist()[::2] == [0.25, -1.0] and back["share"].isna()[1]
    assert back["run"].tolist() == ["a", "b", "c"]  # a column of the table's own stays
    assert back["simulated"].all() and set(back["judge"]) == {HOSTILE} and set(back["n"]) == {5}
    table = pq.read_table(io.BytesIO(answer.as_parquet(frame, simulated=False, about=about)))
    assert table.to_pandas()["name"].tolist() == frame["name"].tolist()  # no spreadsheet opens these
    assert not any(table.column("simulated").to_pylist())
    metadata = json.loads(table.schema.metadata[answer.METADATA])
    assert metadata == {"run": "run-1", "judge": HOSTILE, "n": 5, "rule": "", "simulated": False}


def test_a_chart_for_paper_is_dark_on_white_and_says_where_it_comes_from() -> None:
    long = "Most leaked pairs are those of finance to the landlord of the flat " * 3
    fig = chart(long, "12 &lt; 13 pairs")
    made = export.on_paper(fig, simulated=True, source=export.source_line({"run": "run-1", "judge": HOSTILE, "n": ""}))
    plain = export.on_paper(chart("Short"))
    below = made.layout.title.subtitle.text
    assert "SIMULATED" in below and "12 &lt; 13 pairs" in below and "run: run-1 · judge: &lt;img" in below
    assert "<img" not in below and "· n:" not in below  # what is empty is not said
    assert "SIMULATED" not in (plain.layout.title.subtitle.text or "")
    assert made.layout.title.text.count("<br>") >= 1
    assert "".join(made.layout.title.text.split("<br>")).replace(" ", "") == long.replace(" ", "")
    assert (made.layout.paper_bgcolor, made.layout.plot_bgcolor) == ("white", "white")
    # Every line under the title makes room for itself: the plot is as high as it was.
    plots = [f.layout.height - f.layout.margin.t for f in (made, plain)]
    assert plots == pytest.approx([300 - 64] * 2)
    assert made.layout.margin.t > plain.layout.margin.t
    assert fig.layout.paper_bgcolor == "rgba(0,0,0,0)"  # the page's own is left alone


def test_without_a_browser_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "browser", lambda: None)
    with pytest.raises(export.ImageError, match="apt-get install chromium"):
        export.as_png(chart("x"))


@pytest.mark.browser
def test_an_image_is_drawn_and_holds_its_words() -> None:
    serving.require_chromium()
    made = [export.on_paper(chart("Leaks"), simulated=True, source="run: run-1"), export.on_paper(chart("More"))]
    first, second = export.as_images(made, "svg")
    texts = [[t.strip() for t in ElementTree.fromstring(item).itertext() if t.strip()] for item in (first, second)]
    assert {"Leaks", "SIMULATED", "run: run-1"} <= set(texts[0])
    assert "More" in texts[1] and "SIMULATED" not in texts[1]


@pytest.mark.browser
def test_images_share_one_browser_and_one_that_has_died_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    serving.require_chromium()
    import kaleido

    renderer, started = export._Renderer(), []
    monkeypatch.setattr(export, "_renderer", renderer)
    start = kaleido.Kaleido.open
    monkeypatch.setattr(kaleido.Kaleido, "open", lambda self: started.append(self) or start(self))
    try:
        assert [export.as_svg(chart(title)).count(b"<svg") > 0 for title in ("One", "Two")] == [True, True]
        assert len(started) == 1
        started[0].subprocess.kill()
        started[0].subprocess.wait()
        assert b"Three" in export.as_svg(chart("Three"))
        assert len(started) == 2
    finally:
        renderer.close()
