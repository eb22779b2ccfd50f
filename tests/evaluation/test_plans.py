"""What labellings, generations, runs and judges are planned with: what a test of their server found, what they would
cost, and whether their requests fit into its context. Each server lacks something that real ones lack."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import authored
import pytest
import sqlalchemy as sa
from evaluating import DATASET, add, cli_inside, outside, row_of, simulated, small_profiles
from hostile import IncomingRequest, Reply, Server, completion, hostile_server
from simulating import lacking

from cimemories.curation import authoring, execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import costs, estimates, planning, runs
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.spec import JUDGE_TOKENS, JudgeSpec
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.worker import WorkError
from cimemories.simulator.server import running_simulator
from cimemories.store import generations, labellings, work
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.tables import call
from cimemories.store.tables import labelling as labelling_table

LACKS = ("n", "json_schema", "max_tokens")
PRICE = Prices.read("1/0.5/4 EUR")
CONTEXTS = 2


def label_spec(base_url: str = "simulator", **changes: object) -> LabellingSpec:
    return LabellingSpec(**{"dataset": DATASET, "model": "sim-labeler", "base_url": base_url, "draws": 2, **changes})  # type: ignore[arg-type]


def manifest_of(store: Store, work_id: str) -> dict[str, object]:
    with store.read() as connection:
        return work.recorded(work.load(connection, work_id))


def labelling_row(store: Store, labelling_id: str) -> labellings.LabellingRow:
    with store.read() as connection:
        return next(row for row in labellings.all_rows(connection) if row.id == labelling_id)


def plain_run(store: Store, base_url: str = "simulator") -> str:
    """A run of one message a context, which the matcher has read."""
    spec = simulated(base_url, samples=1, judges=(JudgeSpec(),))
    run_id = planning.plan(store, spec)
    runs.execute(store, run_id)
    return run_id


def command(store: Store, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    return cli_inside(outside(), verb, "-d", DATASET, *options, "--workspace", store.workspace)


# ---- what the test of a server found is how it is asked


def test_a_labelling_asks_as_its_server_takes_it(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with running_simulator(lacking(*LACKS)) as url:
        labelling_id = labelling.plan(sqlite_store, label_spec(url))
        execution.execute(sqlite_store, labelling_id)
    row = labelling_row(sqlite_store, labelling_id)
    assert row.ballots == {"ok": row.expected}
    manifest = manifest_of(sqlite_store, labelling_id)
    assert manifest["parameters"] == {"max_completion_tokens": 2048}
    assert (manifest["schema"], manifest["n_at_once"]) == ("json_object", False)
    assert len(manifest["capabilities"]["notes"]) == len(LACKS)


def test_a_generation_asks_as_its_server_takes_it(sqlite_store: Store) -> None:
    with running_simulator(lacking(*LACKS)) as url:
        report = authored.write(sqlite_store, authored.spec(url))
    assert report.row.parts.keys() <= {"ok", "short"}, "each part was answered, whatever the simulator left out"
    manifest = manifest_of(sqlite_store, report.row.id)
    assert manifest["parameters"] == {"max_completion_tokens": 8192}
    assert manifest["schema"] == "json_object"


def test_a_judge_that_is_added_asks_as_its_server_takes_it(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    run_id = plain_run(sqlite_store)
    with running_simulator(lacking(*LACKS)) as url:
        runs.judge_again(sqlite_store, run_id, [JudgeSpec(kind="llm", model="sim-judge", base_url=url)], check=True)
        progress = runs.execute(sqlite_store, run_id)
    row = row_of(sqlite_store, run_id)
    assert (progress.done, progress.failed) == (2 * row.expected, {}), "by the judge and its task check"
    judge = row.manifest.judges[-1]
    assert judge.parameters["max_completion_tokens"] == JUDGE_TOKENS
    assert judge.server is not None and judge.server.recorded["schema"] == "json_object"


def test_a_labelling_from_before_servers_were_tested_goes_on_in_the_new_way(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with running_simulator(lacking(*LACKS)) as url:
        labelling_id = labelling.plan(sqlite_store, label_spec(url))
        older = manifest_of(sqlite_store, labelling_id) | {"parameters": {"max_tokens": 2048}}
        for name in ("schema", "n_at_once", "capabilities", "prices", "cap"):
            del older[name]
        with sqlite_store.write() as connection:
            connection.execute(sa.update(labelling_table).values(manifest=canonical_json(older)))
        execution.execute(sqlite_store, labelling_id)
        assert labelling_row(sqlite_store, labelling_id).ballots.keys() == {"failed"}
        assert labelling.plan(sqlite_store, label_spec(url)) == labelling_id
        execution.execute(sqlite_store, labelling_id)
    row = labelling_row(sqlite_store, labelling_id)
    assert row.ballots == {"ok": row.expected}


# ---- addresses


@pytest.mark.parametrize("pasted", ["", "/v1/chat/completions"])
def test_all_work_goes_to_the_right_address(sqlite_store: Store, pasted: str) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with running_simulator() as url:
        given = url.removesuffix("/v1") + pasted
        labelling_id = labelling.plan(sqlite_store, label_spec(given))
        execution.execute(sqlite_store, labelling_id)
        report = authored.write(sqlite_store, authored.spec(given))
        run_id = plain_run(sqlite_store, given)
        runs.judge_again(sqlite_store, run_id, [JudgeSpec(kind="llm", model="sim-judge", base_url=given)])
        progress = runs.execute(sqlite_store, run_id)
    assert labelling_row(sqlite_store, labelling_id).endpoint == url
    with sqlite_store.read() as connection:
        assert generations.by_id(connection, report.row.id).endpoint == url
    row = row_of(sqlite_store, run_id)
    assert (row.endpoint, row.manifest.judges[-1].base_url) == (url, url)
    assert (progress.done, progress.failed) == (row.expected, {})
    note = f"{given} was corrected to {url}"
    notes = [manifest_of(sqlite_store, i)["capabilities"]["notes"] for i in (labelling_id, report.row.id)]
    assert notes == [[note], [note]]
    assert list(row.manifest.model.recorded["notes"]) == [note]


def test_the_correction_is_said(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with running_simulator() as url:
        given = url.removesuffix("/v1")
        said = command(sqlite_store, "label", "-m", "sim-labeler", "--base-url", given, "--draws", "1")
    assert f"{given} was corrected to {url}" in " ".join(said.stderr.split())


# ---- what does not fit


@contextmanager
def short_server(**card: object) -> Iterator[Server]:
    """A server whose context is short, as its list of models says."""
    listed = {"id": "m", "object": "model", "created": 0, "owned_by": "someone", **card}

    def chat(asked: IncomingRequest) -> Reply:
        return completion(*['{"necessary": [], "inappropriate": [], "revealed": []}'] * asked.n)

    with hostile_server(chat, Reply(body={"object": "list", "data": [listed]})) as server:
        yield server


Planned = Callable[..., object]


def planned_label(store: Store, url: str, **how: bool) -> object:
    return labelling.plan(store, label_spec(url, model="m"), **how)


def planned_generation(store: Store, url: str, **how: bool) -> object:
    return authoring.plan(store, authored.spec(url, model="m", max_tokens=512), **how)


def planned_run(store: Store, url: str, *, allow_too_long: bool = False) -> object:
    require = None if allow_too_long else estimates.require_fit
    return planning.plan(store, simulated(url, model="m", judges=(JudgeSpec(),)), require=require)


def planned_judge(store: Store, url: str, **how: bool) -> object:
    return runs.judge_again(
        store, plain_run(store), [JudgeSpec(kind="llm", model="m", base_url=url, max_tokens=16)], **how
    )


@pytest.mark.parametrize("plan", [planned_label, planned_generation, planned_run, planned_judge])
def test_what_does_not_fit_is_sent_only_where_the_user_says_so(sqlite_store: Store, plan: Planned) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with short_server(max_model_len=300) as server:
        if plan is planned_judge:
            # A real judge reads what a simulator wrote.
            assert row_of(sqlite_store, plain_run(sqlite_store)).simulated
        with pytest.raises(StoreError, match=r"not fit into the 300 tokens .* too many.*--allow-too-long"):
            plan(sqlite_store, server.url)
        assert not server.chats
        assert plan(sqlite_store, server.url, allow_too_long=True)


@pytest.mark.parametrize("plan", [planned_label, planned_generation, planned_run, planned_judge])
def test_what_fits_is_planned(sqlite_store: Store, plan: Planned) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with short_server(max_model_len=100_000) as server:
        assert plan(sqlite_store, server.url)


def test_by_how_much_it_does_not_fit_is_counted(sqlite_store: Store) -> None:
    """Worked out by hand from the prompts that are sent: 4 characters a token, and the answer's limit."""
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with short_server(max_model_len=100_000) as server:
        execution.execute(sqlite_store, labelling.plan(sqlite_store, label_spec(server.url, model="m")))
        lengths = sorted(-(-len(chat.body["messages"][0]["content"]) // 4) + 2048 for chat in server.chats)
    context = lengths[len(lengths) // 2] - 1
    longer = sum(length > context for length in lengths)
    with short_server(max_model_len=context) as server:
        (stage,) = labelling.estimate(sqlite_store, label_spec(server.url, model="m")).stages
        (misfit,) = labelling.estimate(sqlite_store, label_spec(server.url, model="m")).misfits
    assert (stage.too_long, stage.longest, stage.requests) == (longer, lengths[-1], len(lengths))
    assert f"{longer} of {len(lengths)} requests" in misfit and f"{lengths[-1] - context:,} too many" in misfit
    # llama.cpp begins a request whose prompt fits, and cuts its answer.
    with short_server(meta={"n_ctx": context, "n_ctx_train": 100}) as server:
        assert not labelling.estimate(sqlite_store, label_spec(server.url, model="m")).misfits
    with short_server(meta={"n_ctx": 100, "n_ctx_train": 100_000}) as server:
        assert labelling.estimate(sqlite_store, label_spec(server.url, model="m")).misfits


def test_the_command_says_what_does_not_fit(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with short_server(max_model_len=300) as server:
        for verb in ("label", "run"):
            given = ("-m", "m", "--base-url", server.url, "--plan", *(["--judge", "matcher"] * (verb == "run")))
            said = " ".join(command(sqlite_store, verb, *given).stderr.split())
            assert "300 tokens" in said and "too many" in said
            plan = json.loads(command(sqlite_store, verb, *given, "--json").stdout)
            assert plan["stages"][0]["context"] == 300 and plan["stages"][0]["too_long"] == plan["requests"]
            assert "too many" in plan["does_not_fit"][0]
        assert not server.chats


# ---- what it costs


def test_a_labelling_is_counted_as_it_is_then_asked(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(2, contexts=CONTEXTS))
    spec = label_spec(prices=PRICE)
    before = labelling.estimate(sqlite_store, spec)
    assert (before.places, before.responses, before.recorded) == (4, 4 * 3 * 2, 0)
    assert before.cost_most is not None and before.cost_most > 0
    labelling_id = labelling.plan(sqlite_store, spec)
    progress = execution.execute(sqlite_store, labelling_id)
    assert before.draws == progress.done
    assert before.prompt_tokens == pytest.approx(progress.prompt_tokens, rel=0.05)
    cost = costs.cost_of(sqlite_store, labelling_id)
    assert cost.amount == pytest.approx(
        PRICE.cost(progress.prompt_tokens, progress.cached_tokens, progress.completion_tokens)
    )
    after = labelling.estimate(sqlite_store, spec.replace(draws=3))
    assert (after.recorded, after.requests) == (before.draws, 4 * 3)
    assert after.stages[0].completion_known, "what was recorded tells how long ballots are"
    assert labelling.estimate(sqlite_store, spec).requests == 0


def test_a_generation_is_counted_as_it_is_then_asked(sqlite_store: Store) -> None:
    spec = authored.spec(prices=PRICE)
    before = authoring.estimate(sqlite_store, spec)
    assert (before.requests, before.responses) == (authored.PARTS, authored.WANTED)
    report = authored.write(sqlite_store, spec)
    # What is rejected is asked for again, which the plan says beside its numbers.
    tokens = sa.select(sa.func.sum(call.c.prompt_tokens)).where(call.c.draw == 0)
    with sqlite_store.read() as connection:
        first = connection.execute(tokens).scalar_one()
    assert before.prompt_tokens == pytest.approx(first, rel=0.1)
    assert any("asked for again" in note for note in before.notes)
    assert (report.cost.amount, report.cost.currency) == (
        pytest.approx(PRICE.cost(*(report.tokens(kind) for kind in ("prompt", "cached", "completion")))),
        "EUR",
    )


def test_judges_of_a_run_are_counted_as_they_are_then_asked(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    run_id = plain_run(sqlite_store)
    judges = [JudgeSpec(kind="llm", model="sim-judge", base_url="simulator", prices=PRICE, split=25)]
    before = runs.estimate_judges(sqlite_store, run_id, judges, check=True)
    assert not row_of(sqlite_store, run_id).manifest.cap, "a plan writes nothing"
    runs.judge_again(sqlite_store, run_id, judges, check=True)
    progress = runs.execute(sqlite_store, run_id)
    assert before.draws == progress.done
    assert before.prompt_tokens == pytest.approx(progress.prompt_tokens, rel=0.05)


@pytest.mark.parametrize("kind", ["label", "generate", "judge"])
def test_a_cap_ends_the_work_and_a_higher_one_lets_it_go_on(sqlite_store: Store, kind: str) -> None:
    add(sqlite_store, small_profiles(contexts=8))
    if kind == "label":
        work_id = labelling.plan(sqlite_store, label_spec(prices=PRICE, cap=0.000001))
        execute = partial(execution.execute, sqlite_store, work_id, concurrency=1)
    elif kind == "generate":
        work_id = authoring.plan(sqlite_store, authored.spec(prices=PRICE, cap=0.000001))
        execute = partial(execution.execute, sqlite_store, work_id, concurrency=1)
    else:
        work_id = plain_run(sqlite_store)
        judge = JudgeSpec(kind="llm", model="sim-judge", base_url="simulator", prices=PRICE)
        runs.judge_again(sqlite_store, work_id, [judge], cap=0.000001)
        execute = partial(runs.execute, sqlite_store, work_id, concurrency=1)
    with pytest.raises(WorkError, match="the cap on cost is reached"):
        execute()
    paid = costs.cost_of(sqlite_store, work_id).paid
    assert paid > 0
    with pytest.raises(WorkError, match="the cap on cost is reached"):
        execute()
    assert costs.cost_of(sqlite_store, work_id).paid == paid, "nothing was asked"
    costs.raise_cap(sqlite_store, work_id, 1000.0)
    execute()
    cost = costs.cost_of(sqlite_store, work_id)
    assert cost.cap == 1000.0 and cost.paid > paid
    with sqlite_store.read() as connection:
        assert str(work.load(connection, work_id)["status"]).startswith("finished")


def test_a_cap_needs_a_price(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with pytest.raises(StoreError, match="a cap needs the prices"):
        labelling.plan(sqlite_store, label_spec(cap=1.0))
    with pytest.raises(StoreError, match="a cap needs the prices"):
        authoring.plan(sqlite_store, authored.spec(cap=1.0))


def test_prices_of_generations_from_before_are_read(sqlite_store: Store) -> None:
    assert costs.curation_prices({"asked": {"price_in": 1.0, "price_out": 4.0}}) == Prices(1, 1, 4)
    assert costs.curation_prices({"asked": {"price_in": 0.0, "price_out": 0.0}}) is None
    assert costs.curation_prices({"prices": PRICE.as_json()}) == PRICE
    assert costs.curation_prices({}) is None


def test_a_labelling_cannot_go_by_batch_files(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with pytest.raises(EndpointError, match="only runs"):
        labelling.plan(sqlite_store, label_spec("batch"))
