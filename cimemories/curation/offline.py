"""Profiles without a language model: templates of the seeds folder, filled with values drawn at random.

The paper (Section 4.1.1) draws a biography with Faker and has a model write the attributes of three life events in
nine information domains. Here the attributes come from hand-written templates instead, so that the whole pipeline runs
on a laptop, without a key, and gives the same profiles every time.

    Attribute(key="divorce_lawyer_retainer", value=4350, domain="finance", event="divorce proceedings",
              statement="I paid my divorce lawyer a retainer of $4,350.")
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from faker import Faker

from cimemories.curation.locales import faker_of, known_locale
from cimemories.curation.values import Drawn, Expression, ExpressionError, Source, parse, person_name, postal_address
from cimemories.model import DOMAINS, GENERAL, Attribute, Context, Profile
from cimemories.seeds import SeedError, Template, load_general, load_offline, offline_events, offline_path

YOUNGEST, OLDEST = 21, 70
_SPOKEN_SEX = {"M": "male", "F": "female"}
_NAME_TRIES = 500
_STATEMENT_TRIES = 100


@dataclass(frozen=True)
class _Line:
    """A template whose expression has been parsed."""

    template: Template
    expression: Expression

    def attribute(self, drawn: Drawn, domain: str, event: str) -> Attribute:
        template = self.template
        if template.statement is not None:
            statement = template.statement.replace("{value}", drawn.spoken)
        else:
            statement = (template.statement_true if drawn.value else template.statement_false) or ""
        return Attribute(template.key, drawn.value, domain, event, statement)


@dataclass(frozen=True)
class _Event:
    name: str
    general: dict[str, Expression]
    domains: dict[str, tuple[_Line, ...]]


@dataclass(frozen=True)
class _Library:
    """All that is read from the seeds folder: nothing else of it shapes a profile."""

    bio: dict[str, str]
    general: tuple[_Line, ...]
    events: tuple[_Event, ...]


def generate_profiles(
    count: int,
    *,
    seed: int = 0,
    locale: str = "en_US",
    events: int = 3,
    per_domain: int = 5,
    contexts: Sequence[Context] = (),
) -> Iterator[Profile]:
    """`count` profiles, one after the other, each with the same `contexts`.

    A profile has the general attributes first (the biography among them), then `per_domain` attributes for each of the
    nine domains of each of `events` life events: 14 + 3 x 9 x 5 = 149 with the shipped seeds. No statement and no key
    stands twice in a profile, and no name twice among the profiles. `locale` (of locales.LOCALES) shapes names,
    addresses and companies; the statements stay English and amounts stay dollars.

    The result depends on the arguments, the seeds folder and the installed version of Faker alone. Every profile has a
    seed of its own, so the first k of n profiles are the k profiles. All arguments are checked before the first
    profile is asked for. Raises ValueError for a number out of range, and SeedError for another locale,
    fewer templates than asked for, a template that cannot be used, or more profiles than the locale has names for.
    """
    if count < 0:
        raise ValueError(f"count must be 0 or more, not {count}")
    if events < 1 or per_domain < 1:
        raise ValueError(f"events and per_domain must be 1 or more, not {events} and {per_domain}")
    library = _load_library(per_domain)
    if events > len(library.events):
        raise SeedError(f"{events} events asked for, and only {len(library.events)} have offline templates")
    # One Faker for each call, because it carries the state of its random numbers and pages run in several threads.
    locale = known_locale(locale)
    faker, shared = faker_of(locale), tuple(contexts)

    def profiles() -> Iterator[Profile]:
        names: set[str] = set()
        for index in range(count):
            profile = _profile(_seeded(faker, locale, seed, index), library, events, per_domain, names)
            names.add(profile.name)
            yield replace(profile, contexts=shared)

    return profiles()


def _profile(source: Source, library: _Library, events: int, per_domain: int, names: set[str]) -> Profile:
    sex = source.random.choice("MF")
    name = _new_name(source, sex, names)
    address = postal_address(source)
    age = source.random.randint(YOUNGEST, OLDEST)
    chosen = source.random.sample(library.events, events)
    biography = (
        ("name", Drawn(name, name)),
        ("sex", Drawn(sex, _SPOKEN_SEX[sex])),
        ("address", Drawn(address, address)),
        ("age", Drawn(age, str(age))),
    )
    attributes = [
        Attribute(key, drawn.value, GENERAL, GENERAL, library.bio[key].replace("{value}", drawn.spoken))
        for key, drawn in biography
    ]
    statements = {attribute.statement for attribute in attributes}
    for line in library.general:
        fitting = next((e.general[line.template.key] for e in chosen if line.template.key in e.general), None)
        fitted = _Line(line.template, fitting) if fitting else line
        attributes.append(_new_attribute(fitted, GENERAL, GENERAL, source, statements))
    for event in chosen:
        for domain in DOMAINS:
            for line in source.random.sample(event.domains[domain], per_domain):
                attributes.append(_new_attribute(line, domain, event.name, source, statements))
    return Profile(name, sex, address, age, tuple(attributes))


def _seeded(faker: Faker, locale: str, seed: int, index: int) -> Source:
    digest = hashlib.sha256(f"cimemories offline {seed} {index}".encode()).digest()
    faker.seed_instance(int.from_bytes(digest[:16]))
    return Source(random.Random(int.from_bytes(digest[16:])), faker, locale)


def _new_name(source: Source, sex: str, taken: set[str]) -> str:
    for _ in range(_NAME_TRIES):
        name = person_name(source, sex)
        if name not in taken:
            return name
    raise SeedError(f"locale '{source.locale}' has too few names for more than {len(taken)} profiles")


def _new_attribute(line: _Line, domain: str, event: str, source: Source, statements: set[str]) -> Attribute:
    for _ in range(_STATEMENT_TRIES):
        attribute = line.attribute(line.expression.draw(source), domain, event)
        if attribute.statement not in statements:
            statements.add(attribute.statement)
            return attribute
    raise SeedError(f"{offline_path(event)}: key '{line.template.key}': its statement repeats one of the same profile")


def _load_library(per_domain: int) -> _Library:
    general = load_general()
    path = offline_path(GENERAL)
    lines = tuple(_line(path, template) for template in general.attributes)
    keys = {template.key: path for template in general.attributes} | dict.fromkeys(general.bio, path)
    loaded = []
    for name in offline_events():
        path = offline_path(name)
        templates = load_offline(name)
        for domain, entries in templates.domains.items():
            if len(entries) < per_domain:
                raise SeedError(f"{path}: domains.{domain}: {per_domain} templates asked for, it has {len(entries)}")
            for template in entries:
                other = keys.setdefault(template.key, path)
                if other != path:
                    raise SeedError(f"{path}: key '{template.key}' is also in {other.name}; keys must differ")
        loaded.append(
            _Event(
                name,
                {key: _fitting(path, key, value, lines) for key, value in templates.general.items()},
                {d: tuple(_line(path, template) for template in templates.domains[d]) for d in DOMAINS},
            )
        )
    return _Library(general.bio, lines, tuple(loaded))


def _line(path: Path, template: Template) -> _Line:
    return _Line(template, _parsed(path, template.key, template.value))


def _fitting(path: Path, key: str, value: str, general: tuple[_Line, ...]) -> Expression:
    expression = _parsed(path, f"general.{key}", value)
    line = next((line for line in general if line.template.key == key), None)
    if line is None or line.expression.is_bool != expression.is_bool:
        raise SeedError(f"{path}: key 'general.{key}': general.yaml has no attribute that this could stand in for")
    return expression


def _parsed(path: Path, key: str, value: str) -> Expression:
    try:
        return parse(value)
    except ExpressionError as error:
        raise SeedError(f"{path}: key '{key}': value '{value}': {error}") from error
