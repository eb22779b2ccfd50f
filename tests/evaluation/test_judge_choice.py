"""Who judges: never a simulator what a real model wrote, by default the model itself beside the matcher; and with which
limit on tokens."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from evaluating import add, cli_inside, outside, row_of, simulated
from hostile import IncomingRequest, Reply, completion, hostile_server
from paging import button, goes_on, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import make_profile

from cimemories.evaluation import planning, runs, sweeps
from cimemories.evaluation.batches import export_batch
from cimemories.evaluation.estimates import estimate
from cimemories.evaluation.judging import PlannedJudge, judge_limit
from cimemories.evaluation.planning import spec_of
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.runs import judge_again
from cimemories.evaluation.spec import JUDGE_TOKENS, JudgeSpec, RunSpec, command_of
from cimemories.evaluation.sweeps import check_sweep
from cimemories.llm.capabilities import Server
from cimemories.seeds.prompts import recorded
from cimemories.simulator.server import running_simulator
from cimemories.store import judgements
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, StoreError

RUNS = "pages/evaluate/runs.py"
SIMULATED_JUDGE = JudgeSpec(kind="llm", model="sim-judge", base_url="simulator")


def answering(request: IncomingRequest) -> Reply:
    judging = "response_format" in request.body
    return completion(*['{"revealed": []}' if judging else "Dear all, here is what you asked for."] * request.n)


@pytest.fixture
def real() -> Iterator[Any]:
    """A server of a model that is no simulator's."""
    with hostile_server(answering, ("m",)) as server:
        yield server


@pytest.fixture
def store(app_store: Store) -> Store:
    add(app_store, [make_profile(0, 6, 2)])
    return app_store


def spec(url: str, **changes: object) -> RunSpec:
    return simulated(url, **{"model": "m", "judges": (JudgeSpec(),), "samples": 1, **changes})


def judges_of(store: Store, run_id: str) -> list[tuple[str, dict[str, object]]]:
    with store.read() as connection:
        return [(judge.name, judge.parameters) for judge in judgements.of_run(connection, run_id)]


def test_a_simulated_judge_of_real_messages_is_refused_everywhere(store: Store, real: Any, tmp_path: Path) -> None:
    message = "simulated judge, and the messages are of a real model"
    with running_simulator() as url:
        for judge in (SIMULATED_JUDGE, JudgeSpec(kind="llm", model="sim-judge", base_url=url)):
            with pytest.raises(StoreError, match=message):
                planning.plan(store, spec(real.url, judges=(judge,)))
    with pytest.raises(StoreError, match=message):
        planning.plan(store, spec("batch", judges=(SIMULATED_JUDGE,)))
    content = {
        "name": "s",
        "dataset": "small",
        "models": [{"model": "m", "base_url": real.url}],
        "judges": [{"model": "sim-judge", "base_url": "simulator"}],
    }
    with pytest.raises(StoreError, match=message):
        sweeps.plan(store, check_sweep(content, Path("sweep.yaml")))
    place = ["--workspace", store.workspace]
    by = ["--judge-model", "sim-judge", "--judge-base-url", "simulator"]
    done = cli_inside(outside(), "run", "-d", "small", "-m", "m", "--base-url", real.url, *by, *place)
    assert done.returncode == 1 and "simulated judge" in done.stderr
    with store.read() as connection:
        assert store_runs.all_rows(connection) == []
    run_id = planning.plan(store, spec(real.url))
    runs.execute(store, run_id)
    with pytest.raises(StoreError, match=message):
        judge_again(store, run_id, [SIMULATED_JUDGE])
    assert cli_inside(outside(), "judge", run_id, *by, *place).returncode == 1
    assert not row_of(store, run_id).simulated
    app = opened(RUNS, "runs.box.judge", run=run_id)
    assert "simulated" not in app.selectbox(key=f"runs.again.{run_id}.judge.0.kind").options
    simulated_run = planning.plan(store, simulated(samples=1, judges=(JudgeSpec(),)))
    runs.execute(store, simulated_run)
    judge_again(store, simulated_run, [SIMULATED_JUDGE])


def test_the_form_of_another_judge_shows_what_it_comes_to(store: Store) -> None:
    run_id = planning.plan(store, simulated(samples=1, judges=(JudgeSpec(),)))
    runs.execute(store, run_id)
    again = f"runs.again.{run_id}"
    app = opened(RUNS, "runs.box.judge", f"{again}.box.prices", run=run_id)
    app.selectbox(key=f"{again}.judge.0.kind").set_value("simulated").run()
    app.number_input(key=f"{again}.price.judge.sim-judge.prompt").set_value(2.0).run()
    app.number_input(key=f"{again}.cap").set_value(3.0).run()
    button(app, "Show the plan").click().run()
    assert not app.exception
    assert "2 messages × 1 judgement = 2 judgements" in page_html(app)
    assert "he cap of 3.00" in unescape(page_html(app))
    judges = row_of(store, run_id).manifest.judges
    assert [judge.kind for judge in judges] == ["matcher"], "a plan adds none"


