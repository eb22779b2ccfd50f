"""The review queue in a real browser: keys at speed, undo, blind work, reload, and two people at one queue."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import serving
from forked import Forked
from playwright.sync_api import Browser, Locator, Page, expect
from worlds import add_dataset, add_labels, add_run, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.store import audits, datasets, decisions, reviews
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Connection, Store, open_store
from cimemories.store.reviews import MarkKind
from cimemories.store.upkeep import deleting

PROFILES, ATTRIBUTES, CONTEXTS = 2, 42, 6
PAIRS = PROFILES * ATTRIBUTES * CONTEXTS
CODES = {"n": "necessary", "i": "inappropriate", "u": "ambiguous"}
VOTES = "fundamentalist"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with serving.chromium() as browser:
        yield browser


class World(NamedTuple):
    """A dataset of one test's own in the record that the server of this file works on."""

    store: Store
    id: int

    def read(self) -> AbstractContextManager[Connection]:
        return self.store.read()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review") / "workspace"
    open_store(folder).close()
    return folder


@pytest.fixture(scope="module")
def server(workspace: Path) -> Iterator[tuple[str, Forked]]:
    with serving.running_app(workspace, "--no-demo") as started:
        yield started


@pytest.fixture
def record(workspace: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    store = open_store(workspace)
    size = {"profiles": PROFILES, "attributes": ATTRIBUTES, "contexts": CONTEXTS}
    dataset = add_dataset(store, name=request.node.name, **size)
    cycle = (AMBIGUOUS, NECESSARY, AMBIGUOUS, INAPPROPRIATE)
    labels = [[[cycle[(a + c) % 4] for c in range(CONTEXTS)] for a in range(ATTRIBUTES)]] * PROFILES
    add_labels(store, dataset.id, labels)
    yield World(store, dataset.id)
    store.close()


def begin(browser: Browser, app: str, record: World, name: str, query: str = "") -> Page:
    page = serving.open_page(browser, f"{app}/review?dataset={record.id}{query}")
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Begin").click()
    ready(page)
    return page


def ready(page: Page) -> None:
    page.locator(".bench .card .title").wait_for()
    serving.settled(page)


def saved(page: Page) -> None:
    expect(page.locator(".bench .saved")).to_have_text("all saved")


def card(page: Page) -> Locator:
    return page.locator(".bench .card")


def pair(page: Page) -> str:
    return card(page).get_attribute("data-card") or ""


def stands(record: World, name: str) -> dict[str, str]:
    with record.read() as connection:
        own_decisions = [d for d in decisions.history(connection, record.id) if d.annotator == name]
    return {f"{a}.{c}": str(d.label) for (a, c), d in decisions.standing(own_decisions).items()}


def test_two_hundred_decisions_at_speed_are_each_in_the_record_once(app: str, browser: Browser, record: World) -> None:
    page = begin(browser, app, record, "Ada", "&batch=500")
    pressed: dict[str, str] = {}
    for number in range(200):
        key = "niu"[number % 3]
        here = pair(page)
        assert here and here not in pressed, "the next one is there at each press"
        page.keyboard.press(key)
        pressed[here] = CODES[key]
        page.wait_for_timeout(40)
    saved(page)
    assert stands(record, "Ada") == pressed
    with record.read() as connection:
        history = decisions.history(connection, record.id)
    assert len(history) == len({d.uid for d in history}) == 200
    assert all(d.source == "queue" and d.guideline and d.seconds is not None and d.blind for d in history)
    took = page.evaluate("performance.getEntriesByName('workbench key').map(entry => entry.duration)")
    assert len(took) == 200
    # Undo goes back as far as there is something, one by one.
    for _ in range(150):
        page.keyboard.press("z")
    saved(page)
    assert stands(record, "Ada") == dict(list(pressed.items())[:50])
    assert pair(page) == list(pressed)[50]
    serving.leave(page)


# How a person leaves the queue and comes back, without a reload: the browser's script goes on, the component does not.
def by_sidebar(page: Page, own: str) -> None:
    for name in ("Home", own):
        page.get_by_test_id("stSidebarNav").get_by_text(name, exact=True).click()
        expect(page.locator(".ci-head")).to_contain_text("CIMemories" if name == "Home" else own)


def by_tab(page: Page, _own: str) -> None:
    page.get_by_text("Set up", exact=True).first.click()
    expect(card(page)).to_have_count(0)
    page.get_by_text("Decide", exact=True).first.click()


def by_back(page: Page, own: str) -> None:
    page.get_by_test_id("stSidebarNav").get_by_text("Home", exact=True).click()
    expect(page.locator(".ci-head")).to_contain_text("CIMemories")
    page.go_back()
    expect(page.locator(".ci-head")).to_contain_text(own)


def press(page: Page, keys: str, codes: dict[str, str]) -> dict[str, str]:
    """Press keys with a moment between them, as a person would; returns what was said of which card."""
    pressed: dict[str, str] = {}
    for key in keys:
        here = pair(page)
        assert here and here not in pressed
        page.keyboard.press(key)
        expect(card(page)).not_to_have_attribute("data-card", here)
        pressed[here] = codes[key]
    return pressed


def test_no_press_is_lost_by_leaving_the_queue_and_coming_back(app: str, browser: Browser, record: World) -> None:
    page = begin(browser, app, record, "Ada")
    pressed: dict[str, str] = {}
    # As many presses as on the visit before, fewer, more; left at once, or when all is saved.
    visits = [("nii", by_sidebar), ("niuni", by_tab), ("ui", by_sidebar), ("nnnnnnn", by_tab), ("uuu", by_sidebar)]
    visits += [("in", by_back), ("nu", by_back)]
    for number, (keys, leave) in enumerate(visits):
        new = press(page, keys, CODES)
        assert not new.keys() & pressed.keys(), "what was decided before is not asked again"
        pressed |= new
        if number % 2:
            saved(page)
            assert stands(record, "Ada") == pressed
        leave(page, "Review")
        ready(page)
    pressed |= press(page, "in", CODES)
    saved(page)
    assert stands(record, "Ada") == pressed
    page.keyboard.press("z")
    saved(page)
    pressed.popitem()
    assert stands(record, "Ada") == pressed
    page.reload()
    ready(page)
    pressed |= press(page, "nu", CODES)
    saved(page)
    assert stands(record, "Ada") == pressed
    with record.read() as connection:
        history = decisions.history(connection, record.id)
    assert len(history) == len({d.uid for d in history}) == len(pressed) + 2, "each once, and one taken back"
    serving.leave(page)


def test_leaving_while_the_server_is_busy_leaves_no_blank_page(
    server: tuple[str, Forked], browser: Browser, record: World
) -> None:
    """The server answers the link only after seconds: what the queue sent meanwhile made it run a part of the old page
    after the new one, which the browser shows as nothing at all."""
    app, process = server
    page = begin(browser, app, record, "Ada")
    pressed = press(page, "n", CODES)
    saved(page)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        pressed |= press(page, "ni", CODES)
        page.get_by_test_id("stSidebarNav").get_by_text("Home", exact=True).click()
        page.wait_for_timeout(9_000)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    expect(page.locator(".ci-head")).to_contain_text("CIMemories")
    page.get_by_test_id("stSidebarNav").get_by_text("Review", exact=True).click()
    ready(page)
    saved(page)
    assert stands(record, "Ada") == pressed
    serving.leave(page)


def test_two_tabs_of_one_person_lose_nothing_when_one_of_them_leaves_and_closes(
    app: str, browser: Browser, record: World
) -> None:
    first = begin(browser, app, record, "Ada")
    second = first.context.new_page()
    second.set_default_timeout(serving.LOOK_MS)
    second.goto(f"{app}/review?dataset={record.id}")
    ready(second)
    pressed = press(first, "nin", CODES) | press(second, "uu", CODES)
    assert len(pressed) == 5, "two tabs never show the same pair"
    by_sidebar(first, "Review")
    ready(first)
    pressed |= press(second, "i", CODES) | press(first, "nn", CODES)
    saved(second)
    second.close(run_before_unload=False)
    pressed |= press(first, "iu", CODES)
    saved(first)
    assert stands(record, "Ada") == pressed
    serving.leave(first)


def test_undo_reaches_behind_a_reload_and_the_same_pair_is_next(app: str, browser: Browser, record: World) -> None:
    page = begin(browser, app, record, "Ada")
    seen = []
    for key in "nnii":
        seen.append(pair(page))
        page.keyboard.press(key)
    saved(page)
    following = pair(page)
    page.reload()
    ready(page)
    assert pair(page) == following
    page.keyboard.press("z")
    expect(card(page)).to_have_attribute("data-card", seen[3])
    page.keyboard.press("u")
    saved(page)
    assert stands(record, "Ada") == {
        **dict.fromkeys(seen[:2], "necessary"),
        seen[2]: "inappropriate",
        seen[3]: "ambiguous",
    }
    serving.leave(page)


def test_blind_work_shows_no_vote_before_the_answer(app: str, browser: Browser, record: World) -> None:
    page = begin(browser, app, record, "Ada")
    shown = page.evaluate("() => [...document.querySelectorAll('*')].map(e => e.shadowRoot?.innerHTML ?? '').join('')")
    assert VOTES not in shown + page.content()
    assert "past leaks show after your answer" in shown
    assert page.locator(".bench .mark").count() == 0
    page.keyboard.press("n")
    expect(page.locator(".bench .last .mark").first).to_be_visible()
    assert page.locator(".bench .card .mark").count() == 0
    saved(page)
    with record.read() as connection:
        assert [d.blind for d in decisions.history(connection, record.id)] == [True]
    page.keyboard.press("b")
    expect(page.locator(".bench .card .mark").first).to_be_visible()
    serving.leave(page)


def test_keys_do_not_fire_while_typing_and_comments_skips_and_flags_are_kept(
    app: str, browser: Browser, record: World
) -> None:
    page = begin(browser, app, record, "Ada")
    first = pair(page)
    page.keyboard.press("c")
    page.keyboard.type("nice <img src=x onerror=alert(1)> inz")
    page.keyboard.press("Enter")
    expect(page.locator(".bench .words")).to_be_hidden()
    assert pair(page) == first
    page.keyboard.press("s")
    second = pair(page)
    # Once `f` flagged at once, and the reason that people then typed became decisions.
    page.keyboard.press("f")
    page.keyboard.type("u in i n")
    expect(page.get_by_label("What is wrong with this item?")).to_have_value("u in i n")
    page.get_by_label("What is wrong with this item?").blur()
    page.keyboard.type(" nix")
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("?")
    expect(page.locator(".bench .help")).to_be_visible()
    expect(page.locator(".bench .help")).to_be_in_viewport()
    page.keyboard.press("n")
    expect(page.locator(".bench .help")).to_be_hidden()
    # Fields of the page itself.
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("Name of this view").fill("")
    page.get_by_label("Name of this view").press_sequentially("nine units in")
    # What lies over the item takes no answer either.
    page.get_by_role("button", name="Filters").focus()
    page.keyboard.type("nui")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Name of this view")).to_be_hidden()
    saved(page)
    with record.read() as connection:
        assert [c.text for c in reviews.comments_of_dataset(connection, record.id)] == [
            "nice <img src=x onerror=alert(1)> inz"
        ]
        assert reviews.standing_marks(connection, record.id, MarkKind.SKIP) == {tuple(map(int, first.split(".")))}
        assert reviews.standing_marks(connection, record.id, MarkKind.FLAG) == {tuple(map(int, second.split(".")))}
        assert [e["reason"] for e in decisions.review_events(connection, record.id, "mark")] == ["", "u in i n nix"]
        assert decisions.history(connection, record.id) == []
    page.keyboard.press("z")
    page.keyboard.press("z")
    saved(page)
    with record.read() as connection:
        assert (
            reviews.standing_marks(connection, record.id, MarkKind.SKIP)
            == reviews.standing_marks(connection, record.id, MarkKind.FLAG)
            == set()
        )
    serving.leave(page)


def test_two_people_never_have_the_same_pair_at_once_and_neither_starves(
    app: str, browser: Browser, record: World
) -> None:
    pages = {name: begin(browser, app, record, name) for name in ("Ada", "Bob")}
    for round_ in range(60):
        here = {name: pair(page) for name, page in pages.items()}
        assert all(here.values()) and len(set(here.values())) == 2, f"round {round_}"
        for page in pages.values():
            page.keyboard.press("n")
            page.wait_for_timeout(25)
    for page in pages.values():
        saved(page)
    ada, bob = stands(record, "Ada"), stands(record, "Bob")
    assert len(ada) == len(bob) == 60
    assert not set(ada) & set(bob)
    for page in pages.values():
        serving.leave(page)


def test_what_the_server_did_not_hear_is_shown_and_survives_the_tab(
    workspace: Path, browser: Browser, record: World
) -> None:
    with serving.running_app(workspace, "--no-demo") as (address, server):
        page = begin(browser, address, record, "Ada")
        saved(page)
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        pressed = {}
        for key in "ini":
            pressed[pair(page)] = CODES[key]
            page.keyboard.press(key)
        expect(page.locator(".bench .saved")).to_have_text("3 not saved yet")
        page.close()
        for process in processes:
            process.resume()
        page = page.context.new_page()
        page.set_default_timeout(serving.LOOK_MS)
        page.goto(f"{address}/review?dataset={record.id}")
        ready(page)
        saved(page)
        assert stands(record, "Ada") == pressed
        assert pair(page) not in pressed
        serving.leave(page)


def test_presses_count_while_the_server_is_away_and_are_saved_when_it_is_back(
    workspace: Path, browser: Browser, record: World
) -> None:
    """Streamlit's own dialog lies over the queue and takes its keys."""
    port = serving.free_port()
    with ExitStack() as server:
        address, _ = server.enter_context(serving.running_app(workspace, "--no-demo", port=port))
        page = begin(browser, address, record, "Ada")
        pressed = press(page, "ni", CODES)
        saved(page)
        page.keyboard.press("k")
        back = pair(page)
        with page.expect_event("console", lambda message: "Is Streamlit still running?" in message.text):
            server.close()
    expect(page.locator(".ci-away")).to_contain_text("This app's server does not answer")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert pair(page) == back
    page.keyboard.press("u")
    pressed |= {back: "ambiguous"} | press(page, "nun", CODES)
    expect(page.locator(".bench .saved")).to_have_text("4 not saved yet")
    with serving.running_app(workspace, "--no-demo", port=port):
        saved(page)
        expect(page.locator(".ci-away")).to_have_count(0)
        assert stands(record, "Ada") == pressed
        assert pair(page) not in pressed
        serving.leave(page)


def test_a_link_by_entropy_and_reveal_rate_puts_what_a_run_revealed_first(
    app: str, browser: Browser, record: World
) -> None:
    (person, _) = records(record.store, record.id)
    divided = [(a, c) for n, a in enumerate(person.attribute_ids) for m, c in enumerate(person.context_ids)]
    target = divided[7 * CONTEXTS + 3]  # (7 + 3) % 4 == 2: ambiguous
    add_run(record.store, record.id, 2, {target: 2})
    page = begin(browser, app, record, "Ada", "&order=effect")
    assert pair(page) == f"{target[0]}.{target[1]}"
    serving.leave(page)


def test_five_hundred_at_once_are_taken_back_at_once(app: str, browser: Browser, record: World) -> None:
    page = serving.open_page(browser, f"{app}/review?dataset={record.id}&tab=bulk")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Begin").click()
    apply = page.get_by_role("button", name=f"Apply to all {PAIRS}")
    expect(page.get_by_text(f"{PAIRS} pairs, 0 decided by others.")).to_be_visible()
    page.get_by_text("X inappropriate", exact=True).click()
    expect(apply).to_be_disabled()
    page.get_by_label("Reason").fill("a test of many")
    page.keyboard.press("Enter")
    apply.click()
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    assert PAIRS > 500
    assert list(stands(record, "Ada").values()) == ["inappropriate"] * PAIRS
    undo.click()
    expect(page.get_by_text(f"{PAIRS} of them undone")).to_be_visible()
    assert stands(record, "Ada") == {}
    serving.leave(page)


def test_a_judge_is_audited_blind_and_each_verdict_is_in_the_record_once(
    app: str, browser: Browser, record: World
) -> None:
    (person, other) = records(record.store, record.id)
    pairs = [(a, c) for r in (person, other) for a in r.attribute_ids for c in r.context_ids]
    run_id = add_run(record.store, record.id, 2, {pair: 1 + n % 2 for n, pair in enumerate(pairs) if n % 3 == 0})
    page = serving.open_page(browser, f"{app}/judge_audit?run={run_id}")
    page.get_by_label("Your name", exact=True).fill("Ada")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sample the slice").dblclick()
    ready(page)
    assert page.locator(".bench mark").count() == 0
    keys = page.locator(".bench .keys")
    place, seen = keys.bounding_box(), []
    for number in range(60):
        if number == 50:  # a batch ends
            expect(page.locator(".bench .card")).to_contain_text(
                "50 items answered. How far the judge agrees shows at the end of the slice."
            )
            page.keyboard.press("Enter")
        seen.append(pair(page))
        page.keyboard.press("ypmo"[number % 4])
        page.wait_for_timeout(40)
    saved(page)
    assert keys.bounding_box() == place  # the keys stay where they are
    page.reload()
    ready(page)
    page.keyboard.press("z")  # an undo reaches back to before the page was opened
    expect(page.locator(".bench .progress")).to_contain_text("Batch of 50: 9 done")
    saved(page)
    assert pair(page) == seen[-1]
    serving.leave(page)
    assert len(set(seen)) == 60
    with record.read() as connection:
        history = audits.history(connection, record.id, "Ada")
        slices = [row for row in audits.all_slices(connection, record.id) if row.manifest.get("run") == run_id]
    assert len(slices) == 1
    assert len({item.uid for item in history}) == len(history) == 61
    assert all(item.blind for item in history[:60])
    verdicts = [str(item.verdict) for item in history[:60]]
    assert verdicts == ["full", "partial", "implied", "none"] * 15
    assert len(audits.standing(history)) == 59


def verdicts(record: World, name: str) -> dict[str, str]:
    with record.read() as connection:
        standing = audits.standing(audits.history(connection, record.id, name))
    return {f"{response}.{attribute}": str(item.verdict) for (response, attribute), item in standing.items()}


def test_no_verdict_is_lost_by_leaving_the_audit_and_coming_back(
    workspace: Path, browser: Browser, record: World
) -> None:
    codes = {"y": "full", "p": "partial", "m": "implied", "o": "none"}
    pairs = [(a, c) for r in records(record.store, record.id) for a in r.attribute_ids for c in r.context_ids]
    run_id = add_run(record.store, record.id, 2, {pair: 1 for n, pair in enumerate(pairs) if n % 3 == 0})
    with serving.running_app(workspace, "--no-demo") as (address, server):
        page = serving.open_page(browser, f"{address}/judge_audit?run={run_id}")
        page.get_by_label("Your name", exact=True).fill("Ada")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Sample the slice").click()
        ready(page)
        pressed: dict[str, str] = {}
        for keys in ("ypm", "opym", "yy", "ooopp"):
            new = press(page, keys, codes)
            assert not new.keys() & pressed.keys()
            pressed |= new
            by_sidebar(page, "Judge audit")
            ready(page)
        pressed |= press(page, "oy", codes)
        saved(page)
        assert verdicts(record, "Ada") == pressed
        # Closed while the server hears nothing: what was pressed is there when the person comes back.
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        pressed |= press(page, "my", codes)
        expect(page.locator(".bench .saved")).to_have_text("2 not saved yet")
        page.close()
        for process in processes:
            process.resume()
        page = page.context.new_page()
        page.set_default_timeout(serving.LOOK_MS)
        page.goto(f"{address}/judge_audit?run={run_id}")
        ready(page)
        saved(page)
        assert verdicts(record, "Ada") == pressed
        serving.leave(page)


def test_what_another_says_of_the_pair_is_seen_without_anything_being_pressed(
    app: str, browser: Browser, record: World
) -> None:
    page = begin(browser, app, record, "Ada", "&blind=0")
    page.get_by_text("History and comments").click()
    expect(page.get_by_text("No decisions or comments on this pair yet.")).to_be_visible()
    here = tuple(map(int, pair(page).split(".")))
    with record.store.write() as connection:
        decisions.add_all(connection, record.id, "Bob of the other room", [NewDecision(*here, Label.NECESSARY)])
    expect(page.get_by_text("Bob of the other room")).to_be_visible()
    serving.leave(page)


def test_a_dataset_that_somebody_deletes_is_said_to_be_gone(app: str, browser: Browser, record: World) -> None:
    """The queue once said that the browser keeps all answers and sends them again, and discarded each."""
    page = begin(browser, app, record, "Ada")
    press(page, "n", CODES)
    saved(page)
    with record.read() as connection:
        name = next(row.name for row in datasets.all_rows(connection) if row.id == record.id)
        planned = deleting.of_dataset(connection, name)
    deleting.delete(record.store, planned)
    page.keyboard.press("i")
    expect(page.get_by_text("This dataset was deleted.")).to_be_visible()
    expect(card(page)).to_have_count(0)
    expect(page.get_by_text("cannot be saved at the moment")).to_have_count(0)
    serving.leave(page)


PRESS_AND_LEAVE = """([key, name]) => {
    window.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, composed: true }));
    const links = [...document.querySelectorAll("[data-testid=stSidebarNav] a")];
    links.find((link) => link.textContent.includes(name)).click();
}"""


def test_a_press_that_the_server_hears_of_after_the_next_page_was_asked_for_does_not_empty_that_page(
    app: str, browser: Browser, record: World
) -> None:
    page = begin(browser, app, record, "Ada")
    pressed: dict[str, str] = {}
    for key in "niun":
        saved(page)
        pressed[pair(page)] = CODES[key]
        # Streamlit's message for the press waits for a timer, and so comes after the one for the link.
        page.evaluate(PRESS_AND_LEAVE, [key, "Home"])
        expect(page.locator(".ci-head")).to_contain_text("CIMemories")
        serving.settled(page)
        expect(page.locator(".ci-head")).to_contain_text("CIMemories")
        page.get_by_test_id("stSidebarNav").get_by_text("Review", exact=True).click()
        ready(page)
        saved(page)
        assert stands(record, "Ada") == pressed
    serving.leave(page)


def test_an_answer_is_no_step_for_back_and_a_reload_asks_for_none_again(
    app: str, browser: Browser, record: World
) -> None:
    page = begin(browser, app, record, "Ada")
    steps = page.evaluate("history.length")
    pressed: dict[str, str] = {}
    for keys in ("niun", "i", "uu"):
        new = press(page, keys, CODES)
        assert not new.keys() & pressed.keys()
        pressed |= new
        here = pair(page)
        page.reload()  # at once: the address may still name the card before
        ready(page)
        assert pair(page) not in pressed
    attribute, context = here.split(".")
    expect(page).to_have_url(re.compile(rf"attribute={attribute}&context={context}$"))
    saved(page)
    assert page.evaluate("history.length") == steps
    # What was answered last is undone, and asked again, although the address of the last visit named it.
    last = list(pressed)[-1]
    page.keyboard.press("z")
    expect(card(page)).to_have_attribute("data-card", last)
    page.keyboard.press("i")
    saved(page)
    assert stands(record, "Ada") == pressed | {last: "inappropriate"}
    # A link to a pair leads to it, decided or not.
    first = next(iter(pressed))
    page.goto(f"{app}/review?dataset={record.id}&attribute={first.split('.')[0]}&context={first.split('.')[1]}")
    ready(page)
    expect(card(page)).to_have_attribute("data-card", first)
    serving.leave(page)


DECISIONS = int(os.environ.get("CIMEMORIES_TEST_DECISIONS", "120"))  # 600: an hour of deciding


def test_decisions_through_reloads_tabs_and_back_are_each_in_the_record_once(
    workspace: Path, app: str, browser: Browser
) -> None:
    """A session of deciding by keyboard alone, as fast as keys come, with all that interrupts one."""
    store = open_store(workspace)
    attributes = DECISIONS // (PROFILES * CONTEXTS) + 12  # some are left over
    dataset = add_dataset(store, name="a session", profiles=PROFILES, attributes=attributes, contexts=CONTEXTS)
    add_labels(store, dataset.id, [[[AMBIGUOUS] * CONTEXTS] * attributes] * PROFILES)
    record = World(store, dataset.id)
    page = begin(browser, app, record, "Ada", "&batch=50")
    pressed: dict[str, str] = {}

    def decide(page: Page, many: int) -> None:
        for _ in range(many):
            until = time.monotonic() + serving.LOOK_MS / 1000
            while not (here := pair(page)) or here in pressed:  # a busy server takes its time with the next cards
                assert time.monotonic() < until, f"no pair came that is not decided yet: '{here}'"
                if page.locator(".bench .over").count():
                    page.keyboard.press("n")  # nothing is on the card, so it decides nothing
                    page.keyboard.press("Enter")
                page.wait_for_timeout(50)
            key = "niu"[len(pressed) % 3]
            page.keyboard.press(key)
            pressed[here] = CODES[key]

    def again(page: Page) -> None:  # the browser knows the name
        page.locator(".bench .card[data-card]:not([data-card='']), .bench .over").wait_for()
        serving.settled(page)

    second = page.context.new_page()
    second.set_default_timeout(serving.LOOK_MS)
    second.goto(f"{app}/review?dataset={record.id}&batch=50")
    again(second)
    turn = 0
    while len(pressed) < DECISIONS:
        decide(page, min(20, DECISIONS - len(pressed)))
        turn += 1
        if turn % 3 == 0:
            page.reload()  # at once: what is not saved yet waits in the browser
            again(page)
        elif turn % 3 == 1:
            decide(second, min(5, DECISIONS - len(pressed)))
        else:
            by_back(page, "Review")
            page.locator(".bench .card[data-card]:not([data-card='']), .bench .over").wait_for()
            serving.settled(page)
    saved(page)
    saved(second)
    assert stands(record, "Ada") == pressed and len(pressed) == DECISIONS
    with record.read() as connection:
        history = decisions.history(connection, record.id)
    assert len(history) == len({d.uid for d in history}) == DECISIONS
    serving.leave(page)
    store.close()


def test_a_batch_ends_with_what_it_did_and_goes_on_with_enter(app: str, browser: Browser, record: World) -> None:
    pairs = [(a, c) for r in records(record.store, record.id) for a in r.attribute_ids for c in r.context_ids]
    add_run(record.store, record.id, 2, {pair: 1 for n, pair in enumerate(pairs) if n % 3 == 0})
    page = begin(browser, app, record, "Ada", "&batch=10")
    progress = page.locator(".bench .progress")
    expect(progress).to_have_text("Batch of 10: 0 done")
    press(page, "nnnn", CODES)
    expect(progress).to_have_text("Batch of 10: 4 done, under a minute")
    page.reload()  # the browser knows the name
    ready(page)
    expect(progress).to_contain_text("Batch of 10: 4 done")
    press(page, "nnnnn", CODES)
    last = pair(page)
    page.keyboard.press("i")
    over = page.locator(".bench .card")
    expect(over).to_contain_text("Batch done: 10 decided")
    expect(over).to_contain_text("of your last 10 decisions settle an ambiguous pair")
    expect(over).to_contain_text("by the labels agreed on: 50.0 % before, 50.0 % now")
    expect(over).to_contain_text("label uncertainty ±0.0 points now, within the ±1.0 wanted")
    for key in "niusfj":
        page.keyboard.press(key)
    page.keyboard.press("z")
    expect(card(page)).to_have_attribute("data-card", last)
    page.keyboard.press("u")
    expect(over).to_contain_text("Batch done")
    page.keyboard.press("Enter")
    ready(page)
    expect(progress).to_contain_text("Batch of 10: 0 done")
    saved(page)
    assert len(stands(record, "Ada")) == 10 and stands(record, "Ada")[last] == "ambiguous"
    serving.leave(page)


def test_the_last_decision_is_spread_from_the_queue_by_a_key(app: str, browser: Browser, record: World) -> None:
    page = begin(browser, app, record, "Ada")
    press(page, "i", CODES)
    page.keyboard.press("e")
    expect(page.get_by_text("You decided")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Back to the queue").click()
    ready(page)
    press(page, "n", CODES)
    saved(page)
    assert sorted(stands(record, "Ada").values()) == ["inappropriate", "necessary"]
    serving.leave(page)


FREE = """(bench) => bench.querySelector(".card .title").getBoundingClientRect().bottom
    <= bench.querySelector(".dock").getBoundingClientRect().top"""


# The last two: 1440 x 900 at 200 %, and a phone on its side.
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844), (720, 450), (844, 390)])
def test_pair_and_keys_are_in_sight_and_keys_stay_where_they_are(
    app: str, browser: Browser, record: World, width: int, height: int
) -> None:
    page = begin(browser, app, record, "Ada")
    page.set_viewport_size({"width": width, "height": height})
    key = page.locator(".bench [data-key=n]")
    page.reload()
    ready(page)
    places = set()
    for pressed in "nius":
        expect(page.locator(".bench .card .title")).to_be_in_viewport(ratio=1)
        assert page.locator(".bench").evaluate(FREE), "the keys do not lie over it"
        expect(key).to_be_in_viewport(ratio=1)
        places.add(str(key.bounding_box()))
        page.keyboard.press(pressed)
    assert len(places) == 1
    serving.leave(page)


