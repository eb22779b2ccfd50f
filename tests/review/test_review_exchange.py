"""Events of review out and in: nothing lost or doubled in any format, and merges that end the same in any order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from reviewed import A, N, X, reviewed
from worlds import add_dataset, add_labels, make_profile, records

from cimemories.evaluation import importing
from cimemories.exchange import exporting
from cimemories.formats.reading import FormatError
from cimemories.formats.review_events import FORMS, Filters, Form, export_events, import_events, imports, undo_import
from cimemories.model import Label
from cimemories.store import audits, datasets, decisions, reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import decision


def events(store: Store, dataset_id: int) -> dict[str, list[dict[str, Any]]]:
    with store.read() as connection:
        return {kind: list(decisions.review_events(connection, dataset_id, kind)) for kind in decisions.EVENT_KINDS}


def forget(store: Store, dataset_id: int) -> None:
    """As if nobody had said anything: events come back from files alone."""
    with store.write() as connection:
        for table in ("audit", "comment", "mark", "decision"):
            connection.execute(sa.delete(decisions._TABLES[table]))


@pytest.mark.parametrize("form", FORMS)
def test_what_goes_out_comes_back_whole_and_once(store: Store, tmp_path: Path, form: Form) -> None:
    row, _ = reviewed(store)
    before = events(store, row.id)
    out = tmp_path / "out"
    done = export_events(store, row.name, out, form)
    assert done.counts == {"decision": 4, "mark": 2, "comment": 3, "audit": 2}
    assert done.simulated, "the run is the simulator's"
    again = import_events(store, out)
    assert (sum(again.new.values()), again.present) == (0, done.counts)
    links = supersedes(store)
    forget(store, row.id)
    for expected in (done.counts, dict.fromkeys(done.counts, 0)):
        assert import_events(store, out).new == expected
        assert events(store, row.id) == before
        assert supersedes(store) == links
    with store.read() as connection:
        assert [c.open for c in reviews.comments_of_dataset(connection, row.id)] == [False, True]
        assert decisions.standing(audits.history(connection, row.id)) == {}


def supersedes(store: Store) -> dict[str, str | None]:
    with store.read() as connection:
        rows = connection.execute(sa.select(decision.c.id, decision.c.uid, decision.c.supersedes)).all()
    names = {row.id: row.uid for row in rows}
    return {row.uid: names.get(row.supersedes) for row in rows}


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (Filters(annotator="Ada"), {"decision": 3, "mark": 2, "comment": 2, "audit": 2}),
        (Filters(annotator="Bob"), {"decision": 0, "mark": 0, "comment": 1, "audit": 0}),
        (Filters(source="adjudicated"), {"decision": 1, "mark": 0, "comment": 0, "audit": 0}),
        (Filters(blind=True), {"decision": 1, "mark": 0, "comment": 0, "audit": 1}),
        (Filters(profile=1), {"decision": 1, "mark": 2, "comment": 1, "audit": 0}),
        (Filters(domain=make_profile().attributes[0].domain), {"decision": 3, "mark": 0, "comment": 2, "audit": 2}),
        (Filters(since="2001-01-01"), {"decision": 4, "mark": 2, "comment": 3, "audit": 2}),
        (Filters(since="2999-01-01T00:00:00+02:00"), {"decision": 0, "mark": 0, "comment": 0, "audit": 0}),
    ],
)
def test_filters_say_what_goes_out(sqlite_store: Store, tmp_path: Path, filters: Filters, kept: dict[str, int]) -> None:
    row, _ = reviewed(sqlite_store)
    done = export_events(sqlite_store, row.name, tmp_path / "out.jsonl", filters=filters)
    assert done.counts == kept
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == sum(kept.values())
    assert {json.loads(line)["simulated"] for line in lines if json.loads(line)["event"] != "audit"} <= {False}


@pytest.mark.parametrize(
    ("zone", "created"),
    [
        ("UTC", "2026-01-31T10:00:00.000Z"),
        ("Europe/Berlin", "2026-01-31T09:00:00.000Z"),
        ("-05:00", "2026-01-31T15:00:00.000Z"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_times_that_name_no_zone_are_counted_and_read_in_the_zone_that_is_given(
    sqlite_store: Store, tmp_path: Path, zone: str, created: str, dry_run: bool
) -> None:
    row, _ = reviewed(sqlite_store)
    path = tmp_path / "out.jsonl"
    export_events(sqlite_store, row.name, path)
    (first, second, *_) = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    new = [{**first, "uid": "n1", "created": "2026-01-31 10:00"}, {**second, "uid": "n2"}]
    path.write_text("".join(json.dumps(event) + "\n" for event in new), encoding="utf-8")
    done = import_events(sqlite_store, path, zone=zone, dry_run=dry_run)
    assert done.zone_note(zone) == f"1 time without a zone; read as {zone}"
    times = [event["created"] for event in events(sqlite_store, row.id)["decision"] if event["uid"] == "n1"]
    assert times == ([] if dry_run else [created])


@pytest.mark.parametrize("zone", ["Nowhere/Else", "../etc/passwd", "", "+25:00", "Z+1"])
def test_a_zone_that_is_none_is_refused(sqlite_store: Store, tmp_path: Path, zone: str) -> None:
    row, _ = reviewed(sqlite_store)
    export_events(sqlite_store, row.name, tmp_path / "out.jsonl")
    with pytest.raises(FormatError, match="there is no time zone"):
        import_events(sqlite_store, tmp_path / "out.jsonl", zone=zone)


def test_labels_of_the_simulator_mark_every_event(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    add_labels(sqlite_store, row.id, {}, simulated=True)
    assert export_events(sqlite_store, row.name, tmp_path / "o").simulated
    assert all(json.loads(line)["simulated"] for line in (tmp_path / "o").read_text(encoding="utf-8").splitlines())


# --- merging in any order ---

PEOPLE = ("Ada", "Bob")
EVENT = st.tuples(
    st.sampled_from(PEOPLE), st.integers(0, 1), st.sampled_from([N, X, A, None]), st.integers(0, 4), st.booleans()
)


def state(store: Store, row: DatasetRow) -> tuple[Any, ...]:
    """What everyone's words come to, by words that workspaces share; and that each has one last word on a pair."""
    with store.read() as connection:
        history = decisions.history(connection, row.id)
        people = {d.annotator for d in history}
        places = {i: n for r in datasets.profile_records(connection, row.id) for n, i in enumerate(r.attribute_ids)}
        own = {who: decisions.standing([d for d in history if d.annotator == who]) for who in people}
        effective = decisions.standing(history)
        comments = [(c.uid, c.resolved_by, c.resolution) for c in reviews.comments_of_dataset(connection, row.id)]
    heads = {d.id for d in history} - {d.supersedes for d in history}
    per_pair = [(d.annotator, d.attribute, d.context) for d in history if d.id in heads]
    assert len(per_pair) == len(set(per_pair))
    assert len(history) == len({d.uid for d in history})
    shown = {who: {places[a]: (d.uid, d.label) for (a, _), d in of_person.items()} for who, of_person in own.items()}
    return shown, {places[a]: d.uid for (a, _), d in effective.items()}, comments


