"""The log tells of everything of weight, once each, with who did it; and of nothing that did not happen."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run

from cimemories.cli import cli
from cimemories.curation import editing
from cimemories.extras.attribute_audit.sampling import draw_attribute_slice
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.model import WorkStatus
from cimemories.review.sampling import delete_slice, draw_audit_slice, draw_slice
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import request
from cimemories.store.team import log
from cimemories.store.upkeep.backup import back_up, restore
from cimemories.store.upkeep.purging import purge

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS


def entries(store: Store) -> list[str]:
    """The actions and subjects of the log, in their order."""
    with store.read() as connection:
        return [f"{entry.action} {entry.subject}" for entry in log.entries(connection)][::-1]


def test_what_changes_labels_samples_and_servers_is_logged_by_name(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    labelling = add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run_id = add_run(store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    flows, scope = Flows(store), resolve_scope(store, run_id)
    rule = {"threshold": 0.9, "priors": {"a": 1.0}, "annotator": "Ada"}
    catalogue.save_rule(store, data.id, "lenient", use=False, **rule)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        catalogue.save_rule(store, data.id, "lenient", use=True, **rule)  # type: ignore[arg-type]
    catalogue.use_rule(store, data.id, "lenient")
    catalogue.use_rule(store, data.id, "lenient")  # it is in use: nothing changes
    catalogue.delete_rule(store, data.id, "lenient")
    pairs = draw_slice(store, labelling, size=4, seed=0, name="pairs", annotator="Ada")
    draw_audit_slice(flows, scope, size=9, seed=1, claimed=0.5, name="judgements", annotator="Ada")
    draw_attribute_slice(flows, scope, number=2, n=2, seed=0, annotator="Ada", name="attributes")
    delete_slice(store, pairs)
    catalogue.tie_servers(store, "http://one/v1", "http://two/v1", "Ada")
    (tie,) = catalogue.known_servers(store)[1]
    catalogue.untie_servers(store, tie.first, tie.second)
    editing.new_version(store, data.id)
    with store.write() as connection:
        connection.execute(sa.insert(request).values(hash="of nothing", body="{}"))
    for _ in range(2):  # the second time nothing is left to go
        purge(store)
    assert entries(store) == [
        "rule.saved small world",
        "rule.used small world",  # lenient
        "rule.used small world",  # deleted: the paper's again
        "rule.deleted small world",
        "slice.drawn pairs",
        "slice.drawn judgements",
        "slice.drawn attributes",
        "slice.deleted pairs",
        f"servers.tied {tie.first}",
        f"servers.untied {tie.first}",
        "dataset.version_made small world v2",
        f"workspace.purged {store.workspace}",
    ]
    with store.read() as connection:
        used = [entry.text for entry in log.entries(connection, action="rule.used")]
    assert used == ["before: lenient, rule: paper", "before: paper, rule: lenient"]


def test_backups_are_logged_where_they_were_made_and_where_they_came_to(store: Store, tmp_path: Path) -> None:
    add_dataset(store, profiles=1, attributes=3, contexts=3)
    file = tmp_path / "friday.zip"
    back_up(store, file)
    assert entries(store) == ["backup.made friday.zip"]
    into = tmp_path / "restored"
    restore(file, into, f"sqlite:///{into / 'cimemories.sqlite'}")
    restored = open_store(into, f"sqlite:///{into / 'cimemories.sqlite'}")
    assert entries(restored) == ["backup.restored friday.zip"]
    restored.close()


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_who_may_only_read_a_database_backs_it_up(store: Store, tmp_path: Path) -> None:
    """A standby, or a user with no right to write: the file is there, and no error says that it is not."""
    add_dataset(store)
    reading = store.engine.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    reader = open_store(tmp_path / "reader", reading.render_as_string(hide_password=False))
    with pytest.raises(sa.exc.DBAPIError, match="read-only"):
        add_dataset(reader, name="another")
    back_up(reader, tmp_path / "backup.zip")
    assert (tmp_path / "backup.zip").exists()
    assert entries(store) == []
    reader.close()


def test_the_command_line_logs_as_the_app_does_and_exports(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    reveals = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]
    run_id = add_run(sqlite_store, data.id, 5, reveals, status=WorkStatus.QUEUED)
    ended = add_run(sqlite_store, data.id, 5, reveals)
    base, said = ["--workspace", str(sqlite_store.workspace)], list[str]()

    def ran(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, *base])
        assert done.exit_code == 0, done.output
        said.append(done.stderr)
        return done.stdout

    ran("rules", "use", "-d", "small world", "--name", "paper")
    ran("stop", "--now", run_id)
    assert f"{run_id}: cancelled" in said[-1]
    run_id = add_run(sqlite_store, data.id, 5, reveals, status=WorkStatus.QUEUED)
    ran("stop", run_id)
    assert f"{run_id}: paused" in said[-1]
    # Nothing of what has ended is paused or cancelled, and the log does not say so.
    ran("stop", ended)
    assert f"{ended}: nothing to stop; it is finished" in said[-1]
    ran("stop", "--now", ended)
    assert f"{ended}: nothing to stop; it is finished" in said[-1]
    rows = list(csv.DictReader(io.StringIO(ran("team", "log", "--csv"))))
    assert [row["action"] for row in rows] == ["run.paused", "run.cancelled"]
    assert all(row["person"] and row["created"] for row in rows)
