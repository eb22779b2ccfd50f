"""The `flow` relation: one row an information flow (profile, attribute, context) of a run, with its counts and label.

    run      profile attribute key   domain  event    bio   context label draws reveals
    run-3f9a 1       17        rent  housing divorce  false 39      2     5     1

`draws` are judged samples whose memory held the attribute, `reveals` in how many of them it was revealed in full,
`label` the effective label's code (a person's decision before the consensus; -1: nobody has labelled the pair, -2: it
has too few votes for a label).
Responses that are missing are in no `draws`; `expected` says how many were planned. An attribute that no planned memory
of a context held is no flow there: it has no row in `flow`, and one with held = false in `pairs`. `retained` says
whether the context counts for the profile, which its labels decide and no memory changes. A scope says whose claims
`reveals` counts (one judge's, or what several say together) and whether people's verdicts go before them; draws are
the judges' either way.

`flow_rows` brings from the record what the relation is joined from; DuckDB joins it. A relation is kept under the
version of its scope, and built again when that has moved: nothing stale is ever shown as current.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa
from cachetools import LRUCache

from cimemories.flows.cache import MOST, Cache, workspace_cached
from cimemories.flows.labels import CODES, INAPPROPRIATE, NECESSARY, UNLABELLED, cache_file, labels_under, write_cache
from cimemories.flows.scope import Combine, Labels, Scope, Verdicts
from cimemories.model import is_bio
from cimemories.store import decisions, judgements
from cimemories.store.engine import Store
from cimemories.store.judgements import PartialMemories
from cimemories.store.tables import attribute

PAIR = ["attribute", "context"]
RESPONSES = ["profile", "context", "level", "memory"]  # what planned and judged responses are counted by
ATTRIBUTES = ["id", "profile", "ordinal", "key", "domain", "event"]
TABLES_KEPT = 96

P = ParamSpec("P")
T = TypeVar("T")


def flow_rows(store: Store, scope: Scope) -> dict[str, pd.DataFrame]:
    """What the flows of a run are joined from, as the record has it: planned (profile, context, level, expected,
    draws), attributes, reveals (attribute, context, reveals), decisions and labels (attribute, context, label); and,
    only where some memory leaves an attribute out, held (attribute, context, expected, draws)."""
    run_id, judges = scope.run.id, scope.judge_ids
    with store.read() as connection:
        held = judgements.partial_memories(connection, run_id)
        by_memory = frame_of(judgements.planned_responses(connection, run_id), [*RESPONSES, "expected"])
        draws = frame_of(judgements.judged_draws(connection, run_id, judges), [*RESPONSES, "draws"])
        claims = judgements.reveal_counts(connection, run_id, judges, scope.need, grounded=scope.grounded)
        reveals = frame_of(claims, ["attribute", "context", "memory", "reveals"])
        verdicts = _verdict_changes(connection, scope, held) if scope.people else []
        history = decisions.history(connection, scope.run.dataset) if scope.labels == Labels.DECISIONS else []
        profiles = sorted({int(p) for p in by_memory["profile"]})
        columns = [attribute.c[name] for name in ATTRIBUTES]
        rows = connection.execute(sa.select(*columns).where(attribute.c.profile.in_(profiles)))
        attributes = frame_of(rows, ["attribute", *ATTRIBUTES[1:]]).astype({"attribute": np.int64, "profile": np.int64})
    # By the rule of today: the record's own mark may have been made by an earlier one.
    attributes["bio"] = np.fromiter(map(is_bio, attributes["key"], attributes["domain"]), np.bool_, len(attributes))
    # Without gaps and from 0, whatever the ordinals are: a position is an index into the arrays.
    attributes["position"] = attributes.groupby("profile")["ordinal"].rank("dense").astype(np.int64) - 1
    by_memory = by_memory.merge(draws, how="left", on=RESPONSES)
    # Where none was judged there is no row to merge: nan, and of no type if nothing at all was judged.
    by_memory["draws"] = by_memory["draws"].astype("float64").fillna(0).astype(np.int64)
    counts = {"level": "first", "expected": "sum", "draws": "sum"}
    if held:  # a claim on what the memory of a message left out is no reveal
        of_memory = zip(reveals["memory"], reveals["attribute"], strict=True)
        reveals = reveals[np.array([judgements.memory_holds(held, m, a) for m, a in of_memory], np.bool_)]
    # Verdicts are corrections of -1, 0 or +1 a response: added to the claims, they give people's count.
    reveals = pd.concat([reveals[[*PAIR, "reveals"]], pd.DataFrame(verdicts, columns=[*PAIR, "reveals"])])
    decided = [(a, c, CODES[d.label]) for (a, c), d in decisions.standing(history).items() if d.label is not None]
    parts = {
        "planned": by_memory.groupby(["profile", "context"], as_index=False, sort=False).agg(counts),
        "attributes": attributes,
        "reveals": typed(reveals, [*PAIR, "reveals"]).groupby(PAIR, as_index=False, sort=False).sum(),
        "decisions": typed(pd.DataFrame(decided, columns=[*PAIR, "label"]), [*PAIR, "label"]),
        "labels": labels_under(store, scope.labelling, scope.rule),
    }
    return parts | ({"held": _held_draws(by_memory, held, attributes)} if held else {})


def _held_draws(by_memory: pd.DataFrame, held: PartialMemories, attributes: pd.DataFrame) -> pd.DataFrame:
    """Planned and judged responses of each (attribute, context) whose memory holds the attribute: attribute, context,
    expected, draws. Those of which none is planned have no row."""
    whole = {int(str(p)): ids.to_numpy(np.int64) for p, ids in attributes.groupby("profile")["attribute"]}
    partial = {name: np.fromiter(sorted(ids), np.int64, len(ids)) for name, ids in held.items()}
    of_response = zip(by_memory["profile"], by_memory["memory"], strict=True)
    memories = [partial[memory] if memory in partial else whole[int(profile)] for profile, memory in of_response]
    # Every planned response says the same of each attribute its memory held: its row is repeated for all of them.
    sizes = [len(ids) for ids in memories]
    columns = {n: np.repeat(by_memory[n].to_numpy(np.int64), sizes) for n in ("context", "expected", "draws")}
    # The empty array first, since nothing cannot be concatenated.
    frame = pd.DataFrame({"attribute": np.concatenate([np.empty(0, np.int64), *memories]), **columns})
    return frame.groupby(PAIR, as_index=False, sort=False).sum()


def _verdict_changes(connection: sa.Connection, scope: Scope, held: PartialMemories) -> list[tuple[int, int, int]]:
    """By how much people's standing verdicts move the count of reveals: (attribute, context, + or -).

    Where one of the judges has no judgement of the response, the flow has no draw there that a verdict could speak for,
    and the verdict waits.
    """
    claims = judgements.claims_on_audited(connection, scope.run.id, scope.judge_ids, grounded=scope.grounded)
    return [
        (
            verdict.attribute,
            verdict.context,
            int(verdict.revealed) - int(claims[verdict.response][verdict.attribute] >= scope.need),
        )
        for verdict in scope.people or ()
        if verdict.response in claims and judgements.memory_holds(held, verdict.memory, verdict.attribute)
    ]


def frame_of(rows: sa.CursorResult[tuple], columns: list[str]) -> pd.DataFrame:
    """The rows of a query. As plain tuples: pandas asks rows of the record for attributes one by one, which takes
    longer than everything else."""
    return pd.DataFrame([tuple(row) for row in rows], columns=columns)


def typed(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The frame with these columns as whole numbers, which an empty one does not tell by itself."""
    return frame.astype(dict.fromkeys(columns, np.int64))


