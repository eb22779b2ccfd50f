"""The `flow` relation: one row an information flow (profile, attribute, context) of a run, with its counts and label.

    run      profile attribute key   domain  event    bio   context label draws reveals
    run-3f9a 1       17        rent  housing divorce  false 39      2     5     1

`draws` are judged samples whose memory held the attribute, `reveals` in how many of them it was revealed in full,
`label` the effective label's code (a person's decision before the consensus; -1: the pair has no vote, -2: too few
votes for a label). Responses that are missing are in no `draws`; `expected` says how many were planned. An attribute
that no planned memory of a context held is no flow there: it has no row in `flow`, and one with held = false in
`pairs`. Not so in a run with a memory of the authors' code: there `draws` are all judged samples of the context.
`retained` says whether the context counts for the profile, which its labels decide and no memory changes. A scope says
whose claims `reveals` counts (one judge's, or what several say together) and whether people's verdicts go before them;
draws are the judges' either way.

`flow_rows` brings from the record what the relation is joined from; DuckDB joins it. A relation is kept under the
version of its scope, and built again when that has moved: nothing stale is ever shown as current.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa
from cachetools import LRUCache

from cimemories.flows import parts
from cimemories.flows.cache import MOST, Cache, workspace_cached
from cimemories.flows.labels import CODES, RETAINING, UNLABELLED, cache_file, labels_under, write_cache
from cimemories.flows.parts import IN_MEMORY, Part, quoted
from cimemories.flows.scope import Combine, Labels, Scope, Verdicts
from cimemories.model import Label, is_bio
from cimemories.store import decisions, judgements
from cimemories.store.engine import Store
from cimemories.store.judgements import PartialMemories
from cimemories.store.tables import attribute

if TYPE_CHECKING:
    import pyarrow as pa

PAIR = ["attribute", "context"]
RESPONSES = ["profile", "context", "level", "memory"]  # what planned and judged responses are counted by
ATTRIBUTES = ["id", "profile", "ordinal", "key", "domain", "event"]
TABLES_KEPT = 96
ROWS_KEPT = 2_000_000  # of all runs together, as the record has them
FETCHED = 10_000  # rows at a time: one by one takes twice as long

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class RunRows:
    """Rows of the record for a run's flows, whatever the labels: planned (profile, context, level, memory, expected,
    draws), reveals (attribute, context, reveals), and the partial memories of its messages."""

    planned: pd.DataFrame
    reveals: pd.DataFrame
    memories: PartialMemories

    @property
    def size(self) -> int:
        return len(self.planned) + len(self.reveals)


def run_rows(
    store: Store, scope: Scope, profiles: Sequence[int] | None = None, memories: PartialMemories | None = None
) -> RunRows:
    """Read the rows of a run. The arguments are those of `flow_rows`."""
    run_id, judges = scope.run.id, scope.judge_ids
    with store.read() as connection:
        memories = judgements.partial_memories(connection, run_id) if memories is None else memories
        planned = frame_of(judgements.planned_responses(connection, run_id, profiles), [*RESPONSES, "expected"])
        draws = frame_of(judgements.judged_draws(connection, run_id, judges, profiles), [*RESPONSES, "draws"])
        claims = judgements.reveal_counts(
            connection, run_id, judges, scope.need, grounded=scope.grounded, profiles=profiles
        )
        reveals = frame_of(claims, ["attribute", "context", "memory", "reveals"])
        verdicts = [change[1:] for change in verdict_changes(connection, scope, memories)]
    planned = planned.merge(draws, how="left", on=RESPONSES)
    # Without a judged response there is no row to merge: nan, and no type if nothing at all was judged.
    planned["draws"] = planned["draws"].astype("float64").fillna(0).astype(np.int64)
    if memories:  # a claim on what the memory of a message left out is no reveal
        of_memory = zip(reveals["memory"], reveals["attribute"], strict=True)
        reveals = reveals[np.array([judgements.memory_holds(memories, m, a) for m, a in of_memory], np.bool_)]
    # Verdicts are corrections of -1, 0 or +1 a response: added to the claims, they give people's count.
    reveals = pd.concat([reveals[[*PAIR, "reveals"]], pd.DataFrame(verdicts, columns=[*PAIR, "reveals"])])
    return RunRows(
        planned, typed(reveals, [*PAIR, "reveals"]).groupby(PAIR, as_index=False, sort=False).sum(), memories
    )


def flow_rows(
    store: Store,
    scope: Scope,
    profiles: Sequence[int] | None = None,
    memories: PartialMemories | None = None,
    recorded: RunRows | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the tables that the flows of a run are joined from: planned (profile, context, level, expected, draws),
    attributes, reveals (attribute, context, reveals), decisions and labels (attribute, context, label); and, only where
    some memory leaves an attribute out and is none of the authors' compositions, held (attribute, context, expected,
    draws). profiles: the rows of these alone (decisions and verdicts are those of all, which the join leaves out);
    memories: the partial memories of the run, where they are known already; recorded: what has been read of it."""
    recorded = recorded or run_rows(store, scope, profiles, memories)
    planned, memories = recorded.planned, recorded.memories
    attributes = _attributes(store, scope.dataset_version, tuple(sorted({int(p) for p in planned["profile"]})))
    counts = {"level": "first", "expected": "sum", "draws": "sum"}
    frames = {
        "planned": planned.groupby(["profile", "context"], as_index=False, sort=False).agg(counts),
        "attributes": attributes,
        "reveals": recorded.reveals,
        "decisions": _decisions(store, scope.dataset_version) if scope.labels == Labels.DECISIONS else _decided([]),
        "labels": labels_under(store, scope.labelling, scope.rule, profiles),
    }
    # By the authors' rule what no memory held was not revealed, and stays in every denominator.
    whole = not memories or scope.run.counts_whole_profiles
    return frames | ({} if whole else {"held": _held_draws(planned, memories, attributes)})


