"""Whole journeys in a real browser, from an empty workspace, through the app's pages alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import serving
from playwright.sync_api import Browser, Page, expect
from reports import Page as ReportPage
from simulating import CONTEXTS

from cimemories.curation.offline import generate_profiles
from cimemories.formats.official import write_profiles
from cimemories.model import Context
from cimemories.store import runs
from cimemories.store.engine import open_store

pytestmark = pytest.mark.browser


def _new_run(page: Page, model: str) -> None:
    """Two messages in each context, by a simulated model; until all of them are judged."""
    page.get_by_text("Simulator", exact=True).click()
    page.get_by_role("combobox", name=re.compile("^Model|sim-")).click()
    page.get_by_role("option", name=model).click()
    page.get_by_role("button", name="To the experiment").click()
    samples = page.get_by_label("Samples n", exact=True)
    samples.fill("2")
    samples.press("Tab")
    serving.settled(page)
    page.get_by_role("button", name="To the plan").click()
    before = page.url
    page.set_viewport_size({"width": 1440, "height": 500})
    page.get_by_role("button", name="Start the run").dblclick()
    page.wait_for_url(lambda address: "run=run-" in address and "tab=" not in address and address != before)
    expect(page.locator(".st-key-panel")).to_contain_text("finished: 12 of 12 messages written")  # without a reload
    expect(page.locator(".ci-head h2")).to_be_in_viewport()  # however far down the button was
    page.set_viewport_size({"width": 1440, "height": 1000})


def test_a_study_from_an_empty_workspace_to_its_report(tmp_path: Path, browser: Browser) -> None:
    """Import, label, two runs, compare, a leak, the report."""
    profiles, workspace = tmp_path / "people.json", tmp_path / "workspace"
    contexts = [Context(task, recipient) for recipient, task in CONTEXTS[:3]]
    profiles.write_text(write_profiles(generate_profiles(2, seed=3, contexts=contexts)))
    with serving.running_app(workspace, "--no-demo") as (address, _):
        page = serving.open_page(browser, address)
        page.get_by_role("link", name="Import a file").click()
        page.locator("input[type=file]").set_input_files(profiles)
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.get_by_text("Imported 2 profiles as 'people'.")).to_be_visible()

        page.get_by_role("link", name="Label this dataset").click()
        page.get_by_text("The simulator", exact=True).click()
        votes = page.get_by_label("Votes per persona", exact=True)
        votes.fill("2")
        votes.press("Tab")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.locator(".ci-head p")).to_contain_text(re.compile(r"[1-9]\d* necessary"))  # without a reload

        page.get_by_role("link", name="Home").click()
        page.get_by_role("button", name="Evaluate my model").click()
        _new_run(page, "sim-oversharing")
        page.get_by_test_id("stMain").get_by_text("New run", exact=True).first.click()
        _new_run(page, "sim-careful")

        page.get_by_role("link", name="Home").click()
        page.get_by_role("link", name="Compare the runs").click()
        expect(page.locator(".ci-head p")).to_contain_text(re.compile(r"sim-careful.*sim-oversharing|all 2 runs"))
        expect(page.locator(".ci-head .ci-simulated")).to_be_visible()

        page.get_by_role("link", name="Leaks", exact=True).click()
        expect(page.locator(".ci-message mark.ci-leaked").first).to_be_visible()

        page.get_by_role("link", name="Compare", exact=True).click()
        page.get_by_test_id("stMain").get_by_text("Report", exact=True).first.click()
        page.get_by_role("button", name="Make the report").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download").click()
        report = ReportPage(Path(download.value.path()).read_text())
        assert report.headings[1][1].startswith("Abstract")
        assert "Measured on 2 synthetic users" in report.text
        assert "Everything here rests on simulated messages and labels" in report.text
        assert {"sim-careful", "sim-oversharing"} <= set(report.table("Runs, the highest"))
    store = open_store(workspace)
    with store.read() as connection:
        written = [(row.status, row.judged, row.simulated) for row in runs.all_rows(connection)]
    store.close()
    assert written == [("finished", 12, True)] * 2, "a double click starts one"