# Where every memory is whole, draws are those of the context and nothing has to be looked up for each attribute.
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
    SELECT profile, context, bool_or(label = {NECESSARY}) AND bool_or(label = {INAPPROPRIATE}) AS retained
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
# Views, then the table, then its types: each rests on the next.
_DROP = "DROP VIEW IF EXISTS {name}; DROP VIEW IF EXISTS {name}_pairs; DROP TABLE IF EXISTS {name}_rows;" + "".join(
    f"DROP TYPE IF EXISTS {{name}}_{w};" for w in _TEXTS
)


class _Tables(LRUCache[str, str]):
    """Names of DuckDB tables by the version of their scope; the one that was not used for longest is dropped."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(TABLES_KEPT)
        self._duckdb = connection

    # Called by LRUCache when a new name finds no room, so always under the lock of Flows.table.
    def popitem(self) -> tuple[str, str]:
        version, name = super().popitem()
        self._duckdb.execute(_DROP.format(name=name))
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
        """The name of the DuckDB table that holds the flows of this scope, built where it is not there yet."""
        with self._lock:
            # Building stays under the lock: two threads that ask for a scope at once build it once.
            version = scope.version
            if version not in self._tables:
                self._built += 1
                name = f"flow_{self._built}"
                self._build(name, scope)
                self._tables[version] = name
            return self._tables[version]

    def query(self, scope: Scope, sql: str, parameters: list[object] | None = None) -> pd.DataFrame:
        """The answer to one question; in the SQL `{flow}` stands for the relation, `{pairs}` for the same with the rows
        of attributes that no memory held, `{rows}` for what is kept of that: texts as enumerations, and no run."""
        # The lock is not reentrant, so it is taken twice. In between the table can only go if TABLES_KEPT others are
        # built.
        name = self.table(scope)
        with self._lock:
            # Only names made in this class are formatted into the SQL; values go as parameters.
            frame: pd.DataFrame = self._duckdb.execute(
                sql.format(flow=name, pairs=f"{name}_pairs", rows=f"{name}_rows"), parameters or []
            ).df()
        return frame

    def arrays(self, scope: Scope, sql: str, parameters: list[object] | None = None) -> dict[str, npt.NDArray[Any]]:
        """The same as one numpy array a column, for numbers that are never missing: millions of rows without a copy."""
        name = self.table(scope)
        with self._lock:
            result = self._duckdb.execute(
                sql.format(flow=name, pairs=f"{name}_pairs", rows=f"{name}_rows"), parameters or []
            )
            return {column: np.asarray(values) for column, values in result.fetchnumpy().items()}

    def cached(self, key: tuple[object, ...], compute: Callable[[], T], *, most: int = MOST) -> T:
        """The result of a question, from the cache or computed now. key: the question, then the version of its scope
        and whatever else it depends on. most: how many results of the question are kept."""
        return self.cache.get(str(key[0]), key[1:], compute, most=most)

    def knows(self, key: tuple[object, ...]) -> bool:
        """Whether the result of a question is in the cache."""
        return self.cache.has(str(key[0]), key[1:])

    def _build(self, name: str, scope: Scope) -> None:
        path = relation_file(self.store, scope)
        if path.exists():
            try:
                # Quotes are doubled, since the folder's name is the user's: the path becomes a part of the SQL.
                self._keep(name, scope, "read_parquet('" + str(path).replace("'", "''") + "')")
                return
            except duckdb.Error:  # a damaged file (after a power cut, say), or one that was purged just now
                self._duckdb.execute(_DROP.format(name=name))
        parts = flow_rows(self.store, scope)
        # The frames are registered in a cursor, so that their names go when it is closed; the table it makes stays.
        cursor = self._duckdb.cursor()
        for part, frame in parts.items():
            cursor.register(part, frame)
        cursor.execute(_BUILD.format(name=name, **(_PARTIAL if "held" in parts else _WHOLE)), [scope.run.id])
        cursor.close()
        self._keep(name, scope, f"{name}_built")
        # The revision of a run under way moves with its answers: a file of it would be stale at once.
        if scope.run.status.is_finished:
            write_cache(self._duckdb.execute(f"SELECT * FROM {name}_built").df(), path, _cache_name(scope))
        self._duckdb.execute(f"DROP TABLE {name}_built")

    def _keep(self, name: str, scope: Scope, source: str) -> None:
        # Doubled quotes here too: a view takes no parameters.
        run = scope.run.id.replace("'", "''")
        self._duckdb.execute(_HELD.format(name=name, source=source, run=f"'{run}'"))


def cached(function: Callable[Concatenate[Flows, P], T]) -> Callable[Concatenate[Flows, P], T]:
    """For a question f(flows, ...) about scopes: computed once for the same arguments, as long as nothing that its
    scopes rest on has moved. All who ask share the result: do not write to it."""
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
    """Where the relation of a finished run is kept between processes: its rows in the columns of `pairs`."""
    return cache_file(store, _cache_name(scope), scope.version)


def _cache_name(scope: Scope) -> str:
    """Differs for every way of counting, so that the files of one do not push out those of another."""
    kind = "flows" if scope.verdicts == Verdicts.JUDGE else "audited"
    judges = ".".join(map(str, scope.judge_ids))
    how = f"_{scope.combine}" * (scope.combine != Combine.ONE) + "_grounded" * scope.grounded
    how += f"_{scope.labels}" * (scope.labels != Labels.DECISIONS) + (f"_{scope.rule.digest}" if scope.rule else "")
    return f"{kind}-{scope.run.id}-judge{judges}{how}"


@workspace_cached()
def shared_flows(store: Store) -> Flows:
    """The one set of flow relations of this process for a record: the app's threads and pages share it."""
    return Flows(store)
