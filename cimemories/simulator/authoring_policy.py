"""The simulator's profiles: attributes from the offline templates, some of them wrong on purpose.

It reads the project's own prompt (seeds/prompts/generate.yaml): the event, how many attributes each domain lacks, and
which keys are taken. What it writes depends on the prompt and on the `Random` of the draw alone. The rates of what is
wrong, and the sentences for events without offline templates, are in seeds/authoring.yaml.

Seed files are read once a process: one draw takes 0.2 ms, and 20 ms or more where they are read for each.
"""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any

import yaml
from faker.providers.address.en_US import Provider as Places
from faker.providers.person.en_US import Provider as Names

from cimemories import seeds
from cimemories.model import GENERAL
from cimemories.simulator.policy import SimulatorError

HEADING = "# Facts wanted in each domain"
_WANTED = re.compile(re.escape(HEADING) + r"\s+((?:^- \w+: \d+\s*$\n?)+)", re.MULTILINE)
_ABOUT = re.compile(r"^# The part of life to write about\s+^([^\n:]+)(?::[ \t]*([^\n]*))?$", re.MULTILINE)
_KNOWN = re.compile(r"^- ([a-z][a-z0-9_]*): (.+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_FIRST_PERSON = re.compile(r"\b(?:I|me|my|mine|myself|we|us|our|ours)\b", re.IGNORECASE)
_THEIRS = {"me": "them", "my": "their", "mine": "theirs", "our": "their", "ours": "theirs", "us": "them"}
_MOST = 200  # attributes of one domain in one answer

Line = dict[str, str]
Item = dict[str, Any]


def write(prompt: str, generator: Random) -> str | None:
    """Return the JSON object that a model answers where a prompt asks for attributes of a profile; None for other
    prompts."""
    request, about = _WANTED.search(prompt), _ABOUT.search(prompt)
    if request is None or about is None:
        return None
    rules, event = load_authoring(), about[1].strip()
    statements: dict[str, str] = dict(_KNOWN.findall(prompt[: about.start()]))
    answer: dict[str, list[Item]] = {}
    # What earlier calls wrote counts as written, so that a duplicate can be one of theirs.
    written: list[Item] = [{"key": key, "value": None, "statement": statements[key]} for key in statements]
    for domain, count in re.findall(r"^- (\w+): (\d+)", request[1], re.MULTILINE):
        answer[domain] = []
        for line in _lines(event, domain, (about[2] or "").split(", "), statements, generator)[
            : min(int(count), _MOST)
        ]:
            filed_under, item = _spoiled(domain, _item(line, generator), written, rules, generator)
            if item is not None:
                answer.setdefault(filed_under, []).append(item)
                written.append(item)
    return json.dumps(answer, ensure_ascii=False)


@lru_cache(maxsize=1)
def load_authoring() -> dict[str, Any]:
    """Read seeds/authoring.yaml. Raises SimulatorError where it is missing or lacks a part."""
    path = seeds.SEEDS / "authoring.yaml"
    try:
        rules = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {name: rules[name] for name in ("faults", "wrong_domain", "domains")}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise SimulatorError(
            f"The simulator's rules for writing profiles cannot be read: {path} ({type(error).__name__}: {error}). "
            "Compare the file with the one in the repository."
        ) from error


def _lines(event: str, domain: str, events: list[str], used: dict[str, str], generator: Random) -> list[Line]:
    """Return templates that are not used yet, those of the event first; of the general part, those that fit the
    events."""
    of_event = _general(tuple(events)) if event == GENERAL else _own(event, domain)
    spare = []
    if event != GENERAL:  # the sentences for any event, with keys of this one
        prefix = seeds.event_slug(event).replace("-", "_")
        spare = [
            {**{name: text.replace("{event}", event) for name, text in line.items()}, "key": f"{prefix}_{line['key']}"}
            for line in load_authoring()["domains"].get(domain, [])
        ]
    fresh = [[line for line in lines if line["key"] not in used] for lines in (of_event, spare)]
    return [line for lines in fresh for line in generator.sample(lines, len(lines))]


@lru_cache(maxsize=512)
def _own(event: str, domain: str) -> list[Line]:
    """Return the event's offline templates of a domain, those whose sentences are all in the first person."""
    if event not in seeds.offline_events():
        return []
    return [
        _line(vars(template))
        for template in seeds.load_offline(event).domains.get(domain, ())
        if all(
            _FIRST_PERSON.search(text)
            for text in (template.statement, template.statement_true, template.statement_false)
            if text
        )
    ]


@lru_cache(maxsize=512)
def _general(events: tuple[str, ...]) -> list[Line]:
    """Return the templates of the general part, with the values that go with these events, the first event's before
    others."""
    offline = [event for event in events if event in seeds.offline_events()]
    # Of a key given twice the last stays: the first event's.
    fitting = {key: value for event in reversed(offline) for key, value in seeds.load_offline(event).general.items()}
    lines = [_line(vars(template)) for template in seeds.load_general().attributes]
    return [{**line, "value": fitting.get(line["key"], line["value"])} for line in lines]


def _line(template: dict[str, Any]) -> Line:
    return {name: text for name, text in template.items() if text is not None}


def _item(line: Line, generator: Random) -> Item:
    if line["value"] == "{bool}":
        value: Any = generator.random() < 0.5
        statement = line["statement_true"] if value else line["statement_false"]
    else:
        # As curation.offline does it: typed where the expression is one placeholder alone.
        if single := _PLACEHOLDER.fullmatch(line["value"]):
            value, spoken = _one(single[1], generator)
        else:
            value = spoken = _PLACEHOLDER.sub(lambda match: _one(match[1], generator)[1], line["value"])
        statement = line["statement"].replace("{value}", spoken)
    return {"key": line["key"], "value": value, "statement": statement}


def _spoiled(
    domain: str, item: Item, written: list[Item], rules: dict[str, Any], generator: Random
) -> tuple[str, Item | None]:
    """Return the item with its domain, as one of the faults changed it; None where it is left out."""
    # One draw against rates laid end to end on [0, 1), so that an item has one fault at most.
    draw, fault = generator.random(), None
    for name, rate in rules["faults"].items():
        if draw < rate:
            fault = name
            break
        draw -= rate
    match fault:
        case None:
            return domain, item
        case "duplicate":
            other = written[len(item["statement"]) % len(written)] if written else item
            return domain, {**item, "key": other["key"]}
        case "empty":
            return domain, {**item, "value": ""}
        case "unknown_domain":
            return str(rules["wrong_domain"]), item
        case "unsaid":
            statement = "I would rather not put a figure or a name to it."
            return domain, {**item, "value": f"{item['value']} zx", "statement": statement}
        case "third_person":
            # As a note about another person, in plain but clumsy English.
            text = _FIRST_PERSON.sub(lambda word: _THEIRS.get(word[0].lower(), "they"), item["statement"])
            return domain, {**item, "statement": f"About the user: {text}"}
        case "left_out":
            return domain, None
    raise SimulatorError(f"The simulator does not know the fault '{fault}' of seeds/authoring.yaml. Correct the file.")


def _one(content: str, generator: Random) -> tuple[Any, str]:
    if content.startswith("pick:"):
        text = generator.choice([option.strip() for option in content.removeprefix("pick:").split("|")])
        return text, text
    name, *arguments = content.split()
    if name in ("money", "int", "decimal"):
        # As decimals: in floats 0.3 / 0.1 is below 3, and the last value could never be drawn.
        low, high, step = [Decimal(argument) for argument in (*arguments, "1")[:3]]
        number = low + step * generator.randint(0, int((high - low) / step))
        value = float(number) if name == "decimal" else int(number)
        return value, f"${value:,}" if name == "money" else str(value)
    if name in ("date", "weekday"):
        first, last = date(int(arguments[0]), 1, 1), date(int(arguments[1]), 12, 31)
        day = first + timedelta(days=generator.randint(0, (last - first).days))
        if name == "weekday" and day.weekday() >= 5:
            day -= timedelta(days=2)  # Saturday to Thursday, Sunday to Friday
        return day.isoformat(), f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"
    if name == "time":
        hour, minute = generator.randint(int(arguments[0]), int(arguments[1])), generator.choice((0, 15, 30, 45))
        return f"{hour:02}:{minute:02}", f"{hour % 12 or 12}:{minute:02} {'AM' if hour < 12 else 'PM'}"
    text = _SPOKEN[name](generator)
    return text, text


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _person(generator: Random) -> str:
    return f"{generator.choice(_FIRST)} {generator.choice(_LAST)}"


# Sorted, so that a draw gives the same name in whatever order Faker lists them.
_FIRST = sorted([*Names.first_names_female, *Names.first_names_male])
_LAST = sorted(Names.last_names)
_SPOKEN: dict[str, Any] = {
    "person": _person,
    "doctor": lambda generator: f"Dr. {_person(generator)}",
    "company": lambda generator: (
        f"{generator.choice(_LAST)} {generator.choice(('and Sons', 'Group', 'Partners', 'LLC'))}"
    ),
    "street": lambda generator: f"{generator.choice(_LAST)} {generator.choice(sorted(Places.street_suffixes))}",
    "city": lambda generator: f"{generator.choice(_LAST)}{generator.choice(sorted(Places.city_suffixes))}",
    "phone": lambda generator: f"({generator.randint(201, 989)}) 555-01{generator.randint(0, 99):02}",
}
