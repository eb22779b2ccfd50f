"""The interface of a memory system, and its name: `system:bm25:k=20`.

A system is given a profile's memory statements once (`ingest`), and returns for each task the lines that reach the
prompt (`recall`). Other packages add theirs by an entry point of the group `cimemories.memory`, whose name is the
system's and whose value is a callable. The callable's keyword arguments are the system's options, each with a default
that determines its type:

    class Newest:
        name, version = "newest", "1"

        def __init__(self, k: int = 20) -> None:
            self.k = k

        def ingest(self, profile: Profile) -> None:
            self.statements = [attribute.statement for attribute in profile.attributes]

        def recall(self, context: Context, prompt: str) -> Recalled:
            return Recalled(tuple(Line(text) for text in self.statements[-self.k :]))

One instance serves one profile, in a thread of the run. A system that needs a model can leave the requests to the run:
`ingest` and `recall` may be generators that yield a `Question` and are sent the text of its answer. Each is a recorded
call, asked only once. A generator may be run again from its start with the answers so far, so it must change nothing
but its own instance, and `recall` not even that."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Protocol, TypeVar

from cimemories import extras
from cimemories.memory import retrieval, written
from cimemories.memory.recalled import BY_MODEL, Line, MemorySystemError, Needs, Option, Question, Recalled
from cimemories.model import Context, Profile

__all__ = ["Line", "MemorySystem", "MemorySystemError", "Option", "Question", "Recalled", "SystemSpec", "read_system"]

KIND = "memory"  # of the registrations of extras and other packages
PREFIX = "system:"
LONGEST_LABEL = 200
PLACES = ("base_url", "address")  # options with the address of a server
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

T = TypeVar("T")
Asking = Generator[Question, str, T]


class MemorySystem(Protocol):
    """The interface of a memory system. version: recorded with every run; a run that was planned with another version
    is not resumed."""

    name: str
    version: str

    def ingest(self, profile: Profile) -> Asking[None] | None:
        """Take in a profile's attributes, in their order; called once, before any recall."""

    def recall(self, context: Context, prompt: str) -> Asking[Recalled] | Recalled:
        """Return what reaches the prompt of this task. prompt: the prompt without any memory."""


@dataclass(frozen=True)
class SystemSpec:
    """A memory system with all its options; those that were not given have their defaults."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the label that runs carry and `read_system` reads: the name, `k`, and the options that differ from
        their defaults. The server of a model is left out: it may change from one day to the next."""
        usual = {option.name: option.default for option in options_of(self.name)}
        given = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in self.options.items()
            if name == "k" or (name not in PLACES and value != usual.get(name))
        ]
        return f"{PREFIX}{self.name}" + (f":{','.join(given)}" if given else "")

    @property
    def asks(self) -> tuple[str, str] | None:
        """Return the model that it asks and its address ('': that of the model under test), by the options `model` and
        `base_url`; None if it asks the model under test, or no model."""
        model, base_url = (str(self.options.get(name) or "") for name in ("model", "base_url"))
        return (model, base_url) if model else None

    @property
    def embeds(self) -> bool:
        """Return whether the system asks a server for vectors."""
        return bool(getattr(_factory(self.name), "embeds", False))

    @property
    def planned(self) -> SystemSpec:
        """Return the system that a run is priced with: this one, or its `stand_in` if it would have to ask a server of
        its own what it recalls."""
        name = getattr(_factory(self.name), "stand_in", "")
        if not name:
            return self
        known = {option.name for option in options_of(name)}
        return SystemSpec(name, {option: value for option, value in self.options.items() if option in known})

    @property
    def grounds(self) -> bool:
        """Return whether a model is asked about stored lines in which the rules find no attribute."""
        return self.options.get("ground") == BY_MODEL

    def make(self) -> MemorySystem:
        """Return a new instance, for one profile. Raises MemorySystemError if it is not installed, refuses its options
        or cannot be created."""
        if reason := missing(self.name):
            raise MemorySystemError(f"the memory system {reason}.")
        try:
            system: MemorySystem = _factory(self.name)(**self.options)
        except MemorySystemError:
            raise
        except (Exception, SystemExit) as error:  # a library that exits must not end the program silently
            raise MemorySystemError(
                f"the memory system '{self.name}' cannot be made: {type(error).__name__}: {error}"
            ) from error
        if lacking := [part for part in ("name", "version", "ingest", "recall") if not hasattr(system, part)]:
            raise MemorySystemError(f"the memory system '{self.name}' has no {', '.join(lacking)}.")
        return system


