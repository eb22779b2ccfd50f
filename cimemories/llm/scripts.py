"""Scripts: generators that ask models, and the jobs made of their questions.

    def rewritten(task: str) -> Script:
        draft = yield Ask("respond", client, request_for(task))
        final = yield Ask("rewrite", client, request_for(draft.content))
        yield Keep(save_messages, lambda: final)

A script yields an `Ask` and is sent its Answer, also a failed one; a `Keep`, and is told whether the row was written;
or a `Start` of further scripts. One script writes one sample: if several samples ask the same, they are one request of
several draws, so a plain run asks for its five messages at once.

Answers are recorded calls, so a script can be restarted at any time and fed with its earlier answers. It must ask the
same when it is answered the same, and change nothing outside itself except by `Keep`. Plans are priced by the same
scripts, with `Ask.placeholders` as answers (evaluation/estimates.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from cimemories.llm.client import Client
from cimemories.llm.executor import Deferred, Job
from cimemories.llm.replies import status_of
from cimemories.model import ChatRequest, ResponseStatus
from cimemories.store.calls import Answer

T = TypeVar("T")
WRITTEN = "\x00message\x00"  # the placeholder of a message, which no prompt holds


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A question to a model.

    placeholders: answers for a plan, from the one with the longest following prompts to the one with the shortest;
    empty if nothing follows from any answer. draw: the one draw that all samples share. opening: as of Job."""

    kind: str
    client: Client
    request: ChatRequest
    placeholders: tuple[str, ...] = ()
    draw: int | None = None
    opening: str | None = None

    def draw_of(self, branch: Branch) -> int:
        return branch.draw if self.draw is None else self.draw


@dataclass(frozen=True, slots=True)
class Keep:
    """A row for the record. `write` gets all of its rows of a commit, and returns for each whether it was written (or
    what else the script is sent), or None if all were. `row` makes the row: a plan never calls it."""

    write: Callable[[sa.Connection, Sequence[Any]], Sequence[Any] | None]
    row: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Start:
    """Further scripts, which run beside the one that starts them."""

    branches: Iterable[Branch]


Item: TypeAlias = Ask | Keep | Start
Asking: TypeAlias = Generator[Item, Any, T]
Script: TypeAlias = Asking[Any]


class Missing(Exception):
    """A script cannot go on without an answer. stage: the step that needs it, '' for the message."""

    def __init__(self, stage: str, answer: Answer, status: ResponseStatus, cause: str | None) -> None:
        super().__init__(f"{stage}: {cause}" if stage else cause)
        self.stage, self.answer, self.status, self.cause = stage, answer, status, cause


def asking(ask: Ask) -> Script:
    """Ask one question, from whose answer nothing follows."""
    yield ask


def required(answer: Answer, stage: str) -> str:
    """Return the text of an answer. Raises Missing if there is none, or it was refused or cut."""
    status, cause = status_of(answer)
    if status != ResponseStatus.OK:
        raise Missing(stage, answer, status, cause)
    return answer.content or ""


@dataclass(eq=False)
class Branch:
    """A running script. make: starts the script. draw: the number of its sample. slow: it continues in a thread, not in
    the transaction that records the answer. answers: those so far."""

    make: Callable[[], Script]
    draw: int = 0
    slow: bool = False
    answers: tuple[Answer, ...] = ()
    _script: Script | None = field(default=None, repr=False)  # waits for its next answer

    def begin(self) -> Item | None:
        """Start the script, feed it with its answers, and return the next item that it yields; None if it has ended."""
        self._script = self.make()
        item = self.tell(None)
        for answer in self.answers:
            while not isinstance(item, Ask):
                item = self.tell(True)  # its rows and scripts of the first time
            item = self.tell(answer)
        return item

    def tell(self, value: object) -> Item | None:
        """Send a value to the script, and return the next item that it yields; None if it has ended."""
        assert self._script is not None
        try:
            return self._script.send(value)
        except StopIteration:
            return None

    def after(self, answer: Answer) -> tuple[Branch, Item | None]:
        """Return the branch with one more answer, and the item that its script yields then. Called a second time, as
        for a commit that is tried again, it restarts the script."""
        script, self._script = self._script, None
        branch = Branch(self.make, self.draw, self.slow, (*self.answers, answer), script)
        return branch, branch.begin() if script is None else branch.tell(answer)


Moves: TypeAlias = Iterable[tuple[Branch, Item | None]]


