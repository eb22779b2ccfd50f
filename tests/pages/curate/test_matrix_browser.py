"""The matrix in a real browser: no key press is lost, a decision is drawn at once, hostile text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import psutil
import pytest
import serving
import worlds
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.labels.matrix import column_order, row_order
from cimemories.model import Attribute, Context, Profile
from cimemories.store import decisions
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, open_store

pytestmark = pytest.mark.browser
ATTRIBUTES, CONTEXTS = 40, 30
LABELS = ["necessary", "inappropriate", "ambiguous"]
HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> ![a](http://127.0.0.1:9/a.png) <b>bold</b>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    serving.require_chromium()
    with serving.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("matrix") / "workspace"
    store = open_store(folder)
    attributes = tuple(
        Attribute(f"fact_{i}", i, "finance" if i % 2 else "health", "job loss", f"Statement {i}. {HOSTILE}")
        for i in range(ATTRIBUTES)
    )
    contexts = tuple(
        Context(f"Task {j} {HOSTILE}", f"Recipient {j} {HOSTILE}", "legal" if j % 3 else None) for j in range(CONTEXTS)
    )
    data = worlds.add_profiles(store, [Profile(HOSTILE, "F", HOSTILE, 40, attributes, contexts)], "many pairs")
    kinds = (NECESSARY, INAPPROPRIATE, AMBIGUOUS)
    codes = [[[kinds[(i + j) % 3] for j in range(CONTEXTS)] for i in range(ATTRIBUTES)]]
    worlds.add_labels(store, data.id, codes)
    store.close()
    return folder


@pytest.fixture(scope="module")
def app(workspace: Path, browser: Browser) -> Iterator[str]:
    with serving.running_app(workspace, "--no-demo") as (address, _):
        yield address


@pytest.fixture
def record(workspace: Path) -> Iterator[tuple[Store, ProfileRecord]]:
    store = open_store(workspace)
    yield store, worlds.records(store, 1)[0]
    store.close()


def opened(browser: Browser, address: str) -> Page:
    page = serving.open_page(browser, address)
    page.get_by_role("grid").wait_for()
    serving.settled(page)
    return page


def saved(page: Page) -> None:
    """Wait until nothing that was decided is unsaved."""
    expect(page.locator(".state")).to_have_text("all saved")


def made(store: Store, person: ProfileRecord, name: str) -> dict[tuple[int, int], str]:
    """What stands of somebody, by pair, in the order in which it was decided."""
    with store.read() as connection:
        history = [d for d in decisions.history(connection, person.dataset) if d.annotator == name]
    return {pair: str(decision.label) for pair, decision in decisions.standing(history).items()}


def said(page: Page) -> str:
    """What the active cell says to those who do not see it."""
    name = page.get_by_role("grid").get_attribute("aria-activedescendant")
    return page.locator(f"#{name}").inner_text()


def test_thirty_fast_presses_are_thirty_moves_and_the_panel_follows(
    app: str, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    _, person = record
    page = opened(browser, f"{app}/labels")
    page.get_by_role("grid").focus()
    for key in ["ArrowDown"] * 18 + ["ArrowRight"] * 12:
        page.keyboard.press(key)
        page.wait_for_timeout(20)
    row, column = row_order(person.profile.attributes)[18], column_order(person.profile.contexts)[12]
    attribute, context = person.profile.attributes[row], person.profile.contexts[column]
    expect(page.locator(".st-key-pair h3").first).to_have_text(attribute.statement)
    expect(page.locator(".st-key-pair .ci-facts")).to_contain_text(context.recipient)
    assert f"{attribute.key} to {context.recipient}" in said(page)
    page.wait_for_url(re.compile(rf"attribute={person.attribute_ids[row]}\b"))
    assert parse_qs(urlparse(page.url).query)["context"] == [str(person.context_ids[column])]

    page.keyboard.press("Control+End")
    last = person.profile.attributes[row_order(person.profile.attributes)[-1]]
    expect(page.locator(".st-key-pair h3").first).to_have_text(last.statement)
    page.keyboard.press("Home")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    first = person.profile.attributes[row_order(person.profile.attributes)[0]]
    expect(page.locator(".st-key-pair h3").first).to_have_text(first.statement)
    serving.leave(page)


def test_a_link_brings_the_cursor_and_a_click_moves_it(
    app: str, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    _, person = record
    where = f"attribute={person.attribute_ids[33]}&context={person.context_ids[25]}"
    page = opened(browser, f"{app}/labels?{where}")
    expect(page.locator(".st-key-pair h3").first).to_contain_text("Statement 33.")
    assert "fact_33 to Recipient 25" in said(page)
    box = page.get_by_role("grid").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 60, box["y"] + box["height"] - 60)
    expect(page.locator(".st-key-pair h3").first).not_to_contain_text("Statement 33.")
    page.wait_for_url(lambda address: where not in address)  # it follows the panel
    chosen = parse_qs(urlparse(page.url).query)
    shown = person.profile.attributes[person.attribute_ids.index(int(chosen["attribute"][0]))]
    expect(page.locator(".st-key-pair h3").first).to_have_text(shown.statement)
    assert f"{shown.key} to " in said(page)
    serving.leave(page)


def test_a_decision_is_drawn_and_typing_moves_nothing(
    app: str, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    _, person = record
    where = f"attribute={person.attribute_ids[5]}&context={person.context_ids[7]}"  # 5 + 7 = 0 mod 3: necessary
    page = opened(browser, f"{app}/labels?{where}")
    assert said(page).startswith("N necessary: fact_5 to Recipient 7")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Your name").press("Enter")
    page.get_by_label("Reason").fill("not needed")
    page.get_by_label("Reason").press("ArrowLeft")
    page.get_by_role("button", name="X inappropriate").click()
    expect(page.get_by_text("decided by Ada")).to_be_visible()
    serving.settled(page)
    assert said(page).startswith("X inappropriate, decided by a person (consensus: necessary): fact_5 to Recipient 7")
    expect(page.locator(".ci-head p")).to_contain_text("1 decided by people")
    serving.leave(page)


def test_keys_decide_in_the_matrix_and_z_takes_back(
    app: str, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    store, person = record
    rows, columns = row_order(person.profile.attributes), column_order(person.profile.contexts)
    pairs = [(person.attribute_ids[i], person.context_ids[columns[2]]) for i in rows[20:30]]
    page = opened(browser, f"{app}/labels?attribute={pairs[0][0]}&context={pairs[0][1]}")
    page.get_by_role("grid").focus()
    page.keyboard.press("n")
    expect(page.get_by_text("Enter your name beside the pairs, then decide.")).to_be_visible()
    page.get_by_label("Your name").fill("Grace")
    page.get_by_label("Your name").press("Enter")
    expect(page.locator(".st-key-who")).to_contain_text("Grace")
    page.get_by_role("button", name="? ambiguous").click()
    expect(page.get_by_text("decided by Grace")).to_be_visible()
    serving.settled(page)
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    for key in "niuniuniu":  # no wait between: each is for the cell that the cursor was on
        page.keyboard.press(key)
        page.keyboard.press("ArrowDown")
    page.keyboard.press("z")  # the last of the nine
    saved(page)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".matrix")).to_contain_text("inappropriate, decided by a person")
    with store.read() as connection:
        standing = decisions.standing(decisions.history(connection, person.dataset, person.attribute_ids))
    mine = {pair: standing[pair].label for pair in pairs if pair in standing and standing[pair].label}
    expected = ["ambiguous", *["necessary", "inappropriate", "ambiguous"] * 3][:-1]
    assert list(mine.values()) == expected and list(mine) == pairs[:-1]
    # So is what a button of the panel decided, before what keys did earlier.
    page.wait_for_url(re.compile(rf"attribute={pairs[8][0]}\b"))  # the panel has followed
    serving.settled(page)
    page.get_by_role("button", name="? ambiguous").click()
    expect(page.locator(".matrix")).to_contain_text("ambiguous, decided by a person")
    serving.settled(page)
    assert made(store, person, "Grace")[pairs[8]] == "ambiguous"
    page.get_by_role("button", name="Withdraw my decision").click()
    expect(page.get_by_role("button", name="Withdraw my decision")).to_be_hidden()
    serving.settled(page)
    assert pairs[8] not in made(store, person, "Grace")
    page.get_by_role("grid").focus()
    for label in ("ambiguous", "inappropriate"):
        page.keyboard.press("z")
        saved(page)
        assert made(store, person, "Grace")[pairs[8]] == label
    # What was decided before a reload is taken back too, wherever it was decided, and the cursor goes to its pair.
    page.goto(f"{app}/labels?attribute={pairs[0][0]}&context={pairs[0][1]}&show=context")
    page.locator(".pair-list tbody tr").first.wait_for()
    serving.settled(page)
    for left in (8, 7):
        page.keyboard.press("z")
        page.wait_for_url(re.compile(rf"attribute={pairs[left][0]}\b"))
        saved(page)
        assert set(made(store, person, "Grace")) == set(pairs[:left])
        expect(page.locator("tr[aria-selected='true']")).to_have_attribute("id", f"pair-{pairs[left][0]}")
    serving.leave(page)


def test_decisions_survive_a_reload_and_a_server_that_is_gone(
    workspace: Path, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    """Also what the matrix has left unsaved is sent by the list of one context, and undone there."""
    store, person = record
    rows, columns = row_order(person.profile.attributes), column_order(person.profile.contexts)
    context = person.context_ids[columns[4]]
    pairs = [(person.attribute_ids[i], context) for i in rows[2:9]]
    with serving.running_app(workspace, "--no-demo") as (address, server):
        page = opened(browser, f"{address}/labels?attribute={pairs[0][0]}&context={context}")
        page.get_by_label("Your name").fill("Maria")
        page.get_by_label("Your name").press("Enter")
        expect(page.locator(".st-key-who")).to_contain_text("Maria")
        serving.settled(page)
        page.get_by_role("grid").focus()
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        for key in "niun":
            page.keyboard.press(key)
            page.keyboard.press("ArrowDown")
        expect(page.locator(".matrix .state")).to_have_text("4 not saved yet")
        page.evaluate("() => void setTimeout(() => location.reload(), 0)")  # waits for no server
        for process in processes:
            process.resume()
        page.wait_for_function("() => performance.getEntriesByType('navigation')[0].type === 'reload'")
        saved(page)
        assert made(store, person, "Maria") == dict(zip(pairs, [*LABELS, "necessary"], strict=False))

        for process in processes:
            process.suspend()
        page.get_by_role("grid").focus()
        page.keyboard.press("z")  # the last of before the reload
        page.keyboard.press("u")  # of the first pair: where the cursor was, the server has not heard
        expect(page.locator(".matrix .state")).to_have_text("2 not saved yet")
        here = page.url
        page.close()
        for process in processes:
            process.resume()
        page = page.context.new_page()
        page.set_default_timeout(serving.LOOK_MS)
        page.goto(f"{here}&show=context")
        page.get_by_role("grid").wait_for()
        saved(page)
        assert made(store, person, "Maria") == dict(zip(pairs, ["ambiguous", *LABELS[1:]], strict=False))
        with store.read() as connection:
            mine = [d for d in decisions.history(connection, person.dataset) if d.annotator == "Maria"]
        assert len(mine) == len({d.uid for d in mine}) == 6, "each in the record once"
        serving.leave(page)


def test_keys_decide_in_the_list_of_one_context_and_its_row_stays_in_sight(
    app: str, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    store, person = record
    page = opened(browser, f"{app}/labels?show=context&context={person.context_ids[3]}")
    page.get_by_label("Your name").fill("Zoe")
    page.get_by_label("Your name").press("Enter")
    expect(page.locator(".st-key-who")).to_contain_text("Zoe")
    serving.settled(page)
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")  # keys that nothing else takes are for the list
    for _ in range(8):
        for key in "niu":  # no wait between: each is for the row that the person was on
            page.keyboard.press(key)
            page.keyboard.press("j")
    page.keyboard.press("z")
    saved(page)
    pairs = [(attribute, person.context_ids[3]) for attribute in person.attribute_ids[:23]]
    assert made(store, person, "Zoe") == dict(zip(pairs, LABELS * 8, strict=False))
    row = page.locator("tr[aria-selected='true']")
    expect(row).to_contain_text("Statement 24.")
    (scroller, box) = page.locator(".pair-list .scroller").bounding_box(), row.bounding_box()
    assert scroller is not None and box is not None
    assert scroller["y"] <= box["y"] and box["y"] + box["height"] <= scroller["y"] + scroller["height"] + 1
    expect(page.locator(".st-key-pair h3").first).to_contain_text("Statement 24.")
    expect(page.locator(".pair-list tbody tr").nth(1)).to_contain_text("Xinappropriatedecided by Zoe")
    page.wait_for_url(re.compile(rf"attribute={person.attribute_ids[24]}\b"))

    domain = page.get_by_role("columnheader", name="Domain")
    domain.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(domain).to_have_attribute("aria-sort", "ascending")
    expect(page.locator(".pair-list tbody tr").first).to_contain_text("Statement 1.")  # the first of finance
    expect(row).to_contain_text("Statement 24.")  # of health: it has moved, and the person with it
    page.keyboard.press("Enter")
    expect(domain).to_have_attribute("aria-sort", "descending")
    expect(page.locator(".pair-list tbody tr").first).to_contain_text("Statement 0.")
    page.keyboard.press("Enter")
    expect(page.locator(".pair-list tbody tr").nth(1)).to_contain_text("Statement 1.")

    page.locator(".pair-list tbody tr").nth(5).click()
    expect(page.locator(".st-key-pair h3").first).to_contain_text("Statement 5.")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("undo the last answer")
    page.keyboard.press("n")  # closes the table, and decides nothing
    expect(keys).to_be_hidden()
    page.keyboard.press("?")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    expect(row).not_to_contain_text("necessary")
    serving.leave(page)


@pytest.mark.parametrize("view", ["matrix", "context"])
def test_a_move_that_no_run_has_read_is_told_again(app: str, browser: Browser, view: str) -> None:
    page = opened(browser, f"{app}/labels?show={view}")
    lost: list[bytes] = []

    def lose_one(server: WebSocketRoute) -> None:
        onward = server.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            if not lost and isinstance(message, bytes) and b'"moves"' in message:
                lost.append(message)
            else:
                onward.send(message)

        server.on_message(pass_on)

    page.route_web_socket(re.compile("_stcore/stream"), lose_one)
    page.reload()
    page.get_by_role("grid").wait_for()
    serving.settled(page)
    panel = page.locator(".st-key-pair h3").first
    before = panel.inner_text()
    page.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    expect(panel).not_to_have_text(before)
    assert len(lost) == 1
    page.wait_for_url(re.compile("attribute="))
    serving.leave(page)


def test_filters_dim_and_j_goes_to_the_next_match(app: str, browser: Browser) -> None:
    page = opened(browser, f"{app}/labels?label=ambiguous&domain=finance")
    page.get_by_role("grid").focus()
    seen = set()
    for _ in range(6):
        page.keyboard.press("j")
        seen.add(said(page))
    assert len(seen) == 6
    assert all(text.startswith("? ambiguous: fact_") and int(text.split("_")[1].split(" ")[0]) % 2 for text in seen)
    serving.leave(page)


def test_hostile_text_is_text_in_the_matrix(app: str, browser: Browser) -> None:
    page = serving.new_context(browser, viewport={"width": 1440, "height": 1000}).new_page()
    page.set_default_timeout(serving.LOOK_MS)
    requests: list[str] = []
    dialogs: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(f"{app}/labels")
    grid = page.get_by_role("grid")
    grid.wait_for()
    grid.focus()
    page.keyboard.press("ArrowDown")
    box = grid.bounding_box()
    assert box is not None
    for x, y in [(400, 300), (100, 300), (400, 80)]:  # a cell, an attribute, a context
        page.mouse.move(box["x"] + x, box["y"] + y)
        tip = page.locator(".tip")
        expect(tip).to_contain_text("<b>bold</b>")
        assert tip.locator("img, script, b").count() == 0
    assert "<script>alert(2)</script>" in said(page)
    assert dialogs == []
    assert not [url for url in requests if "127.0.0.1:9" in url or url.endswith("/x")]
    serving.leave(page)


def test_a_button_that_a_field_is_left_for_is_clicked(
    workspace: Path, browser: Browser, record: tuple[Store, ProfileRecord]
) -> None:
    """The name and the click come in two messages, the second while the run for the first begins."""
    _, person = record
    context = person.context_ids[column_order(person.profile.contexts)[6]]
    with serving.running_app(workspace, "--no-demo") as (address, server):
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for attribute in person.attribute_ids[:4]:  # each time was lost about one in four
            page = opened(browser, f"{address}/labels?attribute={attribute}&context={context}")
            page.get_by_label("Your name").wait_for()
            for process in processes:
                process.suspend()
            page.get_by_label("Your name").fill("Rosa")
            page.get_by_role("button", name="? ambiguous").click()
            page.wait_for_timeout(100)  # sent by then
            for process in processes:
                process.resume()
            expect(page.get_by_text("decided by Rosa")).to_be_visible()
            serving.leave(page)
