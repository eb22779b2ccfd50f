"""Profiles without a language model: templates of the seeds folder, filled with random values.

The paper (Section 4.1.1) samples a biography with Faker and has a model write the attributes of three life events in
nine information domains. Here the attributes come from hand-written templates instead, so that the whole pipeline runs
on a laptop, without a key, and gives the same profiles every time.

    Attribute(key="divorce_lawyer_retainer", value=4350, domain="finance", event="divorce proceedings",
              statement="I paid my divorce lawyer a retainer of $4,350.")
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any

from faker import Faker
from faker.config import AVAILABLE_LOCALES

from cimemories import seeds
from cimemories.access.roles import Role
from cimemories.model import DOMAINS, GENERAL, Attribute, Context, Profile, Scalar
from cimemories.seeds import Template, load_general, load_offline, offline_events, offline_path, packs
from cimemories.seeds.reading import SeedError
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, content_hash
from cimemories.store.team import log

# ---- locales for which Faker has names and addresses of their own
#
# Faker knows more locales than these; for the others it silently gives American names or addresses instead, which would
# be a profile that says one thing and is another. Two of the list share the names of en_US: en_AU and en_CA.


# By code, as people call them.
_LOCALES = """
ar_DZ Arabic (Algeria); az_AZ Azerbaijani (Azerbaijan); bn_BD Bengali (Bangladesh); cs_CZ Czech (Czechia);
da_DK Danish (Denmark); de_AT German (Austria); de_CH German (Switzerland); de_DE German (Germany);
el_GR Greek (Greece); en_AU English (Australia); en_CA English (Canada); en_GB English (United Kingdom);
en_IE English (Ireland); en_IN English (India); en_NZ English (New Zealand); en_US English (United States);
es_AR Spanish (Argentina); es_CO Spanish (Colombia); es_ES Spanish (Spain); es_MX Spanish (Mexico);
fa_IR Persian (Iran); fi_FI Finnish (Finland); fr_CA French (Canada); fr_CH French (Switzerland);
fr_DZ French (Algeria); fr_FR French (France); he_IL Hebrew (Israel); hi_IN Hindi (India);
hr_HR Croatian (Croatia); hu_HU Hungarian (Hungary); hy_AM Armenian (Armenia);
id_ID Indonesian (Indonesia); it_IT Italian (Italy); ja_JP Japanese (Japan); ka_GE Georgian (Georgia);
ko_KR Korean (South Korea); mk_MK Macedonian (North Macedonia); mr_IN Marathi (India);
ne_NP Nepali (Nepal); nl_BE Dutch (Belgium); nl_NL Dutch (Netherlands); no_NO Norwegian (Norway);
pl_PL Polish (Poland); pt_BR Portuguese (Brazil); pt_PT Portuguese (Portugal); ro_RO Romanian (Romania);
ru_RU Russian (Russia); sk_SK Slovak (Slovakia); sl_SI Slovenian (Slovenia); sv_SE Swedish (Sweden);
ta_IN Tamil (India); th_TH Thai (Thailand); uk_UA Ukrainian (Ukraine); vi_VN Vietnamese (Vietnam);
zh_CN Chinese (China); zh_TW Chinese (Taiwan); zu_ZA Zulu (South Africa)
"""
LOCALE_NAMES = dict(entry.split(" ", 1) for entry in re.split(r";\s+", _LOCALES.strip()))
LOCALES = tuple(LOCALE_NAMES)
FAMILY_NAME_FIRST = frozenset({"hu_HU", "ja_JP", "ko_KR", "vi_VN", "zh_CN", "zh_TW"})
NAMES_IN_ONE = frozenset({"ko_KR", "zh_CN", "zh_TW"})  # family and first name are written without a space between
_AS_WRITTEN = {locale.lower(): locale for locale in LOCALES}


def known_locale(locale: str) -> str:
    """Return the locale as LOCALES has it: 'de-de' is de_DE. Raises SeedError for any other, and says why."""
    written = locale.replace("-", "_")
    if written.lower() in _AS_WRITTEN:
        return _AS_WRITTEN[written.lower()]
    if written in AVAILABLE_LOCALES:
        problem = f"Faker has no names and addresses of their own for locale '{locale}'"
    else:
        problem = f"Faker has no locale '{locale}'"
    raise SeedError(f"{problem}. Choose one of {', '.join(LOCALES)}")


# ---- values: the mini language in which the offline templates say what value an attribute gets
#
# An expression is text with placeholders in braces; there is no evaluation of code, and no way to write a brace.
#
#     {money LOW HIGH STEP}       dollars on the grid LOW, LOW + STEP, ..., HIGH    4350          "$4,350"
#     {int LOW HIGH}              whole number, both ends included                  12            "12"
#     {decimal LOW HIGH STEP}     number on the grid LOW, LOW + STEP, ..., HIGH     5.5           "5.5"
#     {date YEAR YEAR}            any day of these years, both included             "2025-04-12"  "April 12, 2025"
#     {weekday YEAR YEAR}         the same, Monday to Friday only                   "2025-04-14"  "April 14, 2025"
#     {time HOUR HOUR}            a quarter of an hour, HOUR:00 to HOUR:45          "15:30"       "3:30 PM"
#     {pick: A | B | C}           one of the options, spaces around them ignored    "B"           "B"
#     {bool}                      the statement has two wordings instead of a value true          "yes"
#     {person} {doctor} {company} {street} {city}      from Faker, in the profile's locale
#     {phone}                     from the numbers set aside for fiction            "(312) 555-0147"
#
# An expression that is exactly one placeholder keeps that placeholder's type. With text around it, or more than one,
# the value is the spoken text as a whole: "Unit {int 1 40}" is "Unit 7".


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SATURDAY = 5
# Not from calendar or strftime: those follow the process's locale, and the statements are English.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class ExpressionError(ValueError):
    """A value expression that is not of the language; the message names the placeholder and what was expected."""


@dataclass(frozen=True)
class Sampled:
    """One sampled value: as stored in the attribute, and as spoken in the statement."""

    value: Scalar
    spoken: str


@dataclass(frozen=True)
class Source:
    """The seeded generators of a profile. locale: of LOCALES, the one of `faker`."""

    random: random.Random
    faker: Faker
    locale: str


Sampler = Callable[[Source], Sampled]


@dataclass(frozen=True)
class Expression:
    """A parsed expression: literal text and samplers in their order."""

    text: str
    parts: tuple[str | Sampler, ...]
    is_bool: bool

    def sample(self, source: Source) -> Sampled:
        """Return one value; repeated calls give others."""
        if len(self.parts) == 1 and not isinstance(self.parts[0], str):
            return self.parts[0](source)
        text = "".join(part if isinstance(part, str) else part(source).spoken for part in self.parts)
        return Sampled(text, text)


def person_name(source: Source, sex: str) -> str:
    """Return a first and a family name fit for `sex` ("M" or "F"), without titles, in the order usual in the locale."""
    faker = source.faker
    if sex == "M":
        first, family = faker.first_name_male(), faker.last_name_male()
    else:
        first, family = faker.first_name_female(), faker.last_name_female()
    between = "" if source.locale in NAMES_IN_ONE else " "
    parts = (family, first) if source.locale in FAMILY_NAME_FIRST else (first, family)
    return _one_line(between.join(parts))


def _one_line(text: str) -> str:
    """Return text without the line breaks and repeated spaces that some of Faker's lists hold."""
    return " ".join(text.split())


