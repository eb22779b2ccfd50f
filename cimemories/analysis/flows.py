"""The `flow` relation: one row an information flow (profile, attribute, context) of a run, with its counts and label.

    run      profile attribute key   domain  event    bio   context level label draws reveals
    run-3f9a 1       17        rent  housing divorce  false 39      full  2     5     1

`draws` are judged samples, `reveals` in how many of them the attribute was revealed in full, `label` the effective
label's code (a person's decision before the consensus; -1: nobody has labelled the pair). Responses that are missing
are in no `draws`; `expected` says how many were planned. A scope says whose verdicts `reveals` counts: the judge's
alone, or a person's before the judge's where an audit has one. Draws are the judge's either way.

The relation is built from the record in DuckDB, held under the revisions of everything it rests on, and built again
when one of them has moved: nothing stale is ever shown as current.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar, cast

import duckdb
import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.analysis.labels import cache_file, consensus_labels, default_labelling, write_cache
from cimemories.curation.consensus import CODES
from cimemories.model import WorkStatus
from cimemories.store import audits, datasets, decisions, judgements, labellings, runs
from cimemories.store.engine import Store, StoreError
from cimemories.store.ids import content_hash
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow
from cimemories.store.tables import attribute, response

TABLES_HELD = 24
ANSWERS_HELD = 512
T = TypeVar("T")

_BUILD = """
CREATE TABLE {name} AS
SELECT ? AS run, a.profile, a.attribute, a.ordinal, a.key, a.domain, a.event, a.bio, p.context, p.level,
       coalesce(d.label, l.label, -1)::TINYINT AS label, d.label IS NOT NULL AS decided,
       p.expected::SMALLINT AS expected, p.draws::SMALLINT AS draws, coalesce(r.reveals, 0)::SMALLINT AS reveals
FROM planned p
JOIN attributes a ON a.profile = p.profile
LEFT JOIN labels l ON l.attribute = a.attribute AND l.context = p.context
LEFT JOIN decided d ON d.attribute = a.attribute AND d.context = p.context
LEFT JOIN revealed r ON r.attribute = a.attribute AND r.context = p.context AND r.level = p.level
ORDER BY a.profile, a.ordinal, p.context, p.level
"""


class Verdicts(StrEnum):
    """Whose word on what a message reveals is counted: the judge's, or that of people where they have given theirs."""

    JUDGE = "judge"
    PEOPLE = "people"


@dataclass(frozen=True)
class Scope:
    """What a question is about: a run, the labelling its labels come from (None: no labels yet), the judge, and whether
    people's verdicts count before the judge's. audits: (how many, newest id) of the run's audits, 0 where there are
    none."""

    run: RunRow
    labelling: LabellingRow | None
    judge: JudgeRow
    dataset_name: str
    dataset_revision: int
    verdicts: Verdicts = Verdicts.JUDGE
    audits: tuple[int, int] = (0, 0)

    @property
    def version(self) -> str:
        """Changes whenever anything that the flows rest on has changed."""
        labelled = (self.labelling.id, self.labelling.revision) if self.labelling else None
        people = [self.audits] if self.verdicts == Verdicts.PEOPLE else []
        return content_hash([self.run.id, self.run.revision, labelled, self.judge.id, self.dataset_revision, *people])

    @property
    def simulated(self) -> tuple[str, ...]:
        """Which parts come from a simulator: 'responses', 'labels'. Empty for a result that is wholly real."""
        labels = self.labelling is not None and self.labelling.simulated
        return ("responses",) * self.run.simulated + ("labels",) * labels


def scope(
    store: Store,
    run_id: str,
    labelling_id: str | None = None,
    judge_id: int | None = None,
    verdicts: Verdicts | str = Verdicts.JUDGE,
) -> Scope:
    """The scope of a question. Raises StoreError for a run, labelling or judge that is not there."""
    with store.read() as connection:
        run = runs.named(connection, run_id)
        judges = judgements.of_run(connection, run_id)
        rows = datasets.all_rows(connection)
        audited = audits.version(connection, run_id)
    judge = next((j for j in judges if judge_id is None or j.id == judge_id), None)
    if judge is None:
        there = ", ".join(f"{j.id} ({j.name})" for j in judges)
        raise StoreError(f"{run_id} has no judge {judge_id}. It has: {there}.")
    labelling = default_labelling(store, run.dataset)
    if labelling_id is not None and (labelling is None or labelling.id != labelling_id):
        labelling = _labelling(store, run.dataset, labelling_id)
    row = next(r for r in rows if r.id == run.dataset)
    return Scope(run, labelling, judge, row.name, row.revision, Verdicts(verdicts), audited)


def _labelling(store: Store, dataset_id: int, labelling_id: str) -> LabellingRow:
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset_id)
    for row in rows:
        if row.id == labelling_id:
            return row
    there = ", ".join(row.id for row in rows)
    raise StoreError(f"there is no labelling '{labelling_id}' of this dataset. There are: {there or 'none yet'}.")


