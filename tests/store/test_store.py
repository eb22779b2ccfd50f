"""The schema and the datasets of the record, on both engines: what is written comes back as it was, or is not written.

Calls, decisions and results are in test_store_records.py, several processes at once in test_store_concurrency.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.model import DOMAINS, Attribute, Context, Label, Profile, canonical_event, is_bio
from cimemories.store import calls, datasets, decisions, runs, tables
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.rows import MOST_PARAMETERS, insert

# One record serves all cases of a property: each case writes under a name of its own.
numbers = itertools.count()
assert tables.edit.metadata is tables.metadata


def count(connection: sa.Connection, table: sa.Table) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def counts(store: Store) -> dict[str, int]:
    with store.read() as connection:
        return {name: count(connection, table) for name, table in tables.metadata.tables.items()}


# --- the schema ---


def test_the_migrations_make_exactly_the_tables_of_the_code(store: Store) -> None:
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def test_opening_again_keeps_everything(store: Store) -> None:
    add_dataset(store)
    before = counts(store)
    again = open_store(store.workspace, store.engine.url.render_as_string(hide_password=False))
    assert counts(again) == before
    again.close()


def test_foreign_keys_are_enforced(store: Store) -> None:
    with pytest.raises(StoreError, match="was deleted while it was being saved"), store.write() as connection:
        decisions.add(connection, dataset_id=1, attribute=1, context=1, annotator="a", label=Label.NECESSARY)


@pytest.mark.parametrize("rows", [0, 1, MOST_PARAMETERS // 3, MOST_PARAMETERS // 3 + 1, MOST_PARAMETERS])
def test_many_rows_go_in_whole_or_not_at_all(store: Store, rows: int) -> None:
    table = sa.Table("many", sa.MetaData(), *(sa.Column(name, sa.Text) for name in ("order", "b", "quoted name")))
    wanted = [(f"row {n}", f"';--%s :x ? {n}", None) for n in range(rows)]
    names = [column.name for column in table.columns]
    with store.write() as connection:
        table.create(connection)
        insert(connection, table, (dict(zip(names, values, strict=True)) for values in wanted))
    with store.read() as connection:
        assert sorted(map(tuple, connection.execute(sa.select(table)))) == sorted(wanted)

    def lose() -> None:
        with store.write() as connection:
            insert(connection, table, [dict.fromkeys(names, "lost")] * (rows + 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose()
    with store.write() as connection:
        assert count(connection, table) == rows
        table.drop(connection)


def test_a_database_that_cannot_be_used_is_one_clear_refusal(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match="--workspace"):
        open_store(tmp_path / "file")
    with pytest.raises(StoreError, match="CIMEMORIES_DATABASE_URL"):
        open_store(tmp_path, "nonsense")
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        open_store(tmp_path, "postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


# --- datasets ---

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = scalars | st.lists(scalars | st.dictionaries(st.text(), scalars, max_size=3), max_size=4)
# What both engines can hold as text: no NUL, which PostgreSQL refuses, and no half of a surrogate pair.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
events = texts.map(canonical_event)  # other spellings are kept for export and read as this one


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    keys = draw(st.lists(texts, unique=True, max_size=6))
    pairs = draw(st.lists(st.tuples(texts, texts), unique=True, max_size=4))
    return Profile(
        name=draw(texts),
        sex=draw(texts),
        address=draw(texts),
        age=draw(st.integers(0, 120)),
        attributes=tuple(
            Attribute(key, draw(values), draw(st.sampled_from([*DOMAINS, "general"])), draw(events), draw(texts))
            for key in keys
        ),
        # A sphere belongs to the (task, recipient) pair of a dataset, so it is one function of it here.
        contexts=tuple(Context(task, recipient, task[:3] or None) for task, recipient in pairs),
    )


def exact(profile: Profile) -> tuple[Profile, str]:
    """Equality that tells 1, 1.0 and true apart, which Python's == does not."""
    return profile, repr(profile)


@given(items=st.lists(profiles(), min_size=1, max_size=3))
def test_a_profile_comes_back_as_it_was(store: Store, items: list[Profile]) -> None:
    dataset = add_profiles(store, items, f"dataset {next(numbers)}")
    back = records(store, dataset.id)
    assert [exact(r.profile) for r in back] == [exact(p) for p in items]
    assert (dataset.profiles, dataset.attributes) == (len(items), sum(len(p.attributes) for p in items))
    assert all(len(r.attribute_ids) == len(r.profile.attributes) for r in back)
    assert all(len(r.context_ids) == len(r.profile.contexts) for r in back)


def test_values_keep_their_types(store: Store) -> None:
    given_values = [1, 1.0, True, None, "1", "null", "", -0.0, 1e300, 10**40, [], [1, 1.0, "ß", None, {"k": False}]]
    attributes = tuple(Attribute(f"k{i}", v, "housing", "move", "s") for i, v in enumerate(given_values))
    dataset = add_profiles(store, [replace(make_profile(), attributes=attributes)])
    assert repr([a.value for a in records(store, dataset.id)[0].profile.attributes]) == repr(given_values)


