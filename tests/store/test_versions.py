"""Freezing: what the hash covers, what has come since, and what a frozen dataset refuses; the commands around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.cli import cli
from cimemories.curation import editing
from cimemories.exchange import freezing
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.model import Label, Verdict
from cimemories.store import datasets, decisions, labellings, tables, versions, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError

CODES = [[[INAPPROPRIATE, NECESSARY], [NECESSARY, NECESSARY], [INAPPROPRIATE, INAPPROPRIATE]]] * 2
PRIORS = {"fundamentalist": 0.5, "pragmatic": 0.4, "unconcerned": 0.1}


@pytest.fixture
def world(store: Store) -> tuple[DatasetRow, str]:
    data = add_dataset(store, profiles=2, attributes=3, contexts=2)
    return data, add_labels(store, data.id, CODES, draws=2)


def present(store: Store, dataset_id: int, labelling: str | None) -> str:
    with store.read() as connection:
        return freezing.content(connection, dataset_id, labelling).hash


def decide(store: Store, dataset_id: int, label: Label | None = Label.NECESSARY, who: str = "Ada") -> None:
    person = records(store, dataset_id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=dataset_id,
            attribute=person.attribute_ids[0],
            context=person.context_ids[0],
            annotator=who,
            label=label,
        )


def change(statement: sa.Update | sa.Delete) -> Callable[[Store, int], None]:
    def write(store: Store, _: int) -> None:
        with store.write() as connection:
            assert connection.execute(statement).rowcount == 1

    return write


def one(column: sa.Column[int]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.max(column)).scalar_subquery()


def use_a_rule(store: Store, dataset_id: int) -> None:
    with store.write() as connection:
        labellings.add_rule(connection, dataset_id, "mine", threshold=0.9, priors=PRIORS, annotator="Ada", use=True)


LAST_VOTE = sa.and_(
    tables.vote.c.ballot == one(tables.vote.c.ballot), tables.vote.c.attribute == one(tables.vote.c.attribute)
)
CHANGES: dict[str, Callable[[Store, int], None]] = {
    "a vote that says something else": change(
        sa.update(tables.vote).where(LAST_VOTE).values(verdict=str(Verdict.ABSTAIN))
    ),
    "a vote that is gone": change(sa.delete(tables.vote).where(LAST_VOTE)),
    "a vote in conflict": change(sa.update(tables.vote).where(LAST_VOTE).values(verdict=str(Verdict.CONFLICT))),
    "a draw of another number": change(
        sa.update(tables.ballot).where(tables.ballot.c.id == one(tables.ballot.c.id)).values(draw=7)
    ),
    "a statement": change(
        sa.update(tables.attribute)
        .where(tables.attribute.c.id == one(tables.attribute.c.id))
        .values(statement="Something else.")
    ),
    "a value of another type": change(
        sa.update(tables.attribute).where(tables.attribute.c.id == one(tables.attribute.c.id)).values(value="1")
    ),
    "a recipient": change(
        sa.update(tables.context).where(tables.context.c.id == one(tables.context.c.id)).values(recipient="Nobody")
    ),
    "an age": change(sa.update(tables.profile).where(tables.profile.c.id == one(tables.profile.c.id)).values(age=99)),
    "a decision": decide,
    "a rule": use_a_rule,
}


@pytest.mark.parametrize("what", CHANGES)
def test_any_change_of_what_it_covers_gives_another_hash(
    store: Store, world: tuple[DatasetRow, str], what: str
) -> None:
    data, labelling = world
    before = present(store, data.id, labelling)
    assert present(store, data.id, labelling) == before
    assert present(store, data.id, None) != before
    CHANGES[what](store, data.id)
    assert present(store, data.id, labelling) != before


def test_the_same_content_has_the_same_hash_whatever_its_ids(store: Store, world: tuple[DatasetRow, str]) -> None:
    data, labelling = world
    add_dataset(store, name="in between")
    twin = add_profiles(store, [make_profile(i, 3, 2) for i in range(2)], "twin")
    votes = add_labels(store, twin.id, CODES, draws=2)
    assert present(store, twin.id, votes) == present(store, data.id, labelling)


def test_what_has_come_since_a_freeze_is_said(store: Store, world: tuple[DatasetRow, str]) -> None:
    data, labelling = world
    row = freezing.freeze(store, data.id, labelling_id=labelling, annotator=" Ada ")
    frozen = freezing.frozen(store, data.id)
    assert frozen is not None and frozen.since == ()
    assert (row.annotator, row.counts["votes"], row.counts["decisions"]) == ("Ada", 2 * 2 * 3 * 2 * 3, 0)
    assert freezing.present_hash(store, data.id) == row.hash
    for _ in range(3):
        decide(store, data.id)
    add_labels(store, data.id, CODES, name="another pass")
    with store.write() as connection:
        work.bump(connection, labelling)
    frozen = freezing.frozen(store, data.id)
    assert frozen is not None and frozen.since == ("3 decisions and undos", "1 more labelling", "more votes")
    since = "3 decisions and undos, 1 more labelling, more votes since"
    assert frozen.words == f"frozen as {row.hash[:8]} by Ada on {row.created[:10]}, {since}"
    assert freezing.present_hash(store, data.id) != row.hash


def test_a_frozen_dataset_is_not_changed_in_place_nor_frozen_again(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    freezing.freeze(store, data.id, labelling_id=None, annotator="Ada")
    with pytest.raises(StoreError, match="was frozen by Ada"):
        freezing.freeze(store, data.id, labelling_id=None, annotator="Bob")
    before = make_profile(0, 2, 1).attributes[0]
    edit = editing.edit_of("attribute", 0, before, replace(before, statement="Other."))
    assert editing.plan(store, data.id, edit).sentences[0] == "'small world' is frozen, so it stays as it is."
    saved = editing.save(store, data.id, edit, annotator="Bob")
    assert saved.name == "small world v2"
    frozen = freezing.frozen(store, data.id)
    assert frozen is not None and frozen.since == ()
    with store.read() as connection:
        rows = {row.name: row for row in datasets.all_rows(connection)}
    assert rows["small world"].note.startswith("frozen as ")
    assert rows["small world v2"].note == "version 2"
    third, name = editing.new_version(store, data.id)
    assert name == "small world v3"
    with store.read() as connection:
        assert datasets.dataset_hash(connection, third) == datasets.dataset_hash(connection, data.id)
        assert [v.parent for v in versions.family(connection, third)] == [None, data.id, data.id]


def test_a_labelling_at_work_or_of_another_dataset_cannot_be_frozen_with(
    store: Store, world: tuple[DatasetRow, str]
) -> None:
    data, labelling = world
    other = add_dataset(store, name="other")
    with pytest.raises(StoreError, match="of another dataset"):
        freezing.freeze(store, other.id, labelling_id=labelling, annotator="Ada")
    with store.write() as connection:
        work.queue(connection, labelling)
    with pytest.raises(StoreError, match="running"):
        freezing.freeze(store, data.id, labelling_id=labelling, annotator="Ada")


def test_an_edited_dataset_is_no_longer_the_file_it_came_from(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)

    def source_name() -> str | None:
        with store.read() as connection:
            row = datasets.with_source(connection, data.source_hash)
            return row.name if row else None

    editing.new_version(store, data.id)
    assert source_name() == "small world"
    with store.write() as connection:
        datasets.delete(connection, data.id)
    assert source_name() is None  # its next version may hold something else
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    assert source_name() == "small world"
    before = make_profile(0, 2, 1).attributes[0]
    editing.save(store, data.id, editing.edit_of("attribute", 0, before, None), annotator="Ada")
    assert source_name() is None


def test_named_rules_go_along_to_the_next_version(store: Store, world: tuple[DatasetRow, str]) -> None:
    data, _ = world
    use_a_rule(store, data.id)
    new, _ = editing.new_version(store, data.id)
    with store.read() as connection:
        rule = labellings.current_rule(connection, new)
    assert rule is not None and (rule.name, rule.threshold, rule.priors) == ("mine", 0.9, PRIORS)


def test_a_circle_of_versions_in_a_damaged_record_ends(store: Store) -> None:
    one, two = (add_dataset(store, 1, 2, 1, name).id for name in ("one", "two"))
    with store.write() as connection:
        rows = [{"dataset": a, "parent": b, "version": 2, "created": "2026-01-01"} for a, b in ((one, two), (two, one))]
        connection.execute(sa.insert(tables.dataset_version), rows)
    with store.read() as connection:
        assert {item.dataset for item in versions.family(connection, one)} == {one, two}
        assert set(versions.lineage(connection, two)) == {one, two}


def test_that_the_simulator_wrote_the_profiles_stays_known_of_every_version(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    with store.write() as connection:
        connection.execute(
            sa.insert(tables.generation).values(
                id="generation-1",
                name="x",
                model="sim",
                endpoint="simulator",
                simulated=True,
                manifest="{}",
                dataset=data.id,
                status="finished",
                created="2026",
            )
        )
    second, _ = editing.new_version(store, data.id)
    third, _ = editing.new_version(store, second)

    def simulated() -> dict[int, bool]:
        with store.read() as connection:
            return {row.id: row.simulated_profiles for row in datasets.all_rows(connection)}

    assert simulated() == {data.id: True, second: True, third: True}
    with store.write() as connection:
        datasets.delete(connection, second)
        datasets.delete(connection, data.id)
    assert simulated() == {third: True}
    voted = add_dataset(store, profiles=1, attributes=2, contexts=1, name="voted")
    add_labels(store, voted.id, [[[NECESSARY], [INAPPROPRIATE]]], simulated=True)
    assert simulated() == {third: True, voted.id: False}, "votes of the simulator are not its profiles"


def test_the_commands_freeze_list_check_and_write_the_card(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1, name="mine")
    add_labels(sqlite_store, data.id, [[[NECESSARY], [INAPPROPRIATE]]])
    add_run(sqlite_store, data.id, 1, [[[1], [0]]])
    where = ["-w", str(sqlite_store.workspace)]

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, *where])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    digest = command("datasets", "freeze", "mine", "--by", "Ada").strip()
    before = make_profile(0, 2, 1).attributes[0]
    editing.save(
        sqlite_store, data.id, editing.edit_of("attribute", 0, before, None), annotator="Bob", reason="private"
    )
    listed = json.loads(command("datasets", "versions", "mine v2", "--json"))
    assert [(v["name"], v["parent"], v["frozen"], v["changes"]) for v in listed] == [
        ("mine", None, digest, 0),
        ("mine v2", "mine", None, 1),
    ]
    assert [r["same"] for r in listed[0]["runs"]] == [True]
    assert digest[:8] in command("datasets", "versions", "mine", "--check")
    decide(sqlite_store, data.id)
    with pytest.raises(StoreError, match="changed since it was frozen: mine"):
        command("datasets", "versions", "mine", "--check")
    out = sqlite_store.workspace / "card.md"
    command("datasets", "card", "mine", "--out", str(out), "--licence", "CC BY 4.0")
    assert digest in out.read_text() and "1 decision" in out.read_text() and "CC BY 4.0" in out.read_text()
