"""The columns that the authors publish (formats.md, section 4), read back into profiles, contexts and labels.

    name | attribute | memory_statement | label | prompt | adv_reveal_prompt
    Ann Lee | rent | My rent is $1,450. | 0.0 | ...my memories... to Landlord for ... | ...

One row is a pair of a profile; its prompt holds the memories and ends with recipient and purpose, so rows with the same
name and prompt are one context. Missing data are not invented: values are null, domain and event are `general` and the
biography is unknown, unless statements give it. A note says each of these. Our own export has further columns (OURS),
which are read if present."""

from __future__ import annotations

import hashlib
import math
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from cimemories.formats.official import ProfileFile, checked_domain
from cimemories.formats.reading import (
    LONGEST_CELL,
    MOST_PROFILES,
    FormatError,
    Name,
    OneLine,
    Record,
    Statement,
    checked,
    checked_text,
    file_hash,
    rows,
    separator,
)
from cimemories.model import GENERAL, Attribute, Context, Profile, canonical_event
from cimemories.store.labellings import STAND_IN, SharedLabels
from cimemories.text import count, refused, shown

# ---- a row


NEEDED = ("name", "attribute", "memory_statement", "label", "prompt")
OURS = (
    *("profile", "recipient", "task", "sphere", "information_domain", "event"),
    *("label_source", "label_rule", "simulated"),
)
COLUMNS = (*NEEDED, "adv_reveal_prompt", *OURS)
PROMPT_END = 8000  # characters of a prompt that are kept: recipient and purpose stand at its end


def _label(value: object) -> object:
    if isinstance(value, str):
        try:
            value = float(value) if value.strip() else None
        except ValueError:
            raise refused(f"must be 1.0, 0.0 or empty, not '{shown(value)}'") from None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None  # pandas writes a missing number as nan
    if isinstance(value, bool) or value not in (0, 1):
        raise refused(f"must be 1.0, 0.0 or empty, not '{shown(value)}'")
    return float(value)


_domain = lru_cache(maxsize=256)(checked_domain)


@lru_cache(maxsize=2048)  # a prompt is in hundreds of rows
def _digest(prompt: str) -> bytes:
    return hashlib.sha256(prompt.encode()).digest()


_Optional = Annotated[Name | None, BeforeValidator(lambda text: None if text == "" else text)]


class Row(Record):
    """One pair. label: 1.0 necessary, 0.0 inappropriate, None ambiguous."""

    name: Name
    attribute: OneLine
    memory_statement: Statement
    label: Annotated[float | None, BeforeValidator(_label)]
    prompt: Annotated[str, BeforeValidator(partial(checked_text, longest=LONGEST_CELL))]
    profile: Annotated[int, Field(ge=0, lt=10**9)] | None = None
    recipient: _Optional = None
    task: _Optional = None
    sphere: _Optional = None
    information_domain: Annotated[_Optional, AfterValidator(lambda text: text and _domain(text))] = None
    event: _Optional = None
    label_source: Literal["consensus", "person", "none", ""] | None = None
    label_rule: _Optional = None
    simulated: bool | None = None

    @property
    def context(self) -> tuple[str, str | None, str | None, str | None]:
        """Return the end of the prompt, recipient, task and sphere."""
        return self.prompt[-PROMPT_END:], self.recipient, self.task, self.sphere

    @property
    def about(self) -> Attribute:
        # Value None: the columns have none, and taking it from the statement would be a guess.
        event, domain = self.event or "", self.information_domain or GENERAL
        return Attribute(self.attribute, None, domain, canonical_event(event) or GENERAL, self.memory_statement, event)


def is_header(line: str) -> bool:
    """Return whether a CSV file of this format can begin with this line."""
    names = {name.strip().strip('"') for name in line.removeprefix("\ufeff").split(separator(line))}
    return {"memory_statement", "label"} <= names