def test_equal_contexts_of_profiles_are_one_context(store: Store) -> None:
    dataset = add_dataset(store, profiles=3, contexts=4)
    assert dataset.contexts == 4
    assert len({record.context_ids for record in records(store, dataset.id)}) == 1


def test_a_dataset_is_written_whole_or_not_at_all(store: Store) -> None:
    add_dataset(store, name="before")
    before = counts(store)
    twice = Attribute("same_key", 1, "housing", "move", "s")
    bad = replace(make_profile(2), attributes=(twice, twice))
    with pytest.raises(sa.exc.IntegrityError):
        add_profiles(store, [make_profile(0), make_profile(1), bad], "broken")

    with pytest.raises(AttributeError):
        add_profiles(store, [make_profile(0), None], "cut")  # type: ignore[list-item]
    assert counts(store) == before


def test_a_name_is_given_once(store: Store) -> None:
    add_dataset(store, name="taken")
    before = counts(store)
    with pytest.raises(StoreError, match="'taken' exists already"):
        add_dataset(store, name="taken", profiles=1)
    assert counts(store) == before


def test_the_hash_of_a_dataset_is_of_its_content(store: Store) -> None:
    base = [make_profile(0), make_profile(1)]
    changed = replace(base[1], attributes=(replace(base[1].attributes[0], value=1), *base[1].attributes[1:]))
    typed = replace(base[1], attributes=(replace(base[1].attributes[0], value=True), *base[1].attributes[1:]))
    worlds = [base, base, base[::-1], [base[0], changed], [base[0], typed], base[:1]]
    ids = [add_profiles(store, items, f"dataset {i}").id for i, items in enumerate(worlds)]
    with store.read() as connection:
        hashes = [datasets.dataset_hash(connection, i) for i in ids]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[1:])) == len(worlds) - 1


def fill_curation_tables(store: Store, dataset: int, parent: int, attribute: int, context: int) -> None:
    """A row in each: here it only matters that they go with their dataset."""
    t, by = tables, {"annotator": "me", "created": "2026-01-01"}
    with store.write() as connection:
        labelling, persona = connection.execute(
            sa.select(tables.labelling.c.id, tables.ballot.c.persona)
            .join(tables.ballot, tables.ballot.c.labelling == tables.labelling.c.id)
            .where(tables.labelling.c.dataset == dataset)
        ).first()
        shares = {"necessary": 1.0, "inappropriate": 0.0, "abstain": 0.0}
        pair = {"attribute": attribute, "context": context, "persona": persona}
        rows: list[tuple[sa.Table, dict[str, Any]]] = [
            (t.dataset_version, {"parent": parent, "version": 2, "created": "2026-01-01"}),
            (t.freeze, {"hash": "h", "rule": "{}", "counts": "{}", **by}),
            (t.edit, {"kind": "attribute", "action": "remove", **by}),
            (t.rule, {"name": "r", "threshold": 0.9, "priors": "{}", "current": True, **by}),
        ]
        for table, values in rows:
            connection.execute(sa.insert(table).values(dataset=dataset, **values))
        connection.execute(sa.insert(t.imported_vote).values(labelling=labelling, **pair, **shares))
        made = {"name": "n", "model": "m", "endpoint": "e", "simulated": False, "manifest": "{}", "dataset": dataset}
        connection.execute(sa.insert(t.generation).values(id="generation-1", status="finished", created="2026", **made))
        part = {"generation": "generation-1", "profile": 0, "position": 0, "event": "general", "status": "ok"}
        connection.execute(sa.insert(t.generation_part).values(**part))


def fill_review_tables(store: Store, dataset: int, attribute: int, context: int) -> None:
    t, by = tables, {"annotator": "me", "created": "2026-01-01"}
    event = {"uid": "u", "dataset": dataset, "attribute": attribute, **by}
    pair = {"attribute": attribute, "context": context}
    with store.write() as connection:
        response = connection.execute(
            sa.select(tables.response.c.id)
            .join(tables.run, tables.run.c.id == tables.response.c.run)
            .where(tables.run.c.dataset == dataset)
        ).scalar()
        sample = {"dataset": dataset, "kind": "labels", "name": "s", "seed": 1, "manifest": "{}", **by}
        slice_id = connection.execute(sa.insert(t.slice).values(**sample).returning(t.slice.c.id)).scalar_one()
        rows: list[tuple[sa.Table, dict[str, Any]]] = [
            (t.guideline, {"hash": "h", "text": "g", **by}),
            (t.saved_view, {"name": "v", "page": "review", "query": "{}", **by}),
            (t.comment, {**event, "context": context, "text": "c"}),
            (t.mark, {**event, "context": context, "kind": "flag"}),
            (t.claim, {**pair, "dataset": dataset, "annotator": "me", "session": "s", "until": 0.0}),
            (t.review_plan, {"dataset": dataset, "share": 0.1, "people": 2, "seed": 1, **by}),
            (t.plan_change, {"dataset": dataset, "share": 0.1, "people": 2, "seed": 1, "reason": "r", **by}),
            (t.review_import, {"id": 1, "dataset": dataset, "name": "f", **by}),
            (t.review_import_item, {"review_import": 1, "kind": "mark", "uid": "u"}),
            (
                t.slice_item,
                {"slice": slice_id, "ordinal": 0, "response": response, "stratum": "s", "weight": 1.0, **pair},
            ),
            (
                t.assignment,
                {"slice": slice_id, "overlap": 2, "due": "2026-12-01", "annotator": "me", "created": "2026"},
            ),
            (t.assignee, {"slice": slice_id, "name": "me"}),
            (t.person, {"account": "login 1", "name": "me", "role": "admin", "created": "2026"}),
            (t.audit_log, {"created": "2026", "person": "me", "action": "run.started", "subject": "run-1"}),
            (t.audit, {**event, "response": response, "verdict": "full"}),
        ]
        for table, values in rows:
            connection.execute(sa.insert(table).values(**values))


