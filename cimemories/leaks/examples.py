"""The gallery of runs of any size: of those that fit into memory as a frame (gallery.py), of others as a file.

    cache/leaks-run-3f9a-judge1-<version>-<place>/ordered.parquet

The examples of a large run are found block by block of profiles, as its flows are (flows/parts.py), ordered once on the
disk, and read from there a page at a time; what filters leave is counted by DuckDB. Both ways give the same examples in
the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

import duckdb
import numpy as np
import pandas as pd

from cimemories.access import readonly
from cimemories.flows.flows import LARGE_MEMORY, Flows, relation_file
from cimemories.flows.parts import Part
from cimemories.flows.scope import Scope
from cimemories.leaks.gallery import (
    COLUMNS,
    RANKS,
    Facet,
    Left,
    Wanted,
    examples_of,
    gallery,
    narrowed,
    with_categories,
)
from cimemories.model import Strength
from cimemories.store import datasets
from cimemories.store.engine import StoreError, content_hash

FULL: Wanted = {Facet.STRENGTH: [str(Strength.FULL)]}
PAGE = 500  # examples that a stream reads at once
_BUILDING = threading.Lock()


def examples(flows: Flows, scopes: Sequence[Scope]) -> Examples:
    """The gallery of these scopes (one a run). Raises StoreError where it cannot be written to the disk."""
    if any(map(flows.is_large, scopes)):
        return _OnDisk(flows, scopes)
    return Examples(gallery(flows, list(scopes)))


def pages(found: Examples, wanted: Wanted, most: int | None = None, first: int = 0) -> Iterator[pd.DataFrame]:
    """Yield what filters leave, page by page, from the first (from 0) on up to so many."""
    number = found.left(wanted).number
    number = number if most is None else min(number, most)
    for start in range(first, number, PAGE):
        yield found.page(wanted, start, min(PAGE, number - start))


class Examples:
    """The examples of some runs, severest first, in memory. Frames have the columns of `gallery`; their index is the
    place in the order of all."""

    large = False

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self._last: tuple[Wanted, Left] | None = None

    @property
    def number(self) -> int:
        """The number of examples."""
        return len(self.frame)

    def left(self, wanted: Wanted) -> Left:
        """Count what filters leave."""
        # A page is asked for right after it was counted.
        if self._last is None or self._last[0] != wanted:
            self._last = dict(wanted), narrowed(self.frame, wanted)
        return self._last[1]

    def page(self, wanted: Wanted, first: int, size: int | None) -> pd.DataFrame:
        """Return so many of what filters leave (None: all), from the first (from 0) on."""
        return self.frame.iloc[self.left(wanted).shown[first : None if size is None else first + size]]

    def named(self, ids: Sequence[str]) -> pd.DataFrame:
        """Return those of these ids that are there."""
        return self.frame[self.frame["id"].isin(list(ids))]

    def firsts(self, column: str, most: int, but: Sequence[str] = ()) -> pd.DataFrame:
        """Return the severest of each value of this column, the severest of these first. but: ids that are left
        aside."""
        return self.frame[~self.frame["id"].isin(list(but))].drop_duplicates(column).head(most)

    def by_run(self, column: str = "domain") -> pd.DataFrame:
        """Count them: columns run, this column, strength, number, and always: how many of them are revealed in every
        sample."""
        names = ["run", column, "strength"]
        always = self.frame["reveals"] == self.frame["draws"]
        frame = self.frame[names].astype(str).assign(number=1, always=always.astype(np.int64))
        return frame.groupby(names, as_index=False, sort=False).sum()


# What ties takes turns over domains and people, as gallery.ordered does it: the square of both, read along its
# diagonals. Domains and people are numbered as they first come in the order of the record. What is ordered is narrow:
# the texts join at the end.
_ORDERED = """
    CREATE TABLE found AS SELECT *, row_number() OVER (ORDER BY run_at, profile, context, ordinal) AS recorded
    FROM read_parquet({files});
    COPY (
        WITH domains AS (SELECT domain, row_number() OVER (ORDER BY min(recorded)) AS d FROM found GROUP BY domain),
        people AS (SELECT profile, row_number() OVER (ORDER BY min(recorded)) AS p FROM found GROUP BY profile),
        ranked AS (
            SELECT recorded, d, p, dense_rank() OVER (ORDER BY {severity}) AS tie
            FROM found JOIN domains USING (domain) JOIN people USING (profile)
        ),
        tied AS (
            SELECT recorded, tie, dense_rank() OVER (PARTITION BY tie ORDER BY d) - 1 AS domain_at,
                   dense_rank() OVER (PARTITION BY tie ORDER BY p) - 1 AS person_at,
                   row_number() OVER (PARTITION BY tie, d, p ORDER BY recorded) - 1 AS again
            FROM ranked
        ),
        sized AS (SELECT *, max(person_at) OVER (PARTITION BY tie) + 1 AS size FROM tied),
        turned AS (
            SELECT recorded, tie, domain_at, row_number() OVER (
                PARTITION BY tie, domain_at ORDER BY again * size + ((person_at - domain_at) % size + size) % size
            ) AS turn
            FROM sized
        )
        SELECT row_number() OVER (ORDER BY tie, turn, domain_at) - 1 AS place, recorded, {columns}
        FROM turned JOIN found USING (recorded) ORDER BY place
    ) TO {file} (FORMAT parquet)