def jobs_of(asked: Iterable[tuple[Ask, Branch]]) -> list[Job]:
    """Return the jobs for the questions of branches, in their order; equal requests for different samples are one
    job."""
    groups: defaultdict[tuple[object, ...], list[tuple[Ask, set[int], list[Branch]]]] = defaultdict(list)
    ordered = []
    for ask, branch in asked:
        alike = groups[ask.kind, ask.request.messages, ask.draw]
        draw = ask.draw_of(branch)
        for first, draws, branches in alike:
            same = first is ask or (first.client is ask.client and first.request == ask.request)
            if same and (ask.draw is not None or draw not in draws):
                draws.add(draw)
                branches.append(branch)
                break
        else:
            group = ask, {draw}, [branch]
            alike.append(group)
            ordered.append(group)
    return [
        Job(
            ask.kind,
            ask.client,
            ask.request,
            tuple(sorted(draws)),
            Waiting(ask, tuple(branches)),
            opening=ask.opening,
        )
        for ask, draws, branches in ordered
    ]


@dataclass(frozen=True, eq=False)
class Waiting:
    """Branches that wait for the answers to one request; settled, they continue."""

    ask: Ask
    branches: tuple[Branch, ...]

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job | Deferred]:
        return self.settle_all(connection, [(self, outcomes)])[0]

    def answers(self, outcomes: Mapping[int, Answer]) -> Iterator[tuple[Branch, Answer]]:
        """Yield each branch that has an answer, with it: some may be missing in a batch file."""
        for branch in self.branches:
            if answer := outcomes.get(self.ask.draw_of(branch)):
                yield branch, answer

    @classmethod
    def settle_all(
        cls, connection: sa.Connection, settled: Sequence[tuple[Waiting, Mapping[int, Answer]]]
    ) -> list[Sequence[Job | Deferred]]:
        following: list[list[Job | Deferred]] = [[] for _ in settled]
        asked: list[list[tuple[Ask, Branch]]] = [[] for _ in settled]
        moving: list[tuple[int, Branch, Item | None]] = []
        for at, (waiting, outcomes) in enumerate(settled):
            slow = []
            for branch, answer in waiting.answers(outcomes):
                if branch.slow:
                    slow.append((branch, answer))
                else:
                    moving.append((at, *branch.after(answer)))
            if slow:
                following[at].append(Deferred(partial(_continued, slow)))
        while moving:
            written = iter(_write(connection, [item for _, _, item in moving if isinstance(item, Keep)]))
            moved: list[tuple[int, Branch, Item | None]] = []
            for at, branch, item in moving:
                if isinstance(item, Ask):
                    asked[at].append((item, branch))
                elif isinstance(item, Keep):
                    moved.append((at, branch, branch.tell(next(written))))
                elif isinstance(item, Start):
                    moved += [(at, started, started.begin()) for started in item.branches]
                    moved.append((at, branch, branch.tell(None)))
            moving = moved
        for at, asks in enumerate(asked):
            following[at].extend(jobs_of(asks))
        return list(following)


def _write(connection: sa.Connection, items: Sequence[Keep]) -> list[Any]:
    """Write the rows of a commit by few statements; return for each what `Keep.write` does."""
    places: defaultdict[Callable[..., Sequence[Any] | None], list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[item.write].append(place)
    written: list[Any] = [True] * len(items)
    for write, those in places.items():
        for place, done in zip(those, write(connection, [items[p].row() for p in those]) or (), strict=False):
            written[place] = done
    return written


def begun(branches: Iterable[Branch]) -> Iterator[Job | Callable[[sa.Connection], None]]:
    """Start these scripts outside a commit; yield their first jobs, and functions that write in transactions of their
    own."""
    yield from _moved([(branch, branch.begin()) for branch in branches])


def _continued(answered: Sequence[tuple[Branch, Answer]]) -> Iterator[Job | Callable[[sa.Connection], None]]:
    yield from _moved([branch.after(answer) for branch, answer in answered])


def _moved(moves: Moves) -> Iterator[Job | Callable[[sa.Connection], None]]:
    asked = []
    for branch, item in moves:
        while item is not None and not isinstance(item, Ask):
            if isinstance(item, Keep):
                yield partial(_write_one, item)
            else:  # at once: their questions must not wait for a slower script beside them
                yield from begun(item.branches)
            item = branch.tell(True)
        if item is not None:
            asked.append((item, branch))
    yield from jobs_of(asked)


def _write_one(item: Keep, connection: sa.Connection) -> None:
    _write(connection, [item])


def next_asks(moves: Moves) -> Iterator[tuple[Ask, Branch] | Keep]:
    """Yield the next questions of branches in a plan, and of those that they start, and the rows that a run would
    record."""
    for branch, item in moves:
        while item is not None and not isinstance(item, Ask):
            if isinstance(item, Keep):
                yield item
            else:
                yield from next_asks((started, started.begin()) for started in item.branches)
            item = branch.tell(True)
        if item is not None:
            yield item, branch
