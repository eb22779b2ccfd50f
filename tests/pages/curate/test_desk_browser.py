"""The desk in a real browser with the app: people who decide, settle and audit, and all that interrupts them.

What the scripts do alone, with messages of the server at any moment, is in tests/ui; what the server records and offers
is in test_review_page.py, test_labels_page.py and tests/review. These journeys show that they do it together.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import serving
from forked import Forked
from playwright.sync_api import Browser, Locator, Page, expect
from worlds import add_dataset, add_labels, add_run, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.labels.matrix import row_order
from cimemories.model import Label
from cimemories.store import audits, datasets, decisions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, open_store
from cimemories.store.upkeep import deleting

pytestmark = pytest.mark.browser
PROFILES, ATTRIBUTES, CONTEXTS = 2, 42, 6
CODES = {"n": "necessary", "i": "inappropriate", "u": "ambiguous"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    serving.require_chromium()
    folder = tmp_path_factory.mktemp("desk") / "workspace"
    open_store(folder).close()
    return folder


class Server:
    """The app on this workspace, at one address however often it is started."""

    process: Forked

    def __init__(self, workspace: Path) -> None:
        self._workspace, self._port, self._running = workspace, serving.free_port(), ExitStack()

    def start(self) -> None:
        started = serving.running_app(self._workspace, "--no-demo", port=self._port)
        self.address, self.process = self._running.enter_context(started)

    def stop(self) -> None:
        self._running.close()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The server hears nothing in this block."""
        own = psutil.Process(self.process.pid)
        processes = [own, *own.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()


@pytest.fixture(scope="module")
def running(workspace: Path) -> Iterator[Server]:
    server = Server(workspace)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def app(running: Server) -> str:
    return running.address


class World:
    """A dataset of one test's own in the record that the server of this file works on."""

    def __init__(self, store: Store, name: str, attributes: int = ATTRIBUTES) -> None:
        self.store = store
        self.id = add_dataset(store, PROFILES, attributes, CONTEXTS, name=name).id
        cycle = (AMBIGUOUS, NECESSARY, AMBIGUOUS, INAPPROPRIATE)
        labels = [[[cycle[(a + c) % 4] for c in range(CONTEXTS)] for a in range(attributes)]] * PROFILES
        add_labels(store, self.id, labels)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(a, c) for r in records(self.store, self.id) for a in r.attribute_ids for c in r.context_ids]

    def history(self, name: str) -> list[decisions.Decision]:
        with self.store.read() as connection:
            return [d for d in decisions.history(connection, self.id) if d.annotator == name]

    def standing(self, name: str) -> dict[str, str]:
        """What stands of somebody, by pair."""
        return {f"{a}.{c}": str(d.label) for (a, c), d in decisions.standing(self.history(name)).items()}

    def decide(self, name: str, pairs: list[tuple[int, int]], label: Label) -> None:
        with self.store.write() as connection:
            decisions.add_all(connection, self.id, name, [NewDecision(*pair, label) for pair in pairs])