class Flows:
    """Flow relations of a workspace in one in-process DuckDB. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._duckdb = duckdb.connect(":memory:")
        self._lock = threading.Lock()
        self._held: OrderedDict[str, str] = OrderedDict()
        self._count = 0
        self._memo: OrderedDict[tuple[object, ...], object] = OrderedDict()

    def table(self, asked: Scope) -> str:
        """The name of the DuckDB table that holds the flows of this scope, built where it is not held yet."""
        with self._lock:
            version = asked.version
            if version in self._held:
                self._held.move_to_end(version)
                return self._held[version]
            self._count += 1
            name = f"flow_{self._count}"
            self._build(name, asked)
            self._held[version] = name
            while len(self._held) > TABLES_HELD:
                _, old = self._held.popitem(last=False)
                self._duckdb.execute(f"DROP TABLE IF EXISTS {old}")
            return name

    def query(self, asked: Scope, sql: str, parameters: list[object] | None = None) -> pd.DataFrame:
        """The answer to one question; `{flow}` in the SQL stands for the relation."""
        name = self.table(asked)
        with self._lock:
            frame: pd.DataFrame = self._duckdb.execute(sql.format(flow=name), parameters or []).df()
        return frame

    def remember(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The answer to a question that was asked before, or a new one. `key` must hold the version of its scope."""
        with self._lock:
            if key in self._memo:
                self._memo.move_to_end(key)
                return cast(T, self._memo[key])
        value = make()
        with self._lock:
            self._memo[key] = value
            while len(self._memo) > ANSWERS_HELD:
                self._memo.popitem(last=False)
        return value

    def _build(self, name: str, asked: Scope) -> None:
        kind = "flows" if asked.verdicts == Verdicts.JUDGE else "audited"
        prefix = f"{kind}-{asked.run.id}-judge{asked.judge.id}"
        path = cache_file(self.store, prefix, asked.version)
        if path.exists():
            self._duckdb.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [str(path)])
            return
        with self.store.read() as connection:
            parts = _parts(connection, asked)
        parts["labels"] = _labels(self.store, asked)
        cursor = self._duckdb.cursor()
        for part, frame in parts.items():
            cursor.register(part, frame)
        cursor.execute(_BUILD.format(name=name), [asked.run.id])
        if asked.run.status == WorkStatus.FINISHED:
            write_cache(cursor.execute(f"SELECT * FROM {name}").df(), path, prefix)
        cursor.close()


def _parts(connection: sa.Connection, asked: Scope) -> dict[str, pd.DataFrame]:
    run_id, judge_id = asked.run.id, asked.judge.id
    planned = pd.DataFrame(
        connection.execute(
            sa.select(response.c.profile, response.c.context, response.c.level, sa.func.count())
            .where(response.c.run == run_id)
            .group_by(response.c.profile, response.c.context, response.c.level)
        ).all(),
        columns=["profile", "context", "level", "expected"],
    )
    draws = pd.DataFrame(
        judgements.draws_by_context(connection, run_id, judge_id).all(),
        columns=["profile", "context", "level", "draws"],
    )
    planned = planned.merge(draws, how="left", on=["profile", "context", "level"])
    planned["draws"] = planned["draws"].astype("float64").fillna(0).astype(np.int64)
    attributes = pd.DataFrame(
        connection.execute(
            sa.select(
                attribute.c.id,
                attribute.c.profile,
                attribute.c.ordinal,
                attribute.c.key,
                attribute.c.domain,
                attribute.c.event,
                attribute.c.bio,
            ).where(attribute.c.profile.in_(sorted({int(p) for p in planned["profile"]})))
        ).all(),
        columns=["attribute", "profile", "ordinal", "key", "domain", "event", "bio"],
    )
    revealed = pd.DataFrame(
        judgements.reveal_counts(connection, run_id, judge_id).all(),
        columns=["attribute", "context", "level", "reveals"],
    )
    if asked.verdicts == Verdicts.PEOPLE:
        changes = _people_before_the_judge(connection, run_id, judge_id)
        revealed = pd.concat([revealed, changes]).groupby(["attribute", "context", "level"], as_index=False).sum()
    standing = decisions.standing(decisions.history(connection, asked.run.dataset))
    decided = pd.DataFrame(
        [(a, c, CODES[d.label]) for (a, c), d in standing.items() if d.label is not None],
        columns=["attribute", "context", "label"],
    )
    return {
        "planned": planned,
        "attributes": attributes.astype({"attribute": np.int64, "profile": np.int64}),
        "revealed": _typed(revealed, ["attribute", "context", "reveals"]),
        "decided": _typed(decided, ["attribute", "context", "label"]),
    }


def _people_before_the_judge(connection: sa.Connection, run_id: str, judge_id: int) -> pd.DataFrame:
    """By how much people's standing verdicts move the count of reveals: attribute, context, level, reveals (+ or -).

    In full counts as revealed, everything else does not. Where this judge has no judgement of the response, the flow
    has no draw there that a verdict could speak for, and the verdict waits.
    """
    stand = audits.standing(audits.of_run(connection, run_id))
    places = audits.places(connection, stand)
    claimed = judgements.claims(connection, judge_id, (flow[0] for flow in stand))
    rows = []
    for (response_id, attribute_id), said in stand.items():
        if response_id not in claimed:
            continue
        claim = claimed[response_id].get(attribute_id)
        judged = audits.says_revealed(claim[0] if claim else None)
        rows.append(
            (attribute_id, *places[response_id, attribute_id], int(audits.says_revealed(said.verdict)) - int(judged))
        )
    return pd.DataFrame(rows, columns=["attribute", "context", "level", "reveals"])


def _typed(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    typed = frame.astype(dict.fromkeys(columns, np.int64))
    if "level" in typed:
        typed["level"] = typed["level"].astype("str")
    return typed


def _labels(store: Store, asked: Scope) -> pd.DataFrame:
    if asked.labelling is None:
        return _typed(pd.DataFrame({"attribute": [], "context": [], "label": []}), ["attribute", "context", "label"])
    return consensus_labels(store, asked.labelling.id)


_shared: dict[str, Flows] = {}
_shared_lock = threading.Lock()


def shared_flows(store: Store) -> Flows:
    """The one set of flow relations of this process for a record: the app's threads and pages share it."""
    key = f"{store.engine.url} {store.workspace.absolute()}"
    with _shared_lock:
        if key not in _shared:
            _shared[key] = Flows(store)
        return _shared[key]