def test_a_real_run_does_not_move_to_a_simulator(store: Store, real: Any) -> None:
    run_id = planning.plan(store, spec(real.url, judges=(JudgeSpec(kind="llm", model="m", base_url=real.url),)))
    for moved in ({"base_url": "simulator"}, {"judge_base_url": "simulator"}):
        with pytest.raises(StoreError, match="is a simulator, and m in run-"):
            runs.execute(store, run_id, **moved)
    runs.execute(store, run_id, base_url=real.url)
    assert row_of(store, run_id).status == "finished"


def test_the_command_line_lets_a_real_model_judge_beside_the_matcher(store: Store, real: Any) -> None:
    place = ["--samples", 1, "--workspace", store.workspace]
    done = cli_inside(outside(), "run", "-d", "small", "-m", "m", "--base-url", real.url, *place)
    assert done.returncode == 0, done.stderr
    assert [name for name, _ in judges_of(store, done.stdout.split()[-1])] == ["m", "matcher"]
    done = cli_inside(outside(), "run", "-d", "small", "-m", "sim-average", "--base-url", "simulator", *place)
    assert [name for name, _ in judges_of(store, done.stdout.split()[-1])] == ["matcher"]
    with running_simulator() as url:
        done = cli_inside(outside(), "run", "-d", "small", "-m", "sim-average", "--base-url", url, *place)
    assert [name for name, _ in judges_of(store, done.stdout.split()[-1])] == ["matcher"]


def step_one(url: str, model: str = "m") -> AppTest:
    app = opened(RUNS, tab="new")
    app.segmented_control(key="run_new.where").set_value("endpoint").run()
    app.text_input(key="run_new.base_url").set_value(url).run()
    app.text_input(key="run_new.model").set_value(model).run()
    return app


def test_the_page_offers_no_simulated_judge_for_an_endpoint(store: Store, real: Any) -> None:
    app = opened(RUNS, tab="new")
    app.segmented_control(key="run_new.where").set_value("simulator").run()
    button(app, "To the experiment").click().run()
    assert app.selectbox(key="run_new.judge.0.kind").value == "simulated"
    button(app, "Back").click().run()
    app.segmented_control(key="run_new.where").set_value("endpoint").run()
    app.text_input(key="run_new.base_url").set_value(real.url).run()
    app.text_input(key="run_new.model").set_value("m").run()
    button(app, "To the experiment").click().run()
    kinds = [app.selectbox(key=f"run_new.judge.{i}.kind") for i in (0, 1)]
    assert [kind.value for kind in kinds] == ["itself", "matcher"], "not what was chosen for the simulator"
    assert all("Simulated judge" not in kind.options for kind in kinds)
    button(app, "To the plan").click().run()
    assert not app.exception
    assert "m (the model under test), matcher" in page_html(app)


def test_the_form_says_that_the_model_under_test_judges_itself_and_offers_another(store: Store, real: Any) -> None:
    app = step_one(real.url)
    button(app, "To the experiment").click().run()
    kind = app.selectbox(key="run_new.judge.0.kind")
    assert kind.options[:3] == ["Matcher, no model", "The model under test itself", "Other model on the same server"]
    [named] = [field for field in app.text_input if field.label == "Judge model"]
    assert (named.value, named.disabled) == ("m", True)
    assert "may judge its own messages mildly" in page_html(app)
    kind.set_value("same").run()
    # Another model has a name: an empty field is not filled in with the model under test.
    assert "Judge 1 needs a model." in page_html(app) and "mildly. Choose" not in page_html(app)
    app.text_input(key="run_new.judge.0.model").set_value("another").run()
    button(app, "To the plan").click().run()
    assert "another, matcher" in page_html(app)


def test_a_connection_test_without_a_name_lists_the_models_of_the_server(store: Store, real: Any) -> None:
    app = step_one(real.url, "")
    assert "test the connection" in page_html(app) and not goes_on(app, "To the experiment")
    button(app, "Test the connection").click().run()
    assert not app.exception
    # The only one is chosen.
    assert app.selectbox(key="run_new.served").options == ["m"]
    assert app.selectbox(key="run_new.served").value == "m"
    assert "✓ The server answers" in page_html(app) and "ci-ok" in page_html(app)
    button(app, "To the experiment").click().run()
    button(app, "To the plan").click().run()
    assert not app.exception and "user-task pair" in page_html(app)
    button(app, "Back").click().run()
    button(app, "Back").click().run()
    assert app.selectbox(key="run_new.served").value == "m", "kept, like everything that was filled in"
    app.text_input(key="run_new.base_url").set_value("http://localhost:1/v1").run()
    assert app.text_input(key="run_new.model"), "another server lists other models"


