"""The engines of work: this process, or an engine of an extra, such as the workers of a Ray cluster.

    engine = read_engine("ray:workers=2:16")
    engine.text            # 'ray:address=auto,workers=2:16'
    str(engine)            # 'Ray cluster (auto), 2 to 16 workers'

An engine is named by NAME[:OPTION=VALUE,...], or `local`: in `--engine`, in CIMEMORIES_ENGINE, and in the log of the
work that it does."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

import sqlalchemy as sa

from cimemories import extras
from cimemories.llm.executor import Execution, Progress
from cimemories.llm.source import Source
from cimemories.store import work
from cimemories.store.engine import Store, StoreError
from cimemories.store.team import log
from cimemories.store.work import Claim

ENGINE = "CIMEMORIES_ENGINE"
LOCAL = "local"


class EngineError(StoreError):
    """An engine that cannot be used here. The message says what to do."""


class Driver(Execution, ABC):
    """Work that an engine does. `run` ends when the work does, and raises as Executor.run does."""

    @abstractmethod
    async def run(self) -> None: ...


@dataclass(frozen=True)
class Engine(ABC):
    """A backend that does work in place of this process. Its options are the fields of the dataclass, all of them
    texts. title: what it is, as in "On the Ray cluster". Raises EngineError for an invalid option."""

    name: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    @abstractmethod
    def missing(cls, store: Store) -> str:
        """Return the settings and packages that it lacks to work on this record, as a sentence, or ''."""

    @abstractmethod
    def connect(self, store: Store) -> None:
        """Make ready for work on this record. Raises EngineError."""

    @abstractmethod
    def driver(
        self,
        store: Store,
        claim: Claim,
        source: Source,
        *,
        concurrency: int,
        on_progress: Callable[[Progress], None] | None,
        stop_when: Callable[[Progress], str | None] | None,
    ) -> Driver:
        """Return the driver of the work. The arguments are as of worker.perform; store: under the claim."""

    @property
    def text(self) -> str:
        options = ",".join(f"{option.name}={getattr(self, option.name)}" for option in fields(self))
        return f"{self.name}:{options}" if options else self.name


def kind_of(name: str) -> type[Engine]:
    """Return the class of the engines of this name. Raises EngineError if no extra has one."""
    registered = extras.registered("engines")
    if name not in registered:
        raise EngineError(f"there is no engine '{name[:40]}'. There are: {', '.join((LOCAL, *registered))}.")
    kind: type[Engine] = extras.load(registered[name])
    return kind


def read_engine(text: str, store: Store | None = None) -> Engine | None:
    """Return the engine that a text names, or None for this process. Raises EngineError for an unknown one, and, given
    a store, for one that cannot work on it."""
    if text == LOCAL:
        return None
    name, _, given = text.partition(":")
    kind = kind_of(name)
    options = dict(item.partition("=")[::2] for item in filter(None, given.split(",")))
    known = [option.name for option in fields(kind)]
    if wrong := options.keys() - set(known):
        raise EngineError(f"'{min(wrong)}' is no option of the engine {name}: it has {', '.join(known) or 'none'}.")
    if store is not None and (lacking := kind.missing(store)):
        raise EngineError(lacking)
    return kind(**options)


def described(text: str) -> str:
    """Return an engine for people; the text itself if it cannot be read, as in a record from elsewhere."""
    try:
        return str(read_engine(text) or "this machine")
    except EngineError:
        return text


def place(text: str) -> str:
    """Return where an engine works, as in "On the Ray cluster". Raises EngineError as `kind_of` does."""
    return "this machine" if text == LOCAL else f"the {kind_of(text.partition(':')[0]).title}"


# ---- in the log


def record(connection: sa.Connection, work_id: str, engine: str) -> None:
    """Log that this engine does the work from now on, if another one did: this machine needs no entry at first."""
    if (last(connection, work_id) or LOCAL) != engine:
        log.add(connection, f"{work.kind_of(work_id)}.engine", work_id, engine=engine)


def last(connection: sa.Connection, work_id: str) -> str | None:
    """Return the engine that did the work last, by the log; None for no entry, which means this machine."""
    return next(iter(_logged(connection, work_id, most=1)), None)


def other(store: Store, work_id: str) -> str | None:
    """Return another engine that can continue the work: after an engine `local`, after this machine the engine that had
    it before, else the one that the environment names. None if there is no other."""
    with store.read() as connection:
        logged = _logged(connection, work_id)
    if logged and logged[0] != LOCAL:
        return LOCAL
    engine = next((text for text in (*logged, os.environ.get(ENGINE, LOCAL)) if text != LOCAL), None)
    try:
        return engine if engine and read_engine(engine, store) else None
    except EngineError:
        return None


def _logged(connection: sa.Connection, work_id: str, most: int | None = None) -> list[str]:
    """Return the engines that have done the work, the last one first."""
    texts = []
    for entry in log.entries(connection, action=f"{work.kind_of(work_id)}.engine", subject=work_id, most=most):
        # Older entries have the options beside the engine's name.
        options = ",".join(f"{name}={value}" for name, value in entry.details.items() if name != "engine")
        texts.append(f"{entry.details['engine']}{':' * bool(options)}{options}")
    return texts