"""
_RANKED = (Facet.QUOTE, Facet.CERTAINTY, Facet.AGREEMENT)
# User and statement are looked up of a page.
ON_DISK = tuple(name for name in COLUMNS if name not in ("user", "statement"))


class _OnDisk(Examples):
    large = True

    def __init__(self, flows: Flows, scopes: Sequence[Scope]) -> None:
        self.flows, self.scopes = flows, tuple(scopes)
        version = tuple(scope.version for scope in scopes)
        with _BUILDING:  # two pages that ask at once build it once
            self.file = flows.cached(("examples on disk", version), lambda: _built(flows, self.scopes))

    @property
    def number(self) -> int:
        return int(self._ask("SELECT count(*) AS number FROM {pairs}")["number"][0])

    def left(self, wanted: Wanted) -> Left:
        key = ("examples left", self.file, tuple((facet, tuple(values)) for facet, values in wanted.items()))
        return self.flows.cached(key, lambda: self._left(wanted))

    def _left(self, wanted: Wanted) -> Left:
        where, values = _where(wanted)
        number = int(self._ask(f"SELECT count(*) AS number FROM {{pairs}} {where}", values)["number"][0])
        return Left(number, self._counts(wanted), self._counts({}))

    def _counts(self, wanted: Wanted) -> dict[Facet, dict[str, int]]:
        """By facet and value with the filters on the other facets, all values of the runs."""
        result = {}
        for facet in Facet:
            where, values = _where({other: own for other, own in wanted.items() if other != facet})
            left = f"count(*) FILTER ({where})" if where else "count(*)"
            order = _rank(facet) if facet in RANKS else "min(recorded)"
            sql = f"SELECT {facet}::VARCHAR AS value, {left} AS number FROM {{pairs}} GROUP BY {facet} ORDER BY {order}"
            found = self._ask(sql, values)
            counts = dict(zip(found["value"], found["number"].tolist(), strict=True))
            result[facet] = dict.fromkeys(RANKS.get(facet, ()), 0) | counts if self.number else {}
        return result

    def page(self, wanted: Wanted, first: int, size: int | None) -> pd.DataFrame:
        where, values = _where(wanted)
        limit = f"OFFSET {int(first)}" if size is None else f"LIMIT {int(size)} OFFSET {int(first)}"
        return self._frame(f"SELECT * FROM {{pairs}} {where} ORDER BY place {limit}", values)

    def named(self, ids: Sequence[str]) -> pd.DataFrame:
        return self._frame("SELECT * FROM {pairs} WHERE id IN (SELECT unnest(?)) ORDER BY place", [list(ids)])

    def firsts(self, column: str, most: int, but: Sequence[str] = ()) -> pd.DataFrame:
        others = "WHERE id NOT IN (SELECT unnest(?::VARCHAR[]))"
        first = f"SELECT min(place) FROM {{pairs}} {others} GROUP BY {_known(column)}"
        sql = f"SELECT * FROM {{pairs}} WHERE place IN ({first}) ORDER BY place LIMIT {int(most)}"
        return self._frame(sql, [list(but)])

    def by_run(self, column: str = "domain") -> pd.DataFrame:
        names = f"run, {_known(column)}, strength"
        sql = f"SELECT {names}, count(*) AS number, count(*) FILTER (reveals = draws) AS always FROM {{pairs}} "
        return pd.DataFrame(self._ask(f"{sql} GROUP BY {names} ORDER BY min(place)"))

    def _ask(self, sql: str, values: Sequence[object] = ()) -> dict[str, np.ndarray]:
        return self.flows.part(Part((self.file,)), sql, list(values))

    def _frame(self, sql: str, values: Sequence[object]) -> pd.DataFrame:
        frame = pd.DataFrame(self._ask(sql, values)).set_index("place").drop(columns="recorded")
        frame.index.name = None
        people, attributes = (sorted({int(i) for i in frame[name]}) for name in ("profile", "attribute"))
        users: dict[int, str] = {}
        statements: dict[int, str] = {}
        with self.flows.store.read() as connection:
            for start in range(0, max(len(people), len(attributes)), PAGE):
                block = slice(start, start + PAGE)
                names, texts = datasets.wording_of(connection, people[block], attributes[block])
                users, statements = users | names, statements | texts
        frame.insert(4, "user", [users[int(i)] for i in frame["profile"]])
        frame.insert(7, "statement", [statements[int(i)] for i in frame["attribute"]])
        return with_categories(frame) if len(frame) else frame


def _known(column: str) -> str:
    """A name that may stand in SQL."""
    if column not in ON_DISK:
        raise ValueError(f"examples have no column {column}")
    return column


def _where(wanted: Wanted) -> tuple[str, list[object]]:
    filters = {facet: [str(value) for value in values] for facet, values in wanted.items() if len(values)}
    text = " AND ".join(f"{facet}::VARCHAR IN (SELECT unnest(?))" for facet in filters)
    return (f"WHERE {text}" if filters else ""), list(filters.values())


def _rank(facet: Facet) -> str:
    words = ", ".join(f"'{word}'" for word in RANKS[facet])
    return f"list_position([{words}], {facet})"


def _built(flows: Flows, scopes: Sequence[Scope]) -> Path:
    """The file of all examples in their order, written where it is not there yet."""
    files = [relation_file(flows.store, scope) for scope in scopes]
    # By what each rests on: the name of its relation's file says it.
    stem = files[0].stem if len(files) == 1 else f"runs-{content_hash([file.stem for file in files])[:16]}"
    name = stem.removeprefix("flows-")
    folder = files[0].with_name(f"leaks-{name}")
    ordered = folder / "ordered.parquet"
    if ordered.exists():
        return ordered
    if readonly.chosen():
        raise StoreError(f"{readonly.REASON}, and the leaks of so large a run are read from files that are not there.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = [file for at, scope in enumerate(scopes) for file in _write(flows, scope, at, folder)]
        for left in folder.glob("ordering.duckdb*"):  # of a build that was cut off
            left.unlink()
        _order(found, ordered, folder)
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
    """The examples of a run in files, block by block; those that are there are taken."""
    for number, part in enumerate(flows.each_part(scope)):
        file = folder / f"{at:03}-{number:05}.parquet"
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
    if not files:
        pd.DataFrame({name: np.zeros(0, np.int64) for name in ("place", "recorded", *ON_DISK)}).to_parquet(draft)
    else:
        severity = [_rank(Facet.STRENGTH), "claimed::DOUBLE / draws DESC", *map(_rank, _RANKED)]
        sql = _ORDERED.format(
            files="[" + ", ".join(map(_quoted, files)) + "]",
            severity=", ".join(severity),
            columns=", ".join(ON_DISK),
            file=_quoted(draft),
        )
        # On the disk, since a table of millions of texts would not fit beside the limit.
        with duckdb.connect(folder / "ordering.duckdb") as connection:
            connection.execute(f"SET memory_limit = '{LARGE_MEMORY}'; SET temp_directory = {_quoted(folder)}")
            connection.execute(sql)
    draft.replace(ordered)
    for file in (*files, *folder.glob("ordering.duckdb*")):
        file.unlink(missing_ok=True)


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"
