"""What runs cost and would cost: prices as they are written, a bill worked out by hand, and estimates held against what
was then really asked."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import sqlalchemy as sa
from evaluating import add, add_labelled, cli_inside, outside, row_of, simulated, small_profiles
from hostile import cards, hostile_server, texts_of
from worlds import add_dataset, answer, plan_run

from cimemories.answers.progress import progress
from cimemories.cli import work as cli_work
from cimemories.evaluation import costs, planning, runs, sweeps
from cimemories.evaluation.estimates import Estimate, estimate
from cimemories.evaluation.planning import spec_of
from cimemories.evaluation.prices import Prices, money
from cimemories.evaluation.spec import command_of
from cimemories.evaluation.sweeps import check_sweep
from cimemories.flows.progress import run_progress
from cimemories.labels.whatif import effective_labels
from cimemories.llm.executor import Progress
from cimemories.llm.worker import WorkError
from cimemories.model import ChatRequest, WorkStatus
from cimemories.store import calls, judgements, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.tables import run

PRICE, JUDGE_PRICE = Prices.read("2/0.5/8 EUR"), Prices.read("10/40 EUR")


def priced(**changes: object) -> planning.RunSpec:
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url="simulator", prices=JUDGE_PRICE)
    return simulated(prices=PRICE, judges=(judge,), **changes)


def test_prices_are_read_as_they_are_written() -> None:
    assert Prices.read("0.15/0.075/0.60") == Prices(0.15, 0.075, 0.60)
    assert Prices.read(" 2/6 EUR") == Prices(2, 2, 6, "EUR")
    assert Prices.read(PRICE.text) == PRICE and Prices.of(PRICE.as_json()) == PRICE
    amounts = {None: "not known", 0.0: "0.00 EUR", 12345.678: "12,345.68 EUR", 0.00123: "0.0012 EUR"}
    assert {amount: money(amount, "EUR") for amount in amounts} == amounts
    for wrong in ("", "1", "1/2/3/4", "a/b", "-1/2", "nan/2", "1/2 two words"):
        with pytest.raises(StoreError):
            Prices.read(wrong)


def test_a_bill_worked_out_by_hand(sqlite_store: Store) -> None:
    """Two runs share one message; one of them has a judgement too, and another failed at no cost."""
    data = add_dataset(sqlite_store)
    judges = [
        {"kind": "llm", "model": "judge", "prices": JUDGE_PRICE.as_json()},
        {"kind": "matcher", "model": "matcher"},
    ]
    manifest = {"model": {"name": "writer", "prices": PRICE.as_json()}, "judges": judges}
    with sqlite_store.write() as connection:
        shared = _call(connection, "writer", "respond", 1_000_000, 400_000, 50_000)
        with_judge, without = (plan_run(connection, data.id, 1) for _ in range(2))
        judged = _call(connection, "judge", "judge", 200_000, 100_000, 10_000)
        failed = _call(connection, "judge", "judge", None, None, None, status="timeout")
        connection.execute(sa.update(run).values(manifest=canonical_json(manifest)))
        calls.link(connection, [(with_judge, key, None) for key in (shared, judged, failed)])
        calls.link(connection, [(without, shared, None)])
    message = 0.6 * 2 + 0.4 * 0.5 + 0.05 * 8
    judgement = 0.2 * 10 + 0.01 * 40  # the judge has one price for cached and other tokens
    both, one = (costs.cost_of(sqlite_store, run_id) for run_id in (with_judge, without))
    assert (both.amount, one.amount) == (pytest.approx(message + judgement), pytest.approx(message))
    assert both.paid == pytest.approx(judgement) and one.paid == 0  # the message was there before the runs were planned
    assert {s.used.kind: s.used.failed for s in both.stages} == {"judge": 1, "respond": 0}
    judges[0]["prices"] = None
    with sqlite_store.write() as connection:
        sweep_id = store_runs.add_sweep(connection, name="s", dataset_id=data.id, spec={}, plan={}, cap=None)
        connection.execute(sa.update(run).values(manifest=canonical_json(manifest), sweep=sweep_id))
    unknown = costs.cost_of(sqlite_store, with_judge)
    assert unknown.amount is None and unknown.unpriced == ("judge",)
    assert unknown.known_amount == pytest.approx(message) and "judge" in unknown.text
    assert costs.cost_of(sqlite_store, sweep_id).known_amount == pytest.approx(message)  # once, though two runs used it


def _call(
    connection: sa.Connection,
    model: str,
    kind: str,
    prompt: int | None,
    cached: int | None,
    completion: int | None,
    status: str = "ok",
) -> str:
    item = ChatRequest(model, (("user", f"{kind} {status}"),))
    key = calls.keys_of(item, [0], simulated=False)[0]
    outcome = answer(
        key, status=status, exchange=key, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion
    )
    calls.record_all(connection, [calls.Exchange(item, [outcome], kind, "http://x", False)])
    return key


WAYS = {
    "plain": {},
    "split": {"check": "model"},
    "rewrite": {"mitigation": "rewrite"},
    "reduced": {"memory": "necessary+5", "memory_order": "shuffled", "prompt_level": "high"},
}


def test_an_estimate_says_what_is_then_really_asked(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=2)
    for name, changes in WAYS.items():
        spec = priced(**changes)
        if name == "split":
            spec = spec.replace(judges=(spec.judge.replace(split=15),))
        estimated, done, paid = _estimated_and_done(sqlite_store, spec)
        for stage in estimated.stages:
            really = done.by_kind[stage.kind]
            assert stage.draws == really.done, (name, stage.kind)
            # A judge reads two equal messages once, and nobody knows beforehand that they will be equal.
            assert really.fresh <= stage.draws - stage.recorded <= really.fresh + really.reused
            # Prompts that hold no answer are known to the token; others rest on how long answers have been.
            room = 0.01 if stage.kind == "respond" else 0.25
            assert stage.prompt_tokens_least * (1 - room) <= really.prompt_tokens <= stage.prompt_tokens * (1 + room)
            assert stage.cacheable <= stage.prompt_tokens
            if not stage.completion_known:
                assert really.completion_tokens <= stage.completion_tokens
        assert estimated.cost_least is not None and estimated.cost_most is not None
        # Least and most rest on the mean length of answers recorded so far, here under other wording and longer lists.
        assert estimated.cost_least * 0.5 <= paid <= estimated.cost_most * 1.25, name
    again, done, paid = _estimated_and_done(sqlite_store, priced())
    assert (again.requests, again.cost_most, paid, done.fresh) == (0, 0.0, 0.0, 0)
    assert again.recorded == again.draws == done.reused


def _estimated_and_done(store: Store, spec: planning.RunSpec) -> tuple[Estimate, Progress, float]:
    estimated = estimate(store, spec, find_labels=effective_labels)
    run_id = planning.plan(store, spec, find_labels=effective_labels)
    done = runs.execute(store, run_id)
    assert row_of(store, run_id).expected == estimated.responses
    return estimated, done, costs.cost_of(store, run_id).paid


def test_requests_are_counted_as_the_server_gets_them(sqlite_store: Store) -> None:
    """Behind a gate nobody knows how many samples choose alike: between one request a place and one a sample."""
    add(sqlite_store, small_profiles(contexts=4))
    for mitigation in ("none", "gate"):
        spec = priced(mitigation=mitigation)
        estimated = estimate(sqlite_store, spec)
        run_id = planning.plan(sqlite_store, spec)
        runs.execute(sqlite_store, run_id)
        requests = _requests(sqlite_store, run_id)
        for stage in estimated.stages:
            assert stage.requests_least <= requests[stage.kind] <= stage.requests
            if mitigation == "none" or stage.kind == "gate":
                assert stage.requests == requests[stage.kind]


def _requests(store: Store, run_id: str) -> dict[str, int]:
    from cimemories.store.tables import call, run_call

    query = (
        sa.select(call.c.kind, sa.func.count(sa.distinct(call.c.exchange)))
        .join(run_call, run_call.c.call == call.c.key)
        .where(run_call.c.run == run_id)
        .group_by(call.c.kind)
    )
    with store.read() as connection:
        return {kind: int(count) for kind, count in connection.execute(query)}


def test_what_is_not_known_is_said(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    free = simulated()
    first = estimate(sqlite_store, free)
    assert first.cost_most is None and first.seconds is None
    assert "no price" in first.cost_text and set(first.unpriced) == {"sim-average", "sim-judge"}
    assert any("upper bound" in text for text in first.assumptions)
    assert any("4 characters a token" in text for text in first.assumptions)
    runs.execute(sqlite_store, planning.plan(sqlite_store, free))
    later = estimate(sqlite_store, free.replace(prompt_level="light"))
    assert later.seconds is not None and all(stage.completion_known for stage in later.stages)
    assert any("mean of recorded calls" in text for text in later.assumptions)


def test_a_cap_ends_a_run_and_a_higher_one_goes_on(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    with pytest.raises(StoreError, match="sim-judge"):
        planning.plan(
            sqlite_store,
            priced(cap=1.0).replace(judges=(planning.JudgeSpec(kind="llm", model="sim-judge", base_url="simulator"),)),
        )
    whole = estimate(sqlite_store, priced())
    assert whole.cost_least is not None
    spec = priced(cap=whole.cost_least / 2)
    assert "will most likely end this" in str(estimate(sqlite_store, spec).warning)
    run_id = planning.plan(sqlite_store, spec)
    with pytest.raises(WorkError, match="cap on cost is reached"):
        runs.execute(sqlite_store, run_id, concurrency=1)
    row = row_of(sqlite_store, run_id)
    assert row.status == "interrupted" and row.responses["owed"] and "--cap" in str(row.error)
    place = ("--workspace", sqlite_store.workspace)
    assert cli_inside(outside(), "resume", run_id, *place).returncode == 1
    with sqlite_store.write() as connection:
        work.claim(connection, run_id)  # as if this process were still at it
    refused = cli_inside(outside(), "resume", run_id, "--cap", 100, *place)
    assert refused.returncode == 1 and "nothing was changed" in refused.stderr
    assert row_of(sqlite_store, run_id).manifest.cap == spec.cap
    with sqlite_store.write() as connection:
        work.finish(connection, run_id, WorkStatus.INTERRUPTED)
    done = cli_inside(outside(), "resume", run_id, "--cap", 100, *place)
    assert done.returncode == 0, done.stderr
    assert row_of(sqlite_store, run_id).responses == {"ok": 12}
    again = spec_of(sqlite_store, run_id)
    assert (again.prices, again.judge.prices) == (PRICE, JUDGE_PRICE)
    assert "--price '2/0.5/8 EUR'" in command_of(again)


def test_a_server_that_reports_no_tokens_leaves_the_cost_unknown_and_ends_a_capped_run(store: Store) -> None:
    """They counted as none: the cost was 0.00, and the cap never came."""
    add(store, small_profiles(contexts=20))

    def planned(url: str, prices: Prices | None, cap: float | None) -> str:
        judge = planning.JudgeSpec(kind="matcher")
        return planning.plan(
            store,
            planning.RunSpec(
                dataset="small", model="m", base_url=url, samples=2, prices=prices, cap=cap, fresh=True, judges=(judge,)
            ),
        )

    with hostile_server(texts_of, cards("m")) as server:
        run_id = planned(server.url, PRICE, 0.01)
        with pytest.raises(WorkError, match="the server of m does not report how many tokens") as stopped:
            runs.execute(store, run_id, concurrency=2)
        asked = len(server.chats)
        assert asked < 20 and "resume" not in str(stopped.value)
        cost = costs.cost_of(store, run_id)
        assert (cost.amount, cost.known_amount, cost.uncounted, cost.unpriced) == (None, 0.0, ("m",), ())
        assert cost.text == "not known: the server of m does not report tokens"
        assert "does not report tokens" in progress(run_progress(store, run_id), "m").cost
        with pytest.raises(WorkError, match="Plan it again without a cap"):
            runs.execute(store, run_id)
        with pytest.raises(StoreError, match="cannot have a cap"):
            costs.raise_cap(store, run_id, 5.0)
        assert len(server.chats) == asked
        # Without a cap it goes on, and so it does where tokens cost nothing.
        uncapped = planned(server.url, PRICE, None)
        runs.execute(store, uncapped)
        assert costs.cost_of(store, uncapped).amount is None
        free = planned(server.url, Prices.read("0/0 EUR"), 0.01)
        runs.execute(store, free)
        assert costs.cost_of(store, free).amount == 0.0


def test_what_was_counted_stays_known_where_some_tokens_are_not(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store)
    with sqlite_store.write() as connection:
        run_id = plan_run(connection, data.id, 2)
        request = ChatRequest("test-model", (("user", "x"),))
        # One exchange of two draws, its tokens on the first; another without.
        answers = [
            answer("a", exchange="one", prompt_tokens=1_000_000, cached_tokens=0, completion_tokens=0),
            answer("b", draw=1, exchange="one"),
            answer("c", draw=2, exchange="two"),
        ]
        calls.record_all(connection, [calls.Exchange(request, answers, "respond", "http://x", False)])
        calls.link(connection, [(run_id, key, True) for key in "abc"])
        manifest = canonical_json({"model": {"name": "test-model", "prices": PRICE.as_json()}})
        connection.execute(sa.update(run).where(run.c.id == run_id).values(manifest=manifest))
    cost = costs.cost_of(sqlite_store, run_id)
    assert [stage.used.uncounted for stage in cost.stages] == [1]
    assert (cost.amount, cost.known_amount, cost.paid) == (None, 2.0, 2.0)
    assert cost.text == "2.00 EUR plus an unknown cost for test-model"


def test_a_run_that_owes_nothing_stays_finished_at_its_cap(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=2))
    run_id = planning.plan(sqlite_store, priced(samples=1, cap=1000.0))
    runs.execute(sqlite_store, run_id)
    with sqlite_store.write() as connection:
        store_runs.set_cap(connection, run_id, costs.cost_of(sqlite_store, run_id).paid)
    place = ("--workspace", sqlite_store.workspace)
    resumed = cli_inside(outside(), "resume", run_id, *place)
    assert resumed.returncode == 0, resumed.stderr
    assert row_of(sqlite_store, run_id).status == "finished"
    matcher = cli_inside(outside(), "judge", run_id, "--judge", "matcher", *place)
    assert matcher.returncode == 0, "it costs nothing"
    dear = ("--judge-model", "sim-labeler", "--judge-base-url", "simulator", "--judge-price", "1/1 EUR")
    refused = cli_inside(outside(), "judge", run_id, *dear, *place)
    assert refused.returncode == 1 and "cap on cost is reached" in refused.stderr
    assert row_of(sqlite_store, run_id).status == "interrupted"


def judged_again(store: Store, run_id: str, *price: str) -> str:
    """What `judge` says to another judge at this price; empty where it is taken."""
    who = ("--judge-model", "sim-labeler", "--judge-base-url", "simulator", *price)
    done = cli_inside(outside(), "judge", run_id, *who, "--workspace", store.workspace)
    with store.read() as connection:
        added = len(judgements.of_run(connection, run_id)) > 1
    assert added == (done.returncode == 0)
    return "" if added else done.stderr


@pytest.mark.parametrize("priced_by", ["model", "judge"])
def test_a_further_judge_is_priced_in_the_currency_of_the_run(sqlite_store: Store, priced_by: str) -> None:
    add(sqlite_store, small_profiles(contexts=2))
    spec = priced(samples=1)
    spec = spec.replace(prices=None) if priced_by == "judge" else spec.replace(judges=(planning.JudgeSpec(),))
    run_id = planning.plan(sqlite_store, spec)
    runs.execute(sqlite_store, run_id)
    assert "in one currency" in judged_again(sqlite_store, run_id, "--judge-price", "5/5 USD")
    assert not judged_again(sqlite_store, run_id, "--judge-price", "5/5 EUR")
    assert costs.cost_of(sqlite_store, run_id).currency == "EUR"


def test_a_further_judge_of_a_run_in_a_sweep_with_a_cap_needs_a_price(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=2))
    content = {
        "name": "s",
        "dataset": "small",
        "models": [{"model": "sim-average", "base_url": "simulator", "prices": "2/6 EUR"}],
        "samples": 1,
        "judges": ["matcher"],
        "cap": 1000,
    }
    sweep_id = sweeps.plan(sqlite_store, check_sweep(content, Path("s.yaml")))
    sweeps.execute(sqlite_store, sweep_id)
    with sqlite_store.read() as connection:
        [row] = store_runs.of_sweep(connection, sweep_id)
    assert row.manifest.cap is None
    assert f"{sweep_id} has a cap on cost" in judged_again(sqlite_store, row.id)
    assert "in one currency" in judged_again(sqlite_store, row.id, "--judge-price", "5/5 USD")
    assert not judged_again(sqlite_store, row.id, "--judge-price", "5/5 EUR")
    assert costs.cost_of(sqlite_store, sweep_id).amount is not None


def test_the_command_says_what_a_run_would_cost_and_starts_nothing(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    arguments = (
        "run",
        "-d",
        "small",
        "-m",
        "sim-average",
        "--base-url",
        "simulator",
        "-n",
        3,
        "--price",
        "2/0.5/8 EUR",
    )
    done = cli_inside(outside(), *arguments, "--plan", "--workspace", sqlite_store.workspace)
    assert done.returncode == 0, done.stderr
    assert "4 user-task pairs × 3 samples = 12 messages" in done.stdout and "EUR" in done.stdout
    with sqlite_store.read() as connection:
        assert store_runs.all_rows(connection) == []


def test_what_was_paid_does_not_depend_on_the_clocks_of_two_machines(store: Store) -> None:
    """The run was planned on a machine whose clock is an hour ahead of its worker's."""
    add(store, small_profiles(contexts=3))
    run_id = planning.plan(store, priced())
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(created="2999-01-01T00:00:00.000Z"))
    runs.execute(store, run_id)
    cost = costs.cost_of(store, run_id)
    assert cost.paid == cost.known_amount > 0
    again = planning.plan(store, priced(name="again"))
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == again).values(created="2000-01-01T00:00:00.000Z"))
    runs.execute(store, again)
    assert costs.cost_of(store, again).known_amount == cost.known_amount
    assert costs.cost_of(store, again).paid == 0, "the record had it all"