def fill_run_tables(store: Store, dataset: int) -> None:
    t = tables
    with store.write() as connection:
        profile = connection.execute(sa.select(tables.profile.c.id).where(tables.profile.c.dataset == dataset)).scalar()
        wording = {"kind": "judge", "level": "base", "template": "t", "answers": "numbers", "source": "seeds"}
        rows: list[tuple[sa.Table, dict[str, Any]]] = [
            (t.prompt, {"hash": "h", "created": "2026-01-01", **wording}),
            (t.memory, {"hash": "m", "profile": profile, "attributes": "[]"}),
            (t.recall, {"hash": "r", "profile": profile, "system": "s", "lines": "[]", "ungrounded": 0, "seconds": 0}),
            (
                t.sweep,
                {"id": "sweep-1", "name": "s", "dataset": dataset, "spec": "{}", "plan": "{}", "status": "paused"},
            ),
            (t.passage, {"hash": "p", "text": "A long paragraph."}),
            (t.server, {"id": "http://a/v1"}),
            (t.same_server, {"first": "http://a/v1", "second": "http://b/v1", "author": "me"}),
        ]
        for table, values in rows:
            more = {"created": "2026-01-01"} if table in (t.sweep, t.server, t.same_server) else {}
            connection.execute(sa.insert(table).values(**values, **more))
        calls.keep_servers(connection, ["http://a/v1"])
        calls.tie(connection, "http://a/v1", "http://b/v1", "Ada")


def test_deleting_a_dataset_takes_its_rows_and_leaves_the_calls(store: Store) -> None:
    kept = add_dataset(store, name="kept", profiles=1)
    alone = counts(store)
    gone = add_dataset(store, name="gone")
    people = records(store, gone.id)
    a, c = people[0].attribute_ids[0], people[0].context_ids[0]
    add_labels(store, gone.id, {(a, c): Label.NECESSARY})
    add_run(store, gone.id, 2, {(a, c): 1})
    with store.write() as connection:
        for label in (Label.NECESSARY, None):
            decisions.add(connection, dataset_id=gone.id, attribute=a, context=c, annotator="me", label=label)
    fill_curation_tables(store, gone.id, kept.id, a, c)
    fill_review_tables(store, gone.id, a, c)
    fill_run_tables(store, gone.id)
    full = counts(store)
    assert all(full[name] > 0 for name in full if name != "alembic_version")
    with store.write() as connection:
        datasets.delete(connection, gone.id)
    after = counts(store)
    shared = (
        "call",
        "request",
        "passage",
        "persona",
        "judge",
        "generation",
        "generation_part",
        "guideline",
        "saved_view",
        "prompt",
        "server",
        "same_server",
        "person",
        "audit_log",
    )
    assert {k: v for k, v in after.items() if k not in shared} == {k: v for k, v in alone.items() if k not in shared}
    assert {k: after[k] for k in shared} == {k: full[k] for k in shared}
    assert records(store, kept.id)[0].profile == make_profile(0)


def test_deleting_a_run_leaves_its_dataset_and_calls(store: Store) -> None:
    dataset = add_dataset(store, profiles=1)
    before = counts(store)
    a, c = records(store, dataset.id)[0].attribute_ids[0], records(store, dataset.id)[0].context_ids[0]
    run_id = add_run(store, dataset.id, 2, {(a, c): 2})
    called = counts(store)["call"]
    with store.write() as connection:
        runs.delete(connection, run_id)
    assert counts(store) == {**before, "call": called, "request": called, "judge": 1}
    with pytest.raises(StoreError, match="no run"), store.read() as connection:
        runs.by_id(connection, run_id)


def test_an_attribute_of_the_biography_is_marked_by_its_exact_key(store: Store) -> None:
    keys = ("name", "general_age", "nickname", "mortgage")
    person = make_profile(keys=keys)
    person = replace(person, attributes=tuple(replace(a, domain="general") for a in person.attributes))
    add_profiles(store, [person])
    with store.read() as connection:
        rows = connection.execute(sa.select(tables.attribute.c.key, tables.attribute.c.bio)).all()
    assert {key for key, bio in rows if bio} == {"name", "general_age"}
    assert all(is_bio(key, "general") == bio for key, bio in rows)
