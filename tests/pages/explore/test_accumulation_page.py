"""The Accumulation page through app.py, and its command: the analysis layer's numbers, all state in the address."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from counted_worlds import LABELS, REVEALS, N, X
from paging import nodes, opened, page_html
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_profiles, add_run, ask, make_profile, records

from cimemories.cli import cli
from cimemories.metrics.accumulation import accumulation, baseline
from cimemories.model import JudgementStatus, Label, ResponseStatus
from cimemories.store import datasets, decisions
from cimemories.store.engine import Store

PAGE = "pages/explore/accumulation.py"
HOSTILE = "<img src=x onerror=alert(1)> ![a](http://127.0.0.1:9/a.png)"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def world(store: Store, **options: Any) -> tuple[int, str]:
    """The worked example of docs/metrics.md as a run; returns the profile's and the run's id."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    return records(store, data.id)[0].id, add_run(store, data.id, 5, REVEALS, **options)


def charts(app: Any) -> list[dict[str, Any]]:
    """What each chart of the page is sent as."""
    protos = [getattr(node, "proto", None) for node in nodes(app.main)]
    return [json.loads(item.spec) for item in protos if type(item).__name__ == "PlotlyChart"]


def played(app: Any) -> dict[str, Any]:
    """What presenter's mode was sent."""
    protos = [getattr(node, "proto", None) for node in nodes(app.main)]
    (item,) = [item for item in protos if type(item).__name__ == "BidiComponent" and "slides" in item.json]
    sent = item.mixed.json if item.WhichOneof("data") == "mixed" else item.json
    data: dict[str, Any] = json.loads(sent)
    return data


def test_without_a_run_or_labels_the_page_says_what_to_do(store: Store) -> None:
    assert "No runs yet." in page_html(opened(PAGE))
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    run_id = add_run(store, data.id, 5, REVEALS)
    assert "Nothing can accumulate here" in page_html(opened(PAGE, run=run_id))


def test_the_worked_example_is_what_the_page_shows_and_links_reproduce_it(store: Store) -> None:
    person, run_id = world(store)
    page = opened(PAGE, "accumulation.box.curves", "accumulation.box.first", run=run_id)
    after = "50.0 % of a user&#x27;s private attributes are revealed after one task, 100.0 % after 3 tasks"
    assert f"{after}, 5 messages a task" in page_html(page)
    table = page.dataframe[0].value
    assert table["n"].tolist() == [n for n in (1, 5) for _ in range(4)]
    assert table[table["n"] == 1]["share"].tolist() == pytest.approx([0, 100 * 4 / 15, 100 * 7 / 15, 60])
    flows, scope = ask(store, run_id)
    assert table[table["n"] == 5]["independent"].tolist() == pytest.approx((100 * baseline(flows, scope, 5)).tolist())
    assert page.dataframe[1].value["private"].tolist() == pytest.approx([100, 50, 0, 0][:3])
    assert "simulated" not in page_html(page)
    some = opened(PAGE, "accumulation.box.curves", run=run_id, ns="2.5", user=person, sequence="worst")
    assert sorted(set(some.dataframe[0].value["n"])) == [2, 5]
    assert some.dataframe[0].value["one_user"].tolist()[-4:] == pytest.approx([0, 50, 100, 100])
    assert [line["name"] for line in charts(some)[0]["data"] if line.get("name")] == [
        "n = 2",
        "n = 5",
        "independent, n = 5",
        "Person 0",
    ]
    tasks = next(item.value for item in some.dataframe if "newly_leaked" in item.value)
    assert tasks["newly_leaked"].sum() == 2
    assert (some.query_params["ns"], some.query_params["user"]) == ("2.5", str(person))
    some.pills(key="accumulation.ns").set_value(["1"]).run()
    assert some.query_params["ns"] == "1"
    some.pills(key="accumulation.ns").set_value(["1", "5"]).run()
    assert "ns" not in some.query_params
    gone = opened(PAGE, run=run_id, user=999, ns="9.x", sequence="nonsense")
    assert "The user in the link is not in this run" in page_html(gone) and not gone.exception


def test_presenters_mode_names_what_leaks_in_which_task_and_opens_by_its_link(store: Store) -> None:
    _, run_id = world(store, simulated=True)
    sent = played(opened(PAGE, run=run_id, present=2))
    assert (sent["open"], sent["mark"], sent["attributes"], sent["user"]) == (2, "simulated", 2, "Person 0")
    assert [[item["name"] for item in slide["dropped"]] for slide in sent["slides"]] == [["fact 0"], ["fact 1"], []]
    assert [slide["share"] for slide in sent["slides"]] == [0.5, 1.0, 1.0]
    assert sent["slides"][1]["dropped"][0]["revealed"] == "2 of 5 messages"
    assert played(opened(PAGE, run=run_id))["open"] is None
    assert [term for term, _ in sent["definitions"]] == ["Private", "Told"]
    assert [text for _, text in sent["story"]][:2] == ["Statement 0.0 says fact_0.", "Recipient 0: Task 0"]
    assert sent["closing"][:2] == [
        "2 of 3 tasks tell something private for the first time.",
        "The first leak is in task 1, to the Recipient 0.",
    ]


