"""The scripts of the matrix and of the list of one context alone: moves, decisions, and what is not saved yet."""

from __future__ import annotations

import pytest
from desks import ADDRESS, Grid, list_data, matrix_data, page, stop_clock
from playwright.sync_api import Page, expect

from cimemories.ui.matrix import Listed

__all__ = ["page"]
pytestmark = pytest.mark.browser
ROWS, COLUMNS = 40, 30
LABELS = ["necessary", "inappropriate", "ambiguous"]
HOSTILE = "<img src=/x onerror=alert(1)> <script>alert(2)</script> ![a](http://127.0.0.1:9/a.png) <b>bold</b>"
STATEMENTS = [f"Statement {number}." for number in range(ROWS)]
RECIPIENTS = [f"Recipient {number}" for number in range(COLUMNS)]
LISTED = [
    Listed(100 + n, [f"Statement {n}.", "", "finance" if n % 2 else "health"], "U", "ambiguous", "")
    for n in range(ROWS)
]
REST_MS = 200


def lies_within(page: Page, inner: str, outer: str) -> bool:
    """Whether an element is in sight within the box that scrolls it."""
    box, scroller = page.locator(inner).bounding_box(), page.locator(outer).bounding_box()
    assert box is not None and scroller is not None
    return scroller["y"] <= box["y"] and box["y"] + box["height"] <= scroller["y"] + scroller["height"] + 1


