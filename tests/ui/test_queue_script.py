"""The script of the queue alone, with messages of the server at every moment."""

from __future__ import annotations

import pytest
from desks import browser, drawing, mount, page, queue_data
from playwright.sync_api import Page

from cimemories.ui import matrix, workbench

__all__ = ["browser", "page"]
pytestmark = pytest.mark.browser
CARDS = [f"{number}.1" for number in range(1, 10)]
KEYS = "nskjz"
SCRIPTS = ("leaving", "uid", "unsaved", "keys")
# A server that knows what was sent to it and, at a message, names what is open: for a queue some cards more and some
# that it reserved before, for an audit all of it and nothing else.
RUN = """async ([data, scripts, whole]) => {
    let runs = 0;
    const press = (key) => window.dispatchEvent(new KeyboardEvent("keydown", { key }));
    const played = (keys, moments) => {
        localStorage.clear();
        sessionStorage.clear();
        const bench = components.workbench();
        const shared = { ...data, key: `run ${runs += 1}`, whole }; // no log of the run before
        const message = (more) => {
            const events = bench.sent.at(-1)?.events ?? [];
            const last = new Map();
            for (const { kind, card, uid, of } of bench.sent.flatMap((one) => one.events)) {
                if (kind === "undo") { for (const [id, one] of last) if (one.uid === of) last.delete(id); }
                else last.set(card, { kind, uid });
            }
            const open = data.cards.filter(({ id }) => last.get(id)?.kind !== "say");
            const sorted = open.toSorted((a, b) => last.has(a.id) - last.has(b.id));
            bench.receive({
                ...shared, cards: whole ? sorted : sorted.slice(0, 4 + more),
                done: data.total - open.length, confirmed: events.map(({ uid }) => uid),
            });
        };
        bench.receive({ ...shared, cards: data.cards.slice(0, whole ? 9 : 6) });
        const seen = [];
        [...keys].forEach((key, n) => {
            press(key);
            if (key === "n" && data.causes.length) press("1");
            const before = bench.root.querySelector(".card").dataset.card;
            // The events are sent at the first message at the latest.
            for (let k = 0; moments & (1 << n) && k < 2; k += 1) message(k);
            seen.push([before, bench.root.querySelector(".card").dataset.card]);
        });
        bench.remove();
        return JSON.stringify(seen);
    };
    const wrong = [];
    for (const script of scripts) {
        const alone = played(script, 0);
        // After one of the keys, and after each of them.
        for (const moments of [1, 2, 4, 8, 16, 31]) {
            const seen = played(script, moments);
            if (seen !== alone) wrong.push([script, moments, alone, seen]);
        }
    }
    return wrong;
}"""


CAUSES = [("1", "norm unclear")]


@pytest.mark.parametrize(
    ("whole", "causes"), [(False, []), (True, []), (True, CAUSES)], ids=["queue", "audit", "disputes"]
)
def test_what_is_in_sight_follows_from_the_keys_alone_whenever_the_server_speaks(
    page: Page, monkeypatch: pytest.MonkeyPatch, whole: bool, causes: list[tuple[str, str]]
) -> None:
    mount(page, "workbench", *SCRIPTS)
    data = queue_data(monkeypatch, CARDS, causes=causes)
    scripts = [f"nn{a}{b}{c}" for a in KEYS for b in KEYS for c in KEYS if (a + b + c) != "zzz"]
    assert page.evaluate(RUN, [data, scripts, whole]) == []


UNDO = """async ([data, key]) => {
    const bench = components.workbench();
    const shown = () => bench.root.querySelector(".card").dataset.card;
    const press = (key) => window.dispatchEvent(new KeyboardEvent("keydown", { key }));
    bench.receive({ ...data, cards: data.cards.slice(1) });
    while (!bench.sent.length) await new Promise((resolve) => setTimeout(resolve, 10));
    press("z");
    if (key) press(key);
    const before = shown();
    bench.receive({ ...data, start: data.cards[0].id });
    return [before, shown()];
}"""


@pytest.mark.parametrize(("key", "leads"), [("", True), ("n", False), ("j", False), ("k", False), ("c", False)])
def test_an_undo_of_an_earlier_visit_leads_to_its_pair_unless_another_key_was_pressed(
    page: Page, monkeypatch: pytest.MonkeyPatch, key: str, leads: bool
) -> None:
    """The server alone knows which pair that is, and its answer takes a while."""
    mount(page, "workbench", *SCRIPTS)
    before, after = page.evaluate(UNDO, [queue_data(monkeypatch, CARDS), key])
    assert after == (CARDS[0] if leads else before)


LIST_UNDO = """async ([data, key]) => {
    const list = components.pair_list();
    list.receive(data);
    list.root.querySelector("table").focus();
    const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key }));
    press("z");
    press(key);
    list.receive({ ...data, cursor: data.rows[2].id });
    return list.root.querySelector("[aria-selected=true]").id;
}"""


@pytest.mark.parametrize(("key", "row"), [("", 2), ("n", 0), ("j", 1)])
def test_an_undo_of_an_earlier_visit_leads_the_list_to_its_pair_unless_another_key_was_pressed(
    page: Page, monkeypatch: pytest.MonkeyPatch, key: str, row: int
) -> None:
    keys = [workbench.Key("n", "necessary", "N", "green")]
    rows = [matrix.Listed(number, ["fact", ""], "?", "ambiguous", "") for number in range(3)]
    columns = [("Attribute", "name"), ("Label", "plain")]
    with drawing(monkeypatch, matrix, "_list_component") as data:
        matrix.pair_list("Pairs", columns, rows, label=1, key="list", context=7, cursor=0, keys=keys, owner="ada")
    mount(page, "pair_list", *SCRIPTS, "deciding")
    assert page.evaluate(LIST_UNDO, [data, key]) == f"pair-{row}"
