"""Looking after a record: checking it, removing calls that nothing needs, deleting what rests on other things."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from evaluating import add_judged, add_labelled, cli_inside, counts, numbers, only_run, outside, simulated
from reviewed import reviewed
from worlds import add_call, add_dataset, add_labels, add_run, records

from cimemories import launch
from cimemories.evaluation import planning, runs
from cimemories.exchange.card import dataset_card
from cimemories.flows.labels import default_labelling
from cimemories.model import Label, WorkStatus
from cimemories.store import datasets, decisions, tables, versions, work
from cimemories.store import runs as store_runs
from cimemories.store.datasets import RecalledLine, RecallRecord
from cimemories.store.engine import SQLITE_FILE, Store, StoreError, now, open_store
from cimemories.store.upkeep import checking, deleting, purging


def url_of(store: Store) -> str:
    return store.engine.url.render_as_string(hide_password=False)


def faults(store: Store) -> set[tuple[str, str]]:
    return {(fault.kind, fault.table) for fault in checking.check(store.workspace, url_of(store)).faults}


def unguarded(store: Store, *statements: str) -> None:
    """Change the record as no code of ours can: with foreign keys switched off."""
    switch = "PRAGMA foreign_keys = OFF" if store.is_sqlite else "SET session_replication_role = 'replica'"
    back = "PRAGMA foreign_keys = ON" if store.is_sqlite else "SET session_replication_role = 'origin'"
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        raw = connection.connection.driver_connection
        for statement in (switch, *statements, back):
            raw.execute(statement)
        if not store.is_sqlite:
            raw.commit()


def calls(store: Store) -> int:
    return counts(store)["calls"]


def counts_of(store: Store, table: sa.Table) -> int:
    with store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


# --- check ---


def test_a_sound_record_is_sound_and_counted(store: Store) -> None:
    add_judged(store)
    done = checking.check(store.workspace, url_of(store))
    assert done.sound
    assert done.schema == done.newest
    assert done.counts["judgement"] == counts(store)["judgements"] > 0
    assert done.counts.keys() == tables.metadata.tables.keys()


def test_each_kind_of_fault_is_found(store: Store) -> None:
    run_id = add_judged(store)
    add_dataset(store, name="other")
    assert faults(store) == set()
    unguarded(store, "DELETE FROM judge")
    assert {("foreign key", "judgement"), ("foreign key", "run_judge")} <= faults(store)
    unguarded(store, f"UPDATE run SET sweep = 'sweep-gone' WHERE id = '{run_id}'")
    assert ("reference", "run") in faults(store)
    unguarded(store, "UPDATE run SET sweep = NULL")
    assert ("reference", "run") not in faults(store)
    unguarded(store, f"UPDATE run SET explains = 'run-gone' WHERE id = '{run_id}'")
    gone = checking.check(store.workspace, url_of(store)).faults
    assert ("reference", "run", "the run in 'explains' is gone", 1) in {(f.kind, f.table, f.text, f.rows) for f in gone}
    unguarded(store, f"UPDATE run SET explains = '{run_id}'")
    assert ("reference", "run") not in faults(store), "a run that is there"
    unguarded(store, "UPDATE labelling SET dataset = (SELECT id FROM dataset WHERE name = 'other')")
    assert ("dataset", "ballot") in faults(store)


def test_damaged_pages_are_found_and_nothing_is_written(judged_store: Store) -> None:
    judged_store.close()
    file = judged_store.workspace / SQLITE_FILE
    content = bytearray(file.read_bytes())
    for page in range(8, len(content) // 4096, 5):
        content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    file.write_bytes(content)
    done = cli_inside(outside(), "workspace", "verify", "--json", "-w", judged_store.workspace)
    assert done.returncode == 1
    printed = json.loads(done.stdout)
    assert not printed["sound"]
    assert any(fault["kind"] == "damage" for fault in printed["faults"])
    assert "is damaged" in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_bytes() == bytes(content)


def test_a_file_that_is_no_database_is_a_finding_too(tmp_path: Path) -> None:
    (tmp_path / SQLITE_FILE).write_bytes(b"nothing of ours " * 500)
    done = cli_inside(outside(), "workspace", "verify", "--json", "-w", tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["faults"][0]["kind"] == "damage"
    assert "there is no record" in cli_inside(outside(), "workspace", "verify", "-w", tmp_path / "nowhere").stderr
    # The backup of a mistyped workspace would be an empty one that looks like the work.
    refused = cli_inside(outside(), "workspace", "backup", tmp_path / "b.zip", "-w", tmp_path / "nowhere")
    assert refused.returncode == 1 and "there is no workspace in" in refused.stderr
    assert not (tmp_path / "b.zip").exists() and not (tmp_path / "nowhere").exists()


def test_the_command_ends_well_for_a_sound_record(sqlite_store: Store) -> None:
    add_dataset(sqlite_store)
    done = cli_inside(outside(), "workspace", "verify", "-w", sqlite_store.workspace)
    assert done.returncode == 0, done.stderr
    assert "the database is sound" in done.stderr


# --- purge ---


def test_calls_of_what_was_deleted_go_and_all_others_stay(store: Store) -> None:
    run_id = add_judged(store)
    kept, before = calls(store), numbers(store, run_id)
    assert purging.plan(store).nothing
    other = planning.plan(store, simulated(model="sim-careful"))
    runs.execute(store, other)
    added = calls(store) - kept
    with store.read() as connection:
        planned = deleting.of_work(connection, other)
    deleting.delete(store, planned)
    assert calls(store) == kept + added, "deleting keeps what was paid for"
    planned_purge = purging.plan(store)
    assert (planned_purge.calls, planned_purge.kept_calls) == (added, 0)
    assert planned_purge.bytes > 0
    assert calls(store) == kept + added, "planning removes nothing"
    assert purging.purge(store).calls == added
    assert calls(store) == kept
    assert numbers(store, run_id) == before
    assert faults(store) == set()
    with store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(tables.request)).scalar_one() <= kept


def test_passages_go_with_the_last_request_that_names_them(store: Store) -> None:
    with store.write() as connection:
        for number, text in enumerate(["shared", "shared", "of one"]):
            add_call(connection, f"{number}\n\n" + f"{text} " * 200 + "\n\n.")
    assert counts_of(store, tables.passage) == 2
    run_id = add_judged(store)
    kept = counts_of(store, tables.passage) - 2
    with store.write() as connection:
        first = connection.execute(sa.select(tables.call.c.key).order_by(tables.call.c.started)).scalars().first()
        connection.execute(sa.insert(tables.run_call).values(run=run_id, call=first))
    planned = purging.plan(store)
    assert purging.purge(store) == planned
    assert planned.bytes > 1000
    assert counts_of(store, tables.passage) == kept + 1
    assert faults(store) == set()
    with store.write() as connection:
        connection.execute(sa.delete(tables.passage))
    assert faults(store) == {("reference", "request")}


def test_what_memory_systems_recalled_goes_with_the_last_message_that_names_it(store: Store) -> None:
    run_id = add_judged(store)
    with store.write() as connection:
        first = connection.execute(sa.select(tables.response).where(tables.response.c.run == run_id)).mappings().first()
        assert first is not None
        lines = (RecalledLine("a line that a model wrote", (), None),)
        named, of_nobody = (
            datasets.keep_recall(connection, RecallRecord(first["profile"], system, lines, 0.0, None))
            for system in ("system:summary", "system:gone")
        )
        connection.execute(sa.update(tables.response).where(tables.response.c.id == first["id"]).values(recall=named))
    assert purging.plan(store).recalls == 1
    assert purging.purge(store).recalls == 1
    with store.read() as connection:
        assert set(datasets.recalls_of(connection, [named, of_nobody])) == {named}
        planned = deleting.of_work(connection, run_id)
    deleting.delete(store, planned)
    purging.purge(store)
    assert counts_of(store, tables.recall) == 0
    assert purging.plan(store).nothing


def test_the_file_becomes_smaller(sqlite_store: Store) -> None:
    with sqlite_store.write() as connection:
        for number in range(300):
            add_call(connection, f"{number} " + "long " * 2000)
        connection.execute(sa.update(tables.call).values(response="long " * 2000))
    file = sqlite_store.workspace / SQLITE_FILE
    purging.plan(sqlite_store)
    purging.purge(sqlite_store)
    assert file.stat().st_size < 1_000_000
    assert (sqlite_store.workspace / f"{SQLITE_FILE}-wal").stat().st_size == 0


@pytest.mark.parametrize("status", [WorkStatus.PAUSED, WorkStatus.INTERRUPTED, WorkStatus.FAILED, WorkStatus.CANCELLED])
def test_what_a_resume_may_ask_for_stays(judged_store: Store, status: WorkStatus) -> None:
    """A run is deleted; another one, with the same requests, has not been done: its calls are still answered."""
    run_id = only_run(judged_store)
    waiting = planning.plan(judged_store, simulated())
    with judged_store.write() as connection:
        work.finish(connection, waiting, status)
        store_runs.delete(connection, run_id)
    before = calls(judged_store)
    planned = purging.plan(judged_store)
    assert (planned.calls, planned.unfinished) == (0, (waiting,))
    assert planned.kept_calls > 0
    purging.purge(judged_store)
    assert calls(judged_store) == before
    runs.execute(judged_store, waiting)
    assert calls(judged_store) == before, "every answer came from the record"
    assert purging.plan(judged_store).kept_calls == 0


def test_owed_and_failed_parts_of_finished_work_count_as_unfinished(judged_store: Store) -> None:
    run_id = only_run(judged_store)
    with judged_store.write() as connection:
        add_call(connection, "of nobody", kind="judge")
        add_call(connection, "of nobody either", kind="label")
    assert purging.plan(judged_store).calls == 2
    with judged_store.write() as connection:
        failed = sa.select(sa.func.min(tables.judgement.c.id)).scalar_subquery()
        connection.execute(sa.update(tables.judgement).where(tables.judgement.c.id == failed).values(status="failed"))
    planned = purging.plan(judged_store)
    assert (planned.calls, planned.kept_calls, planned.unfinished) == (1, 1, (run_id,))
    with judged_store.write() as connection:
        connection.execute(sa.update(tables.ballot).where(tables.ballot.c.id == 1).values(status="failed"))
    assert purging.plan(judged_store).calls == 0


def test_nothing_is_removed_while_somebody_works(store: Store) -> None:
    add_labelled(store)
    run_id = planning.plan(store, simulated())
    with store.write() as connection:
        add_call(connection, "of nobody", kind="label")
        work.claim(connection, run_id)
    before = calls(store)
    with pytest.raises(StoreError, match=f"{run_id} is running"):
        purging.purge(store)
    assert calls(store) == before


def test_leftover_files_go_and_those_of_living_work_stay(judged_store: Store) -> None:
    run_id = only_run(judged_store)
    logs, cache = judged_store.workspace / "logs", judged_store.workspace / "cache"
    logs.mkdir(exist_ok=True)
    cache.mkdir(exist_ok=True)
    stay = [logs / f"{run_id}.log", logs / "vllm-1234.log", cache / f"flows-{run_id}-judge1-x.parquet"]
    half = judged_store.workspace / ".restore-killed"
    half.mkdir()
    go = [
        half / "record.sqlite",
        logs / "run-00000000.log",
        cache / "flows-run-00000000-judge1-x.parquet",
        cache / "counts.1.draft",
    ]
    for file in (*stay, *go):
        file.write_text("x")
    assert purging.plan(judged_store).files == len(go)
    purging.purge(judged_store)
    assert [file.exists() for file in (*stay, *go)] == [True] * len(stay) + [False] * len(go)
    assert not half.exists()


def test_tables_in_the_cache_of_a_received_workspace_are_not_believed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "theirs")
    run_id = add_judged(store)
    right = numbers(store, run_id)
    store.close()
    caches = sorted((tmp_path / "theirs" / "cache").glob("*.parquet"))
    assert len(caches) == 2
    for path in caches:  # whoever sends it may write what they like, under names that the app has used
        frame = pd.read_parquet(path)
        for column in frame.columns.difference(["attribute", "context"]):
            frame[column] = frame[column].iloc[::-1].to_numpy()
        frame.to_parquet(path, index=False)
    shutil.copytree(tmp_path / "theirs", tmp_path / "received")  # copystat: modes and times, as tar keeps them
    received = open_store(tmp_path / "received")
    assert numbers(received, run_id) == right
    received.close()
    of_cache = sorted((tmp_path / "received" / "cache").glob("*.parquet"))
    assert len(of_cache) == 2, "the files that came with it are gone"
    assert {path.name for path in of_cache}.isdisjoint(path.name for path in caches)
    times = [path.stat().st_mtime_ns for path in of_cache]
    (tmp_path / "received").rename(tmp_path / "moved")
    moved = open_store(tmp_path / "moved")
    assert numbers(moved, run_id) == right
    moved.close()
    kept = sorted((tmp_path / "moved" / "cache").glob("*.parquet"))
    assert [path.name for path in kept] == [path.name for path in of_cache]
    assert [path.stat().st_mtime_ns for path in kept] == times, "read, and not built again"


def test_purging_follows_no_link_and_leaves_folders(sqlite_store: Store, tmp_path: Path) -> None:
    """A workspace that came from somebody else: its cache and its logs may lead anywhere."""
    elsewhere = tmp_path / "home"
    (elsewhere / "folder").mkdir(parents=True)
    for name in ("thesis.txt", "run-00000000.log", "folder/notes.txt"):
        (elsewhere / name).write_text("x")
    before = sorted(elsewhere.rglob("*"))
    for name in ("cache", "logs", ".restore-killed"):
        (sqlite_store.workspace / name).symlink_to(elsewhere)
    assert purging.plan(sqlite_store).nothing
    purging.purge(sqlite_store)
    deleting.remove_files(sqlite_store.workspace, ["run-00000000"])
    assert sorted(elsewhere.rglob("*")) == before
    (sqlite_store.workspace / "cache").unlink()
    (sqlite_store.workspace / "cache" / "folder").mkdir(parents=True)
    (sqlite_store.workspace / "cache" / "linked").symlink_to(elsewhere / "thesis.txt")
    purging.purge(sqlite_store)
    assert [path.name for path in (sqlite_store.workspace / "cache").iterdir()] == ["folder"]
    assert sorted(elsewhere.rglob("*")) == before


def test_a_log_that_is_a_link_or_a_pipe_is_neither_written_nor_read(sqlite_store: Store, tmp_path: Path) -> None:
    add_labelled(sqlite_store)
    run_id = planning.plan(sqlite_store, simulated())
    secret, log = tmp_path / "profile", launch.log_path(sqlite_store, run_id)
    secret.write_text("private")
    log.parent.mkdir(exist_ok=True)
    for make in (lambda: log.symlink_to(secret), lambda: os.mkfifo(log)):
        make()
        assert launch.log_tail(sqlite_store, run_id) == ""
        with pytest.raises(StoreError, match="could not be started"):
            launch.launch(sqlite_store, run_id)
        log.unlink()
    assert secret.read_text() == "private"


def test_purging_by_command_asks_first(sqlite_store: Store) -> None:
    with sqlite_store.write() as connection:
        add_call(connection, "of nobody")
    place = ("-w", sqlite_store.workspace)
    printed = json.loads(cli_inside(outside(), "workspace", "purge", "--dry-run", "--json", *place).stdout)
    assert printed["calls"] == 1
    refused = cli_inside(outside(), "workspace", "purge", *place)
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    assert calls(sqlite_store) == 1
    done = cli_inside(outside(), "workspace", "purge", "--yes", *place)
    assert done.returncode == 0, done.stderr
    assert calls(sqlite_store) == 0


# --- delete ---


def test_a_dataset_with_work_on_it_goes_only_with_a_cascade(store: Store) -> None:
    data = add_dataset(store, name="mine")
    person = records(store, data.id)[0]
    pair = {"attribute": person.attribute_ids[0], "context": person.context_ids[0]}
    with store.read() as connection:
        assert deleting.of_dataset(connection, "mine").rests == ()
    labels = {(pair["attribute"], pair["context"]): Label.NECESSARY}
    add_labels(store, data.id, labels)
    add_run(store, data.id, 1, {})
    with store.write() as connection:
        decisions.add(connection, dataset_id=data.id, annotator="Ada", label=Label.NECESSARY, **pair)
    with store.read() as connection:
        planned = deleting.of_dataset(connection, "mine")
    assert deleting.listed(planned.rests) == "1 labelling, 1 decision, 1 run"
    deleting.delete(store, planned)
    with store.read() as connection:
        assert datasets.all_rows(connection) == []
    assert faults(store) == set()


def test_what_people_took_back_is_not_counted(store: Store) -> None:
    # Ada decided one pair twice and undid the second, Bob another pair; Ada's only verdict is undone.
    row, run_id = reviewed(store)
    with store.read() as connection:
        planned = deleting.of_dataset(connection, row.name)
        assert deleting.listed(planned.rests) == "2 decisions, 1 run, 2 comments"
        assert deleting.verdicts_on(connection, [run_id]) == 0
        assert versions.rests_on(connection, row.id).counted == ["1 run", "2 human decisions"]
        standing = decisions.standing_of_each(decisions.history(connection, row.id))
    assert {(item.annotator, item.label) for item in standing} == {
        ("Ada", Label.NECESSARY),
        ("'Bob", Label.AMBIGUOUS),
    }
    assert "By: 'Bob (1), Ada (1)." in dataset_card(store, row.name)
    with store.write() as connection:
        decisions.undo(connection, row.id, "Ada", "d1", "u1")
        (bob,) = (item for item in standing if item.annotator == "'Bob")
        decisions.undo(connection, row.id, bob.annotator, str(bob.uid), "u2")
    with store.read() as connection:
        assert versions.rests_on(connection, row.id).counted == ["1 run", "3 decisions that were taken back"]
    assert "None that stands: what was decided (3) was taken back." in dataset_card(store, row.name)


def test_the_command_refuses_then_cascades(judged_store: Store) -> None:
    run_id = only_run(judged_store)
    place = ("-w", judged_store.workspace)
    refused = cli_inside(outside(), "delete", "-d", "small", "--yes", *place)
    assert refused.returncode == 1
    assert "1 labelling, 1 run depend on it" in refused.stderr
    assert "--cascade" in refused.stderr
    unconfirmed = cli_inside(outside(), "delete", run_id, *place)
    assert unconfirmed.returncode == 1
    assert "24 messages, 48 judgements" in unconfirmed.stderr
    assert "--yes" in unconfirmed.stderr
    warned = cli_inside(outside(), "delete", "-d", "small", "--dry-run", *place)
    assert warned.returncode == 0
    assert "Deleting this needs --cascade." in warned.stderr
    planned = cli_inside(outside(), "delete", "-d", "small", "--cascade", "--dry-run", *place)
    assert planned.returncode == 0
    assert "refused" not in planned.stderr
    assert counts(judged_store)["responses"] == 24
    done = cli_inside(outside(), "delete", "-d", "small", "--cascade", "--yes", *place)
    assert done.returncode == 0, done.stderr
    assert counts(judged_store)["responses"] == 0
    both = cli_inside(outside(), "delete", run_id, "-d", "small", *place)
    assert "what should be deleted?" in both.stderr


def test_what_is_being_worked_on_stays(store: Store) -> None:
    add_labelled(store)
    run_id = planning.plan(store, simulated())
    with store.write() as connection:
        work.claim(connection, run_id)
        planned = [deleting.of_dataset(connection, "small"), deleting.of_work(connection, run_id)]
    for one in planned:
        with pytest.raises(StoreError, match="running"):
            deleting.delete(store, one)
    with store.write() as connection, pytest.raises(StoreError, match="running"):
        datasets.delete(connection, datasets.by_name(connection, "small").id)


def test_a_frozen_labelling_and_an_origin_stay(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, name="mine")
    person = records(sqlite_store, data.id)[0]
    labelled = add_labels(sqlite_store, data.id, {(person.attribute_ids[0], person.context_ids[0]): Label.NECESSARY})
    add_run(sqlite_store, data.id, 1, {})
    with sqlite_store.read() as connection:
        planned = deleting.of_work(connection, labelled)
    assert planned.goes
    assert "will have no labels" in planned.note
    freeze = tables.metadata.tables["freeze"]
    frozen = {"hash": "h", "labelling": labelled, "rule": "{}", "counts": "{}", "annotator": "Ada", "created": now()}
    made = {"model": "m", "endpoint": "e", "simulated": False, "manifest": "{}", "status": "finished", "created": now()}
    generation = tables.metadata.tables["generation"]
    with sqlite_store.write() as connection:
        connection.execute(sa.insert(freeze).values(dataset=data.id, **frozen))
        connection.execute(sa.insert(generation).values(id="generation-1", name="mine", dataset=data.id, **made))
        connection.execute(sa.insert(generation).values(id="generation-2", name="cut", dataset=None, **made))
    with sqlite_store.read() as connection:
        with pytest.raises(StoreError, match="frozen"):
            deleting.of_work(connection, labelled)
        with pytest.raises(StoreError, match="Delete the dataset first"):
            deleting.of_work(connection, "generation-1")
        loose = deleting.of_work(connection, "generation-2")
    with pytest.raises(StoreError, match="frozen"):
        deleting.delete(sqlite_store, planned)
    deleting.delete(sqlite_store, loose)
    assert default_labelling(sqlite_store, data.id) is not None


def test_a_sweep_goes_with_its_runs_and_files(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, name="mine")
    run_id, replay = (add_run(sqlite_store, data.id, 1, {}) for _ in range(2))
    with sqlite_store.write() as connection:
        connection.execute(sa.update(tables.run).where(tables.run.c.id == replay).values(explains=run_id))
        sweep_id = store_runs.add_sweep(connection, name="s", dataset_id=data.id, spec={}, plan={}, cap=None)
        connection.execute(sa.update(tables.run).where(tables.run.c.id == run_id).values(sweep=sweep_id, cell=0))
        work.finish(connection, sweep_id, WorkStatus.FINISHED)
        planned = deleting.of_work(connection, sweep_id)
    assert planned.rests[0] == (1, "run")
    logs = [sqlite_store.workspace / "logs" / f"{each}.log" for each in (run_id, replay)]
    for log in logs:
        log.parent.mkdir(exist_ok=True)
        log.write_text("x")
    deleting.delete(sqlite_store, planned)
    assert not any(log.exists() for log in logs)
    with sqlite_store.read() as connection:
        assert store_runs.all_rows(connection) == []
    with pytest.raises(StoreError, match="no 'sweep"), sqlite_store.read() as connection:
        deleting.of_work(connection, sweep_id)


def test_a_copy_of_an_older_record_is_checked_as_it_is(tmp_path: Path, sqlite_store: Store) -> None:
    with sqlite_store.write() as connection:
        connection.exec_driver_sql("DROP TABLE run_call")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0004'")
    done = checking.check(sqlite_store.workspace)
    assert (done.schema, done.sound) == ("0004", True)
    again = open_store(tmp_path / "new")
    with again.write() as connection:
        connection.exec_driver_sql("DROP TABLE run_call")
    again.close()
    assert ("table", "run_call") in {(f.kind, f.table) for f in checking.check(tmp_path / "new").faults}