@settings(max_examples=settings().max_examples // 2)
@given(
    generated=st.lists(EVENT, max_size=8),
    split=st.data(),
)
def test_merging_ends_the_same_in_any_order_and_twice(
    sqlite_store: Store, tmp_path: Path, generated: list[Any], split: st.DataObject
) -> None:
    numbers = range(len(generated))
    chosen = st.sets(st.sampled_from(numbers)) if generated else st.just(set())
    first, second = split.draw(chosen), split.draw(chosen)
    person = make_profile(0, 2, 1)
    place = {"profile": 0, "task": person.contexts[0].task, "recipient": person.contexts[0].recipient}
    made = {
        n: {
            **{"event": "decision", "attribute": f"fact_{a}", "annotator": who, "label": label, **place},
            "created": f"2026-01-01T10:00:0{at}Z",
            **({"uid": f"u{(7 * n) % 11}-{n}"} if named else {"reason": f"event {n}"}),
        }
        for n, (who, a, label, at, named) in enumerate(generated)
    }
    comment = {"event": "comment", "attribute": "fact_0", "annotator": "Ada", "text": "why?", "uid": "c", **place}
    comment["created"] = "2026-01-01T10:00:00Z"
    settled = [
        {
            **comment,
            "annotator": who,
            "text": f"because {who}",
            "uid": f"r{n}",
            "resolves": "c",
            "created": comment["created"],
        }
        for n, who in enumerate(PEOPLE)
    ]
    files = []
    for name, wanted, end in (("one", first, settled[0]), ("two", second, settled[1])):
        path = tmp_path / f"{name}.jsonl"
        lines = [*(made[n] for n in sorted(wanted, key=lambda n: -n)), end, comment]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        files.append(path)
    results = []
    world = next(WORLDS)
    for number, order in enumerate([(0, 1), (1, 0), (0, 1, 0, 1), (1, 1, 0)]):
        row = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1, name=f"world {world}.{number}")
        for which in order:
            import_events(sqlite_store, files[which], row.name)
        results.append(state(sqlite_store, row))
    assert results == [results[0]] * 4
    for who, number in itertools.product(PEOPLE, range(2)):
        mine = [e for n in first | second if (e := made[n])["annotator"] == who and e["attribute"] == f"fact_{number}"]
        last = [e["label"] for e in mine if e["created"] == max(e["created"] for e in mine)]
        if len(set(last)) == 1:  # of one moment the uid decides, which not all events have written down
            assert results[0][0].get(who, {}).get(number, (None, None))[1] == last[0]
    assert results[0][2] == [("c", "Ada", "because Ada")]


