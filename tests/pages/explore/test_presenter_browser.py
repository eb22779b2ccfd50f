"""Presenter's mode in a real browser: every key, the link that opens it, nothing but the show on the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import serving
import worlds
from playwright.sync_api import Browser, Page, expect

from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.model import Attribute, Context, Profile
from cimemories.store.engine import open_store

pytestmark = pytest.mark.browser
TASKS, MORE_TASKS = 6, 11
FAILED: list[str] = []  # what went wrong in the page's own scripts
HOSTILE = "<img src=x onerror=alert(1)> <b>bold</b>"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two users; attribute j of the first six (or eleven) leaks first in task j, in 2 of 2 messages; one is necessary
    everywhere."""
    folder = tmp_path_factory.mktemp("presenter") / "workspace"
    store = open_store(folder)
    facts = [
        Attribute(f"fact_{i}", i, "health", "job loss", f"Statement {i}. {HOSTILE}") for i in range(MORE_TASKS + 1)
    ]
    tasks = [Context(f"Task {j} {HOSTILE}", f"Recipient {j} {HOSTILE}", None) for j in range(MORE_TASKS)]
    sizes = (TASKS, MORE_TASKS)
    people = [Profile(HOSTILE, "F", "x", 40, tuple(facts[: n + 1]), tuple(tasks[:n])) for n in sizes]
    data = worlds.add_profiles(store, people)
    more = range(MORE_TASKS)
    labels = [[[INAPPROPRIATE if i < n else NECESSARY for _ in more] for i in range(MORE_TASKS + 1)] for n in sizes]
    reveals = [[[2 if i == j else 0 for j in more] for i in range(MORE_TASKS + 1)]] * len(sizes)
    worlds.add_labels(store, data.id, labels)
    worlds.add_run(store, data.id, 2, reveals, simulated=True)
    store.close()
    return folder


@pytest.fixture(scope="module")
def page(app: str, browser: Browser) -> Iterator[Page]:
    page = serving.open_page(browser, f"{app}/accumulation")
    page.on("pageerror", lambda error: FAILED.append(str(error)))
    page.emulate_media(reduced_motion="no-preference")  # so that the curve moves from task to task
    page.get_by_role("button", name="Present").wait_for()
    page.wait_for_url(re.compile("run="))
    serving.settled(page)
    yield page
    serving.leave(page)


def shows(page: Page, task: int) -> None:
    """The task is named, everything up to it is in the list, newest on top, and the number adds up."""
    expect(page.locator("dialog .of")).to_have_text(f"{task} of {TASKS} private facts told")
    names = [f"fact {i}" for i in reversed(range(task))]
    told = [re.compile(rf"^{name}(word for word, in )?2 of 2 messages$") for name in names]
    expect(page.locator("dialog .item .name")).to_have_text(told)
    if task:
        expect(page.locator("dialog .recipient")).to_have_text(f"Recipient {task - 1} {HOSTILE}")
        expect(page.locator("dialog .task")).to_have_text(f"Task {task - 1} {HOSTILE}")
    expect(page.locator("dialog .share")).to_have_text(f"{100 * task / TASKS:.1f} %")


