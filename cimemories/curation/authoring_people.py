"""Who is written about: a biography by Faker and the life events to come, seeded, before any model is asked.

The paper (Section 4.1.1) draws adults of 21 to 70 with name, sex, address and age, and three events for each.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import asdict, dataclass

from cimemories import seeds
from cimemories.curation.locales import faker_of, known_locale
from cimemories.curation.values import Source, person_name, postal_address
from cimemories.model import GENERAL, Attribute
from cimemories.seeds import SeedError

YOUNGEST, OLDEST = 21, 70
_NAME_TRIES = 500
_SPOKEN_SEX = {"M": "male", "F": "female"}


@dataclass(frozen=True)
class Person:
    """A biography, and the events of that life in the order in which they are written."""

    name: str
    sex: str
    address: str
    age: int
    events: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "events": list(self.events)}

    def biography(self) -> list[Attribute]:
        """Name, sex, address and age as general attributes, in the sentences of the seeds folder."""
        sentences = seeds.load_general().bio
        values: dict[str, str | int] = {"name": self.name, "sex": self.sex, "address": self.address, "age": self.age}
        spoken = {**values, "sex": _SPOKEN_SEX.get(self.sex, self.sex)}
        return [
            Attribute(key, value, GENERAL, GENERAL, sentences[key].replace("{value}", str(spoken[key])))
            for key, value in values.items()
        ]


def people(count: int, *, seed: int, locale: str, events: int) -> list[Person]:
    """`count` people, no name twice; the first k of n are the k. The same arguments give the same people.

    `locale` is one of locales.LOCALES. Raises SeedError for another one, for more events than the seeds have, or where
    the locale has too few names.
    """
    names = [event.name for event in seeds.load_events()]
    if not 1 <= events <= len(names):
        raise SeedError(
            f"{events} events for each profile were asked for; the seeds have {len(names)}, take 1 or more."
        )
    locale = known_locale(locale)
    faker = faker_of(locale)
    found: dict[str, Person] = {}
    for index in range(count):
        digest = hashlib.sha256(f"cimemories biography {seed} {index}".encode()).digest()
        faker.seed_instance(int.from_bytes(digest[:16]))
        source = Source(random.Random(int.from_bytes(digest[16:])), faker, locale)
        sex = source.random.choice("MF")
        name = _new_name(source, sex, found)
        address = postal_address(source)
        age = source.random.randint(YOUNGEST, OLDEST)
        found[name] = Person(name, sex, address, age, tuple(source.random.sample(names, events)))
    return list(found.values())


def _new_name(source: Source, sex: str, taken: dict[str, Person]) -> str:
    for _ in range(_NAME_TRIES):
        name = person_name(source, sex)
        if name not in taken:
            return name
    raise SeedError(f"locale '{source.locale}' has too few names for more than {len(taken)} profiles")
