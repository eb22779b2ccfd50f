"""The Labels page as a person uses it, through app.py: the matrix, one context, the pair beside them, labellings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hostile import Reply, hostile_server
from paging import button, double_click, nodes, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import PERSONAS, add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.labels.votes import pairs
from cimemories.model import Attribute, Context, Label, Profile, WorkStatus
from cimemories.store import decisions, labellings, rows, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.tables import imported_vote

LABELS = "pages/curate/labels.py"
HOSTILE = "![x](http://127.0.0.1:1/a.png) <img src=x onerror=alert(1)>"
# What draws text as it is, or draws only our own markup; the matrix (a component) sets text, never markup.
SAFE = {"html", "dataframe", "code", "text", "selectbox", "multiselect", "bidi_component"}


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def labelled(store: Store) -> tuple[DatasetRow, str]:
    """Two profiles, three attributes, two contexts, with every kind of label."""
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    codes = [[[INAPPROPRIATE, NECESSARY], [NECESSARY, NECESSARY], [AMBIGUOUS, UNLABELLED]]] * 2
    return dataset, add_labels(store, dataset.id, codes, draws=2)


def decide(store: Store, dataset: int, attribute: int, context: int, label: Label | None, who: str = "Ada") -> None:
    with store.write() as connection:
        decisions.add(connection, dataset_id=dataset, attribute=attribute, context=context, annotator=who, label=label)


def drawing(app: AppTest) -> dict[str, Any]:
    """What is sent to the matrix."""
    protos = [node.proto for node in app.get("bidi_component")]
    (sent,) = [proto.json or proto.mixed.json for proto in protos if '"rows"' in proto.json + proto.mixed.json]
    return json.loads(sent)


def listed(app: AppTest) -> list[dict[str, Any]]:
    """The rows of one context's pairs, by the title of their column; their label and who decided it."""
    shown = drawing(app)
    titles = [column["name"] for column in shown["columns"]]
    return [{**row, **dict(zip(titles, row["cells"], strict=True))} for row in shown["rows"]]


def by_pair(shown: dict[str, Any], what: str) -> dict[tuple[str, str], str]:
    """One character a cell by (attribute, recipient)."""
    pairs_ = [(row["key"], column["recipient"]) for row in shown["rows"] for column in shown["columns"]]
    return dict(zip(pairs_, shown[what], strict=True))


