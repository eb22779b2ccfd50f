"""The seeds folder, read and checked: events, contexts, personas, offline templates and prompts.

Everything that shapes the data and is not code lives there as YAML, so that it can be read, replaced and hashed:

    contexts.yaml          {pack: core, contexts: [{task: Negotiate the renewal of a lease, recipient: Landlord, ...}]}
    offline/divorce-proceedings.yaml     {event: divorce proceedings, domains: {finance: [{key, value, statement}]}}
    prompts/respond.yaml   {version: 1, placeholders: [memories, recipient, task], templates: {base: "..."}}

A file that does not fit raises SeedError, which names the file, the field and what is wrong with it. A file is read as
a whole or not at all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pydantic import Field, model_validator

from cimemories.model import DOMAINS, GENERAL, canonical_event
from cimemories.seeds import prompts
from cimemories.seeds.packs import PersonaPack, load_contexts, load_personas
from cimemories.seeds.prompts import Prompt, load_prompt
from cimemories.seeds.reading import SEEDS, Identifier, Seed, SeedError, Text, read, refuse_repeats

PUBLISHED = "published"  # the word for all events of the authors' data
BIO_FIELDS = ("name", "sex", "address", "age")
# Those of submodules.
__all__ = ["SEEDS", "PersonaPack", "Prompt", "SeedError", "load_contexts", "load_personas", "load_prompt", "prompts"]


class Event(Seed):
    """One life event; `name` is in its canonical spelling (lower case with spaces)."""

    name: Text
    description: Text


class Template(Seed):
    """The template of one attribute: an expression of curation.offline, and the sentence that carries its value.

    `statement` has exactly one {value}; a yes-or-no attribute has `statement_true` and `statement_false` instead.
    """

    key: Identifier
    value: Text
    statement: Text | None = None
    statement_true: Text | None = None
    statement_false: Text | None = None

    @model_validator(mode="after")
    def _carries_its_value(self) -> Template:
        if self.value == "{bool}":
            if self.statement or not self.statement_true or not self.statement_false:
                raise ValueError(f"'{self.key}' is a {{bool}}: give statement_true and statement_false, no statement")
            if self.statement_true == self.statement_false:
                raise ValueError(f"'{self.key}': statement_true and statement_false are the same")
        elif self.statement_true or self.statement_false or not self.statement:
            raise ValueError(f"'{self.key}' is not a {{bool}}: give statement alone")
        elif self.statement.count("{value}") != 1:
            raise ValueError(f"'{self.key}': the statement must have {{value}} exactly once")
        return self


class EventTemplates(Seed):
    """The offline templates of one event, by domain, every domain of model.DOMAINS among them.

    `general` gives expressions for attributes of the general part that go with this event (a divorce does not go
    with being single).
    """

    event: Text
    general: dict[Identifier, Text] = Field(default_factory=dict)
    domains: dict[str, tuple[Template, ...]]


class GeneralTemplates(Seed):
    """The templates of the general part: the sentences for the biography, and further attributes."""

    event: Text
    bio: dict[str, Text]
    attributes: tuple[Template, ...]


class _PublishedEventsFile(Seed):
    events: dict[Text, Text] = Field(min_length=1)


class _EventsFile(Seed):
    events: tuple[Event, ...] = Field(min_length=1)


def event_slug(event: str) -> str:
    """Return an event as a file name: 'divorce-proceedings'."""
    return re.sub(r"[^a-z0-9]+", "-", canonical_event(event)).strip("-")


def load_events(path: Path | None = None) -> tuple[Event, ...]:
    """Return the life events, in the file's order. Raises SeedError for a repeated name or one not in canonical
    spelling."""
    path = path or SEEDS / "events.yaml"
    events = read(path, _EventsFile).events
    for event in events:
        if event.name != canonical_event(event.name) or event.name == GENERAL:
            raise SeedError(f"{path}: event '{event.name}' must be lower case with spaces, and not '{GENERAL}'")
    refuse_repeats(path, "event", [event.name for event in events])
    return events


def offline_path(event: str) -> Path:
    """Return the file of an event's offline templates, whether or not it exists: in offline/, or in offline/by-name/
    for an event that profiles have only where it is named."""
    path = SEEDS / "offline" / f"{event_slug(event)}.yaml"
    by_name = path.parent / "by-name" / path.name
    return path if path.is_file() or not by_name.is_file() else by_name


def offline_events() -> tuple[str, ...]:
    """Return the events of events.yaml that offline profiles are made of where none is named, in that file's order."""
    # Not those in by-name/: the same seed would give other people than before these were written.
    return tuple(e.name for e in load_events() if (SEEDS / "offline" / f"{event_slug(e.name)}.yaml").is_file())


