"""The script of the queue alone: messages of the server at every moment, and what interrupts a person."""

from __future__ import annotations

import pytest
from desks import ADDRESS, QUEUE, Queue, mount, page, queue_data, stop_clock
from playwright.sync_api import Page, expect

from cimemories.desk.protocol import Card

__all__ = ["page"]
pytestmark = pytest.mark.browser
CARDS = [f"{number}.1" for number in range(1, 10)]
PRESSED = "nskjz"
# A server that knows what was sent to it and, at a message, names what is open: for a queue some cards more and some
# that it reserved before, for an audit all of it and nothing else.
RUN = """async ([data, cards, scripts, moments, complete]) => {
    let runs = 0;
    const press = (key) => window.dispatchEvent(new KeyboardEvent("keydown", { key }));
    const played = async (keys, moments) => {
        localStorage.clear();
        sessionStorage.clear();
        const bench = components.desk();
        const from = posts.length;
        const reply = async (more) => {
            if (!waiting()) return;
            waiting().heard = true;
            const last = new Map();
            const events = posts.slice(from).filter(({ heard }) => heard).flatMap((post) => post.events);
            for (const { kind, card, uid, of } of events) {
                if (kind === "undo") { for (const [id, one] of last) if (one.uid === of) last.delete(id); }
                else last.set(card, { kind, uid });
            }
            const open = cards.filter(({ id }) => last.get(id)?.kind !== "say");
            const sorted = open.toSorted((a, b) => last.has(a.id) - last.has(b.id));
            await answer({
                cards: complete ? sorted : sorted.slice(0, 4 + more),
                done: cards.length - open.length, total: cards.length,
                recorded: waiting().events.map(({ uid }) => uid), refused: [], summary: [], aside: [], start: null,
            });
        };
        bench.receive({ ...data, key: `run ${runs += 1}`, complete }); // no outbox of the run before
        await rest();
        await reply(2);
        const seen = [];
        for (const [n, key] of [...keys].entries()) {
            press(key);
            if (key === "n" && data.causes.length) press("1");
            const before = bench.root.querySelector(".card").dataset.card;
            for (let k = 0; moments & (1 << n) && k < 2; k += 1) await reply(k);
            seen.push([before, bench.root.querySelector(".card").dataset.card]);
        }
        bench.remove();
        while (waiting()) await answer({ recorded: waiting().events.map(({ uid }) => uid), refused: [] });
        return JSON.stringify(seen);
    };
    const wrong = [];
    for (const script of scripts) {
        const alone = await played(script, 0);
        for (const moment of moments) {
            const seen = await played(script, moment);
            if (seen !== alone) wrong.push([script, moment, alone, seen]);
        }
    }
    return wrong;
}"""


# After which of the five keys the server speaks: after one of them, or after each.
MOMENTS, SOME_MOMENTS = [1, 2, 4, 8, 16, 31], [4, 8, 31]
CAUSES = [("1", "norm unclear")]
every_bench = pytest.mark.parametrize(
    ("complete", "causes"), [(False, []), (True, []), (True, CAUSES)], ids=["queue", "audit", "disputes"]
)


@every_bench
def test_what_is_in_sight_follows_from_the_keys_alone_whenever_the_server_speaks(
    page: Page, monkeypatch: pytest.MonkeyPatch, complete: bool, causes: list[tuple[str, str]]
) -> None:
    mount(page, "desk", *QUEUE)
    data = queue_data(monkeypatch, CARDS, causes=causes)
    scripts = [f"nn{a}{b}n" for a in PRESSED for b in PRESSED]
    assert page.evaluate(RUN, [data, data.pop("cards"), scripts, SOME_MOMENTS, complete]) == []


@pytest.mark.long
@every_bench
def test_so_it_does_for_any_three_keys(
    page: Page, monkeypatch: pytest.MonkeyPatch, complete: bool, causes: list[tuple[str, str]]
) -> None:
    mount(page, "desk", *QUEUE)
    data = queue_data(monkeypatch, CARDS, causes=causes)
    scripts = [f"nn{a}{b}{c}" for a in PRESSED for b in PRESSED for c in PRESSED if (a + b + c) != "zzz"]
    assert page.evaluate(RUN, [data, data.pop("cards"), scripts, MOMENTS, complete]) == []


