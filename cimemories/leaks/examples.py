"""The gallery of runs, severest first: a table in memory, of runs that do not fit into it a file.

    cache/leaks-run-3f9a-judge1-<version>-<place>/gallery-3.parquet

The examples of a large run are found block by block of profiles, as its flows are (flows/parts.py), and ordered once on
the disk. DuckDB orders either, counts what filters leave, and reads it a page at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from cimemories.access import readonly
from cimemories.flows.flows import LARGE_MEMORY, Flows, cached, relation_file
from cimemories.flows.parts import Part, quoted
from cimemories.flows.scope import Scope
from cimemories.leaks.conditions import condition
from cimemories.leaks.gallery import COLUMNS, RANKS, Facet, examples_of
from cimemories.model import Strength
from cimemories.store.engine import StoreError, content_hash

# By facet the values of which an example must have one; no values: any. Under WHERE a condition (conditions.py).
Filters = Mapping[str, Sequence[str]]
WHERE = "where"
FULL: Filters = {Facet.STRENGTH: [str(Strength.FULL)]}
FORM = 3  # of the files; one of another form is not read
GROUPED = ("number", "people", "recipients", "claimed", "draws", "first_id", "first_said", "first_told")
PAGE = 500  # examples that a stream reads at once
_BUILDING = threading.Lock()


@dataclass(frozen=True)
class FilterCounts:
    """The examples that filters leave. counts: by facet and value, how many examples that value alone would leave with
    all filters on other facets as they are; 0 for a value that leaves none. unfiltered: the same without any filter."""

    number: int
    counts: dict[Facet, dict[str, int]]
    unfiltered: dict[Facet, dict[str, int]]


@cached
def examples(flows: Flows, scopes: Sequence[Scope]) -> Examples:
    """Return the gallery of these scopes (one a run). Raises StoreError where it cannot be written to the disk."""
    if all(len(flows.parts(scope)) == 1 for scope in scopes):
        frames = [_of_run(flows, scope).assign(run_at=at) for at, scope in enumerate(scopes)]
        filled = [frame for frame in frames if len(frame)]
        return Examples(flows, in_order(pd.concat(filled)) if filled else None)
    with _BUILDING:  # two pages that ask at once build it once
        return Examples(flows, _built(flows, scopes))


@cached
def _of_run(flows: Flows, scope: Scope) -> pd.DataFrame:
    return examples_of(flows, scope)


def pages(every: Examples, filters: Filters, most: int | None = None, first: int = 0) -> Iterator[pd.DataFrame]:
    """Yield what filters leave, page by page, from the first (from 0) on up to so many."""
    number = every.left(filters).number
    number = number if most is None else min(number, most)
    for start in range(first, number, PAGE):
        yield every.page(filters, start, min(PAGE, number - start))


class Examples:
    """The examples of some runs, severest first. Frames have the columns of `gallery`; their index is the place in the
    order of all. rows: a table in that order, or the file of one; None for no example."""

    def __init__(self, flows: Flows, rows: pa.Table | Path | None) -> None:
        self._flows = flows
        self._rows = Part((rows,)) if isinstance(rows, Path) else rows
        self._left: tuple[Filters, FilterCounts] | None = None
        self.number = 0 if rows is None else int(self._ask("SELECT count(*) AS number FROM {pairs}")["number"][0])

    def left(self, filters: Filters) -> FilterCounts:
        """Count what filters leave. Raises StoreError for a condition that cannot be read."""
        if self._left is None or self._left[0] != filters:  # a page is asked for right after it was counted
            self._left = dict(filters), self._count(filters)
        return self._left[1]

    def _count(self, filters: Filters) -> FilterCounts:
        counts: dict[Facet, dict[str, int]] = {facet: {} for facet in Facet}
        whole: dict[Facet, dict[str, int]] = {facet: {} for facet in Facet}
        if not self.number:
            return FilterCounts(0, counts, whole)
        for facet in Facet:
            # Names are an order of their own, or come in the order of the record.
            order = _rank(facet) if facet in RANKS else "min(recorded)"
            where, values = _where({other: chosen for other, chosen in filters.items() if other != facet})
            rows = self._ask(
                f"SELECT {facet}::VARCHAR AS value, count(*) FILTER ({where}) AS number, count(*) AS whole "
                f"FROM {{pairs}} GROUP BY {facet} ORDER BY {order}",
                values,
            )
            none = dict.fromkeys(RANKS.get(facet, ()), 0)
            counts[facet] = none | dict(zip(rows["value"], rows["number"].tolist(), strict=True))
            whole[facet] = none | dict(zip(rows["value"], rows["whole"].tolist(), strict=True))
        where, values = _where(filters)
        return FilterCounts(
            int(self._ask(f"SELECT count(*) AS number FROM {{pairs}} {where}", values)["number"][0]), counts, whole
        )

    def page(self, filters: Filters | None = None, first: int = 0, size: int | None = None) -> pd.DataFrame:
        """Return so many of what filters leave (None: all), from the first (from 0) on."""
        where, values = _where(filters or {})
        limit = f"OFFSET {int(first)}" if size is None else f"LIMIT {int(size)} OFFSET {int(first)}"
        return self._frame(f"SELECT * FROM {{pairs}} {where} ORDER BY place {limit}", values)

    def named(self, ids: Sequence[str]) -> pd.DataFrame:
        """Return those of these ids that are there."""
        return self._frame("SELECT * FROM {pairs} WHERE id IN (SELECT unnest(?)) ORDER BY place", [list(ids)])

    def firsts(self, column: str, most: int, but: Sequence[str] = ()) -> pd.DataFrame:
        """Return the severest of each value of this column, the severest of these first. but: ids that are left
        aside."""
        others = "WHERE id NOT IN (SELECT unnest(?::VARCHAR[]))"
        first = f"SELECT min(place) FROM {{pairs}} {others} GROUP BY {_checked(column)}"
        sql = f"SELECT * FROM {{pairs}} WHERE place IN ({first}) ORDER BY place LIMIT {int(most)}"
        return self._frame(sql, [list(but)])

    def by_run(self, column: str = "domain") -> pd.DataFrame:
        """Count them: columns run, this column, strength, number, and always: how many of them are revealed in every
        sample."""
        names = f"run, {_checked(column)}, strength"
        counts = "count(*) AS number, count(*) FILTER (reveals = draws) AS always"
        if not self.number:
            return pd.DataFrame(columns=["run", column, "strength", "number", "always"])
        sql = f"SELECT {names}, {counts} FROM {{pairs}} GROUP BY {names} ORDER BY min(place)"
        return pd.DataFrame(self._ask(sql))

    def grouped(self, columns: Sequence[str], filters: Filters) -> pd.DataFrame:
        """Count what filters leave by the values of these columns, the most frequent first: number, people, recipients,
        claimed and draws (both in all), and of the severest its id, statement and recipient as first_id, first_said
        and first_told."""
        names, (where, values) = ", ".join(map(_checked, columns)), _where(filters)
        counts = (
            "count(*) AS number, count(DISTINCT profile) AS people, count(DISTINCT recipient) AS recipients, "
            "sum(claimed)::BIGINT AS claimed, sum(draws)::BIGINT AS draws, arg_min(id, place) AS first_id, "
            "arg_min(statement, place) AS first_said, arg_min(recipient, place) AS first_told"
        )
        sql = f"SELECT {names}, {counts} FROM {{pairs}} {where} GROUP BY {names} ORDER BY number DESC, min(place)"
        return pd.DataFrame(self._ask(sql, values)) if self.number else pd.DataFrame(columns=[*columns, *GROUPED])

    def _ask(self, sql: str, values: Sequence[object] = ()) -> dict[str, np.ndarray]:
        return self._flows.part(self._rows, sql, values)

    def _frame(self, sql: str, values: Sequence[object]) -> pd.DataFrame:
        if not self.number:
            return pd.DataFrame(columns=COLUMNS)
        frame = pd.DataFrame(self._ask(sql, values)).set_index("place").drop(columns=["recorded", "run_at", "ordinal"])
        return frame.rename_axis(None)


def _rank(facet: Facet) -> str:
    words = ", ".join(f"'{word}'" for word in RANKS[facet])
    return f"list_position([{words}], {facet})"


# What ties takes turns over domains and people: every turn has one example of each domain that is left, and of people
# in rotation, so that neighbours are of different domains and people where they can be. It is the square of both, read
# along its diagonals; further examples of a person and domain come a square later. Domains, people and their examples
# are numbered by what is to be kept from most recipients. What is ordered is narrow: the texts join at the end.
_RECORDED = """
    CREATE TABLE found AS SELECT *, row_number() OVER (ORDER BY run_at, profile, context, ordinal) AS recorded
    FROM {rows}
