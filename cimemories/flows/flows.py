"""The `flow` relation: one row an information flow (profile, attribute, context) of a run, with its counts and label.

    run      profile attribute key   domain  event    bio   context label draws reveals
    run-3f9a 1       17        rent  housing divorce  false 39      2     5     1

`draws` are judged samples whose memory held the attribute, `reveals` in how many of them it was revealed in full,
`label` the effective label's code (a person's decision before the consensus; -1: nobody has labelled the pair).
Responses that are missing are in no `draws`; `expected` says how many were planned. An attribute that no planned memory
of a context held is no flow there: it has no row in `flow`, and one with held = false in `pairs`. `retained` says
whether the context counts for the profile, which its labels decide and no memory changes. A scope says whose claims
`reveals` counts (one judge's, or what several say together) and whether people's verdicts go before them; draws are
the judges' either way.

The relation is built from the record in DuckDB, held under the revisions of everything it rests on, and built again
when one of them has moved: nothing stale is ever shown as current.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.curation.consensus import CODES, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.flows.labels import cache_file, consensus_labels, label_frame, vote_counts, write_cache
from cimemories.flows.scope import Combine, Labels, Scope, Verdicts
from cimemories.model import Strength, is_bio
from cimemories.store import audits, decisions, judgements
from cimemories.store.engine import Store
from cimemories.store.judgements import Held
from cimemories.store.tables import attribute

# ---- flow parts
#
# What the flow relation is joined from: planned and judged responses, attributes, reveals and decisions of one run.


PLACE = ["profile", "context"]
PAIR = ["attribute", "context"]
COLUMNS = ["id", "profile", "ordinal", "key", "domain", "event"]


def flow_parts(connection: sa.Connection, asked: Scope) -> dict[str, pd.DataFrame]:
    """The frames that flows are joined from: planned (a (profile, context) of the run), attributes, revealed, decided;
    and, only where some memory leaves an attribute out, held (an attribute in a context: expected, draws)."""
    run_id = asked.run.id
    held = judgements.partial_memories(connection, run_id)
    place = ["profile", "context", "level", "memory"]
    by_memory = frame_of(judgements.planned_responses(connection, run_id), [*place, "expected"])
    draws = frame_of(judgements.judged_draws(connection, run_id, asked.judge_ids), [*place, "draws"])
    by_memory = by_memory.merge(draws, how="left", on=place)
    by_memory["draws"] = by_memory["draws"].astype("float64").fillna(0).astype(np.int64)
    counts = {"level": "first", "expected": "sum", "draws": "sum"}
    planned = by_memory.groupby(PLACE, as_index=False, sort=False).agg(counts)
    attributes = _attributes(connection, planned)
    told = judgements.reveal_counts(connection, run_id, asked.judge_ids, asked.need, grounded=asked.grounded)
    revealed = frame_of(told, ["attribute", "context", "memory", "reveals"])
    revealed = _on_what_was_held(revealed, held)
    if asked.verdicts == Verdicts.PEOPLE:
        revealed = pd.concat([revealed, _people_before_the_judges(connection, asked, held)])
    counted = asked.labels == Labels.DECISIONS
    standing = decisions.standing(decisions.history(connection, asked.run.dataset)) if counted else {}
    decided = pd.DataFrame(
        [(a, c, CODES[d.label]) for (a, c), d in standing.items() if d.label is not None],
        columns=["attribute", "context", "label"],
    )
    parts = {
        "planned": planned,
        "attributes": attributes,
        "revealed": typed(revealed, [*PAIR, "reveals"]).groupby(PAIR, as_index=False, sort=False).sum(),
        "decided": typed(decided, [*PAIR, "label"]),
    }
    return parts | ({"held": _by_attribute(by_memory, held, attributes)} if held else {})


def _attributes(connection: sa.Connection, planned: pd.DataFrame) -> pd.DataFrame:
    """The attributes of these profiles; position: 0, 1, ... inside a profile, in their order."""
    columns = [attribute.c[name] for name in COLUMNS]
    profiles = sorted({int(p) for p in planned["profile"]})
    rows = connection.execute(sa.select(*columns).where(attribute.c.profile.in_(profiles)))
    found = frame_of(rows, ["attribute", *COLUMNS[1:]]).astype({"attribute": np.int64, "profile": np.int64})
    # By the rule of today: the record's own mark may have been made by an earlier one.
    found["bio"] = np.fromiter(map(is_bio, found["key"], found["domain"]), np.bool_, len(found))
    found["position"] = found.groupby("profile")["ordinal"].rank("dense").astype(np.int64) - 1
    return found


def _on_what_was_held(revealed: pd.DataFrame, held: Held) -> pd.DataFrame:
    """The same counts without those of responses whose memory did not hold the attribute."""
    if not held:
        return revealed[[*PAIR, "reveals"]]
    kept = [judgements.memory_holds(held, m, a) for m, a in zip(revealed["memory"], revealed["attribute"], strict=True)]
    return revealed.loc[np.array(kept, np.bool_), [*PAIR, "reveals"]]


def _by_attribute(by_memory: pd.DataFrame, held: Held, attributes: pd.DataFrame) -> pd.DataFrame:
    """Planned and judged responses of each (attribute, context) whose memory holds the attribute: attribute, context,
    expected, draws. Those of which none is planned have no row."""
    own = attributes.groupby("profile")["attribute"]
    whole = {int(str(p)): ids.to_numpy(np.int64) for p, ids in own}
    partial = {name: np.fromiter(sorted(ids), np.int64, len(ids)) for name, ids in held.items()}
    rows = list(by_memory[["profile", "context", "memory", "expected", "draws"]].itertuples(index=False, name=None))
    memories = [partial[m] if m in partial else whole[int(p)] for p, _, m, _, _ in rows]
    sizes = [len(ids) for ids in memories]
    frame = pd.DataFrame(
        {
            "attribute": np.concatenate([np.empty(0, np.int64), *memories]),
            "context": np.repeat(by_memory["context"].to_numpy(np.int64), sizes),
            "expected": np.repeat(by_memory["expected"].to_numpy(np.int64), sizes),
            "draws": np.repeat(by_memory["draws"].to_numpy(np.int64), sizes),
        }
    )
    return frame.groupby(PAIR, as_index=False, sort=False).sum()


def _people_before_the_judges(connection: sa.Connection, asked: Scope, held: Held) -> pd.DataFrame:
    """By how much people's standing verdicts move the count of reveals: attribute, context, reveals (+ or -).

    In full counts as revealed, everything else does not. Where one of the judges has no judgement of the response, the
    flow has no draw there that a verdict could speak for, and the verdict waits.
    """
    stand = audits.standing(audits.of_run(connection, asked.run.id))
    places = audits.places(connection, stand)
    said = {j: judgements.claims(connection, j, (flow[0] for flow in stand)) for j in asked.judge_ids}
    memories = judgements.texts_of(connection, (flow[0] for flow in stand)) if held else {}
    rows = []
    for (response_id, attribute_id), verdict in stand.items():
        if any(response_id not in claims for claims in said.values()):
            continue
        if held and not judgements.memory_holds(held, memories[response_id][0], attribute_id):
            continue
        own = [claims[response_id].get(attribute_id) for claims in said.values()]
        full = [c for c in own if c and c[0] == Strength.FULL and (c[1] is not None or not asked.grounded)]
        judged = len(full) >= asked.need
        context = places[response_id, attribute_id][0]
        rows.append((attribute_id, context, int(audits.says_revealed(verdict.verdict)) - int(judged)))
    return pd.DataFrame(rows, columns=[*PAIR, "reveals"])


def frame_of(rows: sa.CursorResult[tuple], columns: list[str]) -> pd.DataFrame:
    """What a query found. As plain tuples: pandas asks rows of the record for attributes one by one, which takes
    longer than everything else."""
    return pd.DataFrame([tuple(row) for row in rows], columns=columns)


def typed(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The frame with these columns as whole numbers, which an empty one does not tell by itself."""
    return frame.astype(dict.fromkeys(columns, np.int64))