@pytest.mark.parametrize(("key", "leads"), [("", True), ("n", False), ("j", False), ("k", False), ("c", False)])
def test_an_undo_of_an_earlier_visit_leads_to_its_pair_unless_another_key_was_pressed(
    page: Page, monkeypatch: pytest.MonkeyPatch, key: str, leads: bool
) -> None:
    """The server alone knows which pair that is, and its answer takes a while."""
    queue = Queue(page, queue_data(monkeypatch, CARDS))
    queue.open(cards=queue.cards[1:])
    queue.press("z" + key)
    before = queue.card
    queue.answer(start=CARDS[0], cards=queue.cards)
    assert queue.card == (CARDS[0] if leads else before)


@pytest.mark.parametrize(("key", "leads"), [("", True), ("n", False), ("j", False), ("z", False), ("c", False)])
def test_a_jump_to_an_answer_of_an_earlier_visit_shows_it_unless_another_key_was_pressed(
    page: Page, monkeypatch: pytest.MonkeyPatch, key: str, leads: bool
) -> None:
    queue = Queue(page, queue_data(monkeypatch, CARDS, address=("attribute", "context")))
    queue.open()
    queue.press("ni")
    queue.save()
    listed = page.locator(".answers .list button")
    page.locator(".answers summary").click()
    listed.last.click()
    assert queue.card == CARDS[0], "it is still in the browser"
    queue.press("j")
    queue.close()
    queue.open(cards=queue.cards[2:])
    page.locator(".answers summary").click()
    listed.last.click()
    queue.press(key)
    before = queue.card
    queue.answer(start=CARDS[0], cards=[queue.cards[0], *queue.cards[2:]])
    assert queue.card == (CARDS[0] if leads else before)
    if not leads:
        return
    expect(queue.box).to_contain_text("You: N necessary")
    queue.press("u")
    assert queue.card == CARDS[2]
    queue.save()
    assert queue.standing == {CARDS[0]: "ambiguous", CARDS[1]: "inappropriate"}


