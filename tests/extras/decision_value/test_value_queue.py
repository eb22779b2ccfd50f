"""The queue by value: at the desk, on the Review page, on the command line and in the report."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from paging import button, opened, page_html
from reports import Page
from talking import Talk, cards, drawn_desks, event
from typer.testing import CliRunner
from valued_worlds import SAMPLES, made
from worlds import add_dataset, add_labels, add_run, records

from cimemories.cli import base
from cimemories.desk.queue import QueueDesk
from cimemories.extras.decision_value.answer import uncertainty
from cimemories.extras.decision_value.ordering import ByValue
from cimemories.extras.decision_value.random_share import share_agreement
from cimemories.extras.decision_value.value import Aim, Target, valued
from cimemories.flows import catalogue
from cimemories.flows.flows import shared_flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.model import Label
from cimemories.report.collect import collect
from cimemories.report.render import as_html
from cimemories.review.queue import Filters, Order, select
from cimemories.store.engine import Store, StoreError

PAGE = "pages/curate/review.py"


def begun(app: Any, name: str = "Ada") -> Any:
    app.text_input[0].set_value(name)
    return button(app, "Begin").click().run()


def ran(store: Store, *arguments: object, code: int = 0) -> str:
    command = ["review", *map(str, arguments), "--workspace", str(store.workspace)]
    result = CliRunner().invoke(base.cli, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def shown(store: Store, *arguments: object) -> Any:
    return json.loads(ran(store, *arguments, "--json"))


def desk_of(store: Store, dataset: int, me: str = "Ada", **more: Any) -> QueueDesk:
    row = next(row for row in catalogue.all_datasets(store) if row.id == dataset)
    labelling = next(iter(catalogue.labellings_of(store, dataset).values()), None)
    return QueueDesk(store, row, labelling, Filters(undecided_by=me), ByValue(**more), me)


def test_a_batch_ends_with_what_it_did(sqlite_store: Store) -> None:
    dataset = add_dataset(sqlite_store, profiles=1, attributes=8, contexts=3).id
    cycle = (AMBIGUOUS, NECESSARY, AMBIGUOUS, INAPPROPRIATE)
    add_labels(sqlite_store, dataset, [[[cycle[(a + c) % 4] for c in range(3)] for a in range(8)]])
    (record,) = records(sqlite_store, dataset)
    pairs = [(a, c) for a in record.attribute_ids for c in record.context_ids]
    add_run(sqlite_store, dataset, 2, dict.fromkeys(pairs[::3], 1))
    talk = Talk(desk_of(sqlite_store, dataset, batch=10))
    events = [event(n, pair) for n, pair in enumerate(pairs[:10])]
    assert talk.post(*events[:9])["summary"] == []
    settled, since, sure = talk.post(*events[9:], batch=10)["summary"]
    assert settled == "5 of your last 10 decisions settle an ambiguous pair, 3 go against the consensus."
    assert "counting agreed labels only: 33.3 % before, 33.3 % now" in since
    assert "by ±0.0 points, within the ±1.0 wanted" in sure


def test_the_queue_shows_what_is_worth_most_and_says_how_sure_the_number_is(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    index = world.index()
    value = valued(sqlite_store, index)
    assert value is not None

    def asked(me: str, **more: Any) -> dict[str, Any]:
        return Talk(desk_of(sqlite_store, world.dataset, me, **more)).post(fresh=True)

    reply = asked("Ada", width=0.005, share=0.0)
    assert reply["aside"] == [value.sentence(0.005), value.beside]
    assert cards(reply)[0] == "{}.{}".format(*index.pairs(value.front[:1])[0])
    # All pairs at random: the same for everybody with this seed.
    by_hash = select(sqlite_store, index, Filters(), Order.RANDOM, 4)
    assert cards(asked("Bob", share=1.0, seed=4))[0] == "{}.{}".format(*index.pairs(by_hash[:1])[0])


def test_the_order_of_models_is_of_the_runs_that_are_chosen(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    for changed in (0, world.reveals // 2):
        add_run(sqlite_store, world.dataset, 3, changed + 0 * world.reveals)
    index = world.index()
    every = valued(sqlite_store, index, Aim(Target.ORDER))
    assert every is not None and len(every.aim.runs) == 3
    aim = Aim(Target.ORDER, every.aim.runs[:2])
    chosen = valued(sqlite_store, index, aim)
    assert chosen is not None and chosen.ranking != every.ranking
    talk = Talk(desk_of(sqlite_store, world.dataset, aim=aim))
    assert chosen.sentence() in talk.post()["aside"]


@pytest.mark.parametrize(("target", "needed"), [(Target.VIOLATION, "a judged run"), (Target.ORDER, "two judged runs")])
def test_without_a_judged_run_the_queue_goes_by_entropy_and_says_so(
    sqlite_store: Store, target: Target, needed: str
) -> None:
    dataset = add_dataset(sqlite_store, profiles=2, attributes=2, contexts=2).id
    add_labels(sqlite_store, dataset, [[[AMBIGUOUS, NECESSARY]] * 2] * 2)
    reply = Talk(desk_of(sqlite_store, dataset, aim=Aim(target))).post()
    assert f"needs votes and {needed}" in reply["aside"][0] and len(cards(reply)) == 8


def test_the_page_opens_the_queue_as_the_address_says(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite_store
    monkeypatch.setenv("CIMEMORIES_WORKSPACE", str(store.workspace))
    drawn = drawn_desks(monkeypatch)
    world = made(store)
    index = world.index()
    value = valued(store, index)
    assert value is not None
    begun(opened(PAGE, dataset=world.dataset, width="0.5", share="0"))
    reply = drawn.post(fresh=True)
    assert reply["aside"] == [value.sentence(0.005), value.beside]
    assert cards(reply)[0] == "{}.{}".format(*index.pairs(value.front[:1])[0])
    assert (drawn[-1]["batch"], drawn[-1]["blind"], drawn[-1]["start"]) == (100, True, None)
    # All pairs at random: the same for everybody with this seed.
    begun(opened(PAGE, dataset=world.dataset, share="100", seed="4"), "Bob")
    by_hash = select(store, index, Filters(), Order.RANDOM, 4)
    assert cards(drawn.post(fresh=True))[0] == "{}.{}".format(*index.pairs(by_hash[:1])[0])
    world.say(by_hash[:3].tolist(), Label.NECESSARY)
    shared = share_agreement(store, index, 4)
    assert shared.answered >= 3
    assert shared.sentence in page_html(opened(PAGE, dataset=world.dataset, tab="agreement", seed="4"))
    # Filtered, or by another seed, the share is no sample of all pairs; where nothing is drawn nothing is said.
    for query, is_said in (
        ({"seed": "4"}, True),
        ({"domain": "finance"}, True),
        ({}, False),
        ({"domain": "finance", "share": "0"}, False),
    ):
        app = begun(opened(PAGE, dataset=world.dataset, **query), "Cleo")
        assert ("only without filters and with seed 0" in page_html(app)) == is_said


def test_the_page_asks_for_the_order_of_the_chosen_runs(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite_store
    monkeypatch.setenv("CIMEMORIES_WORKSPACE", str(store.workspace))
    drawn = drawn_desks(monkeypatch)
    world = made(store)
    for changed in (0, world.reveals // 2):
        add_run(store, world.dataset, 3, changed + 0 * world.reveals)
    index = world.index()
    every = valued(store, index, Aim(Target.ORDER))
    assert every is not None and len(every.aim.runs) == 3
    two = every.aim.runs[:2]
    app = begun(opened(PAGE, dataset=world.dataset, target="order", runs=".".join(two)))
    chosen = valued(store, index, Aim(Target.ORDER, two))
    assert chosen is not None and chosen.ranking != every.ranking
    assert chosen.sentence() in drawn.post()["aside"]
    picker = next(box for box in app.multiselect if box.label == "Runs")
    assert picker.value == list(two)
    picker.set_value([]).run()
    assert every.sentence() in drawn.post()["aside"]
    # One run alone has no order, and one that is gone is left out with a notice.
    app = begun(opened(PAGE, dataset=world.dataset, target="order", runs=f"{two[0]}.gone"))
    assert "not here (any more)" in page_html(app)
    assert "needs votes and two judged runs" in drawn.post()["aside"][0]
    begun(opened(PAGE, width="none", share="900", target="speed"))


def test_the_command_says_how_sure_the_labels_are_and_how_much_is_left(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    name = "small world"
    sure = shown(sqlite_store, "uncertainty", name)["label_uncertainty"]
    assert (sure["target"], sure["runs"], sure["n"]) == ("violation", [world.run], 3)
    assert (sure["wanted"], sure["reached"]) == (0.01, False)
    wide = shown(sqlite_store, "uncertainty", name, "--width", 99)["label_uncertainty"]
    assert (wide["reached"], wide["decisions_needed"], wide["half_width"]) == (True, 0, sure["half_width"])
    text = ran(sqlite_store, "uncertainty", name, "--target", "completeness", "--run", world.run)
    assert "Undecided labels blur completeness of small run by ±" in text
    assert "if divided votes count in proportion" in text and "Nothing of the random share is answered yet" in text
    first = valued(sqlite_store, world.index())
    assert first is not None
    by_hash = select(sqlite_store, world.index(), Filters(), Order.RANDOM, 7)
    world.say([*first.front[:3].tolist(), *by_hash[:5].tolist()])
    after = shown(sqlite_store, "uncertainty", name, "--seed", 7)
    assert after["label_uncertainty"]["half_width"] < sure["half_width"], "every decision counts here, not only batches"
    assert after["random_share"]["answered"] >= 5
    assert ran(sqlite_store, "uncertainty", name, "--target", "order").count("needs votes and two judged runs") == 1
    with pytest.raises(StoreError, match="speed"):
        ran(sqlite_store, "uncertainty", name, "--target", "speed")
    with pytest.raises(StoreError, match="no run 'gone'"):
        ran(sqlite_store, "uncertainty", name, "--run", "gone")


def test_it_says_whether_labelling_may_stop_and_by_what_evidence(sqlite_store: Store) -> None:
    open_labels = made(sqlite_store)
    other = add_run(sqlite_store, open_labels.dataset, SAMPLES, open_labels.reveals // 2)
    open_labels.say(select(sqlite_store, open_labels.index(), Filters(), Order.RANDOM)[:6].tolist())
    scopes = [resolve_scope(sqlite_store, run) for run in (open_labels.run, other)]
    page = Page(as_html(collect(shared_flows(sqlite_store), scopes, now=datetime(2026, 3, 1, tzinfo=UTC))))
    result = uncertainty(sqlite_store, "small world", Aim(Target.ORDER, (open_labels.run, other)), 0.01)
    assert "Whether labelling may stop" in page.text
    assert "Undecided labels blur " in page.text and "bring it to ±1.0" in page.text
    assert result.random_share is not None and result.random_share.answered == 6
    assert result.random_share.sentence in page.text
    assert result.label_uncertainty is not None and result.sentence.partition(" By Violation")[0] in page.text
