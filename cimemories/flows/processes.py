"""Numbers counted in blocks of profiles, of a large run in several processes: blocks do not depend on each other.

    parts = list(each_block(flows, [scope], rule, _sums_of_block, n))

A run that fits into memory is one block, and what is computed from its arrays is kept with them.

Each process is told once what is asked, counts every n-th block, and sends its results, block by block. It waits
until each is read, so no more than one result a process is on its way, whatever there is to count.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from cimemories.flows import arrays
from cimemories.flows.flows import Flows
from cimemories.flows.parts import Part
from cimemories.flows.scope import Scope
from cimemories.installation import environment, python
from cimemories.store.engine import StoreError, open_store

T = TypeVar("T")
P = ParamSpec("P")
VARIABLE = "CIMEMORIES_COUNT_PROCESSES"  # how many; each takes about 400 MB
USUAL = 2
LEAST_BLOCKS = 40  # of a process, unless a number is set: starting one takes as long as 10 blocks


@dataclass(frozen=True)
class Task:
    """A question about every block of the run that has most, and the same profiles of the others. ask: a function of a
    module, called with flows, scopes and arrays, then args and kwargs. parts: of each scope."""

    scopes: tuple[Scope, ...]
    parts: tuple[tuple[Part, ...], ...]
    rule: arrays.IdentifierRule
    ask: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def blocks(self) -> int:
        return max(map(len, self.parts))

    def of_block(self, flows: Flows, number: int) -> tuple[bool, Any]:
        """Return whether all runs have profiles in a block, and the answer for it."""
        lead = self.scopes[[len(of_scope) for of_scope in self.parts].index(self.blocks)]
        first, last = arrays.ranges(flows, lead)[number]
        every = [arrays.stretch(flows, scope, first, last, self.rule) for scope in self.scopes]
        if any(data is None for data in every):
            return False, None
        return True, self.ask(flows, self.scopes, every, *self.args, **self.kwargs)


def each_block(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: arrays.IdentifierRule,
    ask: Callable[Concatenate[Flows, Sequence[Scope], Sequence[arrays.FlowArrays], P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Iterator[T]:
    """Evaluate `ask` on each block of the same profiles of these runs, in their order; large runs use several
    processes. Profiles that some run lacks may be among them. One block where all runs fit into memory. ask: a function
    of a module."""
    any_block = False
    if not all(map(flows.fits, scopes)):
        task = Task(tuple(scopes), tuple(map(flows.parts, scopes)), rule, ask, args, kwargs)
        for there, answer in answers(flows, task):
            if there:
                any_block = True
                yield answer
    if not any_block:
        # Runs without a profile in common: any block will do, since `ask` finds nothing in common.
        every = [next(arrays.blocks(flows, scope, rule)) for scope in scopes]
        yield ask(flows, scopes, every, *args, **kwargs)


def added(parts: Sequence[T]) -> T:
    """Add up dataclasses of one kind, field by field: the sums of blocks give those of a run."""
    first, *others = parts
    names = [field.name for field in fields(first)]  # type: ignore[arg-type]
    return type(first)(*(sum((getattr(part, name) for part in others), getattr(first, name)) for name in names))


def number_of(blocks: int) -> int:
    """Return how many processes count so many blocks; 1: this one alone."""
    given = os.environ.get(VARIABLE, "")
    if given.isascii() and given.isdigit():
        return max(1, min(int(given), blocks))
    return max(1, min(USUAL, os.cpu_count() or 1, blocks // LEAST_BLOCKS))


def answers(flows: Flows, task: Task) -> Iterator[tuple[bool, Any]]:
    """Yield `Task.of_block` of every block, in their order, by as many processes as `number_of` says. Raises StoreError
    where one of them ends early, and what it raised."""
    processes = number_of(task.blocks)
    if processes == 1:
        yield from (task.of_block(flows, number) for number in range(task.blocks))
        return
    store = flows.store
    url = None if store.engine.dialect.name == "sqlite" else store.engine.url.render_as_string(hide_password=False)
    with ExitStack() as stack:
        workers = [stack.enter_context(_started()) for _ in range(processes)]
        for worker in workers:
            stack.callback(worker.kill)
        for first, worker in enumerate(workers):
            _send(worker, (store.workspace, url, task, range(first, task.blocks, processes)))
        for number in range(task.blocks):
            yield _received(workers[number % processes])


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(python(__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())


def _send(worker: subprocess.Popen[bytes], what: object) -> None:
    assert worker.stdin is not None
    try:
        pickle.dump(what, worker.stdin)
        worker.stdin.close()
    except BrokenPipeError as error:
        raise _ended(worker) from error


def _received(worker: subprocess.Popen[bytes]) -> tuple[bool, Any]:
    assert worker.stdout is not None
    try:
        answer = pickle.load(worker.stdout)
    except (EOFError, pickle.UnpicklingError) as error:
        raise _ended(worker) from error
    if isinstance(answer, BaseException):
        raise answer
    result: tuple[bool, Any] = answer
    return result


def _ended(worker: subprocess.Popen[bytes]) -> StoreError:
    return StoreError(
        f"a process that counted has ended (exit status {worker.wait()}), perhaps for want of memory. Set {VARIABLE}=1 "
        "to count in one process."
    )


def main(source: IO[bytes], sink: IO[bytes]) -> None:
    """Count what the parent asks for, and send it."""
    workspace, url, task, numbers = pickle.load(source)
    store = open_store(workspace, url)
    flows = Flows(store)
    for scope, scope_parts in zip(task.scopes, task.parts, strict=True):
        flows.take_parts(scope, scope_parts)
    try:
        for number in numbers:
            pickle.dump(task.of_block(flows, number), sink, protocol=pickle.HIGHEST_PROTOCOL)
            sink.flush()
    except BrokenPipeError:  # the parent has stopped reading
        pass
    except Exception as error:  # any: the parent raises it
        pickle.dump(error, sink)
        sink.flush()
    finally:
        store.close()


if __name__ == "__main__":
    # Output of anything else must not come between the answers.
    answers_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.stdin.buffer, answers_to)