@pytest.fixture
def record(workspace: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    store = open_store(workspace)
    yield World(store, request.node.name)
    store.close()


def begin(browser: Browser, address: str, name: str) -> Page:
    page = serving.open_page(browser, address)
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Begin").click()
    ready(page)
    return page


def another_tab(page: Page, address: str) -> Page:
    tab = page.context.new_page()
    tab.set_default_timeout(serving.LOOK_MS)
    tab.goto(address)
    return tab


def ready(page: Page) -> None:
    page.locator(".bench .card .title").wait_for()
    serving.settled(page)


def card(page: Page) -> Locator:
    return page.locator(".bench .card")


def pair(page: Page) -> str:
    return card(page).get_attribute("data-card") or ""


def saved(page: Page) -> None:
    expect(page.locator(".bench .saved, .state")).to_have_text("all saved")


def press(page: Page, keys: str, codes: dict[str, str] = CODES) -> dict[str, str]:
    """Press keys, each at a card that has not been answered; returns what was said of which card."""
    pressed: dict[str, str] = {}
    for key in keys:
        here = pair(page)
        assert here and here not in pressed
        page.keyboard.press(key)
        expect(card(page)).not_to_have_attribute("data-card", here)
        pressed[here] = codes[key]
    return pressed


def follow(page: Page, name: str, head: str) -> None:
    page.get_by_test_id("stSidebarNav").get_by_text(name, exact=True).click()
    expect(page.locator(".ci-head")).to_contain_text(head)


# How a person leaves the queue and comes back, without a reload: the browser's script goes on, the component does not.
def by_sidebar(page: Page, own: str = "Review") -> None:
    follow(page, "Home", "CIMemories")
    follow(page, own, own)


def by_tab(page: Page) -> None:
    page.get_by_text("Set up", exact=True).first.click()
    expect(card(page)).to_have_count(0)
    page.get_by_text("Decide", exact=True).first.click()


def by_back(page: Page, own: str = "Review") -> None:
    follow(page, "Home", "CIMemories")
    page.go_back()
    expect(page.locator(".ci-head")).to_contain_text(own)


PRESS_AND_LEAVE = """([key, name]) => {
    window.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, composed: true }));
    const links = [...document.querySelectorAll("[data-testid=stSidebarNav] a")];
    links.find((link) => link.textContent.includes(name)).click();
}"""


def test_a_person_decides_leaves_and_comes_back_until_the_dataset_is_deleted(
    app: str, browser: Browser, record: World
) -> None:
    page = begin(browser, f"{app}/review?dataset={record.id}", "Ada")
    pressed = press(page, "niuniu")
    by_tab(page)  # at once, before it is saved
    ready(page)
    new = press(page, "nii")
    assert not new.keys() & pressed.keys(), "what was decided before is not asked again"
    pressed |= new
    # Streamlit's message for a press waits for a timer, and so comes after the one for the link.
    pressed[pair(page)] = "inappropriate"
    page.evaluate(PRESS_AND_LEAVE, ["i", "Home"])
    expect(page.locator(".ci-head")).to_contain_text("CIMemories")
    serving.settled(page)
    expect(page.locator(".ci-head")).to_contain_text("CIMemories")
    follow(page, "Review", "Review")
    ready(page)
    steps = page.evaluate("history.length")
    pressed |= press(page, "nu")
    last = list(pressed)[-1]
    attribute, context = pair(page).split(".")
    page.reload()  # at once: the address may still name the card before
    ready(page)
    assert pair(page) == f"{attribute}.{context}"
    expect(page).to_have_url(re.compile(rf"attribute={attribute}&context={context}$"))
    assert page.evaluate("history.length") == steps
    page.keyboard.press("z")  # what was answered before the reload
    expect(card(page)).to_have_attribute("data-card", last)
    page.keyboard.press("i")
    saved(page)
    assert record.standing("Ada") == pressed | {last: "inappropriate"}
    history = record.history("Ada")
    assert len(history) == len({d.uid for d in history}) == len(pressed) + 2, "each once, and one taken back"
    # Another person decides elsewhere.
    page.keyboard.press("b")
    page.get_by_text("History and comments").click()
    expect(page.get_by_text("No answers or comments yet.")).to_be_visible()
    here = pair(page)
    with_bob = next(each for each in record.pairs if f"{each[0]}.{each[1]}" == here)
    record.decide("Bob of the other room", [with_bob], Label.NECESSARY)
    expect(page.get_by_text("Bob of the other room")).to_be_visible()
    # What is typed into a field of the page, or pressed while something lies over the card, is no answer.
    page.get_by_role("button", name="Filters").click()
    page.get_by_text("Saved views").click()
    page.get_by_label("Name of this view").press_sequentially("nine units in")
    page.get_by_role("button", name="Filters").focus()
    page.keyboard.type("nui")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Name of this view")).to_be_hidden()
    assert pair(page) == here
    page.keyboard.press("e")
    expect(page.get_by_text("You decided")).to_be_visible()
    page.get_by_role("button", name="Back to the queue").click()
    ready(page)
    pressed |= press(page, "n")
    saved(page)
    with record.store.read() as connection:
        name = next(row.name for row in datasets.all_rows(connection) if row.id == record.id)
        planned = deleting.of_dataset(connection, name)
    deleting.delete(record.store, planned)
    page.keyboard.press("i")
    expect(card(page)).to_contain_text("This dataset was deleted")
    expect(card(page).locator(".title")).to_have_count(0)
    expect(page.get_by_text("cannot be saved at the moment")).to_have_count(0)
    serving.leave(page)


FREE = """(bench) => bench.querySelector(".card .title").getBoundingClientRect().bottom
    <= bench.querySelector(".dock").getBoundingClientRect().top"""
# The last two: 1440 x 900 at 200 %, and a phone on its side.
SCREENS = ((1280, 720), (1024, 768), (390, 844), (720, 450), (844, 390))


def test_pair_and_keys_are_in_sight_on_every_screen_and_the_server_may_be_away(
    running: Server, browser: Browser, record: World
) -> None:
    page = begin(browser, f"{running.address}/review?dataset={record.id}", "Ada")
    pressed: dict[str, str] = {}
    key = page.locator(".bench [data-key=n]")
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        serving.settled(page)
        places = set()
        for letter in "ni":
            pressed |= press(page, letter)
            expect(page.locator(".bench .card .title")).to_be_in_viewport(ratio=1)
            assert page.locator(".bench").evaluate(FREE), "the keys do not lie over it"
            expect(key).to_be_in_viewport(ratio=1)
            places.add(str(key.bounding_box()))
            row = page.locator(".bench .keys").bounding_box()
            assert row is not None and (width != 1280 or row["height"] < 50), "all keys stand in one row"
        assert len(places) == 1
        saved(page)
    page.reload()
    ready(page)
    assert page.locator(".bench").evaluate(FREE), "nor as the page is opened"
    page.set_viewport_size({"width": 1440, "height": 1000})
    serving.settled(page)
    # A busy server answers a link only after a while: what the queue sends meanwhile must not empty the page.
    with running.suspended():
        pressed |= press(page, "ni")
        page.get_by_test_id("stSidebarNav").get_by_text("Home", exact=True).click()
        pressed |= press(page, "u")
        page.wait_for_timeout(500)
    expect(page.locator(".ci-head")).to_contain_text("CIMemories")
    follow(page, "Review", "Review")
    ready(page)
    saved(page)
    assert record.standing("Ada") == pressed
    # What the server did not hear is shown, and survives the tab.
    with running.suspended():
        pressed |= press(page, "ini")
        expect(page.locator(".bench .saved")).to_have_text("3 not saved yet")
        page.close()
    page = another_tab(page, f"{running.address}/review?dataset={record.id}")
    ready(page)
    saved(page)
    assert record.standing("Ada") == pressed and pair(page) not in pressed
    page.keyboard.press("k")
    back = pair(page)
    with page.expect_event("console", lambda message: "Is Streamlit still running?" in message.text):
        running.stop()
    # Streamlit's own dialog would lie over the queue and take its keys.
    expect(page.locator(".ci-away")).to_contain_text("This app's server does not answer")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert pair(page) == back
    page.keyboard.press("u")
    pressed |= {back: "ambiguous"} | press(page, "nun")
    expect(page.locator(".bench .saved")).to_have_text("4 not saved yet")
    running.start()
    saved(page)
    expect(page.locator(".ci-away")).to_have_count(0)
    assert record.standing("Ada") == pressed and pair(page) not in pressed
    serving.leave(page)


def test_a_judge_is_audited_blind_and_each_verdict_is_recorded_once(app: str, browser: Browser, record: World) -> None:
    codes = {"y": "full", "p": "partial", "m": "implied", "o": "none"}
    run_id = add_run(record.store, record.id, 2, {pair: 1 + n % 2 for n, pair in enumerate(record.pairs) if n % 3 == 0})
    page = serving.open_page(browser, f"{app}/judge_audit?run={run_id}&batch=10")
    page.get_by_label("Your name", exact=True).fill("Ada")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sample the slice").dblclick()
    ready(page)
    assert page.locator(".bench mark").count() == 0
    keys = page.locator(".bench .keys")
    place = keys.bounding_box()
    pressed = press(page, "ypmoypmoy", codes)
    last = pair(page)
    page.keyboard.press("p")
    pressed[last] = "partial"
    expect(card(page)).to_contain_text("10 items answered. How far the judge agrees shows at the end of the slice.")
    page.keyboard.press("Enter")
    expect(card(page)).not_to_have_attribute("data-card", "")
    pressed |= press(page, "mo", codes)
    saved(page)
    assert keys.bounding_box() == place, "the keys stay where they are"
    by_sidebar(page, "Judge audit")
    ready(page)
    new = press(page, "yp", codes)
    assert not new.keys() & pressed.keys()
    pressed |= new
    page.reload()  # at once
    ready(page)
    saved(page)
    page.keyboard.press("z")  # an undo reaches back to before the page was opened
    last, _ = pressed.popitem()
    expect(card(page)).to_have_attribute("data-card", last)
    saved(page)
    with record.store.read() as connection:
        history = audits.history(connection, record.id, "Ada")
        slices = [row for row in audits.all_slices(connection, record.id) if row.manifest.get("run") == run_id]
    assert len(slices) == 1
    assert len({item.uid for item in history}) == len(history) == len(pressed) + 2
    assert all(item.blind for item in history[:-1])
    standing = {f"{response}.{a}": str(item.verdict) for (response, a), item in decisions.standing(history).items()}
    assert standing == pressed
    serving.leave(page)


def grid(page: Page, address: str) -> None:
    """Open Labels, and wait for its matrix or list."""
    page.goto(address)
    page.get_by_role("grid").wait_for()
    serving.settled(page)


def spoken(page: Page) -> str:
    """What the active cell of the matrix says to those who do not see it."""
    name = page.get_by_role("grid").get_attribute("aria-activedescendant")
    return page.locator(f"#{name}").inner_text()


def test_the_matrix_is_decided_by_keys_and_buttons_and_z_takes_back_what_is_newest(
    app: str, browser: Browser, record: World
) -> None:
    (person, _) = records(record.store, record.id)
    context = person.context_ids[2]
    attributes = [person.attribute_ids[i] for i in row_order(person.profile.attributes)]
    pairs = [f"{a}.{context}" for a in attributes]
    address = f"{app}/labels?dataset={record.id}&profile={person.id}&context={context}"
    page = serving.open_page(browser, f"{address}&attribute={attributes[0]}")
    page.get_by_role("grid").focus()
    row = spoken(page)
    page.keyboard.press("n")
    expect(page.get_by_text("Enter your name beside the pairs, then decide.")).to_be_visible()
    # The name and the click come in two messages, the second while the run for the first begins.
    page.get_by_label("Your name").fill("Grace")
    page.get_by_role("button", name="U ambiguous").click()
    expect(page.get_by_text("decided by Grace")).to_be_visible()
    serving.settled(page)
    assert spoken(page).startswith("U ambiguous, decided by a person") and row.partition(": ")[2] in spoken(page)
    expect(page.locator(".ci-head p")).to_contain_text("1 decided by people")
    page.get_by_label("Reason").fill("not needed")
    page.get_by_label("Reason").press("ArrowLeft")
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    for key in "niuni":  # no wait between: each is for the cell that the cursor was on
        page.keyboard.press(key)
        page.keyboard.press("ArrowDown")
    page.keyboard.press("z")
    saved(page)
    assert record.standing("Grace") == dict(zip(pairs, [CODES[key] for key in "uniun"], strict=False))
    # The panel follows, and what its button decides is taken back before what keys did earlier.
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.wait_for_url(re.compile(rf"attribute={attributes[4]}\b"))
    serving.settled(page)
    fact = person.profile.attributes[person.attribute_ids.index(attributes[4])]
    expect(page.locator(".st-key-pair h3").first).to_have_text(fact.statement)
    page.get_by_role("button", name="I inappropriate").click()
    expect(page.locator(".matrix")).to_contain_text("I inappropriate, decided by a person")
    serving.settled(page)
    assert record.standing("Grace")[pairs[4]] == "inappropriate"
    page.get_by_role("grid").focus()
    page.keyboard.press("z")
    saved(page)
    assert record.standing("Grace")[pairs[4]] == "necessary"
    # What was decided before a reload is taken back too, wherever it was decided, and the cursor goes to its pair.
    grid(page, f"{address}&attribute={attributes[0]}&show=context")
    page.keyboard.press("z")
    page.wait_for_url(re.compile(rf"attribute={attributes[4]}\b"))
    saved(page)
    expect(page.locator("tr[aria-selected='true']")).to_have_attribute("id", f"pair-{attributes[4]}")
    assert record.standing("Grace").keys() == set(pairs[:4])
    serving.leave(page)


DECISIONS = 300


@pytest.mark.long
def test_decisions_through_reloads_tabs_and_back_are_each_in_the_record_once(
    workspace: Path, app: str, browser: Browser
) -> None:
    """A session of deciding by keyboard alone, as fast as keys come, with all that interrupts one."""
    store = open_store(workspace)
    record = World(store, "a session", DECISIONS // (PROFILES * CONTEXTS) + 12)  # some are left over
    address = f"{app}/review?dataset={record.id}&batch=50"
    page = begin(browser, address, "Ada")
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

    def again(page: Page) -> None:
        page.locator(".bench .card[data-card]:not([data-card='']), .bench .over").wait_for()
        serving.settled(page)

    second = another_tab(page, address)
    again(second)
    interruptions: list[Callable[[], object]] = [page.reload, lambda: by_back(page), lambda: by_sidebar(page)]
    turn = 0
    while len(pressed) < DECISIONS:
        decide(page, min(20, DECISIONS - len(pressed)))
        interruptions[turn % 3]()  # at once: what is not saved yet waits in the browser
        again(page)
        decide(second, min(5, DECISIONS - len(pressed)))
        turn += 1
    saved(page)
    saved(second)
    assert record.standing("Ada") == pressed and len(pressed) == DECISIONS
    history = record.history("Ada")
    assert len(history) == len({d.uid for d in history}) == DECISIONS
    serving.leave(page)
    store.close()