# A few: runs of one dataset ask one after the other, and every block of a large run asks for its own.
@workspace_cached(most=4)
def _attributes(store: Store, _version: tuple[int, str, int], profiles: tuple[int, ...]) -> pd.DataFrame:
    """Return the attributes of some profiles of a dataset at this version, one a row: attribute, then ATTRIBUTES, bio
    and position."""
    columns = [attribute.c[name] for name in ATTRIBUTES]
    with store.read() as connection:
        rows = connection.execute(sa.select(*columns).where(attribute.c.profile.in_(profiles)))
        frame = frame_of(rows, ["attribute", *ATTRIBUTES[1:]]).astype({"attribute": np.int64, "profile": np.int64})
    # By the rule of today: the record's own mark may have been made by an earlier one.
    frame["bio"] = np.fromiter(map(is_bio, frame["key"], frame["domain"]), np.bool_, len(frame))
    # Without gaps and from 0, whatever the ordinals are: a position is an index into the arrays.
    frame["position"] = frame.groupby("profile")["ordinal"].rank("dense").astype(np.int64) - 1
    return frame


# Several revisions: users who read while others decide stay at the one they came at.
@workspace_cached(most=16)
def _decisions(store: Store, version: tuple[int, str, int]) -> pd.DataFrame:
    """Return the labels that people have decided in a dataset at this version: attribute, context, label."""
    with store.read() as connection:
        standing = decisions.standing_labels(connection, version[0])
    return _decided([(attribute, context, CODES[Label(label)]) for attribute, context, label in standing])


def _decided(rows: list[tuple[int, int, int]]) -> pd.DataFrame:
    return typed(pd.DataFrame(rows, columns=[*PAIR, "label"]), [*PAIR, "label"])


def _held_draws(by_memory: pd.DataFrame, memories: PartialMemories, attributes: pd.DataFrame) -> pd.DataFrame:
    """Return planned and judged responses of each (attribute, context) whose memory holds the attribute: attribute,
    context, expected, draws. Those of which none is planned have no row."""
    every = {int(str(p)): ids.to_numpy(np.int64) for p, ids in attributes.groupby("profile")["attribute"]}
    partial = {name: np.fromiter(sorted(ids), np.int64, len(ids)) for name, ids in memories.items()}
    of_response = zip(by_memory["profile"], by_memory["memory"], strict=True)
    ids_held = [partial[memory] if memory in partial else every[int(profile)] for profile, memory in of_response]
    # Every planned response counts for each attribute its memory held: its row is repeated for all of them.
    sizes = [len(ids) for ids in ids_held]
    columns = {n: np.repeat(by_memory[n].to_numpy(np.int64), sizes) for n in ("context", "expected", "draws")}
    # The empty array first, since nothing cannot be concatenated.
    frame = pd.DataFrame({"attribute": np.concatenate([np.empty(0, np.int64), *ids_held]), **columns})
    return frame.groupby(PAIR, as_index=False, sort=False).sum()