# ---- flows


TABLES_HELD = 96
ANSWERS_HELD = 512
KEPT = ("arrays", "counted", "heatmap places", "record of a run")
T = TypeVar("T")

# Where every memory is whole, draws are those of the context and nothing has to be looked up for each attribute.
_WHOLE = {"expected": "p.expected", "draws": "p.draws", "held": ""}
_PARTIAL = {
    "expected": "coalesce(h.expected, 0)",
    "draws": "coalesce(h.draws, 0)",
    "held": "LEFT JOIN held h ON h.attribute = a.attribute AND h.context = p.context",
}
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
    LEFT JOIN decided d ON d.attribute = a.attribute AND d.context = p.context
    LEFT JOIN revealed r ON r.attribute = a.attribute AND r.context = p.context
    {{held}}
),
place AS (
    SELECT profile, context, bool_or(label = {NECESSARY}) AND bool_or(label = {INAPPROPRIATE}) AS retained
    FROM pairs GROUP BY profile, context
)
SELECT pairs.*, place.retained, expected > 0 AS held FROM pairs JOIN place USING (profile, context)
ORDER BY profile, ordinal, context
"""
# Held in small types, words as numbers: a run of a thousand profiles has seven million rows. The views give back what
# was put in.
_WORDS = ("key", "domain", "event")
_NUMBERS = ("profile", "attribute", "ordinal", "position", "context")
_TYPE = "CREATE TYPE {{name}}_{word} AS ENUM (SELECT DISTINCT {word} FROM {{source}} WHERE {word} IS NOT NULL);"
_HELD = f"""
{"".join(_TYPE.format(word=w) for w in _WORDS)}
CREATE TABLE {{name}}_rows AS SELECT * EXCLUDE (run, level) REPLACE (
    {", ".join([f"{n}::INTEGER AS {n}" for n in _NUMBERS] + [f"{w}::{{name}}_{w} AS {w}" for w in _WORDS])}
) FROM {{source}};
CREATE VIEW {{name}}_pairs AS SELECT {{run}} AS run, * REPLACE (
    {", ".join([f"{n}::BIGINT AS {n}" for n in _NUMBERS] + [f"{w}::VARCHAR AS {w}" for w in _WORDS])}
) FROM {{name}}_rows;
CREATE VIEW {{name}} AS SELECT * EXCLUDE (held) FROM {{name}}_pairs WHERE held
"""
_DROP = "DROP VIEW IF EXISTS {name}; DROP VIEW IF EXISTS {name}_pairs; DROP TABLE IF EXISTS {name}_rows;" + "".join(
    f"DROP TYPE IF EXISTS {{name}}_{w};" for w in _WORDS
)


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
                self._duckdb.execute(_DROP.format(name=old))
            return name

    def query(self, asked: Scope, sql: str, parameters: list[object] | None = None) -> pd.DataFrame:
        """The answer to one question; in the SQL `{flow}` stands for the relation, `{pairs}` for the same with the rows
        of attributes that no memory held."""
        name = self.table(asked)
        with self._lock:
            frame: pd.DataFrame = self._duckdb.execute(
                sql.format(flow=name, pairs=f"{name}_pairs"), parameters or []
            ).df()
        return frame

    def arrays(self, asked: Scope, sql: str, parameters: list[object] | None = None) -> dict[str, npt.NDArray[Any]]:
        """The same as one numpy array a column, for numbers that are never missing: millions of rows without a copy."""
        name = self.table(asked)
        with self._lock:
            found = self._duckdb.execute(sql.format(flow=name, pairs=f"{name}_pairs"), parameters or [])
            return {column: np.asarray(values) for column, values in found.fetchnumpy().items()}

    def cached(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
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

    def forget_results(self) -> None:
        """Drop what is remembered, but for what runs were cut into: the next question is reckoned anew."""
        with self._lock:
            for key in [key for key in self._memo if key[0] not in KEPT]:
                del self._memo[key]

    def _build(self, name: str, asked: Scope) -> None:
        prefix, path = _cache_name(asked), relation_file(self.store, asked)
        if path.exists():
            try:
                self._hold(name, asked, "read_parquet('" + str(path).replace("'", "''") + "')")
                return
            except duckdb.Error:  # a damaged file (after a power cut, say), or one that was purged just now
                self._duckdb.execute(_DROP.format(name=name))
        with self.store.read() as connection:
            parts = flow_parts(connection, asked)
        parts["labels"] = _labels(self.store, asked)
        cursor = self._duckdb.cursor()
        for part, frame in parts.items():
            cursor.register(part, frame)
        cursor.execute(_BUILD.format(name=name, **(_PARTIAL if "held" in parts else _WHOLE)), [asked.run.id])
        cursor.close()
        self._hold(name, asked, f"{name}_built")
        if asked.run.status.is_finished:
            write_cache(self._duckdb.execute(f"SELECT * FROM {name}_built").df(), path, prefix)
        self._duckdb.execute(f"DROP TABLE {name}_built")

    def _hold(self, name: str, asked: Scope, source: str) -> None:
        run = asked.run.id.replace("'", "''")
        self._duckdb.execute(_HELD.format(name=name, source=source, run=f"'{run}'"))


def relation_file(store: Store, asked: Scope) -> Path:
    """Where the relation of a finished run is kept between processes: its rows in the columns of `pairs`."""
    return cache_file(store, _cache_name(asked), asked.version)


def _cache_name(asked: Scope) -> str:
    """Differs for every way of counting, so that the files of one do not push out those of another."""
    kind = "flows" if asked.verdicts == Verdicts.JUDGE else "audited"
    judges = ".".join(map(str, asked.judge_ids))
    how = f"_{asked.combine}" * (asked.combine != Combine.ONE) + "_grounded" * asked.grounded
    how += f"_{asked.labels}" * (asked.labels != Labels.DECISIONS) + (f"_{asked.rule.digest}" if asked.rule else "")
    return f"{kind}-{asked.run.id}-judge{judges}{how}"


def _labels(store: Store, asked: Scope) -> pd.DataFrame:
    if asked.labelling is None:
        return typed(pd.DataFrame({"attribute": [], "context": [], "label": []}), ["attribute", "context", "label"])
    if asked.rule is not None:
        return label_frame(vote_counts(store, asked.labelling.id), asked.rule)
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
