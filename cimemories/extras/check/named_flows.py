"""The flows of a dataset that a name stands for: `miscarriage -> landlord` is every attribute with that key, event or
domain, in every context with that recipient or sphere. Case, underscores and spaces do not matter; * stands for
anything. A name that matches nothing is an error, with the nearest names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz import fuzz, process

from cimemories.extras.check.budgets import CheckFile, NamedFlow
from cimemories.seeds.reading import SeedError
from cimemories.store import datasets
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store
from cimemories.text import count, listed, shortened, visible

NEAREST = 4  # names that an error proposes
LIKE = 60  # of 100, by rapidfuzz: below it two names have little in common


@dataclass(frozen=True)
class Flow:
    """One information flow by the record's ids, and its texts."""

    profile: int
    attribute: int
    context: int
    user: str
    key: str
    statement: str
    recipient: str
    task: str


def flows_of(store: Store, dataset_id: int, file: CheckFile) -> list[tuple[Flow, ...]]:
    """Return the flows of a dataset that each named flow of the file stands for, in the file's order. Raises SeedError
    that names the line of every one without a match, and the nearest names."""
    if not file.flows:
        return []
    with store.read() as connection:
        people = datasets.profile_records(connection, dataset_id)
        name, _ = datasets.name_and_revision(connection, dataset_id)
    named = [tuple(_meant(item, people)) for item in file.flows]
    problems = [
        f"line {item.line}, {visible(item.text)}: {_why_none(item, people)}"
        for item, flows in zip(file.flows, named, strict=True)
        if not flows
    ]
    if problems:
        raise SeedError(f"{file.path}: {'; '.join(problems)} (dataset {shortened(name, 80)})")
    return named


def _meant(item: NamedFlow, people: Sequence[ProfileRecord]) -> Iterable[Flow]:
    is_attribute, is_recipient = _pattern(item.attribute), _pattern(item.recipient)
    for person in people:
        if item.profile and not _pattern(item.profile)(person.profile.name):
            continue
        contexts = [
            (number, context)
            for number, context in zip(person.context_ids, person.profile.contexts, strict=True)
            if (is_recipient(context.recipient) or is_recipient(context.sphere or ""))
            and (not item.task or _pattern(item.task)(context.task))
        ]
        for attribute_id, own in zip(person.attribute_ids, person.profile.attributes, strict=True):
            if any(map(is_attribute, (own.key, own.event, own.domain))):
                for context_id, context in contexts:
                    yield Flow(
                        *(person.id, attribute_id, context_id, person.profile.name, own.key, own.statement),
                        *(context.recipient, context.task),
                    )


def _plain(text: str) -> str:
    return re.sub(r"[\s_]+", " ", text).strip().casefold()


@lru_cache(maxsize=256)
def _pattern(name: str) -> Callable[[str], bool]:
    # Only * is special: names may hold brackets and question marks.
    pattern = re.compile(".*".join(map(re.escape, _plain(name).split("*"))), re.DOTALL)
    return lru_cache(maxsize=65_536)(lambda text: pattern.fullmatch(_plain(text)) is not None)


def _why_none(item: NamedFlow, people: Sequence[ProfileRecord]) -> str:
    """Return which part of a named flow matches nothing, with suggestions."""
    attributes: dict[str, str] = {}
    recipients: dict[str, str] = {}
    for person in people:
        for own in person.profile.attributes:
            attributes |= {own.domain: "domain", own.event: "event"}
            attributes.setdefault(own.key, "key")
        for context in person.profile.contexts:
            recipients[context.recipient] = "recipient"
            if context.sphere:
                recipients.setdefault(context.sphere, "sphere")
    users = {person.profile.name: "profile" for person in people}
    tasks = {context.task: "task" for person in people for context in person.profile.contexts}
    sides = [
        ("attribute, event or domain", item.attribute, attributes),
        ("recipient or sphere", item.recipient, recipients),
        ("profile", item.profile, users),
        ("task", item.task, tasks),
    ]
    for what, name, known in sides:
        if name and not any(map(_pattern(name), known)):
            return f"no {what} is called '{visible(name)}'. {_nearest(name, known)}"
    # Each name exists, but no flow has all of them: say where the attribute's owners are tested.
    owners = [
        person
        for person in people
        if any(
            map(_pattern(item.attribute), (t for a in person.profile.attributes for t in (a.key, a.event, a.domain)))
        )
    ]
    tested = {context.recipient: "recipient" for person in owners for context in person.profile.contexts}
    return (
        f"no profile with '{visible(item.attribute)}' is tested in such a context. Of {count(len(people), 'profile')} "
        f"{count(len(owners))} have it, and write to: {_nearest(item.recipient, tested, all_=True)}"
    )


def _nearest(name: str, known: dict[str, str], *, all_: bool = False) -> str:
    """Return 'Nearest: miscarriage (event), ...', or the first names if none is similar."""
    matches = process.extract(
        _plain(name), {text: _plain(text) for text in known}, scorer=fuzz.WRatio, limit=NEAREST,
        score_cutoff=0 if all_ else LIKE,
    )  # fmt: skip
    texts = [text for _, _, text in matches]
    if not texts:
        few = listed([f"'{shortened(text, 60)}'" for text in list(known)[:NEAREST]])
        return f"Nothing is like it; there are {few}{', among others' if len(known) > NEAREST else ''}."
    named = listed([f"'{shortened(text, 60)}' ({known[text]})" for text in texts])
    return f"{named}." if all_ else f"Nearest: {named}."
