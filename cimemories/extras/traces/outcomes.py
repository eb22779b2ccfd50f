"""Traces as outcomes of tasks: what the assistant wrote for a key, and what left it on other channels.

    next(outcomes(read_spans(path), {})).line()
    {"key": "...", "message": "Dear ...", "channels": {"tool:send_email": [{"arguments": {...}}]}}

A span belongs to the key that it names (`cimemories.key`), else to that of the nearest span above it, else to the only
key of its trace."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cimemories.extras.traces.spans import Call, TraceSpan
from cimemories.formats.outcomes import LONGEST_NAME
from cimemories.formats.reading import FormatError, Record, checked, rows
from cimemories.text import merged

REASONING, MEMORY = "reasoning", "memory:write"


@dataclass(frozen=True)
class TracedOutcome:
    """The outcome of one key. message: None where there is none, which `cause` explains. channels: texts by the name
    of the channel: 'tool:NAME' (the arguments of each call), 'memory:write', 'reasoning'."""

    key: str
    message: str | None
    channels: Mapping[str, Sequence[str]]
    cause: str = ""

    def line(self) -> dict[str, Any]:
        """Return the line of a file of outcomes, in the form of formats/outcomes.py."""
        if self.message is None:
            return {"key": self.key, "error": self.cause}
        channels: dict[str, Any] = {}
        for name, texts in self.channels.items():
            if name == REASONING:
                channels[name] = "\n\n".join(texts)
            else:
                # The importer refuses longer names, and with them the whole outcome. Two may be cut alike.
                channels.setdefault(name[:LONGEST_NAME], []).extend(map(_item, texts))
        return {"key": self.key, "message": self.message, "channels": channels}


def _item(text: str) -> Any:
    """Return the arguments of a call by name, or the text that they or a write to a memory are: also of arguments in
    which a name stands twice."""
    try:
        arguments = json.loads(text, object_pairs_hook=merged)
    except (ValueError, RecursionError):
        return text
    return {"arguments": arguments} if isinstance(arguments, dict) else text


@dataclass
class TraceCounts:
    """Counts of a file. unmatched: traces without any key; left_out: spans of other traces that belong to no key;
    repeated: traces of a key that another one replaces; unused: keys of the mapping that no span has."""

    spans: int = 0
    traces: int = 0
    unmatched: int = 0
    left_out: int = 0
    repeated: int = 0
    unused: int = 0


class _Pair(Record):
    """A line of a mapping. id: of a trace or a span."""

    id: Annotated[str, Field(min_length=1)]
    key: Annotated[str, Field(min_length=1)]


def read_keys(path: Path) -> dict[str, str]:
    """Return the keys of a mapping file, JSON lines or CSV with id (of a trace or a span) and key, by id. Raises
    FormatError, also for an id with two keys."""
    keys: dict[str, str] = {}
    for where, raw in rows(path):
        pair = checked(_Pair, raw, where)
        id_ = pair.id.lower().removeprefix("0x")
        if keys.setdefault(id_, pair.key) != pair.key:
            raise FormatError(f"{where}: {pair.id} has another key above; leave one")
    return keys


def outcomes(
    spans: Iterable[TraceSpan], keys: Mapping[str, str], counts: TraceCounts | None = None
) -> Iterator[TracedOutcome]:
    """Yield the outcome of each key, in the order in which the keys are met. keys: by id of a trace or a span; they go
    before those that spans name. A key of several traces has the outcome of the one that ended last, of those with a
    message if there are any."""
    counts = TraceCounts() if counts is None else counts
    traces: dict[str, dict[str, TraceSpan]] = defaultdict(dict)
    for span in spans:
        counts.spans += span.id not in traces[span.trace]  # what is exported twice is one span
        traces[span.trace][span.id] = span
    counts.traces = len(traces)
    by_key: dict[str, list[list[TraceSpan]]] = defaultdict(list)
    for trace in traces.values():
        groups: dict[str, list[TraceSpan]] = defaultdict(list)
        for span, key in _keyed(trace, keys):
            groups[key].append(span)
        without = groups.pop("", [])
        counts.unmatched += not groups
        counts.left_out += len(without) if groups else 0
        for key, group in groups.items():
            by_key[key].append(group)
    counts.unused = len(set(keys.values()) - by_key.keys())
    for key, attempts in by_key.items():
        counts.repeated += len(attempts) - 1
        made = [(_outcome(key, group), max(span.end for span in group)) for group in attempts]
        # Sorting is stable: of equals the last of the file.
        yield max(reversed(made), key=lambda item: (item[0].message is not None, item[1]))[0]


def _keyed(trace: Mapping[str, TraceSpan], keys: Mapping[str, str]) -> Iterator[tuple[TraceSpan, str]]:
    """Yield the spans of a trace with their keys, '' for none."""
    named = {id_: keys.get(id_) or span.key for id_, span in trace.items()}
    every = {key for key in named.values() if key}
    of_trace = keys.get(next(iter(trace.values())).trace) or (next(iter(every)) if len(every) == 1 else "")
    key_of: dict[str, str] = {}
    for id_ in trace:
        path: list[str] = []
        # Upwards until a key or an end; a circle of parents is an end, too.
        while id_ in trace and id_ not in key_of and id_ not in path:
            path.append(id_)
            if named[id_]:
                key_of[id_] = named[id_]
                break
            id_ = trace[id_].parent
        key_of |= dict.fromkeys(path, key_of.get(id_) or of_trace)
    return ((span, key_of[id_]) for id_, span in trace.items())


def _outcome(key: str, group: Sequence[TraceSpan]) -> TracedOutcome:
    """Return what the spans of a key say: the message is the text of the answer that ended last."""
    ordered = sorted(group, key=lambda span: span.end)
    calls, channels = dict[object, Call](), defaultdict[str, list[str]](list)
    for span in ordered:
        for call in (*(span.reply.calls if span.reply else ()), *span.calls):
            # What a model asks for and a tool does is one call.
            calls.setdefault(call.id or (call.tool, call.canonical), call)
        channels[MEMORY] += span.memory
        channels[REASONING] += span.reply.reasoning if span.reply else ()
    for call in calls.values():
        channels[f"tool:{call.tool}"].append(call.arguments)
    sent = {name: tuple(dict.fromkeys(texts)) for name, texts in channels.items() if texts}
    answers = [span.reply for span in ordered if span.reply and (span.reply.text.strip() or span.reply.problem)]
    # An agent repeats the text of its model, which alone says that it was cut.
    problems = [reply.problem for reply in answers if reply.problem and reply.text == answers[-1].text]
    if answers and not problems:
        return TracedOutcome(key, answers[-1].text, sent)
    failed = [span.error for span in ordered if span.error]
    none = "no span has a text; were the contents of messages recorded?"
    return TracedOutcome(key, None, sent, problems[-1] if problems else failed[-1] if failed else none)