def test_a_slide_begins_with_what_is_told_most_often(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    add_labels(store, data.id, [[[X, X], [X, X], [N, N]]])
    sent = played(opened(PAGE, run=add_run(store, data.id, 5, [[[1, 0], [3, 0], [5, 5]]]), present=1))
    assert [item["name"] for item in sent["slides"][0]["dropped"]] == ["fact 1", "fact 0"]


def test_presenting_one_message_a_task_shows_what_the_first_of_each_leaks(store: Store) -> None:
    """Reveals fall on the first messages: with one message a task they are known from the counts."""
    _, run_id = world(store, missing={(0, 1, 0): JudgementStatus.UNPARSED})
    sent = played(opened(PAGE, run=run_id, messages="1", present=0))
    assert sent["messages"] == "the first message" and [slide["judged"] for slide in sent["slides"]] == [1, 0, 1]
    revealed = [[int(np.asarray(REVEALS)[0, a, t]) > 0 and LABELS[0][a][t] == X for t in (0, 2)] for a in range(3)]
    leaked = {f"fact {a}" for a in range(3) if any(revealed[a])}
    assert {item["name"] for slide in sent["slides"] for item in slide["dropped"]} == leaked
    assert sent["slides"][-1]["share"] == pytest.approx(len(leaked) / 2)
    assert all(item["quote"] for slide in sent["slides"] for item in slide["dropped"])


def test_curves_end_where_every_flow_is_read_and_say_so(store: Store) -> None:
    _, run_id = world(store, missing={(0, 1, s): ResponseStatus.FAILED for s in (3, 4)})
    page = opened(PAGE, "accumulation.box.curves", run=run_id, ns="2.5")
    limit = "read at n = 3, the largest n that every judged flow supports"
    assert f"after 3 tasks, {limit}" in page_html(page) and limit in json.dumps(charts(page)[0]["layout"]["title"])
    assert sorted(set(page.dataframe[0].value["n"])) == [2]
    assert page.pills(key="accumulation.ns").options == ["1", "2", "3"]


def test_a_task_without_a_judged_message_is_not_called_silent(store: Store) -> None:
    person, run_id = world(store, missing={(0, 1, s): JudgementStatus.UNPARSED for s in range(5)})
    page = opened(PAGE, run=run_id, user=person)
    assert "Only 66.7 % of the messages are judged" in page_html(page)
    assert [slide["judged"] for slide in played(page)["slides"]] == [5, 0, 5]


def test_a_decision_moves_the_curve_at_once(store: Store) -> None:
    """Attribute b is revealed in all samples of the third task; with that pair ambiguous, in 2 of 5 of another."""
    person, run_id = world(store)
    page = opened(PAGE, "accumulation.box.curves", run=run_id, ns="1")
    assert page.dataframe[0].value["share"].tolist()[-1] == pytest.approx(60)
    with store.write() as connection:
        record = datasets.profile_record(connection, person)
        decisions.add(
            connection,
            dataset_id=record.dataset,
            attribute=record.attribute_ids[1],
            context=record.context_ids[2],
            annotator="Ada",
            label=Label.AMBIGUOUS,
        )
    page.run()
    table = page.dataframe[0].value
    # The third task has nothing inappropriate left: it is discarded, and two are.
    assert table["tasks"].tolist() == [0, 1, 2]
    assert table["share"].tolist()[-1] == pytest.approx(100 * (0.2 + 0.4) / 2)


def test_hostile_names_stay_text(store: Store) -> None:
    data = add_profiles(store, [make_profile(0, 2, 2, keys=[HOSTILE])])
    add_labels(store, data.id, [[[X, X], [N, N]]])
    run_id = add_run(store, data.id, 2, [[[2, 0], [0, 0]]], simulated=True)
    page = opened(PAGE, run=run_id, user=records(store, data.id)[0].id)
    assert "<img" not in page_html(page) and "ci-simulated" in page_html(page)
    assert not [chart for chart in charts(page) if "<img" in json.dumps(chart)]


def test_the_command_gives_the_same_numbers(store: Store) -> None:
    _, run_id = world(store)
    flows, scope = ask(store, run_id)
    done = CliRunner().invoke(
        cli, ["accumulate", run_id, "--json", "--profile", "0", "--n", "1", "-w", str(store.workspace)]
    )
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert {row["n"] for row in printed["curves"]} == {1}
    assert [row["share"] for row in printed["curves"]] == pytest.approx(accumulation(flows, scope).mean[0].tolist())
    assert printed["curves"][0]["hazard"] is None
    assert [task["share_1"] for task in printed["user"]["tasks"]] == pytest.approx([0.1, 0.3, 0.6])
    assert [(leak["task"], leak["key"]) for leak in printed["user"]["leaks"]] == [(1, "fact_0"), (2, "fact_1")]
    as_text = CliRunner().invoke(cli, ["accumulate", run_id, "--profile", "0", "-w", str(store.workspace)])
    assert "Person 0: 2 of 2 private attributes leak in 3 tasks, listed order" in as_text.stdout
    for option in (["--n", "6"], ["--profile", "3"], ["--order", "sideways"]):
        failed = CliRunner().invoke(cli, ["accumulate", run_id, *option, "-w", str(store.workspace)])
        assert failed.exit_code and failed.exception, option
