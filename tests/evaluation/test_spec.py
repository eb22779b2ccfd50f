"""The settings of a run, said once: what each face makes of them, what cannot be, and what records of before said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from planned_sweeps import sweep_content
from typer import Typer
from typer.testing import CliRunner

from cimemories.cli.options import grouped, options_of
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.spec import Group, JudgeSpec, RunSpec, command_of, differing, settings_alike, upgraded
from cimemories.evaluation.sweeps import check_sweep
from cimemories.settings import Setting
from cimemories.store.engine import StoreError

WHO: dict[str, Any] = {"dataset": "demo", "model": "m", "base_url": "http://x/v1"}
NESTED: dict[str, Any] = {
    **WHO,
    "samples": 2,
    "judge": {"kind": "llm", "model": "j", "base_url": "http://j/v1", "schema": "none", "prices": None},
    "more_judges": [{"kind": "matcher", "model": "matcher"}],
    "memory": {"composition": "random-3", "order": "shuffled", "seed": 4, "template": "keyed"},
    "sessions": {"order": "shuffled", "seed": 2, "kept": "last-3"},
    "prices": {"prompt": 1.0, "cached": 0.5, "completion": 2.0, "currency": "EUR"},
}


class Greeted(RunSpec):
    """RunSpec with one more setting."""

    greeting: Annotated[
        Literal["on", "off"], Setting("Greeting", "Whether a message begins with a greeting.", Group.MODEL)
    ] = "on"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"max_tokens": "server"}, None),
        ({"max_tokens": "300"}, 300),
        ({"prices": "1/2 EUR"}, Prices(1, 1, 2, "EUR")),
        ({"sampling": ["top_p=0.9", "stop=a=b"]}, {"top_p": 0.9, "stop": "a=b"}),
        ({"sessions": "none"}, None),
    ],
)
def test_a_setting_is_read_as_people_type_it(given: dict[str, Any], value: object) -> None:
    (name,) = given
    assert getattr(RunSpec(**WHO, **given), name) == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"thinking": "loud"},
            "--thinking must be one of 'default', 'on', 'off', 'low', 'medium' or 'high', not 'loud'",
        ),
        ({"samples": 0}, "--samples must be 1 or more, not 0"),
        ({"seed": 2**31}, "--seed must be 2147483647 or less, not 2147483648"),
        ({"max_tokens": "many"}, "a token limit is a number"),
        ({"sampling": {"stream": True}}, "the tool itself sets stream"),
        ({"memory": "some"}, "no memory composition 'some'"),
        ({"sessions": "last"}, "the last N of them"),
        ({"session_seed": 1}, "go with --sessions"),
        ({"cap": 1.0}, "a cap needs the prices"),
        ({"greetings": "on"}, "there is no setting 'greetings'"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(given: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        RunSpec(**WHO, **given)
    # Changed later, too.
    with pytest.raises(StoreError, match=message):
        RunSpec(**WHO).replace(**given)


def test_a_record_of_before_is_read_under_the_names_of_today() -> None:
    spec = RunSpec.recorded(upgraded(NESTED))
    assert (spec.memory, spec.memory_order, spec.memory_seed, spec.memory_template) == (
        "random-3",
        "shuffled",
        4,
        "keyed",
    )
    assert (spec.sessions, spec.session_order, spec.session_seed) == ("last-3", "shuffled", 2)
    assert [judge.model for judge in spec.judges] == ["j", "matcher"] and spec.judge.json_schema == "none"
    assert spec.prices == Prices(1, 0.5, 2, "EUR") and spec.timeout == 120.0
    # What was asked for then, and what is asked for now, are the same settings; one more changes that.
    asked = RunSpec(**{name: value for name, value in dict(spec).items() if name != "prompts"})
    assert settings_alike(asked, NESTED) and settings_alike(asked, json.loads(json.dumps(asked.as_json())))
    assert not settings_alike(asked.replace(mitigation="gate"), NESTED)


def test_reading_a_record_never_fails() -> None:
    broken = {**WHO, "samples": "many", "thinking": "loud", "judges": 3, "memory_seed": None, "later": 1}
    spec = RunSpec.recorded(upgraded(broken))
    assert spec.model == "m" and (spec.samples, spec.thinking, spec.memory_seed) == (5, "default", 0)
    assert spec.judges == (JudgeSpec(),)


def test_one_field_is_an_option_a_field_of_sweeps_and_a_part_of_the_command() -> None:
    """One field is all that a new setting takes, but for what it does."""
    app, seen = Typer(), list[Any]()

    @app.command()
    @grouped
    def run(settings: options_of(Greeted)) -> None:  # type: ignore[valid-type]
        seen.append(Greeted(**vars(settings)))

    arguments = ["--dataset", "demo", "--model", "m", "--base-url", "http://x/v1", "--greeting", "off"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (spec,) = seen
    assert spec.greeting == "off" and "--greeting off" in command_of(spec)
    assert spec.as_json()["greeting"] == "off"
    # A run from before the setting counts with its default.
    assert settings_alike(Greeted(**WHO), RunSpec(**WHO).as_json()) and not settings_alike(
        spec, RunSpec(**WHO).as_json()
    )


def test_any_setting_of_a_sweep_may_be_a_list() -> None:
    content = sweep_content(
        memory="full",
        samples=[1, 2],
        thinking=False,
        temperature=[0, 0.5],
        sessions=["none", "all"],
        session_seed=[3, 4],
    )
    content["session_order"] = "shuffled"
    runs = check_sweep(content, Path("sweep.yaml")).runs
    # Without sessions a seed of their order means nothing, so its values make no runs of their own.
    assert len(runs) == len(content["models"]) * 2 * 2 * (1 + 2)
    assert {run.thinking for run in runs} == {"off"}  # YAML's reading of `off`
    assert {(run.sessions, run.session_seed) for run in runs} == {(None, 0), ("all", 3), ("all", 4)}
    told = differing(run for run in runs if run.model == runs[0].model)
    assert {"Temperature", "Task seed"} <= set(told) and set(told["Temperature"]) == {
        "0.0",
        "0.5",
    }