def names() -> tuple[str, ...]:
    """Return the names of all systems: the built-in ones, those of extras, then those of other packages."""
    return tuple(dict.fromkeys((*BUILT_IN, *extras.registered(KIND), *sorted(_of_packages()))))


def available() -> tuple[str, ...]:
    """Return the names of the systems that can run here."""
    return tuple(name for name in names() if not missing(name))


def missing(name: str) -> str:
    """Return what a system needs and how to install it, such as "bm25 needs bm25s, which is not installed: `pip install
    ...`", or '' if it can run. Modules are looked for but not imported, so another package's system counts as installed
    if the module of its entry point is found. Raises MemorySystemError for an unknown name."""
    if name in BUILT_IN or name in extras.registered(KIND) or name not in _of_packages():
        needs: Needs | None = getattr(_factory(name), "needs", None)
    else:
        module = _of_packages()[name].partition(":")[0]
        needs = Needs(module, (module.partition(".")[0],), "install again the package that it comes with")
    if needs is None or all(find_spec(module) for module in needs.modules):
        return ""
    return f"{name} needs {needs.package}, which is not installed: {needs.install}"


def about(name: str) -> str:
    """Return a description of what a system recalls: its attribute `about`, or else its name."""
    return str(getattr(_factory(name), "about", name))


def options_of(name: str) -> tuple[Option, ...]:
    """Return the options of a system, in their order. Raises MemorySystemError for an unknown one."""
    parameters = inspect.signature(_factory(name)).parameters.values()
    if wrong := next((p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD,)), None):
        raise MemorySystemError(f"the memory system '{name}' has an option without a default: {wrong}.")
    choices, help = (getattr(_factory(name), attribute, {}) for attribute in ("choices", "help"))
    return tuple(
        Option(p.name, p.default, tuple(choices.get(p.name, ())), str(help.get(p.name, "")))
        for p in parameters
        if p.default is not p.empty
    )


def read_system(text: str) -> SystemSpec:
    """Return the system that `system:NAME[:OPTION=VALUE,...]` names. Raises MemorySystemError for an unknown name, a
    system that is not installed, an unknown option, and a value of the wrong type or out of range."""
    text = text.strip()
    if len(text) > LONGEST_LABEL or not text.isprintable():
        raise MemorySystemError(f"a memory system is named on one line of at most {LONGEST_LABEL} characters.")
    name, _, given = text.removeprefix(PREFIX).partition(":")
    known = {option.name: option for option in options_of(name)}
    options = {option.name: option.default for option in known.values()}
    seen: set[str] = set()
    for item in filter(None, given.split(",")):
        key, sign, value = item.partition("=")
        if not sign or key not in known:
            there = ", ".join(known) or "none"
            raise MemorySystemError(f"'{item}' is no option of the memory system '{name}': it has {there}.")
        if key in seen:
            raise MemorySystemError(f"the option {key} is given twice.")
        seen.add(key)
        options[key] = known[key].read(value)
    spec = SystemSpec(name, options)
    if options.get("base_url") and not options.get("model"):
        raise MemorySystemError("base_url says where a model is served: give model=NAME too.")
    spec.make()  # the system itself checks its values
    return spec


def is_system(composition: str) -> bool:
    """Return whether the memory of a run with this label was recalled by a system."""
    return composition.startswith(PREFIX)


BUILT_IN: Mapping[str, Callable[..., MemorySystem]] = {
    "bm25": retrieval.Bm25,
    "embedding": retrieval.Embedding,
    "partition": written.Partition,
    "summary": written.Summary,
}


def _of_packages() -> Mapping[str, str]:
    return {name: place for name, place in extras.from_packages(KIND).items() if _NAME.fullmatch(name)}


def _factory(name: str) -> Callable[..., MemorySystem]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    place = extras.registered(KIND).get(name) or _of_packages().get(name)
    if place is None:
        raise MemorySystemError(f"there is no memory system '{name[:40]}'. There are: {', '.join(available())}.")
    try:
        factory: Callable[..., MemorySystem] = extras.load(place)
    except (Exception, SystemExit) as error:  # another package may raise anything when it is imported
        raise MemorySystemError(
            f"the memory system '{name}' cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return factory
