"""Examples that a person has put aside for a paper or a talk, as a small file in the workspace.

A basket is a user's selection and no evidence, so it is not in the record: it is WORKSPACE/baskets/*.json, one file a
name and record, which holds no text of any message, only which flows were chosen, how they were read, and notes. What
a flow says is looked up each time, so that a basket never shows a label or a claim that has changed since. Every
change reads, changes and replaces the file under a lock, so that two tabs lose nothing of each other's.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pydantic

from cimemories.access import readonly
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Combine, Scope, resolve_scope
from cimemories.leaks.examples import examples
from cimemories.leaks.table import LeakRow, leak_rows
from cimemories.store import runs
from cimemories.store.engine import Store, StoreError, content_hash, now, sqlite_path

MOST_ITEMS = 200
LONGEST_NOTE = 500
LONGEST_NAME = 80
FORM = 1


class Item(pydantic.BaseModel, frozen=True):
    """One chosen flow of one run. judge: whose claims it was read by (a judge's id, or any, majority, all); '': the
    run's first. verdicts, labels, grounded: as of a scope."""

    run: str
    profile: int
    context: int
    attribute: int
    judge: str = ""
    verdicts: str = "judge"
    labels: str = "decisions"
    grounded: bool = False
    note: str = ""
    added: str = pydantic.Field(default_factory=now)

    @property
    def id(self) -> str:
        """Return the id of the example in the gallery."""
        return f"{self.run}.{self.attribute}.{self.context}"


Items = tuple[Item, ...]


class _File(pydantic.BaseModel):
    form: int = FORM
    name: str
    items: Items = ()


def path_of(store: Store, name: str) -> Path:
    """Return the path of the basket of this name. Every record that the workspace folder is used with has its own."""
    address = str(store.engine.url)
    # A database in the folder goes by its place there, which stays the same where the folder is moved, or restored
    # under another name; any other by its whole address.
    if (file := sqlite_path(address)) and file.resolve().is_relative_to(store.workspace.resolve()):
        address = file.resolve().relative_to(store.workspace.resolve()).as_posix()
    # By a hash, so that no name can be a path.
    return store.workspace / "baskets" / f"{content_hash([address, _clean(name)])[:16]}.json"


def _kept_at(store: Store, name: str) -> Path:
    """Return the file that a basket is read from: its own, or one that was written while the database had another
    address, or by an earlier version."""
    usual = path_of(store, name)
    if usual.exists():
        return usual
    others = []
    for path in sorted((store.workspace / "baskets").glob("*.json")):
        try:
            basket = _File.model_validate_json(path.read_bytes())
        except (OSError, pydantic.ValidationError):
            continue  # no one has named this file
        if basket.name == _clean(name) and basket.items:
            others.append((max(item.added for item in basket.items), path, {item.run for item in basket.items}))
    if others:
        with store.read() as connection:
            there = runs.names(connection)
        # Ids of runs are given out once: another record of this folder has none of them.
        others = [other for other in others if not other[2].isdisjoint(there)]
    return max(others)[1] if others else usual


def items(store: Store, name: str) -> Items:
    """Return what is in a basket, in its order; nothing where there is none. A database that was moved or restored
    finds the basket of this name that has runs of its own. Raises StoreError where the file cannot be read as a
    basket."""
    path = _kept_at(store, name)
    try:
        return _File.model_validate_json(path.read_bytes()).items
    except FileNotFoundError:
        return ()
    except (OSError, pydantic.ValidationError) as error:
        raise StoreError(
            f"the basket '{_clean(name)}' cannot be read from {path}. Fix the file, or move it away to start "
            "a new basket."
        ) from error


def change(store: Store, name: str, how: Callable[[Items], Items]) -> Items:
    """Replace what is in a basket by what `how` makes of it; returns that. All of it or nothing. Raises StoreError
    where it would hold more than MOST_ITEMS, or cannot be written."""
    path = path_of(store, name)
    if readonly.chosen():
        raise StoreError(f"{readonly.REASON}, so nothing was added to the basket.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A lock file apart: the basket's own file is replaced, and a lock on it would stay with the old one.
        with (path.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Read under the lock: what another tab has just added is in it.
            changed = how(items(store, name))
            if len(changed) > MOST_ITEMS:
                raise StoreError(f"a basket holds at most {MOST_ITEMS} examples. Remove some, or start another basket.")
            draft = path.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(_File(name=_clean(name), items=changed).model_dump_json(indent=1), encoding="utf-8")
            # Whole or not at all, also for a reader, who takes no lock.
            os.replace(draft, path)
    except OSError as error:
        raise StoreError(
            f"the basket cannot be written to {path} ({error.strerror}). Free some space, or make the folder writable."
        ) from error
    return changed


def toggled(item: Item) -> Callable[[Items], Items]:
    """Put an example at the end of a basket, or take it out where it is in."""

    def toggle(there: Items) -> Items:
        rest = without(item.id)(there)
        return rest if len(rest) < len(there) else (*there, item)

    return toggle


def without(item_id: str) -> Callable[[Items], Items]:
    """Take an example out."""
    return lambda there: tuple(i for i in there if i.id != item_id)


def moved(item_id: str, by: int) -> Callable[[Items], Items]:
    """An example so many places further down (below 0: up), at most to the end."""

    def change_order(there: Items) -> Items:
        at = next((n for n, item in enumerate(there) if item.id == item_id), None)
        if at is None:
            return there
        rest = [*there[:at], *there[at + 1 :]]
        rest.insert(min(max(at + by, 0), len(rest)), there[at])
        return tuple(rest)

    return change_order


def noted(item_id: str, note: str) -> Callable[[Items], Items]:
    """Give an example a note, one line of at most LONGEST_NOTE characters; an empty one takes it away."""
    line = " ".join(note.split())[:LONGEST_NOTE]
    return lambda there: tuple(i.model_copy(update={"note": line}) if i.id == item_id else i for i in there)


def _clean(name: str) -> str:
    # A lone surrogate, as a browser can send one, has no UTF-8.
    return " ".join(name.encode("utf-8", "replace").decode("utf-8").split())[:LONGEST_NAME]


@dataclass(frozen=True)
class BasketRow:
    """One example of a basket as the record has it now. row: None where it is a leak no more, for `removal_reason`."""

    item: Item
    row: LeakRow | None
    removal_reason: str = ""


def item_of(scope: Scope, profile: int, context: int, attribute: int) -> Item:
    """A flow as it is put into a basket: by the claims, verdicts and labels that it was looked at with."""
    judge = str(scope.judge.id) if scope.combine == Combine.ONE else str(scope.combine)
    return Item(
        run=scope.run.id,
        profile=profile,
        context=context,
        attribute=attribute,
        judge=judge,
        verdicts=str(scope.verdicts),
        labels=str(scope.labels),
        grounded=scope.grounded,
    )


def basket_rows(flows: Flows, items: Sequence[Item]) -> list[BasketRow]:
    """Each of these with its row, or why it has none: its run is deleted, or it is no longer a leak."""
    scopes: dict[tuple[object, ...], Scope | str] = {}
    rows = []
    for item in items:
        # Examples that were read in one way share their scope, and so its cached examples.
        way = item.run, item.judge, item.verdicts, item.labels, item.grounded
        if way not in scopes:
            scopes[way] = _scope(flows, item)
        scope = scopes[way]
        if isinstance(scope, str):
            rows.append(BasketRow(item, None, scope))
            continue
        leaks = examples(flows, [scope]).named([item.id])
        row = next(iter(leak_rows(flows, {scope.run.id: scope}, leaks, {item.id: item.note})), None)
        gone = "" if row else "It is no longer a leak: its label, or what counts as revealed, has changed."
        rows.append(BasketRow(item, row, gone))
    return rows


def _scope(flows: Flows, item: Item) -> Scope | str:
    try:
        return resolve_scope(
            flows.store, item.run, None, item.judge or None, item.verdicts, grounded=item.grounded, labels=item.labels
        )
    # ValueError: the file may name verdicts or labels that are not known.
    except (StoreError, ValueError) as problem:
        return f"It can no longer be read: {problem}"