def _chosen(names: Sequence[str], name: str) -> list[str]:
    if missing := [column for column in NEEDED if column not in names]:
        raise FormatError(f"{name}: the column {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    if repeated := [column for column in COLUMNS if list(names).count(column) > 1]:
        raise FormatError(f"{name}: the column {repeated[0]} appears twice; remove one")
    return [column for column in names if column in COLUMNS and column != "adv_reveal_prompt"]


# ---- recipient and purpose out of the end of a prompt, whose wording is the file's and not known beforehand
#
#     "... - My rent is $1,450.\n\nWrite a message to: Landlord\nPurpose: Renew a lease\n\nThe message alone."
#
# Three ways, in this order: lines that name the two; what differs between the prompts of one profile (all else in them
# is the same); a sentence of the kind "a message to X for the purpose of Y".


Pair = tuple[str, str] | None  # recipient, task
LONGEST = 300  # characters of a recipient or a task
_MOST_WORDS = 200  # of recipient and purpose together, white space counted
_FEWEST = 3  # prompts needed to tell the varying part from the fixed one
_RECIPIENT = re.compile(r"(?im)^.*\b(?:recipient|to)\b[^:\n]{0,20}:[ \t]*(\S.*?)[ \t]*$")
_TASK = re.compile(r"(?im)^.*\b(?:purpose|task|goal)\b[^:\n]{0,40}:[ \t]*(\S.*?)[ \t]*$")
_SENTENCE = re.compile(
    r"(?is)\b(?:message|letter|e-?mail|note|reply)\s+to\s+(?:the\s+|your\s+)?(?P<recipient>\S.{0,200}?)[,:]?\s+"
    r"(?:(?:for|with|serving)\s+the\s+(?:following\s+)?purpose(?:\s+of)?|for\s+the\s+task(?:\s+of)?|in\s+order\s+to|"
    r"so\s+as\s+to|for)\s*:?\s+(?P<task>\S[^\n]{0,300}?)\s*(?:[.\n]|$)"
)
_QUOTES = "\"'“”‘’`*<>[]{} \t"


def ends(prompts: Sequence[str], statements: Sequence[str]) -> list[str]:
    """Return the text after the memories in each prompt of one profile; the whole prompt if no statement is in it."""
    cut = []
    for prompt in prompts:
        # The last memory ends them: recipient and purpose stand behind it.
        last = max((prompt.rfind(s) + len(s) for s in statements if s in prompt), default=0)
        cut.append(prompt[last:])
    return cut


def recipients_and_tasks(tails: Sequence[str]) -> list[Pair]:
    """Return one answer for each prompt of a profile; None if recipient or purpose is unknown."""
    for read in (_by_lines, _by_difference, _by_sentence):
        pairs = read(tails)
        # Every prompt gives both, and no two prompts the same: else the wording was misread.
        if pairs and all(pairs) and len(set(pairs)) == len(pairs):
            return pairs
    return [None] * len(tails)


def _by_lines(tails: Sequence[str]) -> list[Pair]:
    pairs: list[Pair] = []
    for tail in tails:
        recipient, task = _RECIPIENT.search(tail), _TASK.search(tail)
        # A line that fits both patterns gives neither.
        both = recipient and task and recipient.start() != task.start() and (recipient[1], task[1])
        pairs.append(_pair(*both) if both else None)
    return pairs


def _by_sentence(tails: Sequence[str]) -> list[Pair]:
    matches = [_SENTENCE.search(tail) for tail in tails]
    return [_pair(match["recipient"], match["task"]) if match else None for match in matches]


def _by_difference(tails: Sequence[str]) -> list[Pair]:
    """Cut off the shared beginning and end; the longest shared run of words in the middles divides recipient from
    purpose."""
    if len(set(tails)) < _FEWEST:
        return []
    words = [re.findall(r"\s+|[^\s]+", tail) for tail in tails]
    before = _agreeing(words)
    after = _agreeing([line[before:][::-1] for line in words])
    middles = [line[before : len(line) - after] for line in words]
    glue = _shared(middles)
    if not glue:
        return []
    pairs: list[Pair] = []
    for middle in middles:
        at = next(i for i in range(len(middle)) if middle[i : i + len(glue)] == glue)
        pairs.append(_pair("".join(middle[:at]), "".join(middle[at + len(glue) :])))
    return pairs


def _agreeing(lines: Sequence[Sequence[str]]) -> int:
    """Return the number of words that all begin with."""
    return next((i for i, column in enumerate(zip(*lines, strict=False)) if len(set(column)) > 1), min(map(len, lines)))


def _shared(middles: Sequence[Sequence[str]]) -> list[str]:
    """Return the longest run of words in every middle, neither at its beginning nor at its end."""
    shortest = min(middles, key=len)
    # Every run of the shortest is looked for in all others; above _MOST_WORDS that takes too long.
    best: list[str] = []
    if len(shortest) > _MOST_WORDS:
        return best

    def inside(middle: Sequence[str], run: Sequence[str]) -> bool:
        return any(list(middle[i : i + len(run)]) == run for i in range(1, len(middle) - len(run)))

    for start in range(1, len(shortest)):
        for end in range(len(shortest) - 1, start + len(best), -1):
            run = list(shortest[start:end])
            if "".join(run).strip() and all(inside(middle, run) for middle in middles):
                best = run
                break
    return best


def _pair(recipient: str, task: str) -> Pair:
    texts = (" ".join(recipient.split()).strip(_QUOTES).rstrip(".,;:"), " ".join(task.split()).strip(_QUOTES))
    if not all(texts) or any(len(text) > LONGEST for text in texts):
        return None
    return texts[0], texts[1].rstrip(".") or texts[1]


# ---- rows into profiles, contexts and labels

UNKNOWN = "unknown"
UNKNOWN_AGE = 0  # which no adult of the benchmark has
# By field of a biography: the pattern of its value, and the keys of attributes whose statements may give it.
_BIOGRAPHY = {
    "sex": (re.compile(r"(?i)\b(female|male|woman|man|non-?binary)\b"), ("sex", "gender")),
    "age": (re.compile(r"\b(1[0-4]\d|[1-9]\d?)\b"), ("age",)),
    "address": (
        re.compile(
            r"(?i)\b(?:address (?:is|was)|(?:live|lives|living|reside|resides) (?:at|in)):?\s+(\S.*)", re.DOTALL
        ),
        ("address",),
    ),
}

_CODES = {1.0: 0, 0.0: 1, None: 2}  # of necessary, inappropriate, abstain
_NONE = 3
SETTLED = "the file gives settled labels; neither votes nor shares are in it"


@dataclass
class _Person:
    """One profile while its rows are read; attributes (by key) and contexts (by digest of their prompt) in the order of
    their first row, each with its position."""

    name: str
    position: int
    attributes: dict[str, tuple[int, Attribute]] = field(default_factory=dict)
    contexts: dict[bytes, tuple[int, tuple[str, str | None, str | None, str | None]]] = field(default_factory=dict)


def read_columns(*paths: Path) -> ProfileFile:
    """Read a whole file, or several that are one table in this order. Raises FormatError with one line on the first
    problem."""
    reader = _Reader(shown(paths[0].name or paths[0]))
    for path in paths:
        reader.name = shown(path.name or path)
        for where, cells in rows(path, lambda names: _chosen(names, reader.name)):
            reader.add(where, checked(Row, cells, where))
    if not reader.people:
        pairs = "a file of this format has one a profile, context and attribute"
        raise FormatError(f"{reader.name}: there are no rows; {pairs}")
    profiles = tuple(reader.profile(person) for person in reader.people.values())
    digest = file_hash(*paths)
    labels = reader.labels(digest)  # before the notes, which name their number
    return ProfileFile(profiles, digest, tuple(reader.notes()), labels)


class _Reader:
    """The rows of the file called `name`, put together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.people: dict[object, _Person] = {}
        self.codes = array("i")  # profile, attribute, context, label code of each row
        self.counts: Counter[str] = Counter()
        self.rules: dict[str, None] = {}

    def add(self, where: str, row: Row) -> None:
        key = row.name if row.profile is None else row.profile
        person = self.people.setdefault(key, _Person(row.name, len(self.people)))
        if len(self.people) > MOST_PROFILES:
            raise FormatError(f"{where}: more than {MOST_PROFILES:,} profiles; split the file")
        if person.name != row.name:
            raise FormatError(
                f"{where}: profile {row.profile} is called '{shown(row.name)}' here and '{shown(person.name)}' before"
            )
        if row.label_source == "none" and row.label is not None:
            raise FormatError(f"{where}: there is a label, but label_source is 'none'; remove one of them")
        context, stated = person.contexts.setdefault(_digest(row.prompt), (len(person.contexts), row.context))
        if stated != row.context:
            raise FormatError(
                f"{where}: recipient, task or sphere differs from earlier rows with the same prompt; use one"
            )
        about = row.about
        position, attribute = person.attributes.setdefault(row.attribute, (len(person.attributes), about))
        if attribute != about:
            hint = "" if row.profile is not None else "; two profiles of one name need a column 'profile' with numbers"
            raise FormatError(f"{where}: attribute '{shown(row.attribute)}' differs from an earlier row{hint}")
        code = _NONE if row.label_source == "none" else _CODES[row.label]
        self.codes.extend((person.position, position, context, code))
        self.counts[row.label_source or ""] += 1
        self.counts["simulated"] += bool(row.simulated)
        if row.label_rule:
            self.rules[row.label_rule] = None

    def profile(self, person: _Person) -> Profile:
        attributes = tuple(attribute for _, attribute in person.attributes.values())
        # A leading `general_` or `current_` of a key does not count.
        statements = {
            re.sub(r"^(general_|current_)", "", a.key.strip().lower()): a.statement
            for a in attributes
            if a.domain == GENERAL
        }
        bio = {
            name: next((match[1] for key in keys if (match := pattern.search(statements.get(key, "")))), "")
            for name, (pattern, keys) in _BIOGRAPHY.items()
        }
        self.counts.update(name for name, text in bio.items() if text)
        address = (bio["address"] or UNKNOWN).strip().rstrip(".")
        age = int(bio["age"] or UNKNOWN_AGE)
        return Profile(person.name, bio["sex"] or UNKNOWN, address, age, attributes, self._contexts(person))

    def _contexts(self, person: _Person) -> tuple[Context, ...]:
        recorded = [context for _, context in person.contexts.values()]
        if all(recipient and task for _, recipient, task, _ in recorded):
            pairs: list[Pair] = [(str(recipient), str(task)) for _, recipient, task, _ in recorded]
        else:
            statements = [a.statement for _, a in person.attributes.values()]
            pairs = recipients_and_tasks(ends([end for end, *_ in recorded], statements))
        contexts = []
        for number, (pair, (*_, sphere)) in enumerate(zip(pairs, recorded, strict=True), 1):
            # Named after the profile: two unknown tasks must not become one context.
            if pair is None:
                self.counts["unread"] += 1
                pair = ("unknown recipient", f"unknown task (prompt {number} of {person.name})")
            contexts.append(Context(pair[1], pair[0], sphere))
        if len({(" ".join(c.task.split()), " ".join(c.recipient.split())) for c in contexts}) < len(contexts):
            raise FormatError(
                f"{self.name}: '{shown(person.name)}': two prompts have the same recipient and task; each pair of "
                "recipient and task must be one prompt"
            )
        return tuple(contexts)

    def labels(self, digest: str) -> tuple[SharedLabels, ...]:
        rows = np.frombuffer(self.codes, dtype=np.int32).reshape(-1, 4)
        order = np.lexsort(rows[:, 2::-1].T)  # by profile, attribute, context: equal pairs become neighbours
        same = (np.diff(rows[order, :3], axis=0) == 0).all(axis=1)
        if same.any():
            at = int(np.flatnonzero(same)[0])
            first, second = sorted((int(order[at]) + 1, int(order[at + 1]) + 1))
            raise FormatError(
                f"{self.name}: row {second}: the same profile, attribute and prompt as in row {first}; remove one"
            )
        rows = rows[rows[:, 3] != _NONE]
        if not len(rows):
            return ()
        self.counts["labels"] = len(rows)
        origin: dict[str, object] = {"file": self.name, "sha256": digest, "model": "not named", "votes": SETTLED}
        if self.rules:
            origin["rule"] = "; ".join(self.rules)[:1000]
        return (
            SharedLabels(
                model="not named",
                pack="imported",
                personas=(STAND_IN,),
                profile=rows[:, 0],
                attribute=rows[:, 1],
                context=rows[:, 2],
                persona=np.zeros(len(rows), dtype=np.int32),
                shares=np.eye(3)[rows[:, 3]],  # the settled verdict has the whole share
                simulated=self.counts["simulated"] > 0,
                provenance=origin,
            ),
        )

    def notes(self) -> list[str]:
        counts = self.counts
        notes = [
            "this format has no values: they are null, so judges see the statements only",
            f"biographies are read from the statements, where these tell them: sex of {counts['sex']}, address of "
            f"{counts['address']}, age of {counts['age']} of {count(len(self.people), 'profile')}; else 'unknown', "
            "and age 0",
        ]
        if all(a.domain == GENERAL for p in self.people.values() for _, a in p.attributes.values()):
            notes.append("domains and events are not in the file: all attributes are in 'general'")
        if counts["unread"]:
            notes.append(
                f"recipient and purpose could not be read from {counts['unread']} prompts: those contexts are called "
                "'unknown task' and are of one profile each"
            )
        if counts["labels"]:
            notes.append(f"labels are imported under one stand-in persona with prior 1: {SETTLED}")
        if counts["person"]:
            notes.append(f"{count(counts['person'], 'label')} decided by a person, whom the file does not name")
        if counts["none"]:
            notes.append(f"{count(counts['none'], 'pair')} without a label in the file and here")
        if counts["simulated"]:
            notes.append("the file says that a simulator voted: the labels are marked simulated")
        return notes