WORLDS = itertools.count()


def test_two_workspaces_that_give_each_other_their_events_agree(store: Store, tmp_path: Path) -> None:
    """Both work on, take back and merge again; an older word that comes in later does not win."""
    other = open_store(tmp_path / "other")
    here, there = (add_dataset(s, profiles=1, attributes=2, contexts=1) for s in (store, other))
    pairs = {
        s: (records(s, r.id)[0].attribute_ids[0], records(s, r.id)[0].context_ids[0])
        for s, r in ((store, here), (other, there))
    }

    def say(s: Store, row: DatasetRow, who: str, label: Label | None, uid: str, created: str) -> None:
        with s.write() as connection:
            decisions.add_all(connection, row.id, who, [NewDecision(*pairs[s], label, uid=uid, created=created)])

    say(other, there, "Ada", N, "early", "2026-01-01T10:00:00.000Z")
    say(other, there, "Bob", A, "bob", "2026-01-01T10:00:01.000Z")
    say(store, here, "Ada", X, "late", "2026-01-01T10:00:02.000Z")
    for number in range(2):
        for s, o in ((store, other), (other, store)):
            export_events(s, here.name, tmp_path / f"{number}", replace=True)
            import_events(o, tmp_path / f"{number}")
        assert state(store, here) == state(other, there) == state(store, here)
        assert state(store, here)[0]["Ada"] == {0: ("late", X)}
        assert state(store, here)[1] == {0: "late"}
        assert supersedes(store)["late"] == "early"
    # A folder of a merged dataset has rows that supersede later ones; it comes back the same.
    exporting.export(store, here.name, "huggingface", tmp_path / "b.zip")
    copy = importing.import_file(other, tmp_path / "b.zip", "copy").dataset
    assert state(other, copy) == state(store, here)
    other.close()


@pytest.mark.parametrize("form", FORMS)
def test_an_import_is_undone_whole_and_the_file_can_come_again(store: Store, tmp_path: Path, form: Form) -> None:
    row, _ = reviewed(store)
    export_events(store, row.name, tmp_path / "all", form)
    whole, links = events(store, row.id), supersedes(store)
    forget(store, row.id)
    empty = events(store, row.id)
    for _ in range(2):
        import_events(store, tmp_path / "all", name="all.jsonl", annotator="Cem")
        assert events(store, row.id) == whole
        (newest, *_) = imports(store, row.id)
        assert (newest.name, newest.annotator, newest.undone) == ("all.jsonl", "Cem", None)
        assert newest.events == {"decision": 4, "mark": 2, "comment": 3, "audit": 2}
        with store.read() as connection:
            revision = datasets.by_name(connection, row.name).revision
        assert undo_import(store, row.id, newest.id, "Cem") == (11, 0)
        assert events(store, row.id) == empty
        with store.read() as connection:
            assert datasets.by_name(connection, row.name).revision > revision
        with pytest.raises(StoreError, match="undone already"):
            undo_import(store, row.id, newest.id, "Cem")
    # The known is no part of an import, and one that brings nothing is none.
    import_events(store, tmp_path / "all")
    import_events(store, tmp_path / "all")
    assert len(imports(store, row.id)) == 3
    assert (events(store, row.id), supersedes(store)) == (whole, links)


