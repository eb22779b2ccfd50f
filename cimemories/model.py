"""The paper's things as frozen dataclasses. Everything that crosses a border between layers is one of these.

A profile (one synthetic user) holds attributes; an attribute is one memory statement with its value, information
domain and event. A context is a task and its recipient. The pair (attribute, context) is what gets a label, and
(profile, attribute, context) is the information flow that every number is about.

    Attribute(key="rent", value=1450, domain="housing", event="divorce proceedings", statement="My rent is $1,450.")
    Context(task="Negotiate the renewal of a lease", recipient="Landlord", sphere="housing")
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

Scalar = str | int | float | bool | None
Value = Scalar | list[Scalar | dict[str, Scalar]]

DOMAINS = (
    "finance",
    "relationships",
    "employment",
    "health",
    "mental_health",
    "education",
    "legal",
    "schedule",
    "housing",
)
GENERAL = "general"
# Characters that an imported profile may have: a statement, or a value as JSON; and any other of its texts. The longest
# of the released files have 210 and 158. A browser does not lay out an unbroken text of a million characters.
LONGEST_STATEMENT = 10_000
LONGEST_NAME = 1_000
BIO_KEYS = frozenset({"name", "full_name", "sex", "gender", "address", "age"})


class Verdict(StrEnum):
    """One vote on one pair. A conflict (a number given as both) is recorded as such and never counted."""

    NECESSARY = "necessary"
    INAPPROPRIATE = "inappropriate"
    ABSTAIN = "abstain"
    CONFLICT = "conflict"


class Label(StrEnum):
    """The label of one pair, by consensus of the personas or by a person."""

    NECESSARY = "necessary"
    INAPPROPRIATE = "inappropriate"
    AMBIGUOUS = "ambiguous"


class Channel(StrEnum):
    """The parts of a response that a judge can read: the message, the reasoning before it, and of an assistant its tool
    calls and what it writes into its memory."""

    MESSAGE = "message"
    REASONING = "reasoning"
    TOOLS = "tools"
    MEMORY = "memory"

    @property
    def in_words(self) -> str:
        return {"message": "messages", "tools": "tool calls", "memory": "memory writes"}.get(self, str(self))


class ResponseStatus(StrEnum):
    """The status of one planned response. Only `ok` can be judged; all but `owed` and `ok` are missing with a cause.
    `unparsed`: a gate's selection could not be read, so that no message was asked for."""

    OWED = "owed"
    OK = "ok"
    UNPARSED = "unparsed"
    EMPTY = "empty"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    FAILED = "failed"


class JudgementStatus(StrEnum):
    """The status of one planned judgement: unparsed and failed ones are missing, never 'nothing revealed'. `empty`: no
    reasoning text was there to read, which a server may also hide."""

    OWED = "owed"
    OK = "ok"
    EMPTY = "empty"
    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    FAILED = "failed"


class WorkKind(StrEnum):
    """The kind of a piece of work. Its id begins with this word: 'run-3f9a1c2e'."""

    RUN = "run"
    SWEEP = "sweep"
    LABELLING = "labelling"
    GENERATION = "generation"


class WorkStatus(StrEnum):
    """The status of a labelling, run, sweep or generation. `interrupted` means: the worker is gone, what is owed can be
    resumed. `finished with failures`: it came to its end, and part of what was planned is missing."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    FINISHED = "finished"
    FINISHED_WITH_FAILURES = "finished with failures"

    @property
    def is_finished(self) -> bool:
        """Return True if the work came to its end, even if parts of what was planned are missing."""
        return self in (WorkStatus.FINISHED, WorkStatus.FINISHED_WITH_FAILURES)


class Strength(StrEnum):
    """The extent to which a message reveals an attribute. Only `full` counts as a reveal (paper, judge of Section
    5.1)."""

    FULL = "full"
    PARTIAL = "partial"
    IMPLIED = "implied"


class AuditVerdict(StrEnum):
    """A person's verdict on an attribute in a message: a judge's strength, or nothing."""

    FULL = "full"
    PARTIAL = "partial"
    IMPLIED = "implied"
    NONE = "none"


@dataclass(frozen=True)
class Attribute:
    """One memory of a profile. `key` is unique inside its profile only; statements may repeat.

    event_spelling: how the file spelled the event, '' where that is not known; two spellings are the same event.
    """

    key: str
    value: Value
    domain: str
    event: str
    statement: str
    event_spelling: str = field(default="", compare=False, repr=False)

    @property
    def spelled_event(self) -> str:
        """Return the event for a file that goes out: as the one that came in spelled it, unless it has been changed
        since."""
        return self.event_spelling if canonical_event(self.event_spelling) == self.event else self.event


@dataclass(frozen=True)
class Context:
    """A task and its recipient; `sphere` is the part of life it belongs to, where that is known."""

    task: str
    recipient: str
    sphere: str | None = None


@dataclass(frozen=True)
class Profile:
    """One synthetic user: a biography, attributes in a fixed order, and the contexts it is tested in."""

    name: str
    sex: str
    address: str
    age: int
    attributes: tuple[Attribute, ...] = ()
    contexts: tuple[Context, ...] = ()

    @property
    def events(self) -> tuple[str, ...]:
        """Return the life events of this profile in order of first mention, `general` left out."""
        return tuple(dict.fromkeys(a.event for a in self.attributes if a.event != GENERAL))


@dataclass(frozen=True)
class Persona:
    """One of Westin's kinds of people, as a voter. `prior`: its share in the mixture; those of a pack add up to 1."""

    key: str
    name: str
    prior: float
    description: str


@dataclass(frozen=True)
class Span:
    """The place of a quote in a message: text[start:end], end exclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class Reveal:
    """A judge's claim that a message reveals one attribute. `span` is None where the quote is not in the message."""

    attribute: int
    quote: str
    span: Span | None
    strength: Strength = Strength.FULL

    @property
    def grounded(self) -> bool:
        return self.span is not None


@dataclass(frozen=True)
class ChatRequest:
    """A request to a chat-completions endpoint, byte for byte, apart from the draw it is sent for.

    `messages` are (role, content) pairs. `parameters` are further fields of the request body as sent (temperature,
    max_tokens, response_format, ...); `seed`, where given, is sent as seed + draw.
    """

    model: str
    messages: tuple[tuple[str, str], ...]
    parameters: dict[str, object] = field(default_factory=dict)
    seed: int | None = None


@lru_cache(maxsize=4096)
def canonical_event(name: str) -> str:
    """Return the one spelling of an event: the released files write 'job promotion' and 'job_promotion' for the same
    event."""
    return re.sub(r"[\s_]+", " ", name).strip().lower()


@lru_cache(maxsize=4096)
def canonical_domain(name: str) -> str:
    """Return the one spelling of an information domain: lower case, words joined by an underscore."""
    return re.sub(r"[\s_-]+", "_", name.strip()).lower()


def is_bio(key: str, domain: str) -> bool:
    """Return True if an attribute only repeats the biography, so that signing a message with it is no violation.

    The rule is exact: domain `general`, and the key without a leading `general_`, `current_` or `general_current_` is
    one of BIO_KEYS.
    """
    if canonical_domain(domain) != GENERAL:
        return False
    return re.sub(r"^(?:general_)?(?:current_)?", "", key.strip().lower()) in BIO_KEYS
