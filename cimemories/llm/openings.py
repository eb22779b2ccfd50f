"""Requests that begin alike: the first of them is asked alone, so that the server reads what they share only once.

A profile's memories are thousands of tokens, the same for all of its contexts. A server that caches prefixes has them
only after one request with them has been read: of requests that start together, each pays in full.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

LONG = 4000  # characters, about 1,000 tokens: from there on servers cache, and waiting for one request pays
AHEAD = 4  # for each place of the executor, so many requests may wait for an opening


def opening_of(text: str, shared: str) -> str | None:
    """What names the beginning of `text` up to the end of `shared`; None where it is too short to be worth a wait, or
    `shared` is not in the text."""
    start = text.find(shared)
    end = start + len(shared)
    return hashlib.sha256(text[:end].encode()).hexdigest() if start >= 0 and end >= LONG else None


class Openings(Generic[T]):
    """Which openings a server has read, and who waits until it has read another.

    places: how many requests are under way at most. `full` says that enough of them wait, and no further one is to be
    made ahead of its time.
    """

    def __init__(self, places: int) -> None:
        self._most = places * AHEAD
        self._waiting: dict[str, deque[T]] = {}  # by the openings that are being read
        self._read: set[str] = set()
        self._ready: deque[T] = deque()
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= self._most

    @property
    def ready(self) -> int:
        return len(self._ready)

    def must_wait(self, opening: str | None, item: T) -> bool:
        """Whether `item` waits, because its opening is being read. The first of an opening reads it."""
        if opening is None or opening in self._read:
            return False
        if opening not in self._waiting:
            self._waiting[opening] = deque()
            return False
        self._waiting[opening].append(item)
        self._count += 1
        return True

    def has_read(self, opening: str | None) -> None:
        """A request with this opening has come back, well or not: those that waited for it can go."""
        if opening is not None and (waited := self._waiting.pop(opening, None)) is not None:
            self._read.add(opening)
            self._count -= len(waited)
            self._ready.extend(waited)

    def go(self, room: int, start: Callable[[T], None]) -> int:
        """Start at most `room` of those that can go, in the order in which they came; returns how many."""
        going = min(room, len(self._ready))
        for _ in range(going):
            start(self._ready.popleft())
        return going