def test_a_failed_connection_test_blocks_the_next_step(store: Store, real: Any) -> None:
    app = step_one(real.url, "another")
    assert "then test it again" not in page_html(app)
    button(app, "Test the connection").click().run()
    assert not goes_on(app, "To the experiment")
    assert "does not serve" in page_html(app) and "then test it again" in page_html(app)
    app.text_input(key="run_new.model").set_value("m").run()
    assert "then test it again" not in page_html(app), "it failed for another model"
    button(app, "Test the connection").click().run()
    assert "The server answers" in page_html(app) and goes_on(app, "To the experiment")


def test_no_limit_on_tokens_is_a_choice(store: Store, real: Any) -> None:
    place = ["--workspace", store.workspace]
    none = ["--max-tokens", "server", "--judge-max-tokens", "server"]
    arguments = ["run", "-d", "small", "-m", "m", "--base-url", real.url, "--samples", 1]
    plan = cli_inside(outside(), *arguments, *none, "--plan", *place)
    assert plan.returncode == 0 and "no limit is sent" in plan.stderr
    before = len(real.chats)
    done = cli_inside(outside(), *arguments, *none, *place)
    assert done.returncode == 0, done.stderr
    sent = [item.body for item in real.chats[before:] if "colour" not in str(item.body)]
    assert sent and all("max_tokens" not in body for body in sent)
    again = spec_of(store, done.stdout.split()[-1])
    assert (again.max_tokens, again.judge.max_tokens) == (None, None)
    assert "--max-tokens server" in command_of(again) and "--judge-max-tokens server" in command_of(again)
    wrong = cli_inside(outside(), *arguments, "--max-tokens", "none", *place)
    assert wrong.returncode == 1 and "or `server` to leave the limit" in wrong.stderr
    label = ["label", "-d", "small", "-m", "m", "--base-url", real.url, "--draws", 1, "--max-tokens", "server"]
    before = len(real.chats)
    cli_inside(outside(), *label, *place)
    assert all("max_tokens" not in item.body for item in real.chats[before:])


A, B = (JudgeSpec(kind="llm", model=model, base_url=f"http://{model}/v1") for model in ("a", "b"))
MINE = {"api_key_env": "LAB_API_KEY"}
CHEAP, DEAR = Prices.read("1/2 EUR"), Prices.read("3/4 EUR")


def judged_by(judges: Sequence[JudgeSpec], **changes: Any) -> RunSpec:
    return RunSpec(dataset="small", model="m", base_url="http://m/v1", **changes, judges=tuple(judges))


