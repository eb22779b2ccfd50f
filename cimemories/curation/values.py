"""The mini language in which the offline templates say what value an attribute gets.

An expression is text with placeholders in braces; there is no evaluation of code, and no way to write a brace.

    {money LOW HIGH STEP}       dollars on the grid LOW, LOW + STEP, ..., HIGH    4350          "$4,350"
    {int LOW HIGH}              whole number, both ends included                  12            "12"
    {decimal LOW HIGH STEP}     number on the grid LOW, LOW + STEP, ..., HIGH     5.5           "5.5"
    {date YEAR YEAR}            any day of these years, both included             "2025-04-12"  "April 12, 2025"
    {weekday YEAR YEAR}         the same, Monday to Friday only                   "2025-04-14"  "April 14, 2025"
    {time HOUR HOUR}            a quarter of an hour, HOUR:00 to HOUR:45          "15:30"       "3:30 PM"
    {pick: A | B | C}           one of the options, spaces around them ignored    "B"           "B"
    {bool}                      the statement has two wordings instead of a value true          "yes"
    {person} {doctor} {company} {street} {city}      from Faker, in the profile's locale
    {phone}                     from the numbers set aside for fiction            "(312) 555-0147"

An expression that is exactly one placeholder keeps that placeholder's type. With text around it, or more than one,
the value is the spoken text as a whole: "Unit {int 1 40}" is "Unit 7".
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from faker import Faker

from cimemories.curation.locales import FAMILY_NAME_FIRST, NAMES_IN_ONE
from cimemories.model import Scalar

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
class Drawn:
    """One drawn value: as stored in the attribute, and as it is spoken in the statement."""

    value: Scalar
    spoken: str


@dataclass(frozen=True)
class Source:
    """Where draws come from: both generators must be seeded by the caller, which makes every draw repeatable.

    `locale` as in locales.LOCALES, the one of `faker`.
    """

    random: random.Random
    faker: Faker
    locale: str


Draw = Callable[[Source], Drawn]


@dataclass(frozen=True)
class Expression:
    """A parsed expression: literal text and draws in their order."""

    text: str
    parts: tuple[str | Draw, ...]
    is_bool: bool

    def draw(self, source: Source) -> Drawn:
        """One value. Repeated calls go on drawing from `source`."""
        if len(self.parts) == 1 and not isinstance(self.parts[0], str):
            return self.parts[0](source)
        text = "".join(part if isinstance(part, str) else part(source).spoken for part in self.parts)
        return Drawn(text, text)


def person_name(source: Source, sex: str) -> str:
    """A first and a family name fit for `sex` ("M" or "F"), without titles, in the order usual in the locale."""
    faker = source.faker
    if sex == "M":
        first, family = faker.first_name_male(), faker.last_name_male()
    else:
        first, family = faker.first_name_female(), faker.last_name_female()
    between = "" if source.locale in NAMES_IN_ONE else " "
    parts = (family, first) if source.locale in FAMILY_NAME_FIRST else (first, family)
    return _one_line(between.join(parts))


def postal_address(source: Source) -> str:
    """An address of the locale on one line, its lines separated by commas."""
    return ", ".join(_one_line(line).strip(" ,") for line in source.faker.address().splitlines())


def _one_line(text: str) -> str:
    """Some of Faker's lists hold line breaks, no-break spaces and spaces twice."""
    return " ".join(text.split())


def spoken_date(day: date) -> str:
    """'April 12, 2025', in English whatever the locale of the machine or of the profile."""
    return f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"


def _text(draw: Callable[[Source], str]) -> Draw:
    def drawn(source: Source) -> Drawn:
        text = _one_line(draw(source))
        return Drawn(text, text)

    return drawn


def _numbers(arguments: list[str], count: int, usage: str) -> list[Decimal]:
    try:
        numbers = [Decimal(argument) for argument in arguments]
    except InvalidOperation:
        raise ExpressionError(f"expected {usage} with numbers") from None
    if len(numbers) != count or not all(number.is_finite() for number in numbers):
        raise ExpressionError(f"expected {usage}")
    if numbers[0] > numbers[1]:
        raise ExpressionError(f"expected {usage}, the first not above the second")
    return numbers


def _whole(arguments: list[str], count: int, usage: str) -> list[int]:
    numbers = _numbers(arguments, count, usage)
    if any(number != int(number) for number in numbers):
        raise ExpressionError(f"expected {usage} with whole numbers")
    return [int(number) for number in numbers]