def test_keys_play_the_tasks_and_escape_leaves(page: Page) -> None:
    entries = page.evaluate("history.length")
    page.get_by_role("button", name="Present").click()
    shows(page, 0)
    expect(page.locator("dialog .keys")).to_contain_text("Space plays")
    page.wait_for_url(re.compile("present=0"))
    serving.settled(page)
    for key, task in [
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("PageDown", 3),
        ("ArrowLeft", 2),
        ("PageUp", 1),
        ("Home", 0),
        ("ArrowLeft", 0),
        ("Space", 1),  # plays
    ]:
        page.keyboard.press(key)
        shows(page, task)
    page.keyboard.press("Space")  # pauses
    page.wait_for_timeout(2900)  # longer than a task stays
    shows(page, 1)
    page.keyboard.press("Home")
    shows(page, 0)
    expect(page.locator("dialog .story").first).to_contain_text(f"Statement 0. {HOSTILE}")
    expect(page.locator("dialog .meant")).to_contain_text("Private: labelled inappropriate to share")
    expect(page.locator("dialog .plot")).to_contain_text("share of the private facts told")
    for _ in range(TASKS):  # faster than it moves: none is lost
        page.keyboard.press("PageDown")
    shows(page, TASKS)
    assert page.locator("dialog .group:not(.old) .quote").inner_text() != ""
    for key in ("PageDown", "PageDown", "End"):  # the closing slide is the last
        page.keyboard.press(key)
        expect(page.locator("dialog .count")).to_have_text(f"After {TASKS} tasks")
        expect(page.locator("dialog .said").first).to_have_text(
            f"{TASKS} of {TASKS} tasks tell something private for the first time."
        )
    page.keyboard.press("PageUp")
    shows(page, TASKS)
    expect(page.locator("dialog .mark")).to_have_text("simulated")
    expect(page.locator("dialog .keys")).to_be_empty()
    page.wait_for_url(re.compile(f"present={TASKS}"))  # so that a reload stays on its slide
    assert page.locator("dialog").locator("button, input, a, img, b").count() == 0, "no control, and no markup of texts"
    box = page.locator("dialog .stage").bounding_box()
    assert box is not None and box["width"] >= 1440 and box["height"] >= 1000
    screen = page.context.new_cdp_session(page)  # what sets the size otherwise asks a full screen to be a window first
    size = {"width": 1920, "height": 1080, "deviceScaleFactor": 1, "mobile": False}
    screen.send("Emulation.setDeviceMetricsOverride", size)
    page.wait_for_function("innerWidth === 1920")
    sizes = page.locator("dialog").evaluate(
        """d => [...d.querySelectorAll("*")].filter(e => e.checkVisibility() && [...e.childNodes].some(
          n => n.nodeType === 3 && n.data.trim())).map(e => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert min(sizes) >= 23, "readable from the last row: a fiftieth of the screen's height"
    screen.send("Emulation.setDeviceMetricsOverride", {**size, "width": 1440, "height": 1000})
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    expect(page).not_to_have_url(re.compile("present="))
    expect(page.get_by_role("button", name="Present")).to_be_focused()
    # It went back: what is ahead is the talk, and no second view of the page behind it.
    assert page.evaluate("history.length") == entries + 1
    assert FAILED == []


@pytest.mark.long
def test_what_replaced_a_part_of_the_link_outlives_the_next_press(page: Page) -> None:
    before = page.url
    page.goto(f"{before}&user=999")
    notice = page.get_by_text("The user in the link is not in this run")
    expect(notice).to_be_visible()
    expect(page).not_to_have_url(re.compile("user="))
    serving.settled(page)
    page.get_by_role("radio", name="where private").click()
    page.wait_for_url(re.compile("clock="))
    expect(notice).to_have_count(0)
    serving.settled(page)
    assert "user=" not in page.url
    page.goto(before)
    serving.settled(page)


def test_a_reload_stays_among_the_worst_tasks(page: Page) -> None:
    before = page.url
    page.goto(f"{before}&user=2")
    page.get_by_role("button", name="The 10 worst").click()
    page.wait_for_url(re.compile("stops=worst"))
    serving.settled(page)
    count, last = page.locator("dialog .count"), re.compile(f"^Task 10 of {MORE_TASKS}:")
    for key in ("End", "PageUp"):
        page.keyboard.press(key)
    expect(count).to_have_text(last)
    page.reload()
    expect(count).to_have_text(last)
    page.keyboard.press("PageDown")
    expect(count).to_have_text(f"After {MORE_TASKS} tasks")
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("present=|stops="))
    serving.settled(page)
    page.goto(before)
    serving.settled(page)


# Charts whose buttons lie over their title, or are not in sight where they are.
COVERED = """() => [...document.querySelectorAll(".js-plotly-plot")].filter((plot) => {
    const bar = plot.querySelector(".modebar"), title = plot.querySelector(".gtitle");
    bar.scrollIntoView({ block: "center" });
    const [at, text] = [bar.getBoundingClientRect(), title.getBoundingClientRect()];
    const over = at.top < text.bottom && at.bottom > text.top && at.left < text.right && at.right > text.left;
    const button = bar.querySelector("button").getBoundingClientRect();
    const seen = document.elementFromPoint(button.x + button.width / 2, button.y + button.height / 2);
    return over || !bar.contains(seen);
}).map((plot) => plot.querySelector(".gtitle").textContent)"""


def test_on_a_phone_a_link_opens_straight_into_it_taps_move_and_a_button_closes(page: Page) -> None:
    phone = page.context.new_page()
    phone.set_viewport_size({"width": 390, "height": 844})
    finger = serving.Finger(phone)
    phone.goto(f"{page.url}&present=1")
    shows(phone, 1)
    finger.tap(300, 400)
    shows(phone, 2)
    finger.tap(40, 400)
    shows(phone, 1)
    for name in (".recipient", ".of", ".plot", ".list"):
        box = phone.locator(f"dialog {name}").bounding_box()
        assert box is not None and box["width"] > 150 and box["x"] >= 0 and box["x"] + box["width"] <= 390
    close = phone.get_by_role("button", name="Close").bounding_box()
    assert close is not None
    finger.tap(close["x"] + close["width"] / 2, close["y"] + close["height"] / 2)
    expect(phone.locator("dialog")).to_be_hidden()
    expect(phone).not_to_have_url(re.compile("present="))
    serving.settled(phone)
    for page_name in ("accumulation", "heatmaps"):
        if page_name not in phone.url:
            phone.goto(phone.url.replace("/accumulation", "/heatmaps"))
        phone.locator(".js-plotly-plot .modebar").first.wait_for()
        serving.settled(phone)
        assert phone.evaluate(COVERED) == [], page_name
    phone.close()


def test_back_leads_out_of_the_talk_to_where_it_began(page: Page) -> None:
    page.goto(page.url.replace("/accumulation", "/heatmaps"))
    expect(page.locator(".ci-head h2")).to_have_text("Heatmaps")
    serving.settled(page)
    page.locator("[data-testid='stSidebarNavLink'][href$='/accumulation']").click()
    page.get_by_role("button", name="Present").wait_for()
    page.wait_for_url(re.compile(r"/accumulation\?.*run="))
    serving.settled(page)
    before = page.url
    page.get_by_role("button", name="Present").click()
    page.wait_for_url(re.compile("present=0"))
    serving.settled(page)
    for _ in range(TASKS + 1):
        page.keyboard.press("PageDown")
    expect(page.locator("dialog .count")).to_have_text(f"After {TASKS} tasks")
    page.go_back()
    expect(page.locator("dialog")).to_be_hidden()
    expect(page).to_have_url(before)
    expect(page.get_by_role("button", name="Present")).to_be_focused()
    serving.settled(page)
    page.go_back()
    expect(page.locator(".ci-head h2")).to_have_text("Heatmaps")
    assert FAILED == []