def verdict_changes(
    connection: sa.Connection, scope: Scope, memories: PartialMemories
) -> list[tuple[int, int, int, int]]:
    """Return by how much people's standing verdicts move the count of reveals: (response, attribute, context, + or -).

    Where one of the judges has no judgement of the response, the flow has no draw there that a verdict could speak for,
    and the verdict waits.
    """
    if not scope.people:
        return []
    claims = judgements.claims_on_audited(connection, scope.run.id, scope.judge_ids, grounded=scope.grounded)
    return [
        (
            verdict.response,
            verdict.attribute,
            verdict.context,
            int(verdict.revealed) - int(claims[verdict.response][verdict.attribute] >= scope.need),
        )
        for verdict in scope.people
        if verdict.response in claims and judgements.memory_holds(memories, verdict.memory, verdict.attribute)
    ]


def frame_of(rows: sa.CursorResult[tuple], columns: list[str]) -> pd.DataFrame:
    """Return the rows of a query. As plain tuples: pandas asks rows of the record for attributes one by one, which
    takes longer than everything else."""
    return pd.DataFrame([tuple(row) for some in rows.partitions(FETCHED) for row in some], columns=columns)


def typed(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the frame with these columns as whole numbers, which an empty one does not tell by itself."""
    return frame.astype(dict.fromkeys(columns, np.int64))


# If every memory is whole, draws are those of the context and nothing has to be looked up for each attribute.
_WHOLE = {"expected": "p.expected", "draws": "p.draws", "held": ""}
_PARTIAL = {
    "expected": "coalesce(h.expected, 0)",
    "draws": "coalesce(h.draws, 0)",
    "held": "LEFT JOIN held h ON h.attribute = a.attribute AND h.context = p.context",
}
# Every attribute of a profile meets each of its planned contexts, and what is known of the pair is joined to the left,
# so that pairs without a label or a reveal stay. MATERIALIZED: `pairs` is read twice.
_BUILD = f"""
CREATE TABLE {{name}}_built AS
WITH pairs AS MATERIALIZED (
    SELECT ? AS run, a.profile, a.attribute, a.ordinal, a.position, a.key, a.domain, a.event, a.bio, p.context, p.level,
           coalesce(d.label, l.label, {UNLABELLED})::TINYINT AS label, d.label IS NOT NULL AS decided,
           {{expected}}::SMALLINT AS expected, {{draws}}::SMALLINT AS draws,
           coalesce(r.reveals, 0)::SMALLINT AS reveals
    FROM planned p
    JOIN attributes a ON a.profile = p.profile
    LEFT JOIN labels l ON l.attribute = a.attribute AND l.context = p.context
    LEFT JOIN decisions d ON d.attribute = a.attribute AND d.context = p.context
    LEFT JOIN reveals r ON r.attribute = a.attribute AND r.context = p.context
    {{held}}
),
contexts AS (
    SELECT profile, context, {" AND ".join(f"bool_or(label = {code})" for code in RETAINING)} AS retained
    FROM pairs GROUP BY profile, context
)
SELECT pairs.*, contexts.retained, expected > 0 AS held FROM pairs JOIN contexts USING (profile, context)
ORDER BY profile, ordinal, context
"""
# Kept in small types, texts as enumerations: a run of a thousand profiles has seven million rows. The views give back
# what was put in.
_TEXTS = ("key", "domain", "event")
_NUMBERS = ("profile", "attribute", "ordinal", "position", "context")
_TYPE = "CREATE TYPE {{name}}_{word} AS ENUM (SELECT DISTINCT {word} FROM {{source}} WHERE {word} IS NOT NULL);"
_HELD = f"""
{"".join(_TYPE.format(word=w) for w in _TEXTS)}
CREATE TABLE {{name}}_rows AS SELECT * EXCLUDE (run, level) REPLACE (
    {", ".join([f"{n}::INTEGER AS {n}" for n in _NUMBERS] + [f"{w}::{{name}}_{w} AS {w}" for w in _TEXTS])}
) FROM {{source}};
CREATE VIEW {{name}}_pairs AS SELECT {{run}} AS run, * REPLACE (
    {", ".join([f"{n}::BIGINT AS {n}" for n in _NUMBERS] + [f"{w}::VARCHAR AS {w}" for w in _TEXTS])}
) FROM {{name}}_rows;
CREATE VIEW {{name}} AS SELECT * EXCLUDE (held) FROM {{name}}_pairs WHERE held
"""
# A run that does not fit into memory is not kept there: its files are read at each question.
_LARGE = """
CREATE VIEW {name}_rows AS SELECT * EXCLUDE (run, level) FROM {source};
CREATE VIEW {name}_pairs AS SELECT {run} AS run, * FROM {name}_rows;
CREATE VIEW {name} AS SELECT * EXCLUDE (held) FROM {name}_pairs WHERE held
"""
LARGE_MEMORY = "1GB"  # of DuckDB, once such a run is looked at
# Views, then the table, then its types: each rests on the next.
_DROP = "DROP VIEW IF EXISTS {name}; DROP VIEW IF EXISTS {name}_pairs; {rows};" + "".join(
    f"DROP TYPE IF EXISTS {{name}}_{w};" for w in _TEXTS
)


def _drop(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    query = "SELECT count(*) FROM duckdb_views() WHERE view_name = ?"
    is_view = (connection.execute(query, [f"{name}_rows"]).fetchone() or (0,))[0]
    kind = "VIEW" if is_view else "TABLE"
    connection.execute(_DROP.format(name=name, rows=f"DROP {kind} IF EXISTS {name}_rows"))


class _Tables(LRUCache[str, str]):
    """Names of DuckDB tables by the version of their scope; the least recently used one is dropped."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(TABLES_KEPT)
        self._duckdb = connection

    # Called by LRUCache when a new name finds no room, so always under the lock of Flows.table.
    def popitem(self) -> tuple[str, str]:
        version, name = super().popitem()
        _drop(self._duckdb, name)
        return version, name


class Flows:
    """Flow relations of a workspace in one in-process DuckDB, and what was computed from them. Safe to share between
    threads."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cache = Cache()
        self._duckdb = duckdb.connect(":memory:")
        self._lock = threading.Lock()  # a DuckDB connection serves one thread at a time
        self._tables = _Tables(self._duckdb)
        self._built = 0

    def table(self, scope: Scope) -> str:
        """Return the name of the DuckDB table that holds the flows of this scope, built where it is not there yet."""
        with self._lock:
            # Building stays under the lock: two threads that ask for a scope at once build it once.
            version = scope.version
            if version not in self._tables:
                self._built += 1
                name = f"flow_{self._built}"
                self._build(name, scope)
                self._tables[version] = name
            return self._tables[version]

    def query(self, scope: Scope, sql: str, parameters: Sequence[object] = ()) -> pd.DataFrame:
        """Return the answer to a question. In the SQL `{flow}` stands for the relation, `{pairs}` for the same with
        attributes that no memory held, `{rows}` for what is kept of that: texts as enumerations, and no run."""
        return self._ask(scope, sql, parameters).df()

    def arrays(
        self, scope: Scope, sql: str, parameters: Sequence[object] = (), part: Part = IN_MEMORY
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the answer as one numpy array a column, for numbers that are never missing: millions of rows without a
        copy. part: of the run, whose rows `{pairs}` stands for; default: all."""
        if part.files:
            return self.part(part, sql, parameters)
        result = self._ask(scope, sql, parameters)
        return {column: np.asarray(values) for column, values in result.fetchnumpy().items()}

    def _ask(self, scope: Scope, sql: str, parameters: Sequence[object]) -> duckdb.DuckDBPyConnection:
        # The table can only go before it is read if TABLES_KEPT others are built meanwhile. Only names made in this
        # class are formatted into the SQL; values go as parameters.
        name = self.table(scope)
        sql = sql.format(flow=name, pairs=f"{name}_pairs", rows=f"{name}_rows")
        return self._duckdb.cursor().execute(sql, list(parameters))

    def cached(self, key: tuple[object, ...], compute: Callable[[], T], *, most: int = MOST) -> T:
        """Return the result of a question, from the cache or computed now. key: the question, then the version of its
        scope and whatever else it depends on. most: how many results of the question are kept."""
        return self.cache.get(str(key[0]), key[1:], compute, most=most)

    def knows(self, key: tuple[object, ...]) -> bool:
        """Return whether the result of a question is in the cache."""
        return self.cache.has(str(key[0]), key[1:])

    def fits(self, scope: Scope) -> bool:
        """Return whether the flows of a run fit into memory together; else they are counted in blocks of profiles."""
        pairs = self.cached(_pairs_key(scope), lambda: parts.pairs_at_most(self.store, scope))
        return pairs < parts.LARGE_PAIRS

    def take_parts(self, scope: Scope, scope_parts: tuple[Part, ...]) -> None:
        """Take over the parts of a run that another process has found."""
        self.cached(_pairs_key(scope), lambda: parts.LARGE_PAIRS if scope_parts[0].files else 0)
        self.cached(_parts_key(scope), lambda: scope_parts)

    def parts(self, scope: Scope) -> tuple[Part, ...]:
        """Return the blocks of profiles that a run is counted in, in their order: one of a run that fits into memory,
        else files, built where they are not there yet. Raises StoreError where they cannot be written."""

        def built() -> tuple[Part, ...]:
            if self.fits(scope):
                return (IN_MEMORY,)
            folder = relation_file(self.store, scope).with_suffix("")
            files = parts.build(self.store, scope, folder, _cache_name(scope), partial(self._write_part, scope))
            return tuple(Part((file,)) for file in files)

        return self.cached(_parts_key(scope), built)

    def of_parts(self, scope: Scope, sql: str) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the answer of each part of a run, see `arrays`."""
        return [self.arrays(scope, sql, part=part) for part in self.parts(scope)]

    def part(
        self, part: Part | pa.Table, sql: str, parameters: Sequence[object] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the answer of one part of a large run, or of a table in memory, as `arrays` has it, with texts as
        objects; `{pairs}` stands for its rows."""
        cursor = self._duckdb.cursor()  # of its own: parts are read while other relations are
        rows = part.sql if isinstance(part, Part) else "given"
        try:
            if not isinstance(part, Part):
                cursor.register(rows, part)
            result = cursor.execute(sql.format(pairs=rows), list(parameters or ()))
            return {column: np.asarray(values) for column, values in result.fetchnumpy().items()}
        finally:
            cursor.close()

    def _write_part(self, scope: Scope, profiles: Sequence[int], file: Path) -> None:
        memories = self.cached(("partial memories", scope.run.id, scope.run.revision), partial(self._held, scope))
        frames = flow_rows(self.store, scope, profiles, memories)
        name, cursor = f"part_{threading.get_ident()}", self._duckdb.cursor()
        try:
            self._join(name, scope, frames, cursor)
            cursor.execute(f"COPY {name}_built TO {quoted(file)} (FORMAT parquet)")
        finally:
            cursor.execute(f"DROP TABLE IF EXISTS {name}_built")
            cursor.close()

    def _held(self, scope: Scope) -> PartialMemories:
        with self.store.read() as connection:
            return judgements.partial_memories(connection, scope.run.id)

    def _build(self, name: str, scope: Scope) -> None:
        if not self.fits(scope):
            # Work that a view cannot stream (sorting millions of rows) goes to the disk instead of into memory.
            folder = self.store.workspace / "cache"
            self._duckdb.execute(f"SET memory_limit = '{LARGE_MEMORY}'; SET temp_directory = {quoted(folder)}")
            files = tuple(file for part in self.parts(scope) for file in part.files)
            self._duckdb.execute(_LARGE.format(name=name, source=Part(files).sql, run=quoted(scope.run.id)))
            return
        path = relation_file(self.store, scope)
        if path.exists():
            try:
                self._keep(name, scope, Part((path,)).sql)
                return
            except duckdb.Error:  # a damaged file (after a power cut, say), or one that was purged just now
                _drop(self._duckdb, name)
        # A decision moves the labels alone, and reading the rows of the run takes half of the time.
        about = scope.run.revision, tuple(scope.judge_ids), scope.need, scope.grounded, scope.verdicts, scope.audits
        recorded = self.cache.get(
            "rows of a run",
            (scope.run.id, *about),
            partial(run_rows, self.store, scope),
            most=ROWS_KEPT,
            size=attrgetter("size"),
        )
        cursor = self._duckdb.cursor()
        self._join(name, scope, flow_rows(self.store, scope, recorded=recorded), cursor)
        cursor.close()
        self._keep(name, scope, f"{name}_built")
        # The revision of a run under way moves with its answers: a file of it would be stale at once.
        if scope.run.status.is_finished:
            write_cache(partial(self._copy, f"{name}_built"), path, _cache_name(scope))
        self._duckdb.execute(f"DROP TABLE {name}_built")

    def _copy(self, table: str, file: Path) -> None:
        try:
            self._duckdb.execute(f"COPY {table} TO {quoted(file)} (FORMAT parquet)")
        except duckdb.IOException as error:
            raise OSError(str(error)) from error

    def _join(
        self, name: str, scope: Scope, frames: Mapping[str, pd.DataFrame], cursor: duckdb.DuckDBPyConnection
    ) -> None:
        """Make the table `{name}_built`. The frames are registered in a cursor, so that their names go when it is
        closed; the table stays."""
        for frame_name, frame in frames.items():
            cursor.register(frame_name, frame)
        cursor.execute(_BUILD.format(name=name, **(_PARTIAL if "held" in frames else _WHOLE)), [scope.run.id])

    def _keep(self, name: str, scope: Scope, source: str) -> None:
        self._duckdb.execute(_HELD.format(name=name, source=source, run=quoted(scope.run.id)))


def _pairs_key(scope: Scope) -> tuple[object, ...]:
    return "pairs of a run", scope.run.id, scope.run.revision, scope.dataset_revision


def _parts_key(scope: Scope) -> tuple[object, ...]:
    return "parts of a relation", scope.version


def cached(function: Callable[Concatenate[Flows, P], T]) -> Callable[Concatenate[Flows, P], T]:
    """Cache a question f(flows, ...) about scopes: computed once for the same arguments, as long as nothing that its
    scopes rest on has moved. All callers share the result: do not write to it."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def ask(flows: Flows, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(flows, *args, **kwargs)
        # With its defaults spelled out, a question has one key, however it is called.
        bound.apply_defaults()
        version = tuple(_version(value) for value in list(bound.arguments.values())[1:])
        return flows.cache.get(function.__qualname__, version, lambda: function(flows, *args, **kwargs))

    return cast(Callable[Concatenate[Flows, P], T], ask)


def _version(value: object) -> object:
    # By what it rests on, not by its fields: two readings of an unchanged record are one question.
    if isinstance(value, Scope):
        return value.version
    return tuple(_version(item) for item in value) if isinstance(value, (list, tuple)) else value


def relation_file(store: Store, scope: Scope) -> Path:
    """Return the file that keeps the relation of a finished run between processes, in the columns of `pairs`."""
    return cache_file(store, _cache_name(scope), scope.version)


def _cache_name(scope: Scope) -> str:
    """Return a name for a way of counting: files of one way must not push out those of another."""
    kind = "flows" if scope.verdicts == Verdicts.JUDGE else "audited"
    judges = ".".join(map(str, scope.judge_ids))
    how = f"_{scope.combine}" * (scope.combine != Combine.ONE) + "_grounded" * scope.grounded
    how += f"_{scope.labels}" * (scope.labels != Labels.DECISIONS) + (f"_{scope.rule.digest}" if scope.rule else "")
    return f"{kind}-{scope.run.id}-judge{judges}{how}"


@workspace_cached()
def shared_flows(store: Store) -> Flows:
    """Return the one set of flow relations of this process for a record: the app's threads and pages share it."""
    return Flows(store)