def test_the_plan_of_a_capped_run_says_by_how_much_the_cap_may_be_exceeded(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    capped, free = (estimate(sqlite_store, priced(cap=cap), concurrency=3) for cap in (0.5, None))
    assert free.cap_note is None
    dearest = max((stage.cost_most or 0.0) / stage.requests for stage in capped.stages)
    assert f"at most 3 x about {money(dearest, 'EUR')} = {money(3 * dearest, 'EUR')}" in str(capped.cap_note)
    assert capped.cap_note in capped.notes


def test_a_run_that_ended_above_its_cap_says_so(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    run_id = planning.plan(sqlite_store, priced())
    runs.execute(sqlite_store, run_id)
    paid = costs.cost_of(sqlite_store, run_id).paid
    assert costs.cost_of(sqlite_store, run_id).above_cap_text == ""
    with sqlite_store.write() as connection:
        store_runs.set_cap(connection, run_id, paid / 2)
    text = f"paid {money(paid, 'EUR')}, {money(paid / 2, 'EUR')} above the cap of {money(paid / 2, 'EUR')}"
    assert text in costs.cost_of(sqlite_store, run_id).above_cap_text
    with redirect_stderr(io.StringIO()) as errors:
        cli_work.outcome(sqlite_store, run_id)
    assert text in " ".join(errors.getvalue().split())
    assert text in progress(run_progress(sqlite_store, run_id), "m").cost


def test_a_finished_run_from_the_record_says_what_it_paid_and_not_where_it_stops(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=4))
    runs.execute(sqlite_store, planning.plan(sqlite_store, priced()))
    again = planning.plan(sqlite_store, priced(name="again", cap=0.5))
    runs.execute(sqlite_store, again)
    shown = progress(run_progress(sqlite_store, again), "m").cost
    assert "This run paid 0.00 EUR; the rest was recorded before." in shown
    assert "so far" not in shown and "It stops" not in shown and "above" not in shown