def test_each_press_at_speed_shows_the_next_card_and_is_recorded_once(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [f"{number}.1" for number in range(60)]
    queue = Queue(page, queue_data(monkeypatch, cards), ahead=20)
    queue.open()
    for number in range(40):
        queue.press("niu"[number % 3])
        assert queue.card == cards[number + 1]
        if number % 7 == 0:
            queue.answer()
    queue.save()
    said = dict(zip(cards, ["necessary", "inappropriate", "ambiguous"] * 14, strict=False))
    assert queue.standing == dict(list(said.items())[:40])
    events = list(queue.recorded.values())
    assert [event["card"] for event in events] == cards[:40]
    assert all(event["blind"] and event["owner"] == "ada" and event["seconds"] >= 0 for event in events)
    assert page.evaluate("performance.getEntriesByName('desk key').length") == 40
    for number in range(39, 9, -1):  # back as far as there is something, one by one
        queue.press("z")
        assert queue.card == cards[number]
    queue.save()
    assert queue.standing == dict(list(said.items())[:10])


def test_no_press_is_lost_by_leaving_the_queue_and_coming_back(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [f"{number}.1" for number in range(40)]
    queue = Queue(page, queue_data(monkeypatch, cards))
    pressed: list[str] = []
    # As many presses as on the visit before, fewer, more; left at once, or when all is saved.
    for number, keys in enumerate(("nii", "niuni", "ui", "nnnnnnn", "uuu")):
        queue.open()
        for key in keys:
            assert queue.card not in pressed, "what was decided before is not asked again"
            pressed.append(queue.card)
            queue.press(key)
        if number % 2:
            queue.save()
        queue.close()
    queue.open()
    queue.save()
    words = {"n": "necessary", "i": "inappropriate", "u": "ambiguous"}
    assert queue.standing == dict(zip(pressed, [words[key] for key in "niiniuniuinnnnnnnuuu"], strict=True))
    assert len(queue.recorded) == 20


def test_what_the_server_does_not_confirm_is_counted_and_sent_again(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_clock(page)
    queue = Queue(page, queue_data(monkeypatch, CARDS))
    queue.open()
    queue.press("ni")
    expect(queue.saved).to_have_text("2 not saved yet")
    messages = len(queue.messages)
    (first,) = queue.sent
    queue.fail()
    expect(page.locator(".problem")).to_contain_text("The server does not answer. You can continue")
    page.clock.run_for(3_000)
    assert len(queue.messages) == messages, "the server gets some time"
    page.clock.run_for(2_000)
    assert len(queue.messages) == messages + 1
    assert [event["card"] for event in queue.sent] == CARDS[:2] and queue.sent[0] == first
    page.evaluate("answer({ problem: 'The disk is full.' })")
    expect(page.locator(".problem")).to_contain_text("The disk is full. You can continue")
    page.clock.run_for(5_000)
    queue.answer()
    expect(queue.saved).to_have_text("all saved")
    expect(page.locator(".problem")).to_be_hidden()


def test_a_desk_that_the_server_does_not_know_is_opened_again_by_the_page(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was started again."""
    stop_clock(page)
    queue = Queue(page, queue_data(monkeypatch, CARDS))
    queue.open()
    queue.press("n")
    page.evaluate("answer({ unknown: true })")
    assert queue.asked == ["reopen"]
    queue.draw(url="desk/two")
    page.clock.run_for(5_000)
    queue.save()
    assert queue.messages[-1]["url"].endswith("/desk/two")
    assert queue.standing == {CARDS[0]: "necessary"}


def test_what_was_decided_is_saved_from_another_page_too(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(page, queue_data(monkeypatch, CARDS))
    queue.open()
    queue.press("niu")
    queue.close()
    while queue.answer():
        pass
    assert queue.standing == dict(zip(CARDS, ["necessary", "inappropriate", "ambiguous"], strict=False))


FOLLOW = """(path) => {
    const link = document.body.appendChild(Object.assign(document.createElement("a"), { href: path }));
    link.addEventListener("click", (event) => event.preventDefault());
    link.click();
    link.remove();
}"""


def test_the_page_is_asked_for_nothing_between_a_link_and_where_it_leads(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit would take it for a wish to stay, and show an empty page."""
    queue = Queue(page, queue_data(monkeypatch, CARDS[:2], actions="eb?"))
    queue.open()
    page.evaluate(FOLLOW, "/home")
    queue.press("nieb")
    queue.save()
    assert queue.asked == []
    assert list(queue.standing.values()) == ["necessary", "inappropriate"]


def test_two_tabs_have_places_of_their_own_and_a_closed_one_leaves_its_presses_to_the_next(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = queue_data(monkeypatch, CARDS)
    recorded: dict[str, dict[str, object]] = {}

    def tab(cards: list[str]) -> Queue:
        opened = page.context.new_page()
        opened.goto("http://localhost/review")  # it has locks
        queue = Queue(
            opened, {**data, "cards": [card for card in data["cards"] if card["id"] in cards]}, recorded=recorded
        )
        queue.open()
        return queue

    def place(queue: Queue) -> str:
        return str(queue.messages[-1]["place"])

    first, second = tab(CARDS[:4]), tab(CARDS[4:8])
    name = place(first).removesuffix(".0")
    assert [place(first), place(second)] == [f"{name}.0", f"{name}.1"]
    first.press("n")
    first.save()
    second.press("iu")
    second.page.close()
    first.press("n")
    first.save()
    assert recorded.keys() and list(first.standing) == CARDS[:2], "those of the other tab are not this one's"
    third = tab(CARDS[4:8])
    assert place(third) == f"{name}.1"
    assert third.card == CARDS[6], "what waits is not asked again"
    third.save()
    assert third.standing == {
        **dict.fromkeys(CARDS[:2], "necessary"),
        CARDS[4]: "inappropriate",
        CARDS[5]: "ambiguous",
    }


def test_an_answer_is_no_step_for_back_and_a_reload_asks_for_none_again(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = queue_data(monkeypatch, CARDS, address=("attribute", "context"))
    queue = Queue(page, data)
    queue.open()
    steps = page.evaluate("history.length")
    queue.press("ni")
    expect(page).to_have_url(f"{ADDRESS}?attribute=3&context=1")
    assert page.evaluate("history.length") == steps
    queue.save()
    page.reload()
    queue.load()
    # The address may still name the card that was answered last.
    queue.open(start=CARDS[1], cards=queue.cards[1:5])
    assert queue.card == CARDS[2]
    queue.press("z")
    (undo,) = queue.sent
    assert (undo["kind"], undo["of"]) == ("undo", None)
    queue.answer(start=CARDS[1], cards=queue.cards[1:5])
    assert queue.card == CARDS[1], "it is undone, so it is asked again"
    queue.press("u")
    queue.close()
    # A link to a card leads to it, decided or not.
    page.goto(f"{ADDRESS}?attribute=1&context=1")
    queue.load()
    queue.open(start=CARDS[0], cards=queue.cards[:5])
    assert queue.card == CARDS[0]


def test_blind_work_shows_no_vote_before_the_answer(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Card(f"{n}.1", "My rent is $900.", [], hidden=[("lawyer", "50 %", "NIU")]) for n in range(3)]
    queue = Queue(page, queue_data(monkeypatch, cards, hiding="Votes show after your answer."))
    queue.open()
    text, last = page.locator("body"), page.locator(".bench .last")
    expect(queue.box).to_contain_text("Votes show after your answer.")
    expect(text).not_to_contain_text("lawyer")
    queue.press("n")
    expect(last).to_contain_text("lawyer")
    expect(last.locator(".mark")).to_have_count(3)
    expect(queue.box.locator(".mark")).to_have_count(0)
    queue.press("b")
    expect(queue.box.locator(".mark")).to_have_count(3)
    queue.press("i")
    queue.save()
    assert [event["blind"] for event in queue.recorded.values()] == [True, False]


def test_keys_do_not_answer_while_somebody_types_or_something_lies_over_the_card(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(page, queue_data(monkeypatch, CARDS))
    page.evaluate("document.body.insertAdjacentHTML('afterbegin', '<input id=field>')")
    queue.open()
    page.locator("#field").press_sequentially("nine units in")
    page.locator("#field").blur()
    queue.press("c")
    page.keyboard.type("nice <img src=x onerror=alert(1)> inz")
    queue.press(["Enter"])
    expect(page.locator(".bench .words")).to_be_hidden()
    assert queue.card == CARDS[0]
    expect(queue.box).to_contain_text("nice <img src=x onerror=alert(1)> inz")
    queue.press("s")
    # Once `f` flagged at once, and the reason that people then typed became decisions.
    queue.press("f")
    page.keyboard.type("u in i n")
    reason = page.get_by_label("What is wrong with this item?")
    expect(reason).to_have_value("u in i n")
    reason.blur()
    page.keyboard.type(" nix")
    queue.press(["Enter"])
    queue.press("jk?")
    expect(page.locator(".bench .help")).to_be_visible()
    queue.press("n")
    expect(page.locator(".bench .help")).to_be_hidden()
    queue.press("c")
    page.keyboard.type("nothing")
    queue.press(["Escape"])
    for over in ("role=dialog", "role=listbox", "data-testid=stPopoverBody"):
        page.evaluate("(over) => document.body.insertAdjacentHTML('beforeend', `<div class=over ${over}></div>`)", over)
        queue.press("nui")
        page.evaluate("document.querySelector('.over').remove()")
    queue.save()
    kinds = [(event["kind"], event["card"], event["text"]) for event in queue.recorded.values()]
    assert kinds == [
        ("comment", CARDS[0], "nice <img src=x onerror=alert(1)> inz"),
        ("skip", CARDS[0], ""),
        ("flag", CARDS[1], "u in i n nix"),
    ]
    queue.press("zz")
    queue.save()
    assert queue.standing == {}


@pytest.mark.parametrize(("watch", "seconds"), [(True, 2), (False, 21)])
def test_the_server_is_asked_for_news_while_somebody_looks(
    page: Page, monkeypatch: pytest.MonkeyPatch, watch: bool, seconds: int
) -> None:
    """Every second where what others answer is in sight, else so often that what is reserved stays so."""
    stop_clock(page)
    queue = Queue(page, queue_data(monkeypatch, CARDS))
    queue.open()
    if watch:
        page.get_by_text("History and comments").click()
        expect(page.locator(".inside")).to_have_text("Loading …")
        queue.answer(history=[["2026-01-31 10:00", "Bob", "I inappropriate", "queue"]])
        expect(page.locator(".inside")).to_contain_text("I inappropriate Bob")
    messages = len(queue.messages)
    page.clock.run_for((seconds - 2) * 1000)
    assert len(queue.messages) == messages
    page.clock.run_for(2_000)
    assert len(queue.messages) > messages and queue.sent == []
    assert queue.messages[-1]["looks"] == (["history"] if watch else [])


def test_a_batch_ends_on_the_card_and_goes_on_with_enter(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(page, queue_data(monkeypatch, CARDS, batch=5))
    queue.open()
    expect(queue.progress).to_have_text("Batch of 5: 0 done")
    queue.press("nnn")
    expect(queue.progress).to_have_text("Batch of 5: 3 done, under a minute")
    queue.save()
    page.reload()
    queue.load()
    queue.open()
    expect(queue.progress).to_contain_text("Batch of 5: 3 done")
    queue.press("ni")
    queue.answer()
    expect(queue.box).to_contain_text("Saving …")
    queue.answer(summary=["2 of your last 5 decisions settle an ambiguous pair."])
    expect(queue.box).to_contain_text("Batch done: 5 decided")
    expect(queue.box).to_contain_text("2 of your last 5 decisions settle an ambiguous pair.")
    queue.press("niusfj")
    queue.press("z")
    assert queue.card == CARDS[4]
    queue.press("u")
    expect(queue.box).to_contain_text("Batch done")
    queue.press(["Enter"])
    assert queue.card == CARDS[5]
    queue.save()
    expect(queue.progress).to_contain_text("Batch of 4: 0 done")
    assert queue.standing == {**dict.fromkeys(CARDS[:4], "necessary"), CARDS[4]: "ambiguous"}


def test_training_shows_the_known_answer_and_goes_on_with_enter(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        Card("1.1.7", "My rent is $900.", [], known=("inappropriate", "Settled <b>so</b>.")),
        Card("2.1", "Two", []),
    ]
    queue = Queue(page, queue_data(monkeypatch, known))
    queue.open()
    expect(queue.box).not_to_contain_text("inappropriate")
    queue.press("n")
    expect(queue.box).to_contain_text("Not right: I inappropriate")
    expect(queue.box).to_contain_text("Settled <b>so</b>.")
    queue.press("is")  # meant for the next card, which is not there yet
    assert queue.card == "1.1.7"
    expect(problem := page.locator(".problem")).to_have_text("This one is answered. Press Enter for the next.")
    queue.press(["Enter"])
    assert queue.card == "2.1"
    expect(problem).to_be_hidden()
    queue.press("zi")
    expect(queue.box).to_contain_text("Right: I inappropriate")
    queue.press(["Enter", "n"])
    queue.save()
    assert queue.standing == {"1.1.7": "inappropriate", "2.1": "necessary"}


def test_spreading_the_last_decision_is_asked_for_once_it_is_recorded(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(page, queue_data(monkeypatch, CARDS, actions="szkjfceb?"))
    queue.open()
    queue.press("ie")
    assert queue.asked == []
    queue.save()
    assert queue.asked == ["spread"]


def test_the_page_hears_when_nothing_is_left_and_whether_work_is_blind(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(page, queue_data(monkeypatch, CARDS[:2], address=("attribute", "context")))
    queue.open()
    queue.press("bbn")
    queue.save()
    assert queue.asked == ["seeing", "blind"]
    expect(page).to_have_url(f"{ADDRESS}?attribute=2&context=1")
    queue.press("n")
    queue.save()
    assert queue.asked[2:] == ["finished"]
    # Back to this address shows no decided pair as if it were open.
    expect(page).to_have_url(f"{ADDRESS}?")


# ---- disputes: an answer is a label and a cause


CAUSE_KEYS = [("1", "statement unclear"), ("2", "norm unclear"), ("3", "guideline gap")]


def test_a_dispute_is_settled_by_a_label_and_a_cause_in_any_order(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [
        Card(
            f"{n}.1.seen",
            f"Statement {n}",
            [],
            given=[("A", "necessary", "queue", ""), ("B", "inappropriate", "", "it is theirs")],
            warning="" if n < 3 else "You gave one of these answers yourself.",
        )
        for n in range(4)
    ]
    queue = Queue(page, queue_data(monkeypatch, cards, causes=CAUSE_KEYS, complete=True, actions="rszkjcb?"))
    queue.open()
    expect(queue.box.locator(".given .one")).to_have_count(2)
    expect(queue.box.locator(".given")).to_contain_text("A: N necessary")
    expect(queue.box.locator(".given")).to_contain_text("it is theirs")
    # Half an answer is none, and can be chosen again.
    queue.press("ni")
    queue.press(["Escape"])
    queue.press("2r")
    assert queue.card == cards[0].id and queue.sent == []
    page.keyboard.type("n1 read it twice")
    queue.press(["Enter"])
    expect(queue.box).to_contain_text("Reason: n1 read it twice")
    queue.press("i")
    queue.press("n1u3")
    expect(queue.progress).to_contain_text("3 of 4 done")
    queue.save()
    settled = [(event["says"], event["cause"], event["text"]) for event in queue.recorded.values()]
    assert settled == [
        ("inappropriate", "norm unclear", "n1 read it twice"),
        ("necessary", "statement unclear", ""),
        ("ambiguous", "guideline gap", ""),
    ]
    # What is skipped comes again where nothing else is left.
    for _ in range(2):
        expect(queue.box.locator(".warning")).to_contain_text("You gave one of these answers")
        queue.press("s")
        queue.save()
    queue.press("n2")
    queue.save()
    expect(queue.box).to_contain_text("Nothing is left here.")
    queue.press("z")
    assert queue.card == cards[3].id


def test_a_card_in_sight_stays_where_another_tab_answers_it_and_the_others_leave(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = queue_data(monkeypatch, CARDS, causes=CAUSE_KEYS, complete=True)
    queue = Queue(page, data)
    queue.open()
    queue.press("c")
    page.keyboard.type("unclear")
    queue.press(["Enter"])
    queue.answer(cards=queue.cards[3:])
    assert queue.card == CARDS[0]
    queue.press("u2")
    assert queue.card == CARDS[3]


def test_a_reason_is_there_again_where_somebody_decided_the_pair_before_it_was_settled(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = queue_data(monkeypatch, ["1.1.before", "1.1.after"], causes=CAUSE_KEYS, complete=True, actions="rszkjcb?")
    queue = Queue(page, data)
    queue.open(cards=queue.cards[:1])
    queue.press("r")
    page.keyboard.type("read it twice")
    queue.press(["Enter"])
    queue.press("n1")
    (refused,) = queue.sent
    queue.answer(recorded=[], refused=[refused["uid"]], cards=queue.cards[1:], done=0)
    expect(queue.saved).to_have_text("1 discarded: the item has changed")
    expect(queue.box).to_contain_text("Reason: read it twice")
    queue.press("n1")
    assert [(event["card"], event["text"]) for event in queue.sent] == [("1.1.after", "read it twice")]
    queue.answer()
    expect(queue.saved).to_have_text("1 discarded: the item has changed")