def spoken_date(day: date) -> str:
    """Return 'April 12, 2025', in English whatever the locale."""
    return f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"


def _text(text_of: Callable[[Source], str]) -> Sampler:
    def sample(source: Source) -> Sampled:
        text = _one_line(text_of(source))
        return Sampled(text, text)

    return sample


def _numbers(arguments: list[str], usage: str, *, whole: bool = True) -> list[Decimal]:
    """Return as many numbers as `usage` has words after its name, of which the second is not below the first."""
    try:
        numbers = [Decimal(argument) for argument in arguments]
    except InvalidOperation:
        raise ExpressionError(f"expected {usage} with numbers") from None
    if len(numbers) != usage.count(" ") or not all(number.is_finite() for number in numbers):
        raise ExpressionError(f"expected {usage}")
    if numbers[0] > numbers[1]:
        raise ExpressionError(f"expected {usage}, the first not above the second")
    if whole and any(number != int(number) for number in numbers):
        raise ExpressionError(f"expected {usage} with whole numbers")
    return numbers


def _grid(usage: str, spoken: Callable[[Any], str], *, whole: bool = True) -> Callable[[list[str]], Sampler]:
    """Return what reads the arguments of a number: two or three, as `usage` has, of which the last may be its step."""

    def build(arguments: list[str]) -> Sampler:
        low, high, *steps = _numbers(arguments, usage, whole=whole)
        step = steps[0] if steps else 1
        if step <= 0:
            raise ExpressionError(f"expected {usage}, STEP above 0")

        def sample(source: Source) -> Sampled:
            # On the grid in Decimal: 0.1 added up in binary would be spoken as 0.30000000000000004.
            number = low + step * source.random.randint(0, int((high - low) / step))
            value = int(number) if whole else float(number)
            return Sampled(value, spoken(value))

        return sample

    return build


