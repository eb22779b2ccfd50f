"""Reports of hostile texts, reports written to files, by command and by the page."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from evaluating import cli_inside, outside
from hostile_runs import LABELS, LEAKY, TAGS, build
from markdown_it import MarkdownIt
from paging import button, opened, page_html
from reports import Page
from serving import require_chromium
from worlds import add_labels, add_profiles, add_run, make_profile

from cimemories.charts import svg
from cimemories.charts.bars import Bounded, IntervalSeries, interval_rows
from cimemories.charts.lines import spread
from cimemories.charts.theme import GREY
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import resolve_scope
from cimemories.report import render
from cimemories.report.collect import collect
from cimemories.report.document import Report
from cimemories.report.render import as_html, as_markdown
from cimemories.store import work
from cimemories.store.engine import Store, StoreError


def report_of(store: Store, *ids: str) -> Report:
    made = datetime(2026, 3, 1, tzinfo=UTC)
    return collect(shared_flows(store), [resolve_scope(store, run_id) for run_id in ids], now=made)


def test_no_text_becomes_markup_in_html_markdown_or_figures(sqlite_store: Store) -> None:
    report = report_of(sqlite_store, *build(sqlite_store))
    text = as_html(report)
    page = Page(text)
    assert set(page.tags) <= TAGS
    assert "evil.example" in page.text  # it is shown, as text
    assert "7*7" in page.text
    assert all(address.startswith("#") for address in page.values("href"))
    names = {name for _, name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "srcset", "action", "xlink:href"}
    styles = [value for _, name, value in page.attributes if name == "style"]
    assert set(styles) <= {"text-align:right", "text-align:left"}
    assert text.count("<style>") == text.count("</style>") == 1
    assert "default-src 'none'" in next(value for value in page.values("content") if "src" in value)
    assert "\x07" not in text
    text, pictures = as_markdown(report, "folder")
    reader = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    page = Page(reader.render(text))
    assert set(page.tags) <= TAGS | {"img"}
    assert sorted(page.values("src")) == sorted(f"folder/{name}" for name in pictures)
    assert page.values("href") == []
    assert [level for level, _ in page.headings].count(1) == 1
    for svg_text in pictures.values():
        tags = {
            element.tag.removeprefix("{http://www.w3.org/2000/svg}")
            for element in ElementTree.fromstring(svg_text).iter()
        }
        assert tags <= {"svg", "title", "desc", "style", "text", "rect", "line", "circle", "polygon", "polyline"}


def test_a_figure_takes_any_text_and_keeps_labels_apart() -> None:
    series = IntervalSeries("any", [Bounded(0.5, 0.4, 0.7), Bounded(0.1)], GREY, "x")
    fig = interval_rows(["\x00\ud800<b>" + "w" * 80, "&amp;"], [series], xaxis={"range": [0, 1]})
    root = ElementTree.fromstring(svg.as_file(svg.draw(fig, "any", title="a < b", alt="\x1b", simulated=True)))
    text = "".join(root.itertext())
    assert "<b>w" in text
    assert "&amp;" in text
    assert "SIMULATED" in text
    places = spread([10, 11, 12, 95], 20, 0, 100)
    assert sorted(places) == places
    assert all(b - a >= 20 for a, b in pairwise(places))
    assert max(places) <= 100


def simple(store: Store) -> str:
    data = add_profiles(store, [make_profile(0, 3, 3)])
    add_labels(store, data.id, LABELS)
    return add_run(store, data.id, 5, LEAKY)


def test_a_file_is_written_whole_or_stays_as_it_was(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_PATH", "/nowhere")  # figures stay SVG, in no time
    report = report_of(sqlite_store, simple(sqlite_store))
    page, text, folder = tmp_path / "r.html", tmp_path / "r.md", tmp_path / "r-figures"
    assert render.write_report(report, page) == [page]
    assert page.read_text() == as_html(report)
    assert (page.stat().st_mode & 0o777) == 0o666 & ~_umask()
    written = render.write_report(report, text)
    assert sorted(written[1:]) == sorted(folder.iterdir())
    for path in (page, text):
        path.write_text("mine")
        with pytest.raises(StoreError, match="stays as it is"):
            render.write_report(report, path)
        assert path.read_text() == "mine"
        render.write_report(report, path, force=True)
        assert path.read_text() != "mine"
    before = sorted(tmp_path.rglob("*"))
    page.write_text("mine")

    def full(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StoreError, match="no space"):
            render.write_report(report, page, force=True)
    assert page.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == before
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other things"):
        render.write_report(report, text, force=True)
    for wrong, why in ((tmp_path / "r.pdf", "neither"), (tmp_path / "no" / "r.html", "no folder"), (folder, "neither")):
        with pytest.raises(StoreError, match=why):
            render.check_report(wrong, force=True)


def test_figures_beside_markdown_are_png_where_there_is_a_browser(sqlite_store: Store, tmp_path: Path) -> None:
    require_chromium()
    report = report_of(sqlite_store, simple(sqlite_store))
    shares: list[float] = []
    text, *figures = render.write_report(report, tmp_path / "r.md", progress=shares.append)
    assert sorted(Page(MarkdownIt("commonmark").render(text.read_text())).values("src")) == sorted(
        f"r-figures/{path.name}" for path in figures
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures)
    assert len(shares) == len(figures) >= 4 and shares[-1] == 1.0
    assert {path.stem for path in figures} == {name.removesuffix(".svg") for name in as_markdown(report, "f")[1]}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_command_writes_what_it_says(sqlite_store: Store, tmp_path: Path) -> None:
    run_id, target = simple(sqlite_store), tmp_path / "out.html"
    arguments = ["report", run_id, "--to", target, "--workspace", sqlite_store.workspace]
    done = cli_inside(outside(), *arguments, "--no-texts", "--labels", "consensus", "--identifiers", "none")
    assert (done.returncode, done.stdout) == (0, f"wrote {target}\n")
    page = Page(target.read_text())
    assert page.table("Violation under each")["test-model"]
    assert "--labels consensus --judge test-judge --identifiers none --no-texts" in page.text
    again = cli_inside(outside(), *arguments)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert cli_inside(outside(), *arguments, "--force").returncode == 0
    for wrong, why in ((("--identifiers", "all"), "no identifier rule"), (("--judge", "nobody"), "nobody")):
        bad = cli_inside(outside(), *arguments, "--force", *wrong)
        assert bad.returncode == 1
        assert why in bad.stderr


def test_the_page_makes_it_on_click_and_offers_nothing_stale(app_store: Store) -> None:
    ids = build(app_store)
    app = opened("pages/explore/compare.py", tab="report")
    assert not app.get("download_button")
    button(app, "Make the report").click().run()
    assert not app.exception
    assert len(app.get("download_button")) == 1
    assert "report-2-runs.html" in page_html(app)
    assert "<img" not in page_html(app)
    app.toggle(key="compare.report.texts").set_value(False).run()
    assert not app.get("download_button")
    app.toggle(key="compare.report.texts").set_value(True).run()
    assert len(app.get("download_button")) == 1
    with app_store.write() as connection:
        work.bump(connection, ids[0])
    app.run()
    assert not app.get("download_button")
    assert "Make it again" in page_html(app)
    app.segmented_control(key="compare.report.form").set_value("Markdown").run()
    button(app, "Make the report").click().run()
    assert "report-2-runs.zip" in page_html(app)
