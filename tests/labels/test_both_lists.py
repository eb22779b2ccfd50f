"""A vote in both lists: a conflict that is not counted, or necessary as in the authors' code, by the rule."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from evaluating import cli_inside, outside
from paging import button, opened, page_html
from worlds import PERSONAS, add_dataset, add_labels, add_run, ask, records

from cimemories.exchange import freezing
from cimemories.flows.arrays import flow_arrays
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY, TOO_FEW, consensus_labels, rule_of, vote_counts
from cimemories.labels.survival import survival
from cimemories.labels.votes import pairs
from cimemories.labels.whatif import what_if
from cimemories.model import Label, Verdict
from cimemories.store import labellings, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import ballot, vote

X, N = INAPPROPRIATE, NECESSARY
PRIORS = {p.key: p.prior for p in PERSONAS}


def contradicting(store: Store) -> tuple[int, str, int, int]:
    """Two pairs in one context, the first necessary; of its ten votes the first persona has given six to both lists.
    Returns dataset, labelling, the attribute and the context of it."""
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(store, data.id, [[[N], [X]]], draws=10)
    record = records(store, data.id)[0]
    with store.write() as connection:
        persona = next(iter(labellings.personas(connection, labelling)))
        own = sa.select(ballot.c.id).where(
            ballot.c.labelling == labelling, ballot.c.persona == persona, ballot.c.draw < 6
        )
        changed = sa.update(vote).where(vote.c.ballot.in_(own), vote.c.attribute == record.attribute_ids[0])
        connection.execute(changed.values(verdict=str(Verdict.CONFLICT)))
        work.bump(connection, labelling)
    return data.id, labelling, record.attribute_ids[0], record.context_ids[0]


def labels(store: Store, labelling: str) -> list[int]:
    return consensus_labels(store, labelling)["label"].tolist()


def use(store: Store, dataset: int, name: str, both_lists: str) -> None:
    with store.write() as connection:
        numbers = {"threshold": 1.0, "priors": PRIORS, "annotator": "Ada", "both_lists": both_lists}
        labellings.add_rule(connection, dataset, name, use=True, **numbers)


def test_the_rule_decides_what_a_vote_in_both_lists_is(sqlite_store: Store) -> None:
    dataset, labelling, attribute, context = contradicting(sqlite_store)
    plain = rule_of(sqlite_store, labelling)
    assert labels(sqlite_store, labelling) == [TOO_FEW, X]  # four counted votes of ten
    assert "both_lists" not in plain.as_json() and "both lists" not in plain.text
    tried = what_if(sqlite_store, labelling, 1.0, PRIORS, both_lists="necessary")
    assert tried.changes.frame.to_numpy().tolist() == [["too few votes", "necessary", 1]]
    run = add_run(sqlite_store, dataset, 1, [[[1], [0]]])
    assert flow_arrays(*ask(sqlite_store, run)).labels.tolist() == [[[TOO_FEW], [X]]]

    use(sqlite_store, dataset, "authors", "necessary")
    rule = rule_of(sqlite_store, labelling)
    assert rule.as_json()["both_lists"] == "necessary" and "in both lists counts as necessary" in rule.text
    assert rule.digest != plain.digest
    assert labels(sqlite_store, labelling) == [N, X]
    assert flow_arrays(*ask(sqlite_store, run)).labels.tolist() == [[[N], [X]]]
    assert vote_counts(sqlite_store, labelling).votes[0, 0].tolist() == [10, 0, 0]
    assert survival(sqlite_store, labelling).share == 1.0
    view = pairs(sqlite_store, labelling, records(sqlite_store, dataset)[0].id, context, attribute)[0]
    assert view.consensus == Label.NECESSARY and view.votes[0].counts == (10, 0, 0)
    back = what_if(sqlite_store, labelling, 1.0, PRIORS)
    assert back.changes.frame.to_numpy().tolist() == [["necessary", "too few votes", 1]]

    # Back to the usual rule: no number of the other one stays.
    use(sqlite_store, dataset, "usual", "conflict")
    assert labels(sqlite_store, labelling) == [TOO_FEW, X]
    assert vote_counts(sqlite_store, labelling).votes[0, 0].tolist() == [4, 0, 0]


def test_the_setting_is_recorded_only_where_it_is_not_the_usual(sqlite_store: Store) -> None:
    dataset, labelling, *_ = contradicting(sqlite_store)
    use(sqlite_store, dataset, "usual", "conflict")
    with sqlite_store.read() as connection:
        before = freezing.content(connection, dataset, labelling)
    use(sqlite_store, dataset, "authors", "necessary")
    with sqlite_store.read() as connection:
        rows = labellings.all_rules(connection, dataset)
        after = freezing.content(connection, dataset, labelling)
    assert [(row.name, row.both_lists, row.priors) for row in rows] == [
        ("usual", "conflict", PRIORS),
        ("authors", "necessary", PRIORS),
    ]
    assert "both_lists" not in before.rule and after.rule["both_lists"] == "necessary"
    assert before.hash != after.hash
    assert labellings.rule_numbers({"both_lists": "necessary", "priors": {"a": 1.0}}) == ({"a": 1.0}, None, "necessary")
    for wrong in ({"both_lists": "neither", "priors": {}}, {"both_lists": "necessary", "more": 1, "priors": {}}):
        with pytest.raises(ValueError, match=r"both_lists|numbers by persona"):
            labellings.rule_numbers(wrong)
    with pytest.raises(StoreError, match="conflict or necessary, not as 'both'"):
        use(sqlite_store, dataset, "wrong", "both")


def test_the_command_line_saves_tries_and_lists_it(sqlite_store: Store) -> None:
    _, labelling, *_ = contradicting(sqlite_store)
    place = ["-d", "small world", "--workspace", sqlite_store.workspace]
    done = cli_inside(
        outside(),
        "rules",
        "save",
        "--name",
        "authors",
        "--threshold",
        "1",
        "--both-lists",
        "necessary",
        "--use",
        *place,
    )
    assert done.returncode == 0, done.stderr
    assert labels(sqlite_store, labelling) == [N, X]
    listed = json.loads(cli_inside(outside(), "rules", "--json", *place).stdout)
    assert [row["both_lists"] for row in listed] == ["conflict", "necessary"]


def test_the_app_tries_and_saves_it(app_store: Store) -> None:
    _, labelling, *_ = contradicting(app_store)
    page = opened("pages/curate/consensus.py", part="whatif")
    assert "No label of 2 pairs would change" in page_html(page)
    page.segmented_control(key="consensus.both").set_value("necessary").run()
    assert page.query_params["both"] in ("necessary", ["necessary"])
    assert "1 of 2 pairs would change their label" in page_html(page)
    assert rule_of(app_store, labelling).both_lists == "conflict", "nothing is saved by looking"
    page.text_input(key="consensus.name").set_value("authors")
    page.text_input(key="annotator.field").set_value("Ada")
    page.checkbox(key="consensus.use").set_value(True)
    button(page, "Save this rule").click().run()
    assert not page.exception
    rule = rule_of(app_store, labelling)
    assert (rule.name, rule.both_lists) == ("authors", "necessary")
    assert labels(app_store, labelling) == [N, X]
    assert "a vote in both lists counts as necessary" in page_html(page)
    table = next(d.value for d in page.dataframe if "both" in d.value)
    assert table["both"].tolist() == ["Conflict, not counted", "Necessary"]
    # A rule to try starts from the one that holds.
    assert (
        opened("pages/curate/consensus.py", part="whatif").segmented_control(key="consensus.both").value == "necessary"
    )