def disputed(record: World, number: int) -> list[tuple[int, int]]:
    """Pairs on which Ada and Bob differ, and on the last one Dot has answered too."""
    (of, *_) = records(record.store, record.id)
    pairs = [(of.attribute_ids[n], of.context_ids[0]) for n in range(number)]
    for who, label in (("Ada", Label.NECESSARY), ("Bob", Label.INAPPROPRIATE), ("Dot", Label.AMBIGUOUS)):
        new_decisions = [NewDecision(*pair, label) for pair in (pairs[-1:] if who == "Dot" else pairs)]
        with record.store.write() as connection:
            decisions.add_all(connection, record.id, who, new_decisions)
    return pairs


def settled_pairs(record: World) -> dict[tuple[int, int], tuple[Label | None, str | None]]:
    with record.read() as connection:
        history = decisions.history(connection, record.id)
    standing = decisions.standing(history)
    return {pair: (d.label, d.cause) for pair, d in standing.items() if d.source == decisions.ADJUDICATED}


def test_disputes_are_settled_by_keys_alone_and_nothing_is_lost_by_leaving(
    app: str, browser: Browser, record: World
) -> None:
    pairs = disputed(record, 6)
    page = begin(browser, app, record, "Dot", "&tab=adjudication")
    here = [tuple(map(int, pair(page).split(".")[:2]))]
    expect(card(page).locator(".given .one")).to_have_count(2)
    expect(card(page).locator(".given")).to_contain_text("A: N necessary")
    assert "Bob" not in page.locator("body").inner_text()
    # Half an answer is none, and can be chosen anew; which half comes first does not matter.
    page.keyboard.press("n")
    page.keyboard.press("i")
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    assert settled_pairs(record) == {}
    page.keyboard.press("r")
    page.keyboard.type("n1 read it twice")
    page.keyboard.press("Enter")
    page.keyboard.press("i")
    expect(page.locator(".bench .progress")).to_contain_text("1 of 6 done")
    for keys in ("n1", "u3"):
        here.append(tuple(map(int, pair(page).split(".")[:2])))
        page.keyboard.press(keys[0])
        page.keyboard.press(keys[1])
    # At once, before it is saved.
    by_back(page, "Review")
    ready(page)
    expect(page.locator(".bench .progress")).to_contain_text("3 of 6 done")
    saved(page)
    wanted = [("inappropriate", "statement unclear"), ("necessary", "norm unclear"), ("ambiguous", "guideline gap")]
    assert settled_pairs(record) == dict(zip(here, [(Label(a), b) for a, b in wanted], strict=True))
    with record.read() as connection:
        (reason,) = {d.reason for d in decisions.history(connection, record.id) if d.reason}
    assert reason == "n1 read it twice"
    # Undo reaches behind the visit, and the same pair is there to be settled again.
    page.keyboard.press("z")
    saved(page)
    expect(card(page)).to_have_attribute("data-card", re.compile(f"^{here[-1][0]}[.]{here[-1][1]}[.]"))
    assert set(settled_pairs(record)) == set(here[:2])
    # One's own comes last, with a warning; what is skipped comes again.
    for _ in range(3):
        expect(card(page).locator(".warning")).to_have_count(0)
        page.keyboard.press("n")
        page.keyboard.press("4")
    expect(card(page).locator(".warning")).to_contain_text("You gave one of these answers")
    page.keyboard.press("s")
    expect(card(page).locator(".warning")).to_contain_text("You gave one of these answers")
    page.keyboard.press("n")
    page.keyboard.press("4")
    expect(card(page)).to_contain_text("No pair is in dispute")
    saved(page)
    assert set(settled_pairs(record)) == set(pairs)
    serving.leave(page)