def _day(only_weekdays: bool) -> Callable[[list[str]], Sampler]:
    usage = "{weekday YEAR YEAR}" if only_weekdays else "{date YEAR YEAR}"

    def build(arguments: list[str]) -> Sampler:
        first, last = map(int, _numbers(arguments, usage))
        if not 1900 <= first <= last <= 2100:
            raise ExpressionError(f"expected {usage}, years from 1900 to 2100")
        start, days = date(first, 1, 1), (date(last, 12, 31) - date(first, 1, 1)).days

        def sample(source: Source) -> Sampled:
            day = start + timedelta(days=source.random.randint(0, days))
            # Drawn again, not moved: Mondays and Fridays would come more often.
            while only_weekdays and day.weekday() >= _SATURDAY:
                day = start + timedelta(days=source.random.randint(0, days))
            return Sampled(day.isoformat(), spoken_date(day))

        return sample

    return build


def _time(arguments: list[str]) -> Sampler:
    first, last = map(int, _numbers(arguments, "{time HOUR HOUR}"))
    if not 0 <= first <= last <= 23:
        raise ExpressionError("expected {time HOUR HOUR}, hours from 0 to 23")

    def sample(source: Source) -> Sampled:
        hour, minute = source.random.randint(first, last), source.random.choice((0, 15, 30, 45))
        return Sampled(f"{hour:02}:{minute:02}", f"{hour % 12 or 12}:{minute:02} {'AM' if hour < 12 else 'PM'}")

    return sample


def _bool(source: Source) -> Sampled:
    answer = source.random.random() < 0.5
    return Sampled(answer, "yes" if answer else "no")


_WITH_ARGUMENTS: dict[str, Callable[[list[str]], Sampler]] = {
    "money": _grid("{money LOW HIGH STEP}", lambda amount: f"{'-' * (amount < 0)}${abs(amount):,}"),
    "int": _grid("{int LOW HIGH}", str),
    "decimal": _grid("{decimal LOW HIGH STEP}", str, whole=False),
    "date": _day(only_weekdays=False),
    "weekday": _day(only_weekdays=True),
    "time": _time,
}
_WITHOUT_ARGUMENTS: dict[str, Sampler] = {
    "bool": _bool,
    "person": _text(lambda source: person_name(source, source.random.choice("MF"))),
    "doctor": _text(lambda source: f"Dr. {person_name(source, source.random.choice('MF'))}"),
    "company": _text(lambda source: source.faker.company()),
    "street": _text(lambda source: source.faker.street_name()),
    "city": _text(lambda source: source.faker.city()),
    # 555-0100 to 555-0199 are assigned to no one in any area.
    "phone": _text(lambda s: f"({s.random.randint(201, 989)}) 555-01{s.random.randint(0, 99):02}"),
}