"""
_RANKED = ", ".join(map(_rank, (Facet.QUOTE, Facet.CERTAINTY, Facet.AGREEMENT)))
_ORDERED = f"""
    WITH ranked AS (
        SELECT recorded, domain, profile, dense_rank() OVER (
            ORDER BY {_rank(Facet.STRENGTH)}, domain IN (sphere, 'general'), claimed::DOUBLE / draws DESC, {_RANKED}
        ) AS tie, row_number() OVER (ORDER BY private DESC, recorded) AS telling
        FROM found
    ),
    firsts AS (
        SELECT *, min(telling) OVER (PARTITION BY tie, domain) AS d, min(telling) OVER (PARTITION BY tie, profile) AS p
        FROM ranked
    ),
    tied AS (
        SELECT recorded, tie, dense_rank() OVER (PARTITION BY tie ORDER BY d) - 1 AS domain_at,
               dense_rank() OVER (PARTITION BY tie ORDER BY p) - 1 AS person_at,
               row_number() OVER (PARTITION BY tie, d, p ORDER BY telling) - 1 AS again
        FROM firsts
    ),
    sized AS (SELECT *, max(person_at) OVER (PARTITION BY tie) + 1 AS size FROM tied),
    turned AS (
        SELECT recorded, tie, domain_at, row_number() OVER (
            PARTITION BY tie, domain_at ORDER BY again * size + ((person_at - domain_at) % size + size) % size
        ) AS turn
        FROM sized
    )
    SELECT row_number() OVER (ORDER BY tie, turn, domain_at) - 1 AS place, found.*
    FROM turned JOIN found USING (recorded) ORDER BY place