def events_by_name() -> tuple[str, ...]:
    """Return the events with offline templates that profiles have only where they are named, by name."""
    return tuple(sorted(path.stem.replace("-", " ") for path in (SEEDS / "offline" / "by-name").glob("*.yaml")))


@lru_cache(maxsize=4)
def published_events(path: Path | None = None) -> dict[str, str]:
    """Return the life events of the authors' released profiles, each with the event here that stands for it."""
    return read(path or SEEDS / "published-events.yaml", _PublishedEventsFile).events


def named_events(names: Iterable[str]) -> tuple[str, ...]:
    """Return the events of these names, in any spelling, each once: ours, those of the authors' data, or the word
    `published` for all of the latter. Raises SeedError, which lists what there is, for one without offline
    templates."""
    available = {name: name for name in (*offline_events(), *events_by_name())}
    published = published_events()
    events: dict[str, None] = {}
    for name in names:
        event_name = canonical_event(name)
        event = available.get(event_name) or published.get(event_name)
        if event is None and event_name != PUBLISHED:
            raise SeedError(
                f"there are no offline templates for '{name}'. There are: {PUBLISHED}, {', '.join(available)}"
            )
        events |= dict.fromkeys(published.values() if event is None else [event])
    return tuple(events)


def load_offline(event: str) -> EventTemplates:
    """Return the offline templates of one event. The expressions are not checked here: curation.offline does that.

    Raises SeedError where the file is missing, is for another event, leaves out a domain or repeats a key.
    """
    path = offline_path(event)
    templates = read(path, EventTemplates)
    if templates.event != canonical_event(event):
        raise SeedError(f"{path}: event: says '{templates.event}', but its name belongs to '{canonical_event(event)}'")
    if sorted(templates.domains) != sorted(DOMAINS):
        raise SeedError(f"{path}: domains: must be exactly {', '.join(DOMAINS)}")
    # Over all domains: a profile has one attribute of a key, whatever its domain.
    refuse_repeats(path, "key", [template.key for entries in templates.domains.values() for template in entries])
    return templates


def load_general() -> GeneralTemplates:
    """Return the offline templates of the general part. Raises SeedError for a repeated key or a missing bio
    sentence."""
    path = offline_path(GENERAL)
    templates = read(path, GeneralTemplates)
    if sorted(templates.bio) != sorted(BIO_FIELDS):
        raise SeedError(f"{path}: bio: must have exactly {', '.join(BIO_FIELDS)}")
    for field, statement in templates.bio.items():
        if statement.count("{value}") != 1:
            raise SeedError(f"{path}: bio.{field}: the statement must have {{value}} exactly once")
    refuse_repeats(path, "key", [*templates.bio, *(template.key for template in templates.attributes)])
    return templates


def seeds_hash(folder: Path | None = None) -> str:
    """Return one SHA-256 (hex) over the paths and bytes of all YAML files of the seeds folder; other files do not
    count."""
    folder = folder or SEEDS
    digest = hashlib.sha256()
    # With / on every system, and each content after its path and length: no other division into files gives the same
    # bytes.
    for path in sorted(folder.rglob("*.yaml"), key=lambda file: file.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