def test_what_was_here_before_an_import_counts_again_and_what_came_since_stays(store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(store)
    person = records(store, row.id)[1]
    pair = person.attribute_ids[2], person.context_ids[1]
    with store.write() as connection:
        decisions.add_all(
            connection, row.id, "Ada", [NewDecision(*pair, N, uid="mine", created="2026-05-01T00:00:00.000Z")]
        )
    before, links = events(store, row.id), supersedes(store)
    export_events(store, row.name, tmp_path / "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()]
    mine = next(line for line in lines if line["uid"] == "mine")
    # Of the same person on the same pair: one from before what is here, and one from after.
    sent = [
        mine | {"uid": "early", "label": "inappropriate", "created": "2026-01-01T00:00:00.000Z"},
        mine | {"uid": "late", "label": "ambiguous", "created": "2026-09-01T00:00:00.000Z"},
        mine | {"uid": "of another", "annotator": "Dor", "label": "ambiguous"},
    ]
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, sent)), encoding="utf-8")
    import_events(store, tmp_path / "new.jsonl")
    assert supersedes(store)["late"] == "mine"
    assert undo_import(store, row.id, imports(store, row.id)[0].id, "Ada") == (3, 0)
    assert (events(store, row.id), supersedes(store)) == (before, links)
    import_events(store, tmp_path / "new.jsonl")
    with store.write() as connection:
        decisions.add_all(connection, row.id, "Ada", [NewDecision(*pair, X, uid="since")])
    assert undo_import(store, row.id, imports(store, row.id)[0].id, "Ada") == (1, 2)
    kept = {event["uid"] for event in events(store, row.id)["decision"]}
    assert kept == {event["uid"] for event in before["decision"]} | {"early", "late", "since"}


def test_an_imported_comment_that_somebody_here_resolved_stays(store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(store)
    with store.read() as connection:
        (still_open,) = [c.uid for c in reviews.comments_of_dataset(connection, row.id) if c.open]
    export_events(store, row.name, tmp_path / "all.jsonl")
    forget(store, row.id)
    import_events(store, tmp_path / "all.jsonl")
    with store.write() as connection:
        (note,) = [c for c in reviews.comments_of_dataset(connection, row.id) if c.uid == still_open]
        reviews.resolve_comment(connection, row.id, "Dor", note.id, "Done.")
    assert undo_import(store, row.id, imports(store, row.id)[0].id, "Cem") == (10, 1)
    with store.read() as connection:
        (kept,) = reviews.comments_of_dataset(connection, row.id)
    assert (kept.uid, kept.resolved_by) == (still_open, "Dor")


def test_decisions_of_before_there_were_uids_are_known_again(store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(store)
    with store.write() as connection:
        connection.execute(sa.update(decision).values(uid=None))
    export_events(store, row.name, tmp_path / "o.jsonl")
    assert import_events(store, tmp_path / "o.jsonl").new["decision"] == 0
    forget(store, row.id)
    assert import_events(store, tmp_path / "o.jsonl").new["decision"] == 4


# --- which dataset, which file ---


def test_a_uid_that_says_something_else_is_told_and_the_first_stays(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    export_events(sqlite_store, row.name, tmp_path / "o.jsonl")
    text = (tmp_path / "o.jsonl").read_text(encoding="utf-8")
    (tmp_path / "o.jsonl").write_text(text.replace('"label": "ambiguous"', '"label": "necessary"'), encoding="utf-8")
    before = events(sqlite_store, row.id)
    assert "a different one here has the same uid" in import_events(sqlite_store, tmp_path / "o.jsonl").notes[0]
    assert events(sqlite_store, row.id) == before


def test_a_dataset_of_another_name_is_found_by_its_content(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    export_events(sqlite_store, row.name, tmp_path / "o.jsonl", filters=Filters(source="single"))
    with sqlite_store.write() as connection:
        datasets.delete(connection, row.id)
    renamed = add_dataset(sqlite_store, profiles=2, attributes=3, contexts=2, name="another name")
    add_dataset(sqlite_store, profiles=1, name="other content")
    done = import_events(sqlite_store, tmp_path / "o.jsonl")
    assert (done.datasets, done.new["decision"]) == ((renamed.name,), 2)


def test_a_path_that_is_taken_is_left_alone(sqlite_store: Store, tmp_path: Path) -> None:
    row, _ = reviewed(sqlite_store)
    (tmp_path / "taken").write_text("mine")
    for form in FORMS:
        with pytest.raises(StoreError, match="is already there"):
            export_events(sqlite_store, row.name, tmp_path / "taken", form)
    assert [path.name for path in tmp_path.iterdir() if path.name != "workspace"] == ["taken"]