"""


def in_order(rows: pd.DataFrame) -> pa.Table:
    """Return examples (gallery.examples_of, with the place of their run as run_at) severest first, with that place."""
    with duckdb.connect() as connection:
        connection.register("given", pa.Table.from_pandas(rows, preserve_index=False))
        connection.execute(_RECORDED.format(rows="given"))
        return connection.sql(_ORDERED).to_arrow_table()


def _checked(column: str) -> str:
    """Return a name that may stand in SQL."""
    if column not in COLUMNS:
        raise ValueError(f"examples have no column {column}")
    return column


def _where(filters: Filters) -> tuple[str, list[object]]:
    texts, parameters = ["true"], list[object]()
    for name, values in filters.items():
        if name == WHERE:
            for sql, of_condition in map(condition, values):
                texts.append(sql)
                parameters += of_condition
        elif len(values):
            texts.append(f"{Facet(name)}::VARCHAR IN (SELECT unnest(?::VARCHAR[]))")
            parameters.append([str(value) for value in values])
    return f"WHERE {' AND '.join(texts)}", parameters


def _built(flows: Flows, scopes: Sequence[Scope]) -> Path:
    """Return the file of all examples in their order, written where it is not there yet."""
    files = [relation_file(flows.store, scope) for scope in scopes]
    # By what each rests on: the name of its relation's file says it.
    stem = files[0].stem if len(files) == 1 else f"runs-{content_hash([file.stem for file in files])[:16]}"
    name = stem.removeprefix("flows-")
    folder = files[0].with_name(f"leaks-{name}")
    ordered = folder / f"gallery-{FORM}.parquet"
    if ordered.exists():
        return ordered
    if readonly.chosen():
        raise StoreError(f"{readonly.REASON}, and the leaks of so large a run are read from files that are not there.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = [file for at, scope in enumerate(scopes) for file in _write(flows, scope, at, folder)]
        for left in folder.glob("ordering.duckdb*"):  # of a build that was cut off
            left.unlink()
        _order(parts, ordered, folder)
    except (OSError, duckdb.Error) as error:
        raise StoreError(
            f"the leaks of {scopes[0].run.id} cannot be written to {folder} ({error}). Free some space, then do it "
            "again; what is written is kept."
        ) from error
    for old in folder.parent.glob("leaks-*"):
        # Of the same run and way of counting, at an older version.
        if old != folder and old.name.rsplit("-", 2)[0] == folder.name.rsplit("-", 2)[0]:
            with suppress(OSError):
                rmtree(old)
    return ordered


def _write(flows: Flows, scope: Scope, at: int, folder: Path) -> Iterator[Path]:
    """Return the examples of a run in files, block by block; those that are there are taken."""
    for number, part in enumerate(flows.parts(scope)):
        file = folder / f"{at:03}-{number:05}-{FORM}.parquet"
        if not file.exists():
            frame = examples_of(flows, scope, part)
            if len(frame):
                draft = file.with_suffix(".draft")
                frame.assign(run_at=at).to_parquet(draft, index=False)
                draft.replace(file)
        if file.exists():
            yield file


def _order(files: Sequence[Path], ordered: Path, folder: Path) -> None:
    draft = ordered.with_suffix(".draft")
    # On the disk, since a table of millions of texts would not fit beside the limit.
    with duckdb.connect(folder / "ordering.duckdb") as connection:
        connection.execute(f"SET memory_limit = '{LARGE_MEMORY}'; SET temp_directory = {quoted(folder)}")
        connection.execute(_RECORDED.format(rows=Part(tuple(files)).sql))
        connection.execute(f"COPY ({_ORDERED}) TO {quoted(draft)} (FORMAT parquet)")
    draft.replace(ordered)
    for file in (*files, *folder.glob("ordering.duckdb*")):
        file.unlink(missing_ok=True)