@pytest.mark.parametrize("own", ["OPENAI_API_KEY", "LAB_API_KEY"])
@pytest.mark.parametrize(
    "judges",
    [
        [JudgeSpec()],
        [A],
        [A.replace(**MINE)],
        [A.replace(**MINE), B.replace(**MINE), JudgeSpec()],
        [A.replace(**MINE), B],
        [A, B.replace(base_url=A.base_url)],
        [item.replace(split=20, max_tokens=None, fields={"top_p": 0.5}) for item in (A, B)],
        [A.replace(split=20), B.replace(split=5, max_tokens=None)],
        [item.replace(prices=CHEAP) for item in (A, B)],
        [A.replace(prices=CHEAP), B.replace(prices=DEAR)],
        [A, B, A.replace(channel="reasoning"), JudgeSpec()],
    ],
    ids=str,
)
def test_the_command_of_a_run_asks_every_judge_as_the_run_did(
    judges: list[JudgeSpec], own: str, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    wanted = judged_by(judges, api_key_env=own)
    planned: list[RunSpec] = []

    def plan(store: Store, spec: RunSpec, **_: object) -> str:
        planned.append(spec)
        raise StoreError("enough")

    monkeypatch.setattr(planning, "plan", plan)
    done = cli_inside(outside(), *shlex.split(command_of(wanted))[1:], "--workspace", store.workspace)
    assert "enough" in done.stderr and planned == [wanted]


@pytest.mark.parametrize(
    ("judges", "why"),
    [
        ([JudgeSpec(), A], "models before the matcher"),
        ([A, B, B.replace(channel="reasoning")], "reasoning"),
        ([A, B.replace(split=20)], "--judge-split"),
        ([A, B.replace(fields={"top_p": 0.5})], "--judge-set"),
        ([A, B.replace(prices=CHEAP)], "--judge-price"),
        ([A, B.replace(prompt=recorded("judge", "1", "{message} {attributes}", "text", "f.yaml"))], "--judge-prompt"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_judges_that_no_options_can_ask_for_are_no_wrong_command(judges: list[JudgeSpec], why: str) -> None:
    with pytest.raises(StoreError, match=f"{why}.*`cimemories repeat` with the run's id does"):
        command_of(judged_by(judges))


def test_where_no_command_asks_for_the_same_the_run_can_still_be_repeated(store: Store) -> None:
    run_id = planning.plan(store, simulated(judges=(JudgeSpec(), SIMULATED_JUDGE), samples=1))
    runs.execute(store, run_id)
    shown = cli_inside(outside(), "repeat", run_id, "--show", "--workspace", store.workspace)
    assert shown.returncode == 1 and not shown.stdout and "models before the matcher" in shown.stderr
    text = page_html(opened(RUNS, "runs.box.repeat", run=run_id))
    assert "models before the matcher" in text and f"cimemories repeat {run_id}" in text


def test_a_sweep_may_leave_the_limit_to_the_server(store: Store) -> None:
    content: dict[str, object] = {
        "name": "s",
        "dataset": "small",
        "models": [
            {"model": "a", "base_url": "http://localhost:1/v1"},
            {"model": "b", "base_url": "http://localhost:1/v1", "max_tokens": 512},
        ],
        "judges": [
            {"model": "j", "base_url": "http://localhost:1/v1"},
            {"model": "k", "base_url": "http://localhost:1/v1", "max_tokens": "server"},
        ],
        "max_tokens": "server",
    }
    sweep = check_sweep(content, Path("sweep.yaml"))
    assert [run.max_tokens for run in sweep.runs] == [None, 512]
    assert [judge.max_tokens for judge in sweep.runs[0].judges] == [JUDGE_TOKENS, None]
    assert [run.max_tokens for run in check_sweep(sweep.source, Path("sweep.yaml")).runs] == [None, 512]


def test_the_limit_of_the_page_can_be_left_to_the_server(store: Store, real: Any) -> None:
    app = step_one(real.url)
    button(app, "To the experiment").click().run()
    app.number_input(key="run_new.max_tokens").set_value(None).run()
    button(app, "To the plan").click().run()
    assert not app.exception
    assert "<dt>Token limit per message</dt><dd>the server's</dd>" in unescape(page_html(app))
    assert "no limit is sent" in page_html(app)


@pytest.mark.parametrize(("context", "limit"), [(None, 16_384), (131_072, 16_384), (8192, 4096)])
def test_a_judge_has_room_for_reasoning_and_its_prompt(context: int | None, limit: int) -> None:
    server = Server(simulated=False, max_model_len=context)
    assert judge_limit(JudgeSpec(kind="llm", model="j", base_url="http://localhost:1/v1"), server) == limit
    assert (
        judge_limit(JudgeSpec(kind="llm", model="j", base_url="http://localhost:1/v1", max_tokens=2048), server) == 2048
    )


def test_a_task_check_by_a_model_has_the_room_of_its_judge(store: Store, real: Any) -> None:
    """64 tokens cut what a model that thinks first has to say."""
    run_id = planning.plan(
        store, spec(real.url, judges=(JudgeSpec(kind="llm", model="m", base_url=real.url),), check="model")
    )
    with store.read() as connection:
        (checker,) = judgements.checkers_of_run(connection, run_id)
    assert checker.parameters["max_tokens"] == JUDGE_TOKENS
    # Of a judge that reads reasoning, in parts: the check still reads the whole message.
    of = JudgeSpec(kind="llm", model="m", base_url=real.url, channel="reasoning", split=3)
    plain = planning.checked_by(PlannedJudge("llm", of, Server(simulated=False)))
    assert (plain.kind, plain.channel, plain.spec.split) == ("check", "message", None)
    assert estimate(
        store, spec(real.url, judges=(JudgeSpec(kind="llm", model="m", base_url=real.url),), check="model")
    ).requests


def test_a_batch_run_has_the_bodies_of_its_limits(store: Store, tmp_path: Path) -> None:
    run_id = planning.plan(
        store, spec("batch", judges=(JudgeSpec(kind="llm", model="m", base_url="batch"),), max_tokens=None)
    )
    export_batch(store, run_id, tmp_path / "owed.jsonl")
    assert "max_tokens" not in (tmp_path / "owed.jsonl").read_text()
