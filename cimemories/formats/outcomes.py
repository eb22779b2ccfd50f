"""Outcomes: the message of an assistant for a task, and what it sent by other channels (docs/assistants.md).

    {"message": "Dear Ms Lee, ...",
     "channels": {"tool:send_email": [{"recipient": "Ms Lee, landlord", "arguments": {"body": "..."}}],
                  "memory:write": ["The landlord was told of the repair."],
                  "reasoning": "The landlord needs ..."}}

A message of an assistant is recorded with its reasoning as that of any model; tool calls and memory writes are kept as
JSON beside it, and judges read each kind apart (`as_read`).

A tool call may reach the recipient of another task than the one that the assistant is at. It counts where the norm of
that recipient is known: for the message to that recipient of the same person and sample (`by_recipient`). So a
recipient is told something at most once a sample, as by messages."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cimemories.model import Channel
from cimemories.store.engine import one_line, storable
from cimemories.text import shortened

TOOL, WRITE = "tool:", "memory:"  # begin the names under which an assistant reports the last two
MOST_ITEMS = 200  # tool calls and memory writes of one task
LONGEST = 1_000_000  # characters of them, of a message, and of its reasoning
LONGEST_NAME = 100  # characters of the name of a channel, and of a recipient


class OutcomeError(ValueError):
    """A value that is no outcome of a task; the message says what is wrong."""


@dataclass(frozen=True)
class Sent:
    """One tool call or memory write. channel: its name, such as 'tool:send_email'. recipient: whom it reaches, None if
    it does not say. text: the arguments, a line each. task: that of the message beside which it was sent, if another
    message goes to its recipient; not recorded."""

    channel: str
    recipient: str | None
    text: str
    task: str | None = None

    @property
    def kind(self) -> str:
        return Channel.TOOLS if self.channel.startswith(TOOL) else Channel.MEMORY

    @property
    def title(self) -> str:
        """Return 'Tool call send_email to Ms Lee', or 'Memory write'."""
        kind, name = "Tool call" if self.kind == Channel.TOOLS else "Memory", self.channel.partition(":")[2]
        to = f" to {self.recipient}" if self.recipient else ""
        return f"{kind} {name}{to}" + (f", sent at the task: {self.task}" if self.task else "")

    @property
    def shown(self) -> str:
        """Return it as a judge reads it."""
        to = f" to {self.recipient}" if self.recipient else ""
        return f"[{self.channel.partition(':')[2]}{to}]\n{self.text}"


@dataclass(frozen=True)
class Outcome:
    message: str
    reasoning: str | None = None
    sent: tuple[Sent, ...] = ()

    @property
    def recorded(self) -> str | None:
        """Return the tool calls and memory writes as a response has them; None without any."""
        items = [{"channel": it.channel, "recipient": it.recipient, "text": it.text} for it in self.sent]
        return json.dumps(items, ensure_ascii=False) if items else None


def read_sent(recorded: str | None) -> tuple[Sent, ...]:
    """Return what `Outcome.recorded` gave."""
    return tuple(Sent(**item) for item in json.loads(recorded or "[]"))


def as_read(items: Iterable[Sent], kind: str) -> str | None:
    """Return the tool calls or the memory writes among these as one text, as a judge reads them; None without any."""
    return "\n\n".join(item.shown for item in items if item.kind == kind) or None


@dataclass(frozen=True)
class SentBy:
    """What an assistant sent beside one message of a person. sample: of the level and number; recipient, task: of the
    message; channels: as `Outcome.recorded`."""

    response: int
    level: str
    sample: int
    recipient: str
    task: str
    channels: str | None


def by_recipient(messages: Sequence[SentBy]) -> dict[int, list[tuple[int, Sent]]]:
    """Return the tool calls that reached the recipient of each of these messages of one person, each with the response
    beside which it was sent. A call that names the recipient of exactly one other message of the sample is there, any
    other one is with its own message. Recipients are compared as they read: in lower case, by their words but 'the' and
    'my', without invisible characters."""
    addressed: defaultdict[tuple[str, int, str], list[SentBy]] = defaultdict(list)
    for message in messages:
        addressed[message.level, message.sample, _words(message.recipient)].append(message)
    calls: dict[int, list[tuple[int, Sent]]] = {}
    for message in messages:
        for item in read_sent(message.channels):
            if item.kind == Channel.TOOLS:
                named = addressed.get((message.level, message.sample, _words(item.recipient or "")), [])
                if len(named) == 1 and named[0] != message:
                    calls.setdefault(named[0].response, []).append((message.response, replace(item, task=message.task)))
                else:
                    calls.setdefault(message.response, []).append((message.response, item))
    return calls


def _words(recipient: str) -> str:
    plain = unicodedata.normalize("NFKC", recipient).casefold()
    plain = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    return " ".join(word for word in re.findall(r"\w+", plain) if word not in ("the", "my"))


def read_outcome(value: object) -> Outcome:
    """Return the outcome in a decoded answer. Raises OutcomeError for any other value: what an assistant did is not
    guessed."""
    if not isinstance(value, Mapping) or not isinstance(value.get("message"), str):
        raise OutcomeError('an outcome is {"message": TEXT}, and channels if there are some')
    channels = {} if value.get("channels") is None else value["channels"]
    if not isinstance(channels, Mapping):
        raise OutcomeError("'channels' is an object: the name of a channel, and a list")
    reasoning, sent = None, []
    for name, items in channels.items():
        if name == Channel.REASONING and isinstance(items, str | None):
            reasoning = storable(items) if items else None
            continue
        if not str(name).startswith((TOOL, WRITE)) or len(name) > LONGEST_NAME or not isinstance(items, list):
            channels_are = "'reasoning' (a text), 'tool:NAME' or 'memory:NAME' (lists)"
            raise OutcomeError(f"'{shortened(name, 40)}' is none of the channels {channels_are}")
        sent += [_read_item(one_line(name), item) for item in items]
    if len(sent) > MOST_ITEMS or sum(len(item.text) for item in sent) > LONGEST:
        raise OutcomeError(f"more than {MOST_ITEMS} tool calls and memory writes, or {LONGEST:,} characters of them")
    if max(len(value["message"]), len(reasoning or "")) > LONGEST:
        raise OutcomeError(f"more than {LONGEST:,} characters of a message, or of its reasoning")
    return Outcome(storable(value["message"]), reasoning, tuple(sent))


def _read_item(channel: str, item: object) -> Sent:
    recipient, arguments = None, item
    if isinstance(item, Mapping):
        recipient, arguments = item.get("recipient"), item.get("arguments")
    if not isinstance(arguments, str | Mapping) or not isinstance(recipient, str | None):
        raise OutcomeError(f"an item of '{channel}' is a text, or an object with 'recipient' and 'arguments'")
    try:
        text = storable(_laid_out(arguments))
    except (TypeError, ValueError, RecursionError) as error:  # of another package, which may hold anything
        raise OutcomeError(f"the arguments of an item of '{channel}' are no JSON: {error}") from None
    return Sent(channel, one_line(recipient)[:LONGEST_NAME] if recipient else None, text)


def _laid_out(arguments: str | Mapping[str, Any]) -> str:
    if isinstance(arguments, str):
        return arguments
    texts = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in arguments.items()}
    return "\n".join(f"{name}: {text}" for name, text in texts.items())
