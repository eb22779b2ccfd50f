"""Counts of work that has ended, held in memory: a page that lists runs must not count millions of rows each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa

from cimemories.store.work import ENDED

HELD = 8192
Counts = Mapping[str, int]

_held: OrderedDict[tuple[object, ...], Counts] = OrderedDict()
_lock = threading.Lock()


def by_work(
    connection: sa.Connection,
    kind: str,
    rows: Sequence[sa.RowMapping],
    count: Callable[[Sequence[str]], Mapping[str, Counts]],
) -> dict[str, Counts]:
    """Counts by status of each of these runs or labellings. count: makes those of some ids; who has none is left out.

    What has ended is counted once for each of its revisions, which every write of content raises. kind: what is
    counted.
    """
    address = connection.engine.url
    keys = {
        row["id"]: (address, kind, row["id"], row["revision"], row["created"], row["finished"])
        for row in rows
        if row["status"] in ENDED
    }
    with _lock:
        found = {name: _held[key] for name, key in keys.items() if key in _held}
    missing = [row["id"] for row in rows if row["id"] not in found]
    if not missing:
        return found
    counted = count(missing)
    fresh = {name: counted.get(name, {}) for name in missing}
    with _lock:
        for name in missing:
            if name in keys:
                _held[keys[name]] = fresh[name]
        while len(_held) > HELD:
            _held.popitem(last=False)
    return found | fresh


def by_status(
    connection: sa.Connection, of: sa.Column[str], status: sa.Column[str], ids: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Rows counted by status, of each of these ids. of: the column that says whose a row is."""
    counts: dict[str, dict[str, int]] = {}
    for name, state, count in connection.execute(
        sa.select(of, status, sa.func.count()).where(of.in_(ids)).group_by(of, status)
    ):
        counts.setdefault(name, {})[state] = count
    return counts
