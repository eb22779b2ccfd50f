"""Frames of the Python API hold what the record holds and what commands print: claims, settings, flows of several
runs, accumulation, ranks, judges, votes, labels and profiles; and flows as a file."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from evaluating import DATASET, add_labelled
from judging_worlds import judged_world
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, plan_run, records, settle_judgement

import cimemories
from cimemories import answer
from cimemories.cli import cli
from cimemories.evaluation.spec import RunSpec
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.model import Label, ResponseStatus
from cimemories.store import decisions, judgements
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import context as context_table
from cimemories.store.tables import run as run_table

X, N, A, U = INAPPROPRIATE, NECESSARY, AMBIGUOUS, UNLABELLED
AVERAGE, CAREFUL = "sim-average on the demo", "sim-careful on the demo"


@pytest.fixture(scope="module")
def folder(prepared_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(prepared_demo, tmp_path_factory.mktemp("frames") / "workspace")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Iterator[cimemories.Workspace]:
    with cimemories.open(folder) as ws:
        yield ws


def printed(*arguments: object) -> Any:
    """What a command prints as JSON."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def plain(values: Any) -> list[object]:
    """The values of a column, None where one is missing."""
    return [None if value is None or value is pd.NA or value != value else value for value in values]


def texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with every value as it would be written, whatever the types of its columns are."""
    return frame.astype(object).where(frame.notna(), None).reset_index(drop=True)


def labelled(store: Store, name: str, shape: tuple[int, int, int], seed: int, **options: Any) -> str:
    """A run of 4 samples with random labels and reveals; returns its id."""
    chance = np.random.default_rng(seed)
    data = add_dataset(store, *shape, name=name)
    add_labels(store, data.id, chance.choice([X, N, A, U], p=[0.4, 0.3, 0.2, 0.1], size=shape), name=name)
    return add_run(store, data.id, 4, chance.integers(0, 5, shape), **options)


# ---- claims: messages x attributes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_claims_are_those_of_the_record(sqlite_store: Store, seed: int) -> None:
    world = judged_world(sqlite_store, seed=seed)
    with cimemories.open(sqlite_store.workspace) as ws:
        run = ws.runs[world.run_id]
        claims, every, responses = run.claims(), run.claims(silent=True), run.responses()
        flows = [run.flows(judge=str(judge)) for judge in world.judges]
        one = run.claims(judge="judge 1")
    expected = {
        (response, judge, attribute): (strength, grounded, attribute in world.held[response])
        for response, by_judge in world.claims.items()
        for judge, of_judge in by_judge.items()
        for attribute, (strength, grounded) in of_judge.items()
    }
    keys = zip(claims["response"], claims["judge_id"], claims["attribute"], strict=True)
    assert dict(zip(keys, zip(claims["strength"], claims["grounded"], claims["held"], strict=True), strict=True)) == (
        expected
    )
    assert len(claims) == len(expected) > 20 and set(claims["quote"]) == {"All of it"}
    assert claims["start"].isna().equals(~claims["grounded"].astype(bool))
    # A row for every attribute of every message that a judge has read, and no other.
    judged = {(response, judge) for response, by_judge in world.claims.items() for judge in by_judge}
    assert len(every) == 5 * len(judged) and set(zip(every["response"], every["judge_id"], strict=True)) == judged
    assert texts(every[every["strength"].notna()]).equals(texts(claims))
    # Counted, they are the draws and reveals of each flow, by the world and by the app.
    for judge, own_flows in zip(world.judges, flows, strict=True):
        held = every[(every["judge_id"] == judge) & every["held"]]
        draws, reveals = world.counts([judge], 1, False)
        full = held[held["strength"] == "full"]
        assert (len(held), len(full)) == (draws.sum(), reveals.sum())
        pairs = ["attribute", "context"]
        counts = own_flows.set_index(pairs)
        assert held.groupby(pairs).size().to_dict() == counts["draws"][counts["draws"] > 0].to_dict()
        assert full.groupby(pairs).size().to_dict() == counts["reveals"][counts["reveals"] > 0].to_dict()
    # Messages in the order of `responses`.
    order = {response: at for at, response in enumerate(responses["response"])}
    assert claims["response"].map(order).is_monotonic_increasing
    place = responses.set_index("response")[["user", "recipient", "task", "sample"]]
    assert texts(place.loc[claims["response"]]).equals(texts(claims[["user", "recipient", "task", "sample"]]))
    assert set(one["judge"]) == {"judge 1"} and texts(one).equals(texts(claims[claims["judge"] == "judge 1"]))


def test_claims_name_the_channel_that_a_judge_reads(sqlite_store: Store) -> None:
    run_id = labelled(sqlite_store, "small", (1, 3, 2), 1)
    with sqlite_store.write() as connection:
        asked = {"kind": "llm", "model": "test-judge", "endpoint": "http://x", "simulated": False}
        thoughts = judgements.judge_id(connection, **asked, prompt_hash=None, parameters={}, channel="reasoning")
        judgements.assign(connection, run_id, [thoughts])
    with cimemories.open(sqlite_store.workspace) as ws:
        first = ws.runs[run_id].responses()["response"].iloc[0]
        attribute = ws.runs[run_id].flows()["attribute"].iloc[-1]
        with sqlite_store.write() as connection:
            settle_judgement(connection, int(first), thoughts, None, [int(attribute)])
        claims = ws.runs[run_id].claims()
        of_thoughts = claims[claims["channel"] == "reasoning"]
        assert of_thoughts[["response", "attribute", "judge"]].values.tolist() == [
            [first, attribute, "test-judge on reasoning"]
        ]
        assert len(claims) > 1 and set(ws.runs[run_id].claims(judge="all")["channel"]) == {"message"}
        with pytest.raises(StoreError, match="no judge nobody"):
            ws.runs[run_id].claims(judge="nobody")


def test_a_run_that_is_not_judged_has_no_claims(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=2)
    with sqlite_store.write() as connection:
        run_id = plan_run(connection, data.id, 2)
    with cimemories.open(sqlite_store.workspace) as ws:
        for frame in (ws.runs[run_id].claims(), ws.runs[run_id].claims(silent=True)):
            assert frame.empty and {"quote", "strength", "judge", "channel"} < set(frame.columns)


# ---- settings


def test_every_setting_of_a_run_is_a_column(sqlite_store: Store) -> None:
    add_labelled(sqlite_store, contexts=2)
    choices: dict[str, Any] = {"samples": 1, "judge": "matcher", "progress": False}
    with cimemories.open(sqlite_store.workspace) as ws:
        first = ws.run(DATASET, "sim-average", "simulator", temperature=0.5, seed=7, **choices)
        second = ws.run(DATASET, "sim-average", "simulator", memory="random-50", max_tokens=None, **choices)
        imported = add_run(sqlite_store, 1, 1, {})
        frame = ws.runs.to_frame().set_index("id")
        asked = {run.id: dict(run.manifest["asked"]) for run in (first, second)}
    for run in (first, second):
        for name in [*RunSpec.described(), "prompts", "reference"]:
            value = run.name if name == "name" else asked[run.id][name]
            shown = None if pd.isna(frame.loc[run.id, name]) else frame.loc[run.id, name]
            # 0 and an empty mapping are no setting that was left out, but are compared as one here.
            assert ((json.loads(shown) if isinstance(value, dict) else shown) or None) == (value or None), name
        assert json.loads(frame.loc[run.id, "judge_settings"]) == asked[run.id]["judges"]
    assert frame["seed"].tolist()[0] == 7 and frame["seed"].dtype == "Int64"
    assert plain(frame["temperature"]) == [0.5, None, None] and plain(frame["max_tokens"]) == [1024, None, None]
    assert frame["memory"].tolist() == ["full", "random-50", "full"] and set(frame["memory_order"]) == {"fixed"}
    assert plain(frame["memory_template"]) == ["bullets", "bullets", None]
    assert frame["judges"].tolist() == ["matcher", "matcher", "test-judge"]
    assert frame["base_url"].tolist() == ["simulator", "simulator", "http://x"] and imported == frame.index[-1]


def test_settings_hold_no_password(sqlite_store: Store) -> None:
    run_id = labelled(sqlite_store, "small", (1, 2, 2), 1)
    asked = {"judge": {"base_url": "http://me:hunter2@judge/v1"}, "more_judges": [{"base_url": "http://me:hunter2@x"}]}
    with sqlite_store.write() as connection:
        values = {"endpoint": "http://me:hunter2@host/v1", "manifest": json.dumps({"asked": asked})}
        connection.execute(sa.update(run_table).where(run_table.c.id == run_id).values(values))
    with cimemories.open(sqlite_store.workspace) as ws:
        row = ws.runs.to_frame().iloc[0]
    judges = [judge["base_url"] for judge in json.loads(row["judge_settings"])]
    assert "host/v1" in row["base_url"] and judges == ["http://[hidden]@judge/v1", "http://[hidden]@x"]
    assert "hunter2" not in row.to_json()


def test_times_are_datetimes(demo: cimemories.Workspace) -> None:
    runs, datasets = demo.runs.to_frame(), demo.datasets.to_frame()
    for column in (runs["created"], runs["finished"], datasets["created"]):
        assert str(column.dtype) == "datetime64[ms, UTC]"
    run, dataset = demo.runs[AVERAGE], demo.datasets["demo"]
    assert run.created == runs.set_index("id").loc[run.id, "created"] and run.created.utcoffset() == timedelta(0)
    assert dataset.created == datasets["created"].iloc[0] and dataset.created < datetime.now(UTC)
    assert run.created.isoformat(timespec="milliseconds").replace("+00:00", "Z") == run._row.created


def test_the_command_line_lists_the_same_columns(folder: Path, demo: cimemories.Workspace) -> None:
    for name, frame in (("runs", demo.runs.to_frame()), ("datasets", demo.datasets.to_frame())):
        rows = printed(name, "-w", folder)
        assert [list(row) for row in rows] == [list(frame.columns)] * len(frame), name


def test_an_empty_workspace_has_empty_frames(tmp_path: Path) -> None:
    with cimemories.open(tmp_path / "new", create=True) as ws:
        assert {"created", "judges"} < set(ws.runs.to_frame().columns) and ws.runs.to_frame().empty
        assert ws.datasets.to_frame().empty
        with pytest.raises(StoreError, match="no run of this workspace is judged"):
            ws.flows()
        with pytest.raises(StoreError, match="no dataset 'x'"):
            ws.labels("x")


# ---- flows of several runs


def test_flows_of_several_runs_stand_below_each_other(sqlite_store: Store) -> None:
    first = labelled(sqlite_store, "one", (2, 3, 2), 1)
    # More texts than fit the smallest codes, some of them those of the other run.
    second = labelled(sqlite_store, "two", (1, 150, 3), 2)
    owed = add_run(sqlite_store, 1, 1, {}, missing={(p, c, 0): ResponseStatus.OWED for p in (0, 1) for c in (0, 1)})
    with cimemories.open(sqlite_store.workspace) as ws:
        one, two = ws.runs[first].flows(), ws.runs[second].flows()
        both = ws.flows(first, ws.runs[second], second)
        assert texts(both).equals(texts(pd.concat([texts(one), texts(two)])))
        assert str(both["key"].dtype) == "category" and both["sphere"].isna().any()
        assert set(ws.flows()["run"]) == {first, second} and owed in ws.runs
        assert texts(ws.flows(second)).equals(texts(two))
        sums = ws.flows(second, first).groupby("run", observed=True)["reveals"].sum().to_dict()
        assert sums == {first: one["reveals"].sum(), second: two["reveals"].sum()}
        with pytest.raises(StoreError, match="no run 'x'"):
            ws.flows(first, "x")


def test_flows_join_the_settings_of_their_runs(demo: cimemories.Workspace) -> None:
    flows = demo.flows(AVERAGE, CAREFUL)
    joined = flows.merge(demo.runs.to_frame()[["id", "model"]], left_on="run", right_on="id")
    assert len(joined) == len(flows) and set(joined["model"]) == {"sim-average", "sim-careful"}
    assert flows["simulated"].all() and flows["judge"].notna().all()


# ---- answers as frames


def test_accumulation_is_that_of_the_command_line(demo: cimemories.Workspace, folder: Path) -> None:
    run, options = demo.runs[AVERAGE], {"judge": "all", "identifiers": "none"}
    flags = [f"--{name}={value}" for name, value in options.items()]
    curves = printed("accumulate", run.id, "-w", folder, *flags)["curves"]
    frame = run.accumulation(**options).to_frame()
    assert frame["n"].unique().tolist() == [1, 2, 3, 4, 5]
    assert answer.plain(frame) == curves
    last = frame[(frame["n"] == 5)].iloc[-1]
    assert math.isclose(last["share"], run.metrics(**options).violation[5], abs_tol=1e-9)


# ---- datasets


def test_labels_are_those_that_flows_rest_on(sqlite_store: Store) -> None:
    run_id = labelled(sqlite_store, "one", (2, 4, 3), 3)
    labelled(sqlite_store, "another", (1, 2, 2), 4)
    with cimemories.open(sqlite_store.workspace) as ws:
        before = ws.labels("one")
        private = before[before["label"] == "inappropriate"].iloc[0]
        with sqlite_store.write() as connection:
            pair = {"attribute": int(private["attribute"]), "context": int(private["context"])}
            decisions.add(connection, dataset_id=1, annotator="Ada", label=Label.AMBIGUOUS, **pair)
        labels, flows = ws.labels("one"), ws.runs[run_id].flows()
    same = ["profile", "user", "attribute", "key", "domain", "event", "context", "recipient", "task", "sphere"]
    same += ["label", "decided", "retained"]
    assert len(labels) == 24 and texts(labels[same]).equals(texts(flows[same]))
    decided = labels[labels["decided"]]
    assert decided[["consensus", "label"]].values.tolist() == [["inappropriate", "ambiguous"]]
    assert set(labels["label"]) == {"necessary", "inappropriate", "ambiguous", "unlabelled"}


def test_votes_make_the_labels(sqlite_store: Store) -> None:
    labelled(sqlite_store, "one", (2, 4, 3), 5)
    with cimemories.open(sqlite_store.workspace) as ws:
        votes, labels = ws.votes("one"), ws.labels("one")
        with pytest.raises(StoreError, match="no labelling 'labelling-0'"):
            ws.votes("one", "labelling-0")
        add_dataset(sqlite_store, name="bare")
        with pytest.raises(StoreError, match="'bare' has no votes yet"):
            ws.votes("bare")
        assert set(ws.labels("bare")["label"]) == {"unlabelled"}
    # The paper's rule, pair by pair: what every counted vote says.
    totals = votes.groupby(["attribute", "context"])[["necessary", "inappropriate", "abstain"]].sum()
    assert (totals.sum(axis=1) == 3).all() and votes["conflict"].sum() == 0 and set(votes["planned"]) == {1}
    expected = {
        pair: "necessary" if n == 3 else "inappropriate" if x == 3 else "ambiguous"
        for pair, (n, x, _) in zip(totals.index, totals.to_numpy(), strict=True)
    }
    labels = labels[labels["consensus"] != "unlabelled"]
    pairs = zip(labels["attribute"], labels["context"], strict=True)
    assert dict(zip(pairs, labels["consensus"], strict=True)) == expected
    weights = votes.groupby("persona", observed=True)["prior"].first().to_dict()
    assert weights == {"fundamentalist": 0.26, "pragmatic": 0.64, "unconcerned": 0.10}
    names = labels.set_index(["attribute", "context"])["task"].to_dict()
    assert all(names[a, c] == task for a, c, task in votes[["attribute", "context", "task"]].itertuples(index=False))


def test_profiles_and_attributes_are_those_of_the_dataset(demo: cimemories.Workspace) -> None:
    profiles, attributes = demo.profiles("demo"), demo.attributes("demo")
    people = records(demo._session.store, 1)
    assert profiles["profile"].tolist() == [person.id for person in people]
    for name in ("sex", "age", "address"):
        assert profiles[name].tolist() == [getattr(person.profile, name) for person in people]
    assert profiles["user"].tolist() == [person.profile.name for person in people]
    assert profiles["contexts"].tolist() == [len(person.context_ids) for person in people]
    assert attributes["attribute"].tolist() == [id_ for person in people for id_ in person.attribute_ids]
    items = [item for person in people for item in person.profile.attributes]
    for name in ("key", "value", "domain", "event", "statement"):
        assert attributes[name].tolist() == [getattr(item, name) for item in items], name
    flows = demo.runs[AVERAGE].flows()
    marked = flows.groupby("attribute")["identifier"].first()
    assert attributes.set_index("attribute")["identifier"].to_dict() == marked.to_dict() and marked.any()
    assert len(attributes) == demo.datasets["demo"].attributes


# ---- an n that is not there


def test_an_n_that_is_not_there_explains_itself(sqlite_store: Store) -> None:
    run_id = labelled(sqlite_store, "small", (1, 3, 3), 1)
    with cimemories.open(sqlite_store.workspace) as ws:
        numbers = ws.runs[run_id].metrics()
        for by_n in (numbers.violation, numbers.violation_interval, numbers.violation_bounds):
            for n in (9, 0, "5"):
                with pytest.raises(StoreError, match=f"{run_id} has 4 samples a context, so n is 1 to 4, not {n!r}"):
                    by_n[n]  # type: ignore[index]
            assert list(by_n) == [1, 2, 3, 4] and by_n.get(9) is None and 9 not in by_n


# ---- flows as a file


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_flows_are_exported_as_they_are(sqlite_store: Store, tmp_path: Path, ending: str) -> None:
    run_id = labelled(sqlite_store, "small", (2, 4, 3), 1)
    formula = "=HYPERLINK(1)"
    with sqlite_store.write() as connection:
        connection.execute(sa.update(context_table).where(context_table.c.id == 1).values(recipient=formula))
    file = tmp_path / f"flows.{ending}"
    command = ("export", run_id, "--format", "flows", "--out", file, "-w", sqlite_store.workspace)
    done = printed(*command)
    with cimemories.open(sqlite_store.workspace) as ws:
        flows = texts(ws.runs[run_id].flows())
    written = pd.read_parquet(file) if ending == "parquet" else pd.read_csv(file, keep_default_na=False, na_values=[""])
    if ending == "csv":
        assert set(written.loc[written["context"] == 1, "recipient"]) == {"'" + formula}
        written["recipient"] = written["recipient"].str.removeprefix("'")
    written = texts(written)
    assert list(written.columns) == list(flows.columns) and len(written) == 24
    for name in flows.columns:
        assert written[name].tolist() == flows[name].tolist(), name
    assert (done["format"], done["simulated"]) == ("flows", False) and done["bytes"] == file.stat().st_size
    again = CliRunner().invoke(cli, [str(word) for word in command])
    assert again.exit_code == 1 and "--replace" in str(again.exception)
    judge = printed(*command, "--replace", "--judge", 1)
    assert "reveals as judged by test-judge" in judge["notes"][0]


def test_flows_go_into_a_table_alone(sqlite_store: Store, tmp_path: Path) -> None:
    run_id = labelled(sqlite_store, "small", (1, 2, 2), 1)
    file = tmp_path / "flows.xlsx"
    command = ("export", run_id, "--format", "flows", "--out", file, "-w", sqlite_store.workspace)
    done = CliRunner().invoke(cli, [str(word) for word in command])
    assert done.exit_code == 1 and "Name the file .parquet or .csv" in str(done.exception)
    assert list(tmp_path.glob("flows*")) == []