def test_thirty_fast_presses_are_thirty_moves_and_the_server_hears_of_the_last(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_clock(page)
    grid = Grid(page, "matrix", matrix_data(monkeypatch, STATEMENTS, RECIPIENTS))
    grid.open()
    grid.press(["ArrowDown"] * 18 + ["ArrowRight"] * 12)
    assert grid.places == [] and grid.spoken == "U ambiguous: fact_18 to Recipient 12. Statement 18."
    page.clock.run_for(REST_MS)
    assert grid.places == [{"attribute": 118, "context": 13, "moves": 30}]
    for keys, row, column in (
        (["Control+End"], 39, 29),
        (["Home"], 39, 0),
        (["PageUp"] * 9, 0, 0),
        (["PageDown", "Control+Home"], 0, 0),
        (["ArrowUp", "ArrowLeft", "End"], 0, 29),
    ):
        grid.press(keys)
        assert f"fact_{row} to Recipient {column}." in grid.spoken


def test_a_click_moves_the_cursor_of_a_matrix_that_is_scrolled_to_it(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid(page, "matrix", matrix_data(monkeypatch, STATEMENTS, RECIPIENTS, cursor=(133, 26)))
    grid.open()
    assert "fact_33 to Recipient 25." in grid.spoken
    box = page.get_by_role("grid").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 40, box["y"] + box["height"] - 40)
    (told,) = grid.places
    assert 125 < told["attribute"] != 133 and told["context"] > 15
    assert f"fact_{told['attribute'] - 100} to Recipient {told['context'] - 1}." in grid.spoken


@pytest.mark.parametrize("view", ["matrix", "pair_list"])
def test_keys_decide_and_move_only_where_nobody_types(page: Page, monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    """Of a key that nothing else takes, too; what is pressed beside an open table of keys closes it."""
    stop_clock(page)
    page.evaluate("document.body.insertAdjacentHTML('afterbegin', '<input id=field>')")
    matrix = view == "matrix"
    data = matrix_data(monkeypatch, STATEMENTS, RECIPIENTS) if matrix else list_data(monkeypatch, LISTED)
    grid = Grid(page, view, {**data, "owner": ""})
    grid.open()
    grid.press("n")
    expect(grid.saved).to_have_text("Enter your name beside the pairs, then decide.")
    grid.draw(owner="ada")
    page.locator("#field").focus()
    grid.press(["n", "j", "ArrowDown", "ArrowLeft", "z", "?"])
    page.locator("#field").blur()
    page.clock.run_for(REST_MS)
    assert grid.sent == [] and grid.places == []
    keys = page.get_by_role("dialog", name="Keys")
    grid.press("?")
    expect(keys).to_contain_text("undo the last answer")
    grid.press("n")
    expect(keys).to_be_hidden()
    grid.press("?")
    expect(keys).to_be_visible()
    grid.press(["Escape"])
    expect(keys).to_be_hidden()
    grid.press(["Control+i", "Alt+u"])
    assert grid.sent == []
    grid.press("ju")
    assert [(event["card"], event["says"]) for event in grid.sent] == [("100.2" if matrix else "101.1", "ambiguous")]


def test_keys_decide_in_the_matrix_and_z_takes_back(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    data = matrix_data(monkeypatch, STATEMENTS, RECIPIENTS, "N" * ROWS * COLUMNS, cursor=(120, 3))
    grid = Grid(page, "matrix", data)
    grid.open()
    assert grid.spoken.startswith("N necessary: fact_20 to Recipient 2")
    for key in "niuniuniu":  # no wait between: each is for the cell that the cursor was on
        grid.press([key, "ArrowDown"])
    grid.press("z")  # the last of the nine
    grid.save()
    pairs = [f"{120 + number}.3" for number in range(9)]
    assert grid.standing == dict(zip(pairs[:8], LABELS * 3, strict=False))
    # The page does not show yet what the record has; the browser does.
    grid.press(["ArrowUp", "i"])
    assert grid.spoken.startswith("I inappropriate, decided by a person (consensus: necessary): fact_28 to Recipient 2")
    grid.save()
    grid.press("z")
    assert grid.sent[-1]["of"] == [event["uid"] for event in grid.recorded.values() if event["kind"] == "say"][-1]
    grid.save()
    # What a button of the page has decided is newer than all keys, and the record alone knows it.
    grid.draw(elsewhere="of a button")
    for _ in range(2):
        grid.press("z")
        assert [(event["kind"], event["card"], event["of"]) for event in grid.sent] == [("undo", "", None)]
        grid.answer(back="110.5")
        assert grid.asked[-1] == "back 110.5"
        grid.draw(elsewhere="of a button", cursor=[110, 5], moves=99)
        assert "fact_10 to Recipient 4." in grid.spoken
    grid.press("z")
    grid.answer(back="")
    expect(grid.saved).to_have_text("You have no decision left to take back here.")


def test_what_the_matrix_has_left_unsaved_is_sent_after_a_reload_and_by_the_list(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = matrix_data(monkeypatch, STATEMENTS, RECIPIENTS, cursor=(102, 1))
    grid = Grid(page, "matrix", data)
    grid.open()
    for key in "niun":
        grid.press([key, "ArrowDown"])
    expect(grid.saved).to_have_text("4 not saved yet")
    page.reload()
    grid.load()
    grid.open()
    grid.save()
    assert grid.standing == {"102.1": "necessary", "103.1": "inappropriate", "104.1": "ambiguous", "105.1": "necessary"}
    grid.press("z")  # the last of before the reload
    grid.press("u")
    expect(grid.saved).to_have_text("2 not saved yet")
    page.close()
    page = page.context.new_page()
    page.goto(ADDRESS)
    grid = Grid(page, "pair_list", list_data(monkeypatch, LISTED), grid.recorded)
    grid.open()
    expect(grid.saved).to_have_text("2 not saved yet")
    grid.save()
    assert grid.standing == {"102.1": "ambiguous", "103.1": "inappropriate", "104.1": "ambiguous"}
    assert len(grid.recorded) == 6, "each once"


def test_keys_decide_in_the_list_and_its_row_stays_in_sight(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(page)
    grid = Grid(page, "pair_list", list_data(monkeypatch, LISTED))
    grid.open()
    page.evaluate("document.activeElement.blur()")  # keys that nothing else takes are for the list
    for _ in range(8):
        grid.press("njijuj")  # no wait between: each is for the row that the person was on
    grid.press("z")
    grid.save()
    assert grid.asked[-1] == "decided", "the page shows what counts now"
    grid.draw()
    assert grid.standing == dict(zip([f"{100 + n}.1" for n in range(23)], LABELS * 8, strict=False))
    expect(grid.row).to_contain_text("Statement 24.")
    assert lies_within(page, "tr[aria-selected=true]", ".pair-list .scroller")
    page.clock.run_for(REST_MS)
    assert grid.places == [{"attribute": 124, "context": 1, "moves": 24}]
    grid.press("n")
    expect(grid.row).to_contain_text("necessarydecided by you")
    expect(page.locator("tbody tr").nth(1)).to_contain_text("Iinappropriatedecided by Ada")


def test_a_list_is_sorted_by_a_column_and_the_person_stays_at_their_pair(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid(page, "pair_list", list_data(monkeypatch, LISTED, cursor=124))
    grid.open()
    rows, domain = page.locator("tbody tr"), page.get_by_role("columnheader", name="Domain")
    domain.get_by_role("button").focus()
    for order, first in (("ascending", "Statement 1."), ("descending", "Statement 0.")):
        grid.press(["Enter"])
        expect(domain).to_have_attribute("aria-sort", order)
        expect(rows.first).to_contain_text(first)
        expect(grid.row).to_contain_text("Statement 24.")
        assert lies_within(page, "tr[aria-selected=true]", ".pair-list .scroller")
    grid.press(["Enter"])
    expect(rows.nth(1)).to_contain_text("Statement 1.")
    rows.nth(5).click()
    assert grid.places[-1]["attribute"] == 105
    expect(grid.row).to_contain_text("Statement 5.")


@pytest.mark.parametrize("view", ["matrix", "pair_list"])
def test_a_move_that_no_run_has_read_is_told_again(page: Page, monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    stop_clock(page)
    page.evaluate("document.body.classList.add('stApp')")
    matrix = view == "matrix"
    data = matrix_data(monkeypatch, STATEMENTS, RECIPIENTS) if matrix else list_data(monkeypatch, LISTED)
    grid = Grid(page, view, data)
    grid.open()
    grid.press(["ArrowDown"])
    page.clock.run_for(REST_MS)
    told = {"attribute": 101, "context": 1, "moves": 1}
    assert grid.places == [told]
    page.evaluate("document.body.dataset.testScriptState = 'running'")
    page.clock.run_for(9_000)
    assert grid.places == [told], "the run may still answer"
    page.evaluate("document.body.dataset.testScriptState = 'notRunning'")
    page.clock.run_for(2_000)
    assert grid.places == [told, told]
    grid.draw(cursor=[101, 1] if matrix else 101)
    page.clock.run_for(9_000)
    assert grid.places == [told, told]


def test_j_goes_round_the_pairs_that_the_filters_ask_for(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    matched = "".join("1" if (i, j) in {(0, 2), (1, 0), (2, 1)} else "0" for i in range(3) for j in range(3))
    grid = Grid(page, "matrix", matrix_data(monkeypatch, STATEMENTS[:3], RECIPIENTS[:3], matched=matched))
    grid.open()
    at = []
    for key in "jjjjkkk":
        grid.press(key)
        at.append(grid.spoken.partition("fact_")[2].partition(".")[0])
    first, second, third = "0 to Recipient 2", "1 to Recipient 0", "2 to Recipient 1"
    assert at == [first, second, third, first, third, second, first]


def test_hostile_text_is_text(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    grid = Grid(page, "matrix", matrix_data(monkeypatch, [HOSTILE] * 3, [HOSTILE] * 3))
    grid.open()
    box = page.get_by_role("grid").bounding_box()
    assert box is not None
    tip = page.locator(".tip")
    for x, y in [(330, 230), (100, 230), (330, 80)]:  # a cell, an attribute, a context
        page.mouse.move(box["x"] + x, box["y"] + y)
        expect(tip).to_contain_text("<b>bold</b>")
        assert tip.locator("img, script, b").count() == 0
    assert "<script>alert(2)</script>" in grid.spoken
    grid.close()
    page.mouse.move(0, 0)
    rows = [Listed(n, [HOSTILE, "", HOSTILE], "U", HOSTILE, HOSTILE) for n in range(3)]
    grid = Grid(page, "pair_list", list_data(monkeypatch, rows))
    grid.open()
    expect(grid.row).to_contain_text("<b>bold</b>")
    assert page.locator("table").locator("img, script, b:text('bold')").count() == 0
    assert asked == []


@pytest.mark.parametrize(("key", "row"), [("", 102), ("n", 100), ("j", 101)])
def test_an_undo_of_an_earlier_visit_leads_the_list_to_its_pair_unless_another_key_was_pressed(
    page: Page, monkeypatch: pytest.MonkeyPatch, key: str, row: int
) -> None:
    grid = Grid(page, "pair_list", list_data(monkeypatch, LISTED[:3]))
    grid.open()
    grid.press("z" + key)
    grid.answer(back="102.1")
    grid.draw(cursor=102, moves=0)
    expect(grid.row).to_have_attribute("id", f"pair-{row}")