def _placeholder(content: str) -> Sampler:
    if content.startswith("pick:"):
        options = [option.strip() for option in content.removeprefix("pick:").split("|")]
        if len(options) < 2 or not all(options):
            raise ExpressionError("expected {pick: A | B}, two options or more, none of them empty")
        return _text(lambda source: source.random.choice(options))
    name, *arguments = content.split() or [""]
    if name in _WITH_ARGUMENTS:
        return _WITH_ARGUMENTS[name](arguments)
    if name in _WITHOUT_ARGUMENTS and not arguments:
        return _WITHOUT_ARGUMENTS[name]
    if name in _WITHOUT_ARGUMENTS:
        raise ExpressionError(f"{{{name}}} takes nothing after its name")
    placeholders = ", ".join(sorted([*_WITH_ARGUMENTS, *_WITHOUT_ARGUMENTS, "pick:"]))
    raise ExpressionError(f"unknown placeholder {{{content}}}; known are {placeholders}")


@lru_cache(maxsize=8192)
def parse(text: str) -> Expression:
    """Return the expression that `text` stands for. Raises ExpressionError for an unknown placeholder, wrong arguments,
    a stray brace, an empty text, or a {bool} with anything around it."""
    if not text.strip():
        raise ExpressionError("the expression is empty")
    # Splitting on one group gives literal text at even places and the inside of a placeholder at odd ones.
    pieces = _PLACEHOLDER.split(text)
    if any("{" in literal or "}" in literal for literal in pieces[::2]):
        raise ExpressionError("a brace without its partner")
    parts = tuple(
        _placeholder(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece or index % 2
    )
    is_bool = _bool in parts
    if is_bool and len(parts) > 1:
        raise ExpressionError("{bool} must stand alone")
    return Expression(text, parts, is_bool)


# ---- people


YOUNGEST, OLDEST = 21, 70  # the paper (Section 4.1.1) has adults of these ages
_SPOKEN_SEX = {"M": "male", "F": "female"}
_NAME_TRIES = 500  # random draws before a locale counts as out of names
_STATEMENT_TRIES = 100  # draws of a value before a template counts as repeating another


@dataclass(frozen=True)
class Biography:
    """The person that a profile is about."""

    name: str
    sex: str
    address: str
    age: int

    def attributes(self, sentences: Mapping[str, str]) -> list[Attribute]:
        """Return name, sex, address and age as general attributes; sentences: of the seeds folder, by key."""
        values: dict[str, str | int] = {"name": self.name, "sex": self.sex, "address": self.address, "age": self.age}
        spoken = {**values, "sex": _SPOKEN_SEX.get(self.sex, self.sex)}
        return [
            Attribute(key, value, GENERAL, GENERAL, sentences[key].replace("{value}", str(spoken[key])))
            for key, value in values.items()
        ]


def biographies(count: int, locale: str, seed: str) -> Iterator[tuple[Source, Biography]]:
    """Return an iterator over `count` biographies, no name twice, each with the generators that it was drawn by. They
    depend on `seed` and the number of the profile alone, so the first k of n are the k. Raises SeedError for a locale
    that is none of LOCALES, and on the way if it has too few names."""
    locale = known_locale(locale)
    try:
        # One for each call: it carries the state of its random numbers, and pages run in several threads. Without
        # weighting rare names come as often as common ones, which is faster and leaves more names to give.
        faker = Faker(locale, use_weighting=False)
    except AttributeError:
        raise SeedError(f"the installed Faker has no locale '{locale}' any more; install an earlier one") from None

    def drawn() -> Iterator[tuple[Source, Biography]]:
        taken: set[str] = set()
        for index in range(count):
            # Not hash(), which differs from process to process; each generator has half of the digest.
            digest = hashlib.sha256(f"{seed} {index}".encode()).digest()
            # The instance's own generator: Faker.seed would seed those of all threads.
            faker.seed_instance(int.from_bytes(digest[:16]))
            source = Source(random.Random(int.from_bytes(digest[16:])), faker, locale)
            sex = source.random.choice("MF")
            name = next((n for _ in range(_NAME_TRIES) if (n := person_name(source, sex)) not in taken), None)
            if name is None:
                raise SeedError(f"locale '{locale}' has too few names for more than {len(taken)} profiles")
            taken.add(name)
            # Of the locale, on one line.
            address = ", ".join(_one_line(line).strip(" ,") for line in faker.address().splitlines())
            yield source, Biography(name, sex, address, source.random.randint(YOUNGEST, OLDEST))

    return drawn()


# ---- profiles


@dataclass(frozen=True)
class _Line:
    """A template whose expression has been parsed."""

    template: Template
    expression: Expression

    def attribute(self, sampled: Sampled, domain: str, event: str) -> Attribute:
        template = self.template
        if template.statement is not None:
            # replace and not format: a drawn text may hold braces.
            statement = template.statement.replace("{value}", sampled.spoken)
        else:
            statement = (template.statement_true if sampled.value else template.statement_false) or ""
        return Attribute(template.key, sampled.value, domain, event, statement)


@dataclass(frozen=True)
class _Event:
    name: str
    general: dict[str, Expression]
    domains: dict[str, tuple[_Line, ...]]


_Library = tuple[dict[str, str], tuple[_Line, ...], tuple[_Event, ...]]


def generate_profiles(
    count: int,
    *,
    seed: int = 0,
    locale: str = "en_US",
    events: int = 3,
    per_domain: int = 5,
    contexts: Sequence[Context] = (),
    among: Sequence[str] = (),
) -> Iterator[Profile]:
    """Yield `count` profiles, each with the same `contexts`.

    A profile has the general attributes first (the biography among them), then `per_domain` attributes for each of the
    nine domains of each of `events` life events: 14 + 3 x 9 x 5 = 149 with the shipped seeds. No statement and no key
    stands twice in a profile, and no name twice among the profiles. locale (of LOCALES) shapes names, addresses and
    companies; statements stay English. among: sample from these events alone (`seeds.named_events`).

    The result depends on the arguments, the seeds folder and the version of Faker alone, and the first k of n profiles
    are the k. All arguments are checked first. Raises ValueError for a number out of range, and SeedError for another
    locale, too few templates, a template that cannot be used, or too few names.
    """
    if count < 0:
        raise ValueError(f"count must be 0 or more, not {count}")
    if events < 1 or per_domain < 1:
        raise ValueError(f"events and per_domain must be 1 or more, not {events} and {per_domain}")
    locale = known_locale(locale)
    library = _load_library(seeds.SEEDS, per_domain, tuple(seeds.named_events(among) or offline_events()))
    if events > len(library[2]):
        there = "are named" if among else "have offline templates"
        raise SeedError(f"{events} events are too many: only {len(library[2])} {there}")
    drawn, shared = biographies(count, locale, f"cimemories offline {seed}"), tuple(contexts)
    return (_profile(source, person, library, events, per_domain, shared) for source, person in drawn)


def _profile(
    source: Source,
    person: Biography,
    library: _Library,
    events: int,
    per_domain: int,
    contexts: tuple[Context, ...],
) -> Profile:
    sentences, general, known = library
    chosen = source.random.sample(known, events)
    attributes = person.attributes(sentences)
    statements = {attribute.statement for attribute in attributes}
    for line in general:
        # An event may bring an expression of its own for a general attribute, one that fits that life.
        fitting = next((e.general[line.template.key] for e in chosen if line.template.key in e.general), None)
        fitted = _Line(line.template, fitting) if fitting else line
        attributes.append(_new_attribute(fitted, GENERAL, GENERAL, source, statements))
    for event in chosen:
        for domain in DOMAINS:
            for line in source.random.sample(event.domains[domain], per_domain):
                attributes.append(_new_attribute(line, domain, event.name, source, statements))
    return Profile(person.name, person.sex, person.address, person.age, tuple(attributes), contexts)


def _new_attribute(line: _Line, domain: str, event: str, source: Source, statements: set[str]) -> Attribute:
    for _ in range(_STATEMENT_TRIES):
        attribute = line.attribute(line.expression.sample(source), domain, event)
        if attribute.statement not in statements:
            statements.add(attribute.statement)
            return attribute
    raise SeedError(f"{offline_path(event)}: key '{line.template.key}': its statement repeats one of the same profile")


@lru_cache(maxsize=4)
def _load_library(_folder: Path, per_domain: int, events: tuple[str, ...]) -> _Library:
    """Return the sentences of biographies, the general templates, and those of these events; read once for a seeds
    folder: it takes 0.06 s."""
    general = load_general()
    path = offline_path(GENERAL)
    lines = tuple(_Line(t, _parsed(path, t.key, t.value)) for t in general.attributes)
    keys = {template.key: path for template in general.attributes} | dict.fromkeys(general.bio, path)
    loaded = []
    for name in events:
        path = offline_path(name)
        templates = load_offline(name)
        for domain, entries in templates.domains.items():
            if len(entries) < per_domain:
                raise SeedError(f"{path}: domains.{domain}: {per_domain} templates are needed, it has {len(entries)}")
            for template in entries:
                # Keys name attributes in a profile, and events are mixed in one: no two templates may share a key.
                other = keys.setdefault(template.key, path)
                if other != path:
                    raise SeedError(f"{path}: key '{template.key}' is also in {other.name}; keys must differ")
        loaded.append(
            _Event(
                name,
                {key: _fitting(path, key, value, lines) for key, value in templates.general.items()},
                {d: tuple(_Line(t, _parsed(path, t.key, t.value)) for t in templates.domains[d]) for d in DOMAINS},
            )
        )
    return general.bio, lines, tuple(loaded)


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


def generate_dataset(
    store: Store,
    name: str,
    count: int,
    *,
    seed: int = 0,
    locale: str = "en_US",
    per_domain: int = 5,
    events: int = 3,
    contexts: Sequence[str] = packs.CORE,
    among: Sequence[str] = (),
) -> DatasetRow:
    """Write `count` profiles as a new dataset, tested in the contexts of these packs. Raises StoreError if the name is
    taken, SeedError for bad seeds or an unknown pack."""
    tested_in = packs.contexts_of(contexts, store.workspace)
    # Before the transaction: nothing else could be written while templates are filled.
    profiles = list(
        generate_profiles(
            count,
            seed=seed,
            locale=locale,
            events=events,
            per_domain=per_domain,
            contexts=tested_in,
            among=among,
        )
    )
    settings = ["offline", seeds.seeds_hash(), count, seed, locale, per_domain, events, list(contexts), name]
    source = content_hash(settings + [list(among)] * bool(among))
    made = f"templates, seed {seed}, locale {locale}, {events} events, {per_domain} a domain"
    made += f", among {', '.join(among)}" * bool(among)
    with store.write(Role.CURATOR) as connection:
        datasets.add(connection, name, profiles, origin="offline", source_name=made, source_hash=source)
        log.add(connection, "dataset.created", name, profiles=count)
        return datasets.by_name(connection, name)
