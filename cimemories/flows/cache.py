"""Cache of what was computed from the record, kept until the record moves.

A result is kept under its question and the version of what it rests on: revisions of runs, labellings and datasets are
part of the version, so nothing stale is ever found. For each question the least recently used results go first
(cachetools.LRUCache).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Hashable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from cachetools import LRUCache

from cimemories.store.engine import Store

P = ParamSpec("P")
T = TypeVar("T")
MOST = 128  # results of one question: a leaderboard asks each of its questions once a run


class Cache:
    """Results by question and version. Safe to share between threads. No result is computed twice at once: a caller
    waits for one that is being computed."""

    def __init__(self) -> None:
        self._kept: dict[str, LRUCache[Hashable, Any]] = {}
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(
        self,
        question: str,
        version: Hashable,
        compute: Callable[[], T],
        *,
        most: int = MOST,
        size: Callable[[T], int] | None = None,
    ) -> T:
        """Return the result of a question at this version. most: how many are kept, or of which total `size`; one that
        is larger than that is kept alone. What `compute` raises is passed on, and nothing is kept."""
        key = (question, version)
        with self._lock:
            if question not in self._kept:
                # cachetools raises ValueError for a value larger than the whole cache; capped, it is kept alone
                # instead.
                self._kept[question] = LRUCache(most, size and (lambda value: min(size(value), most)))
            entry = self._kept[question]
            if version in entry:
                return cast(T, entry[version])
            computing = self._computing.setdefault(key, threading.Lock())
        # Not under the lock of the cache: computing may take seconds, and may ask this cache other questions.
        with computing:
            with self._lock:
                # A caller that waited for the computing finds its result here.
                if version in entry:
                    return cast(T, entry[version])
            try:
                value = compute()
                with self._lock:
                    entry[version] = value
            finally:
                # After an error too: else the lock of a question that always fails would stay for ever.
                with self._lock:
                    self._computing.pop(key, None)
        return value

    def has(self, question: str, version: Hashable) -> bool:
        """Return whether the result is there already."""
        with self._lock:
            return version in self._kept.get(question, {})

    def kept(self, question: str) -> list[Any]:
        """Return the results of a question that are there, in the order in which they were computed."""
        with self._lock:
            return list(self._kept.get(question, {}).values())

    def clear(self, but: Collection[str] = ()) -> None:
        """Forget all results, but for those of some questions."""
        with self._lock:
            # The difference is a set of its own, so deleting is safe. A result under way lands in the dropped cache and
            # is computed again when it is next asked for.
            for question in self._kept.keys() - but:
                del self._kept[question]


shared_cache = Cache()  # of this process, for keys that name their workspace


def workspace_cached(
    most: int = MOST,
) -> Callable[[Callable[Concatenate[Store, P], T]], Callable[Concatenate[Store, P], T]]:
    """Cache f(store, ...) whose arguments name the version of what it rests on, for all threads and pages of this
    process. most: results kept. All callers share the result: do not write to it."""

    def decorate(function: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
        @functools.wraps(function)
        def ask(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
            key = store.engine.url, store.workspace.absolute(), args, tuple(kwargs.items())
            return shared_cache.get(function.__qualname__, key, lambda: function(store, *args, **kwargs), most=most)

        return ask

    return decorate