def test_the_matrix_carries_labels_counts_and_what_is_retained(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    dataset, _ = labelled
    person = records(store, dataset.id)[0]
    decide(store, dataset.id, person.attribute_ids[2], person.context_ids[1], Label.INAPPROPRIATE)
    app = opened(LABELS, dataset=dataset.id)
    shown = drawing(app)
    assert by_pair(shown, "cells") == {
        ("fact_0", "Recipient 0"): "I",
        ("fact_0", "Recipient 1"): "N",
        ("fact_1", "Recipient 0"): "N",
        ("fact_1", "Recipient 1"): "N",
        ("fact_2", "Recipient 0"): "U",
        ("fact_2", "Recipient 1"): "I",
    }
    assert [pair for pair, bit in by_pair(shown, "decided").items() if bit == "1"] == [("fact_2", "Recipient 1")]
    assert by_pair(shown, "consensus")["fact_2", "Recipient 1"] == "-"
    assert {c["recipient"]: (c["counts"], c["retained"]) for c in shown["columns"]} == {
        "Recipient 0": ([1, 1, 1], True),
        "Recipient 1": ([2, 1, 0], True),
    }
    assert {r["key"]: r["counts"] for r in shown["rows"]}["fact_1"] == [2, 0, 0]
    assert "6 pairs of a fact and a recipient, 3 necessary, 2 inappropriate, 1 ambiguous" in page_html(app)


def test_a_link_puts_the_cursor_on_its_pair_and_opens_it(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    dataset, _ = labelled
    person = records(store, dataset.id)[1]
    where = {"profile": person.id, "context": person.context_ids[1], "attribute": person.attribute_ids[2]}
    app = opened(LABELS, dataset=dataset.id, **where)
    assert drawing(app)["cursor"] == [person.attribute_ids[2], person.context_ids[1]]
    assert "Statement 1.2 says fact_2." in page_html(app)
    assert "No vote is counted for this pair" in page_html(app)


@pytest.mark.parametrize(
    ("query", "rows", "columns", "matching"),
    [
        ({"domain": "relationships"}, ["fact_1"], 2, {("fact_1", "Recipient 0"), ("fact_1", "Recipient 1")}),
        ({"sphere": "housing", "label": "inappropriate"}, ["fact_0", "fact_1", "fact_2"], 1, set()),
        ({"label": "ambiguous,unlabelled"}, None, 2, {("fact_2", "Recipient 0"), ("fact_2", "Recipient 1")}),
        ({"differs": "dissent"}, None, 2, {("fact_2", "Recipient 0")}),
        ({"differs": "decided"}, None, 2, {("fact_0", "Recipient 0"), ("fact_1", "Recipient 0")}),
        ({"differs": "changed", "event": "job loss"}, None, 2, {("fact_0", "Recipient 0")}),
    ],
)
def test_filters_of_a_link_drop_and_dim(
    store: Store,
    labelled: tuple[DatasetRow, str],
    query: dict[str, str],
    rows: list[str] | None,
    columns: int,
    matching: set[tuple[str, str]],
) -> None:
    dataset, _ = labelled
    person = records(store, dataset.id)[0]
    decide(store, dataset.id, person.attribute_ids[0], person.context_ids[0], Label.NECESSARY)
    decide(store, dataset.id, person.attribute_ids[1], person.context_ids[0], Label.NECESSARY)
    app = opened(LABELS, dataset=dataset.id, **query)
    shown = drawing(app)
    assert sorted(r["key"] for r in shown["rows"]) == (rows or ["fact_0", "fact_1", "fact_2"])
    assert len(shown["columns"]) == columns
    assert {pair for pair, bit in by_pair(shown, "matched").items() if bit == "1"} == matching
    assert f"{len(matching)} of 6 pairs match" in page_html(app)
    button(app, "Clear").click().run()
    assert not app.exception
    assert not query.keys() & set(app.query_params)
    assert set(drawing(app)["matched"]) == {"1"}


def test_a_filter_goes_into_the_url(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    app = opened(LABELS, dataset=labelled[0].id)
    app.pills(key="labels.kinds").set_value(["necessary", "ambiguous"]).run()
    app.selectbox(key="filters.domain").set_value("finance").run()
    assert (app.query_params["label"], app.query_params["domain"]) == ("necessary,ambiguous", "finance")
    assert [row["key"] for row in drawing(app)["rows"]] == ["fact_0"]
    app.segmented_control(key="labels.show").set_value("context").run()
    assert app.query_params["show"] == "context"
    assert "No pair of this context matches the filters." in page_html(app)


def test_the_counts_are_tables_too(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    app = opened(LABELS, dataset=labelled[0].id, show="counts")
    contexts, attributes = (item.value for item in app.dataframe)
    assert contexts[["necessary", "inappropriate", "ambiguous"]].to_numpy().tolist() == [[1, 1, 1], [2, 0, 0]]
    assert contexts["retained"].tolist() == ["retained", "discarded"]
    assert attributes["necessary"].tolist() == [1, 2, 0]
    assert "2 contexts, 1 of them discarded" in page_html(app)


def test_files_of_the_counts_say_whose_they_are_and_that_labels_are_simulated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    labelling = add_labels(store, dataset.id, [[[INAPPROPRIATE, NECESSARY]] * 3] * 2, simulated=True)
    files: dict[str, Any] = {}
    monkeypatch.setattr("cimemories.ui.tables.csv_button", lambda frame, name, **_: files.update({name: frame}))
    opened(LABELS, dataset=dataset.id, show="counts", profile=records(store, dataset.id)[1].id)
    assert set(files) == {"contexts.csv", "attributes.csv", "pairs.csv"}
    for frame in files.values():
        marks = frame[["profile", "labelling", "labels"]].drop_duplicates().to_numpy().tolist()
        assert marks == [["Person 1", labelling, "simulated"]]


def test_the_current_rule_is_the_one_that_is_explained(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    dataset, _ = labelled
    person = records(store, dataset.id)[0]
    priors = {"fundamentalist": 0.1, "pragmatic": 0.1, "unconcerned": 0.8}
    with store.write() as connection:
        labellings.add_rule(connection, dataset.id, "bold", threshold=0.8, priors=priors, annotator="Ada", use=True)
    app = opened(LABELS, dataset=dataset.id, attribute=person.attribute_ids[2], context=person.context_ids[0])
    assert by_pair(drawing(app), "cells")["fact_2", "Recipient 0"] == "N"
    assert "80 % of the mixture says necessary; the threshold is 80 %: consensus." in page_html(app)
    assert "Rule: bold; threshold 80 %" in page_html(app)


def test_pairs_stand_in_the_table_with_votes_and_labels(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    dataset, _ = labelled
    app = opened(LABELS, dataset=dataset.id, show="context")
    table = listed(app)
    assert [row["Attribute"] for row in table] == ["fact_0", "fact_1", "fact_2"]
    assert [(row["glyph"], row["word"]) for row in table] == [
        ("I", "inappropriate"),
        ("N", "necessary"),
        ("U", "ambiguous"),
    ]
    assert [row["fundamentalist"] for row in table[:2]] == ["II", "NN"]
    assert "6 of 6 counted votes say inappropriate: consensus." in page_html(app)
    column = "Of 3 attributes towards &#x27;Recipient 0&#x27;: 1 necessary, 1 inappropriate, 1 ambiguous."
    assert column in page_html(app)


def test_the_pairs_of_a_context_are_a_file_too(
    store: Store, labelled: tuple[DatasetRow, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, _ = labelled
    person = records(store, dataset.id)[0]
    decide(store, dataset.id, person.attribute_ids[1], person.context_ids[0], Label.INAPPROPRIATE)
    files: list[Any] = []
    monkeypatch.setattr("cimemories.ui.tables.csv_button", lambda frame, _name, **_: files.append(frame))
    opened(LABELS, dataset=dataset.id, show="context", label="inappropriate")
    (frame,) = files
    names = ["profile", "recipient", "attribute", "label", "decided by", "fundamentalist", "consensus"]
    assert frame[names].to_numpy().tolist() == [
        ["Person 0", "Recipient 0", "fact_0", "inappropriate", "", "XX", "inappropriate"],
        ["Person 0", "Recipient 0", "fact_1", "inappropriate", "Ada", "NN", "necessary"],
    ]


def test_a_decision_is_recorded_shown_and_taken_back(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    dataset, labelling = labelled
    person = records(store, dataset.id)[0]
    app = opened(LABELS, dataset=dataset.id, attribute=person.attribute_ids[0], show="context")
    (form,) = [node for node in nodes(app._tree) if getattr(node, "type", "") == "form"]
    assert "Reason" in {getattr(node, "label", "") for node in nodes(form)}
    assert not form.proto.form.enter_to_submit, "Enter ends the typing of a reason, and decides nothing"
    next(item for item in app.text_input if item.label == "Your name").set_value("Ada").run()  # as Enter does
    with store.read() as connection:
        assert decisions.history(connection, dataset.id) == []
    next(item for item in app.text_input if item.label == "Reason").set_value("the bank asks for it")
    double_click(app, button(app, "N necessary"))
    assert not app.exception
    with store.read() as connection:
        (written,) = decisions.history(connection, dataset.id)
    assert (written.label, written.annotator, written.reason) == (Label.NECESSARY, "Ada", "the bank asks for it")
    first = listed(app)[0]
    assert (first["word"], first["Consensus"], first["by"]) == ("necessary", "I inappropriate", "decided by Ada")
    assert "decided by Ada" in page_html(app)
    assert not [item for item in app.text_input if item.label == "Your name"]  # asked once

    double_click(app, button(app, "Withdraw my decision"))
    view = pairs(store, labelling, person.id, person.context_ids[0])[0]
    assert (view.decision, view.effective, len(view.history)) == (None, Label.INAPPROPRIATE, 2)
    assert "by the votes of the personas" in page_html(app)


def test_a_decision_needs_a_name(store: Store, labelled: tuple[DatasetRow, str]) -> None:
    app = opened(LABELS, dataset=labelled[0].id)
    button(app, "I inappropriate").click().run()
    assert "A decision needs your name." in page_html(app)
    with store.read() as connection:
        assert decisions.history(connection, labelled[0].id) == []


def test_a_labelling_that_stopped_can_be_resumed(
    store: Store, labelled: tuple[DatasetRow, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, labelling = labelled
    with store.write() as connection:
        work.finish(connection, labelling, WorkStatus.INTERRUPTED, "the server went away")
    launched: list[str] = []
    monkeypatch.setattr("cimemories.launch.launch", lambda _store, work_id, _engine=None: launched.append(work_id))
    app = opened(LABELS, dataset=dataset.id)
    assert "The server went away." in page_html(app)
    double_click(app, button(app, "Resume"))
    assert launched == [labelling]


def test_while_votes_arrive_the_page_says_so_and_discards_nothing(
    store: Store, labelled: tuple[DatasetRow, str]
) -> None:
    dataset, labelling = labelled
    with store.write() as connection:
        work.claim(connection, labelling)
        work.slow_down(connection, labelling, "the server limits requests: about 60 a minute")
    app = opened(LABELS, dataset=dataset.id)
    assert "The server limits requests: about 60 a minute." in page_html(app)
    assert [column["discarded"] for column in drawing(app)["columns"]] == [False, False]
    assert "1 of 2 contexts retained. So far: a labelling is in progress." in page_html(app)
    assert "The personas are voting: 24 of 24 ballots, measuring the pace. Of this profile: 12 of 12." in page_html(app)
    assert app.selectbox(key="labels.labelling").options == [
        "test-voter: in progress, 2 votes per persona, personas test"
    ]
    with store.write() as connection:
        work.finish(connection, labelling, WorkStatus.FINISHED)
    app.run()
    assert {c["recipient"]: c["discarded"] for c in drawing(app)["columns"]} == {
        "Recipient 0": False,
        "Recipient 1": True,
    }
    assert "in progress" not in page_html(app)


def test_a_labelling_without_a_vote_yet_says_where_the_votes_will_show(store: Store) -> None:
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    person, other = records(store, dataset.id)
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling = labellings.add(
            connection,
            identity="to come",
            dataset_id=dataset.id,
            model="test-voter",
            endpoint="http://x",
            simulated=False,
            pack="test",
            draws=2,
            manifest={"personas": ids},
        )
        labellings.plan(connection, labelling, [person.id], person.context_ids, ids, 2)
        work.queue(connection, labelling)
    app = opened(LABELS, dataset=dataset.id)
    assert "Person 0: no vote on any of 6 pairs yet. A labelling is in progress." in page_html(app)
    assert "Waiting for the worker to start: 0 of 12 ballots." in page_html(app)
    assert "The 12 ballots of this profile will show here as they arrive." in page_html(app)
    assert not any(column["discarded"] for column in drawing(app)["columns"])
    assert "None of them is of this profile." in page_html(opened(LABELS, dataset=dataset.id, profile=other.id))
    with store.write() as connection:
        work.finish(connection, labelling, WorkStatus.CANCELLED)
    app.run()
    # A context without any vote is not labelled; only one with labels can be discarded.
    assert not any(column["discarded"] for column in drawing(app)["columns"])


def test_a_labelling_is_planned_and_launched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    launched: list[str] = []
    monkeypatch.setattr("cimemories.launch.launch", lambda _store, work_id, _engine=None: launched.append(work_id))
    app = opened(LABELS, dataset=dataset.id)
    app.segmented_control(key="start.how").set_value("The simulator").run()
    app.number_input(key="start.draws").set_value(2)
    app.number_input(key="start.profiles").set_value(1)
    double_click(app, button(app, "Start"))
    assert not app.exception
    with store.read() as connection:
        (row,) = labellings.all_rows(connection, dataset.id)
    assert launched == [row.id]
    assert (row.simulated, row.draws, row.expected) == (True, 2, 1 * 2 * 3 * 2)
    assert app.query_params["labelling"] == row.id


def test_the_form_shows_the_plan_and_what_does_not_fit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = add_dataset(store, profiles=2, attributes=3, contexts=2)
    monkeypatch.setattr("cimemories.launch.launch", lambda _store, work_id, _engine=None: None)
    models = Reply(body={"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 100}]})
    with hostile_server(models=models) as server:
        app = opened(LABELS, "start.box.prices", dataset=dataset.id)
        app.number_input(key="start.price.model.prompt").set_value(2.0)
        app.number_input(key="start.price.model.completion").set_value(6.0)
        app.number_input(key="start.cap").set_value(5.0).run()
        next(item for item in app.text_input if item.label == "Model").set_value("m")
        next(item for item in app.text_input if item.label == "Base URL").set_value(server.url)
        app.number_input(key="start.draws").set_value(2).run()
        button(app, "Show the plan").click().run()
        assert "4 user-task pairs × 6 ballots = 24 ballots" in page_html(app)
        assert "not fit into the 100 tokens" in page_html(app)
        button(app, "Start").click().run()
        assert "Nothing was started." in page_html(app)
        assert not server.chats
        app.toggle(key="start.too_long").set_value(True)
        button(app, "Start").click().run()
        assert not app.exception
    with store.read() as connection:
        (row,) = labellings.all_rows(connection, dataset.id)
    assert row.manifest["prices"] == {"prompt": 2.0, "cached": 2.0, "completion": 6.0, "currency": ""}
    assert row.manifest["cap"] == 5.0


def test_a_server_that_is_not_there_is_one_clear_line(store: Store) -> None:
    dataset = add_dataset(store, profiles=1)
    app = opened(LABELS, dataset=dataset.id)
    next(item for item in app.text_input if item.label == "Model").set_value("some-model")
    next(item for item in app.text_input if item.label == "Base URL").set_value("http://127.0.0.1:9/v1").run()
    button(app, "Start").click().run()
    assert not app.exception
    assert "Nothing was started." in page_html(app)
    with store.read() as connection:
        assert labellings.all_rows(connection, dataset.id) == []


@pytest.mark.parametrize(
    "query",
    [
        {"dataset": "99", "show": "context"},
        {"labelling": "labelling-gone"},
        {"profile": "<img src=x>", "context": "0"},
        {"attribute": "999999", "show": "context"},
        {"domain": "<img src=x>"},
        {"event": "none of these", "sphere": "x", "differs": "y", "label": "z"},
    ],
)
def test_a_stale_link_falls_back_with_a_notice(
    store: Store, labelled: tuple[DatasetRow, str], query: dict[str, str]
) -> None:
    app = opened(LABELS, **query)
    assert "ci-notice" in page_html(app)
    assert "<img" not in page_html(app)
    assert len(drawing(app)["rows"]) == 3


@pytest.mark.parametrize("show", ["matrix", "context", "counts"])
def test_hostile_text_reaches_only_what_shows_it_as_text(store: Store, show: str) -> None:
    profile = Profile(
        name=HOSTILE,
        sex=HOSTILE,
        address=HOSTILE,
        age=40,
        attributes=(Attribute(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), Attribute("b", [HOSTILE], "d", "e", "s")),
        contexts=(Context(HOSTILE, HOSTILE, HOSTILE),),
    )
    dataset = add_profiles(store, [profile], name=HOSTILE)
    add_labels(store, dataset.id, [[[AMBIGUOUS], [NECESSARY]]], name=HOSTILE)
    add_run(store, dataset.id, 1, [[[1], [0]]])
    person = records(store, dataset.id)[0]
    decide(store, dataset.id, person.attribute_ids[0], person.context_ids[0], Label.NECESSARY, who=HOSTILE)
    app = opened(LABELS, dataset=dataset.id, attribute=person.attribute_ids[0], show=show)
    assert "<img" not in page_html(app)
    carrying = {node.type for node in nodes(app._tree) if "onerror" in str(getattr(node, "proto", ""))}
    assert carrying
    assert carrying <= SAFE, carrying - SAFE


def test_a_labelling_can_be_of_another_pack_of_personas(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = add_dataset(store, profiles=1, attributes=2, contexts=1)
    folder = store.workspace / "packs" / "personas"
    folder.mkdir(parents=True)
    personas = "\n".join(
        f"  - {{key: {key}, name: The {key}, prior: {prior}, description: You are {key}.}}"
        for key, prior in (("bold", 0.25), ("shy", 0.75))
    )
    (folder / "two.yaml").write_text(f"pack: two\npersonas:\n{personas}\n", encoding="utf-8")
    (folder / "broken.yaml").write_text("pack: broken\npersonas: []\n", encoding="utf-8")
    monkeypatch.setattr("cimemories.launch.launch", lambda _store, work_id, _engine=None: None)
    app = opened(LABELS, dataset=dataset.id)
    app.segmented_control(key="start.how").set_value("The simulator").run()
    app.selectbox(key="start.personas").set_value("broken").run()
    assert "This pack cannot be used." in page_html(app)
    app.selectbox(key="start.personas").set_value("two").run()
    assert "The bold 25 %; The shy 75 %" in page_html(app)
    button(app, "Start").click().run()
    assert not app.exception
    with store.read() as connection:
        (row,) = labellings.all_rows(connection, dataset.id)
        assert [p.key for p in labellings.personas(connection, row.id).values()] == ["bold", "shy"]
    assert row.pack == "two"


def test_an_imported_labelling_is_shown_by_its_shares(store: Store) -> None:
    dataset = add_dataset(store, profiles=1, attributes=2, contexts=1)
    (person,) = records(store, dataset.id)
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling = labellings.add(
            connection,
            identity="imported",
            dataset_id=dataset.id,
            model="somebody's model",
            endpoint=labellings.IMPORTED,
            simulated=False,
            pack="test",
            draws=0,
            manifest={"personas": ids},
        )
        shares = [(person.attribute_ids[0], 1.0, 0.0), (person.attribute_ids[1], 0.97, 0.03)]
        rows.insert(
            connection,
            imported_vote,
            [
                {
                    "labelling": labelling,
                    "attribute": attribute,
                    "context": person.context_ids[0],
                    "persona": persona,
                    "necessary": 0.0,
                    "inappropriate": inappropriate,
                    "abstain": abstain,
                }
                for attribute, inappropriate, abstain in shares
                for persona in ids
            ],
        )
        work.finish(connection, labelling, WorkStatus.FINISHED)
    app = opened(LABELS, dataset=dataset.id, attribute=person.attribute_ids[1])
    assert by_pair(drawing(app), "cells") == {("fact_0", "Recipient 0"): "I", ("fact_1", "Recipient 0"): "U"}
    assert "Imported shares, without votes" in page_html(app)
    assert "97\u00a0%" in page_html(app)
    assert "Not inappropriate: fundamentalist 3 %, pragmatic 3 % and unconcerned 3 %." in page_html(app)
    table = listed(opened(LABELS, dataset=dataset.id, show="context"))
    assert [row["fundamentalist"] for row in table] == ["I 100 %", "I 97 %, U 3 %"]


def test_one_of_several_options_of_the_same_text_is_the_one_that_is_chosen(store: Store) -> None:
    long = "Write to the insurance company about the claim of last spring and ask them politely to "
    contexts = tuple(
        Context(long + end, "Health insurance agent") for end in ("pay", "send the form", "close the file")
    )
    twins = [replace(make_profile(n, 2, 2), name="Ann Lee", contexts=contexts) for n in range(3)]
    dataset = add_profiles(store, twins, "twins")
    people = [str(record.id) for record in records(store, dataset.id)]
    tasks = [str(each) for each in records(store, dataset.id)[0].context_ids]
    for label, wanted, view in (("Profile", people, None), ("Context", tasks, "context")):
        for number in (2, 1, 0):
            app = opened(LABELS, dataset=dataset.id, **({"show": view} if view else {}))
            (box,) = [each for each in app.selectbox if each.label == label]
            assert len(set(box.options)) == 3
            box.select_index(number).run()
            assert not app.exception
            assert app.query_params[label.lower()] in (wanted[number], [wanted[number]])