def test_two_tabs_settle_each_dispute_once(app: str, browser: Browser, record: World) -> None:
    pairs = disputed(record, 5)
    first = begin(browser, app, record, "Eve", "&tab=adjudication")
    second = first.context.new_page()
    second.set_default_timeout(serving.LOOK_MS)
    second.goto(f"{app}/review?dataset={record.id}&tab=adjudication")
    ready(second)
    for _ in range(3):
        first.keyboard.press("n")
        first.keyboard.press("1")
    saved(first)
    # What is on the second tab's screen stays, and the last word on it counts; then comes what the first one has left.
    for done in (3, 3, 4):
        second.keyboard.press("u")
        second.keyboard.press("2")
        saved(second)
        expect(second.locator(".bench .progress")).to_contain_text(f"{done} of 5 done")
    by_sidebar(second, "Review")
    second.close(run_before_unload=False)
    causes = [settled_pairs(record).get(pair, ("", ""))[1] for pair in (pairs[-1], *pairs[:-1])]
    assert causes == [*["statement unclear"] * 2, "norm unclear", "statement unclear", ""]
    first.reload()
    ready(first)
    expect(first.locator(".bench .progress")).to_contain_text("4 of 5 done")
    serving.leave(first)


def test_a_reason_is_there_again_where_somebody_decided_the_pair_before_it_was_settled(
    app: str, browser: Browser, record: World
) -> None:
    (disputed_pair,) = disputed(record, 1)
    page = begin(browser, app, record, "Gil", "&tab=adjudication")
    page.keyboard.press("r")
    page.keyboard.type("read it twice")
    page.keyboard.press("Enter")
    with record.store.write() as connection:
        decisions.add_all(connection, record.id, "Ada", [NewDecision(*disputed_pair, Label.AMBIGUOUS)])
    page.keyboard.press("n")
    page.keyboard.press("1")
    expect(page.locator(".bench .saved")).to_have_text("1 discarded: the item has changed")
    expect(card(page)).to_contain_text("Reason: read it twice")
    page.keyboard.press("n")
    page.keyboard.press("1")
    expect(page.locator(".bench .progress")).to_contain_text("1 of 1 done")
    expect(page.locator(".bench .saved")).to_have_text("1 discarded: the item has changed")
    with record.read() as connection:
        made = [d for d in decisions.history(connection, record.id) if d.annotator == "Gil"]
    assert [(d.label, d.reason) for d in made] == [(Label.NECESSARY, "read it twice")]
    serving.leave(page)