def _money(arguments: list[str]) -> Draw:
    low, high, step = _whole(arguments, 3, "{money LOW HIGH STEP}")
    if step < 1:
        raise ExpressionError("expected {money LOW HIGH STEP}, STEP above 0")

    def drawn(source: Source) -> Drawn:
        amount = low + step * source.random.randint(0, (high - low) // step)
        return Drawn(amount, f"-${-amount:,}" if amount < 0 else f"${amount:,}")

    return drawn


def _int(arguments: list[str]) -> Draw:
    low, high = _whole(arguments, 2, "{int LOW HIGH}")

    def drawn(source: Source) -> Drawn:
        number = source.random.randint(low, high)
        return Drawn(number, str(number))

    return drawn


def _decimal(arguments: list[str]) -> Draw:
    low, high, step = _numbers(arguments, 3, "{decimal LOW HIGH STEP}")
    if step <= 0:
        raise ExpressionError("expected {decimal LOW HIGH STEP}, STEP above 0")

    def drawn(source: Source) -> Drawn:
        number = float(low + step * source.random.randint(0, int((high - low) / step)))
        return Drawn(number, str(number))

    return drawn


def _day(only_weekdays: bool) -> Callable[[list[str]], Draw]:
    usage = "{weekday YEAR YEAR}" if only_weekdays else "{date YEAR YEAR}"

    def build(arguments: list[str]) -> Draw:
        first, last = _whole(arguments, 2, usage)
        if not 1900 <= first <= last <= 2100:
            raise ExpressionError(f"expected {usage}, years from 1900 to 2100")
        start, days = date(first, 1, 1), (date(last, 12, 31) - date(first, 1, 1)).days

        def drawn(source: Source) -> Drawn:
            day = start + timedelta(days=source.random.randint(0, days))
            while only_weekdays and day.weekday() >= _SATURDAY:
                day = start + timedelta(days=source.random.randint(0, days))
            return Drawn(day.isoformat(), spoken_date(day))

        return drawn

    return build


def _time(arguments: list[str]) -> Draw:
    first, last = _whole(arguments, 2, "{time HOUR HOUR}")
    if not 0 <= first <= last <= 23:
        raise ExpressionError("expected {time HOUR HOUR}, hours from 0 to 23")

    def drawn(source: Source) -> Drawn:
        hour, minute = source.random.randint(first, last), source.random.choice((0, 15, 30, 45))
        return Drawn(f"{hour:02}:{minute:02}", f"{hour % 12 or 12}:{minute:02} {'AM' if hour < 12 else 'PM'}")

    return drawn


def _bool(source: Source) -> Drawn:
    answer = source.random.random() < 0.5
    return Drawn(answer, "yes" if answer else "no")


def _phone(source: Source) -> str:
    return f"({source.random.randint(201, 989)}) 555-01{source.random.randint(0, 99):02}"


_WITH_ARGUMENTS: dict[str, Callable[[list[str]], Draw]] = {
    "money": _money,
    "int": _int,
    "decimal": _decimal,
    "date": _day(only_weekdays=False),
    "weekday": _day(only_weekdays=True),
    "time": _time,
}
_WITHOUT_ARGUMENTS: dict[str, Draw] = {
    "bool": _bool,
    "person": _text(lambda source: person_name(source, source.random.choice("MF"))),
    "doctor": _text(lambda source: f"Dr. {person_name(source, source.random.choice('MF'))}"),
    "company": _text(lambda source: source.faker.company()),
    "street": _text(lambda source: source.faker.street_name()),
    "city": _text(lambda source: source.faker.city()),
    "phone": _text(_phone),
}


def _placeholder(content: str) -> Draw:
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
    known = ", ".join(sorted([*_WITH_ARGUMENTS, *_WITHOUT_ARGUMENTS, "pick:"]))
    raise ExpressionError(f"unknown placeholder {{{content}}}; known are {known}")


@lru_cache(maxsize=8192)
def parse(text: str) -> Expression:
    """The expression that `text` stands for.

    Raises ExpressionError for an unknown placeholder, wrong arguments, a stray brace, an empty text, or a {bool}
    with anything around it (its statement has two wordings, which leaves no place for more).
    """
    if not text.strip():
        raise ExpressionError("the expression is empty")
    # Splitting on one group gives literal text at even places and the inside of a placeholder at odd ones.
    pieces = _PLACEHOLDER.split(text)
    if any("{" in literal or "}" in literal for literal in pieces[::2]):
        raise ExpressionError("a brace without its partner")
    parts = tuple(
        _placeholder(piece) if place % 2 else piece for place, piece in enumerate(pieces) if piece or place % 2
    )
    is_bool = _bool in parts
    if is_bool and len(parts) > 1:
        raise ExpressionError("{bool} must stand alone")
    return Expression(text, parts, is_bool)
