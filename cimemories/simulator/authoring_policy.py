"""How the simulator writes profiles: attributes from the offline templates, some of them wrong on purpose.

It reads the project's own prompt (seeds/prompts/generate.yaml): the event, how many attributes each domain lacks, and
which keys are taken. What it says depends on the prompt and on the `Random` of the draw alone. The rates of what is
wrong, and the sentences for events without offline templates, stand in seeds/authoring.yaml.
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


def is_asked(prompt: str) -> bool:
    """Whether a prompt asks for attributes of a profile."""
    return _WANTED.search(prompt) is not None and _ABOUT.search(prompt) is not None


def write(prompt: str, chance: Random) -> str:
    """The JSON object that a model answers to such a prompt. ValueError where the prompt is none (see is_asked)."""
    wanted, about = _WANTED.search(prompt), _ABOUT.search(prompt)
    if wanted is None or about is None:
        raise ValueError("the prompt does not ask for attributes of a profile")
    rules, event = load_authoring(), about[1].strip()
    known: dict[str, str] = dict(_KNOWN.findall(prompt[: about.start()]))
    answer: dict[str, list[Item]] = {}
    said: list[Item] = [{"key": key, "value": None, "statement": known[key]} for key in known]
    for domain, count in re.findall(r"^- (\w+): (\d+)", wanted[1], re.MULTILINE):
        answer[domain] = []
        for line in _lines(event, domain, (about[2] or "").split(", "), known, chance)[: min(int(count), _MOST)]:
            place, item = _spoiled(domain, _item(line, chance), said, rules, chance)
            if item is not None:
                answer.setdefault(place, []).append(item)
                said.append(item)
    return json.dumps(answer, ensure_ascii=False)


@lru_cache(maxsize=1)
def load_authoring() -> dict[str, Any]:
    """seeds/authoring.yaml. Raises SimulatorError where it is missing or lacks a part."""
    path = seeds.SEEDS / "authoring.yaml"
    try:
        rules = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {name: rules[name] for name in ("faults", "wrong_domain", "domains")}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise SimulatorError(
            f"The simulator's way of writing profiles cannot be read: {path} ({type(error).__name__}: {error}). "
            "Compare the file with the one in the repository."
        ) from error


def _lines(event: str, domain: str, events: list[str], known: dict[str, str], chance: Random) -> list[Line]:
    """Templates that are not used yet, those of the event first; of the general part those that go with the events."""
    own = _general(tuple(events)) if event == GENERAL else _own(event, domain)
    spare = [] if event == GENERAL else _spare(event, domain)
    fresh = [[line for line in lines if line["key"] not in known] for lines in (own, spare)]
    return [line for lines in fresh for line in chance.sample(lines, len(lines))]


@lru_cache(maxsize=512)
def _own(event: str, domain: str) -> list[Line]:
    if event not in seeds.offline_events():
        return []
    return [_line(vars(template)) for template in seeds.load_offline(event).domains.get(domain, ()) if _mine(template)]


def _mine(template: seeds.Template) -> bool:
    texts = (template.statement, template.statement_true, template.statement_false)
    return all(_FIRST_PERSON.search(text) for text in texts if text)


@lru_cache(maxsize=512)
def _general(events: tuple[str, ...]) -> list[Line]:
    there = [event for event in events if event in seeds.offline_events()]
    fitting = {key: value for event in reversed(there) for key, value in seeds.load_offline(event).general.items()}
    lines = [_line(vars(template)) for template in seeds.load_general().attributes]
    return [{**line, "value": fitting.get(line["key"], line["value"])} for line in lines]


@lru_cache(maxsize=512)
def _spare(event: str, domain: str) -> list[Line]:
    prefix = seeds.event_slug(event).replace("-", "_")
    return [
        {**{name: text.replace("{event}", event) for name, text in line.items()}, "key": f"{prefix}_{line['key']}"}
        for line in load_authoring()["domains"].get(domain, [])
    ]


def _line(template: dict[str, Any]) -> Line:
    return {name: text for name, text in template.items() if text is not None}


def _item(line: Line, chance: Random) -> Item:
    if line["value"] == "{bool}":
        value: Any = chance.random() < 0.5
        statement = line["statement_true"] if value else line["statement_false"]
    else:
        value, spoken = _drawn(line["value"], chance)
        statement = line["statement"].replace("{value}", spoken)
    return {"key": line["key"], "value": value, "statement": statement}


def _spoiled(
    domain: str, item: Item, said: list[Item], rules: dict[str, Any], chance: Random
) -> tuple[str, Item | None]:
    """The item, or what it became by one of the faults; None where it is left out."""
    draw = chance.random()
    for fault, rate in rules["faults"].items():
        if draw < rate:
            place, spoiled = _FAULTS[fault](domain, item, said, rules)
            return str(place), spoiled
        draw -= rate
    return domain, item


def _third_person(text: str) -> str:
    """As a note about somebody else, in plain but clumsy English."""
    return "About the user: " + _FIRST_PERSON.sub(lambda word: _THEIRS.get(word[0].lower(), "they"), text)


_FAULTS: dict[str, Any] = {
    "duplicate": lambda domain, item, said, rules: (
        domain,
        {**item, "key": said[len(item["statement"]) % len(said)]["key"]} if said else item,
    ),
    "empty": lambda domain, item, said, rules: (domain, {**item, "value": ""}),
    "unknown_domain": lambda domain, item, said, rules: (rules["wrong_domain"], item),
    "unsaid": lambda domain, item, said, rules: (
        domain,
        {**item, "value": f"{item['value']} zx", "statement": "I would rather not put a figure or a name to it."},
    ),
    "third_person": lambda domain, item, said, rules: (
        domain,
        {**item, "statement": _third_person(item["statement"])},
    ),
    "left_out": lambda domain, item, said, rules: (domain, None),
}


def _drawn(expression: str, chance: Random) -> tuple[Any, str]:
    """Value and spoken text of an expression, as curation.values has it: typed where it is one placeholder alone."""
    whole = _PLACEHOLDER.fullmatch(expression)
    if whole:
        return _one(whole[1], chance)
    text = _PLACEHOLDER.sub(lambda match: _one(match[1], chance)[1], expression)
    return text, text


def _one(content: str, chance: Random) -> tuple[Any, str]:
    if content.startswith("pick:"):
        text = chance.choice([option.strip() for option in content.removeprefix("pick:").split("|")])
        return text, text
    name, *arguments = content.split()
    if name in ("money", "int", "decimal"):
        low, high, step = [Decimal(argument) for argument in (*arguments, "1")[:3]]
        number = low + step * chance.randint(0, int((high - low) / step))
        value = float(number) if name == "decimal" else int(number)
        return value, f"${value:,}" if name == "money" else str(value)
    if name in ("date", "weekday"):
        first, last = date(int(arguments[0]), 1, 1), date(int(arguments[1]), 12, 31)
        day = first + timedelta(days=chance.randint(0, (last - first).days))
        if name == "weekday" and day.weekday() >= 5:
            day -= timedelta(days=2)
        return day.isoformat(), f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"
    if name == "time":
        hour, minute = chance.randint(int(arguments[0]), int(arguments[1])), chance.choice((0, 15, 30, 45))
        return f"{hour:02}:{minute:02}", f"{hour % 12 or 12}:{minute:02} {'AM' if hour < 12 else 'PM'}"
    text = _SPOKEN[name](chance)
    return text, text


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _person(chance: Random) -> str:
    return f"{chance.choice(_FIRST)} {chance.choice(_LAST)}"


_FIRST = sorted([*Names.first_names_female, *Names.first_names_male])
_LAST = sorted(Names.last_names)
_SPOKEN: dict[str, Any] = {
    "person": _person,
    "doctor": lambda chance: f"Dr. {_person(chance)}",
    "company": lambda chance: f"{chance.choice(_LAST)} {chance.choice(('and Sons', 'Group', 'Partners', 'LLC'))}",
    "street": lambda chance: f"{chance.choice(_LAST)} {chance.choice(sorted(Places.street_suffixes))}",
    "city": lambda chance: f"{chance.choice(_LAST)}{chance.choice(sorted(Places.city_suffixes))}",
    "phone": lambda chance: f"({chance.randint(201, 989)}) 555-01{chance.randint(0, 99):02}",
}
