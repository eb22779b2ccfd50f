"""Optional subjects, a folder each. The core finds them and imports none of them.

The `__init__.py` of a folder has a function `register` and imports nothing else. It names what it adds by its place, so
that nothing is imported before it is used:

    def register() -> Extra:
        return Extra(
            commands={"publish": "cimemories.extras.site.command"},
            memory={"mem0": "cimemories.extras.memory_products.mem0:Mem0"},
        )

A folder can be deleted without further change. Another package adds a memory system by an entry point of the group
`cimemories.memory`, whose value has the same form (docs/memory.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any


@dataclass(frozen=True)
class Extra:
    """The additions of one folder, each by its name and as "module" or "module:attribute".

    commands: modules that add the command to `cli.base.cli`; "review audit" is one of the group `review`. corrections:
    modules that correct Violation@n by audits (metrics/corrections.py). engines: classes that do work in place of this
    process (llm/engines.py). exports: functions that write a run in a format of `export`, with its options
    (cli/datasets.py). panels: functions that draw a part of a page, such as "leaks.why", whose page documents their
    arguments; those of "report" return blocks of the report, and modules of "review" are an order of the queue
    (pages/curate/review_queue.py), of "judge_audit" a kind of audit (pages/evaluate/judge_audit.py). results: readers
    of files of results (evaluation/importing.py). memory: memory systems (memory/systems.py). pytest: modules that are
    plugins of pytest."""

    commands: Mapping[str, str] = field(default_factory=dict)
    corrections: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    panels: Mapping[str, str] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    pytest: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)


@cache
def installed() -> Mapping[str, Extra]:
    """Return every extra by the name of its folder."""
    names = [item.name for item in iter_modules(__path__) if item.ispkg]
    return {name: import_module(f"{__name__}.{name}").register() for name in names}


@cache
def registered(kind: str) -> Mapping[str, str]:
    """Return the places of everything of a kind (a field of Extra), by name. Raises ValueError for a name that two
    extras register."""
    places: dict[str, str] = {}
    for extra in installed().values():
        for name, place in getattr(extra, kind).items():
            if name in places:
                raise ValueError(f"{places[name]} and {place} both register {kind} '{name}'.")
            places[name] = place
    return places


def panels(page: str) -> Mapping[str, str]:
    """Return the places of the parts of a page that extras draw, by name."""
    places = registered("panels").items()
    return {name.partition(".")[2]: place for name, place in places if name.partition(".")[0] == page}


@cache
def from_packages(kind: str) -> Mapping[str, str]:
    """Return the places that other packages register as entry points of this group, by name."""
    return {point.name: point.value for point in entry_points(group=f"cimemories.{kind}")}


def load(place: str) -> Any:
    """Import a "module" or "module:attribute"."""
    module, _, attribute = place.partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
