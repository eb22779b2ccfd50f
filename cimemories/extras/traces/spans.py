"""Spans of a trace, and what of them left the assistant: texts, reasoning, calls of tools, writes to a memory.

A file has JSON lines of OTLP (`resourceSpans`, as the file exporter of the Collector writes), or a span a line with
its attributes by name (the SDKs' `to_json`, Phoenix). Two conventions are read:

    OpenTelemetry GenAI, 1.36 and later   gen_ai.output.messages and gen_ai.choice, on spans or their events;
                                          gen_ai.tool.*, gen_ai.memory.records
    OpenInference                         llm.output_messages.*, and spans of the kind TOOL

github.com/open-telemetry/semantic-conventions-genai, arize-ai.github.io/openinference/spec. What a model is given
(gen_ai.input.messages) is not read: it did not leave the assistant here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cimemories.formats.reading import FormatError, rows
from cimemories.text import merged

KEY = "cimemories.key"
LONGEST_LINE = 64 << 20  # bytes: the Collector writes a batch of spans a line
AGENT_OPERATIONS = ("invoke_agent", "invoke_workflow")
MEMORY_WRITES = ("create_memory", "update_memory", "upsert_memory", "store_memory")
CUT = ("length", "max_tokens")  # finish reasons
CUT_TEXT = "cut at the token limit"
_DETAILS = ("gen_ai.choice", "gen_ai.client.inference.operation.details")  # events with what a model answered
_MESSAGE = re.compile(r"llm\.output_messages\.(\d+)\.message\.(.+)")


@dataclass(frozen=True)
class Call:
    """A call of a tool. id: '' where it is unknown; arguments: as JSON, or the text that it is."""

    id: str
    tool: str
    arguments: str

    @property
    def canonical(self) -> str:
        """Return the arguments without what JSON may write in two ways."""
        return json.dumps(_parsed(self.arguments), sort_keys=True)


@dataclass(frozen=True)
class Reply:
    """An answer of a model or an agent. problem: why its text cannot be used, '' if it can."""

    text: str = ""
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class TraceSpan:
    """One span. end: in nanoseconds, 0 if unknown; key: of the outcome that it is a part of, '' where it names none;
    reply: None for a span of no answer; error: the message of its status if it failed."""

    trace: str
    id: str
    parent: str
    end: float
    key: str
    reply: Reply | None
    calls: tuple[Call, ...]
    memory: tuple[str, ...]
    error: str


def read_spans(path: Path) -> Iterator[TraceSpan]:
    """Yield the spans of a file. Raises FormatError that names the line of what is no span."""
    for where, line in rows(path, longest=LONGEST_LINE, pairs=merged):
        if not isinstance(line, dict):
            raise FormatError(f"{where}: a line must be an object: a span, or a batch with resourceSpans")
        try:
            yield from _otlp(line, where) if "resourceSpans" in line else [_flat(line, where)]
        except RecursionError:
            raise FormatError(f"{where}: nested too deeply") from None


# ---- the two forms of a file


def _otlp(batch: Mapping[str, Any], where: str) -> Iterator[TraceSpan]:
    try:
        for resource in batch["resourceSpans"]:
            for scope in resource.get("scopeSpans", ()):
                for raw in scope.get("spans", ()):
                    events = [(str(event.get("name", "")), _values(event)) for event in raw.get("events", ())]
                    status = raw.get("status") or {}
                    failed = status.get("code") in (2, "STATUS_CODE_ERROR")
                    error = str(status.get("message") or "the span failed") if failed else ""
                    ids = raw["traceId"], raw["spanId"], raw.get("parentSpanId")
                    yield _span(ids, str(raw.get("name", "")), raw.get("endTimeUnixNano"), _values(raw), events, error)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{where}: not OTLP as JSON ({type(error).__name__}: {error})") from None


def _values(item: Mapping[str, Any]) -> dict[str, Any]:
    return {pair["key"]: _value(pair.get("value") or {}) for pair in item.get("attributes", ())}


def _value(raw: Mapping[str, Any]) -> Any:
    """Return the plain value of an AnyValue."""
    for kind, value in raw.items():
        match kind:
            case "arrayValue":
                return [_value(item) for item in value.get("values", ())]
            case "kvlistValue":
                return {pair["key"]: _value(pair.get("value") or {}) for pair in value.get("values", ())}
            case "intValue":
                return int(value)  # as text in JSON, since 64 bits do not fit into its numbers
            case _:
                return value
    return None


def _flat(raw: Mapping[str, Any], where: str) -> TraceSpan:
    context = raw.get("context")

    def first(*names: str) -> Any:
        values = (raw.get(name) or find(context, name) or find(raw, name) for name in names)
        return next((value for value in values if value), None)

    trace, id_ = first("trace_id", "traceId", "context.trace_id"), first("span_id", "spanId", "context.span_id", "id")
    if not trace or not id_:
        raise FormatError(f"{where}: no span: trace_id or span_id is missing")
    # Phoenix writes a column an attribute.
    columns = {name.removeprefix("attributes."): v for name, v in raw.items() if name.startswith("attributes.")}
    attributes = _mapping(raw.get("attributes")) | columns
    listed = raw.get("events")
    every = map(_mapping, listed if isinstance(listed, list) else ())
    events = [(str(event.get("name", "")), _mapping(event.get("attributes"))) for event in every]
    status = raw.get("status")
    code, message = (
        (status.get("status_code") or status.get("code"), status.get("description") or status.get("message"))
        if isinstance(status, dict)
        else (raw.get("status_code"), raw.get("status_message"))
    )
    error = str(message or "the span failed") if str(code).upper().endswith("ERROR") or code == 2 else ""
    ids = trace, id_, first("parent_id", "parent_span_id", "parentSpanId", "parentId")
    end = first("end_time", "end_time_unix_nano", "endTimeUnixNano", "endTime")
    return _span(ids, str(raw.get("name", "")), end, attributes, events, error)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _span(
    ids: tuple[Any, Any, Any],
    name: str,
    end: Any,
    attributes: Mapping[str, Any],
    events: Sequence[tuple[str, Mapping[str, Any]]],
    error: str,
) -> TraceSpan:
    trace, id_, parent = (str(item or "").lower().removeprefix("0x") for item in ids)
    operation = find(attributes, "gen_ai.operation.name")
    memory = _records(find(attributes, "gen_ai.memory.records")) if operation in MEMORY_WRITES else ()
    key, reply = str(find(attributes, KEY) or ""), _reply(attributes, events)
    return TraceSpan(trace, id_, parent, _nanoseconds(end), key, reply, _executed(attributes, name), memory, error)


def _nanoseconds(time: Any) -> float:
    try:
        number = float(time)
    except (TypeError, ValueError, OverflowError):
        try:
            number = datetime.fromisoformat(str(time)).timestamp() * 1e9
        except (ValueError, OverflowError):
            return 0.0
    return number if math.isfinite(number) else 0.0


def find(values: Any, name: str) -> Any:
    """Return an attribute by its dotted name, however its value is nested; None if it is missing."""
    if not isinstance(values, Mapping):
        return None
    if name in values:
        return values[name]
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        if isinstance(inner := values.get(".".join(parts[:cut])), Mapping):
            return find(inner, ".".join(parts[cut:]))
    return None


# ---- what left the assistant


def _reply(attributes: Mapping[str, Any], events: Sequence[tuple[str, Mapping[str, Any]]]) -> Reply | None:
    agent = find(attributes, "gen_ai.operation.name") in AGENT_OPERATIONS
    for of in (attributes, *(values for name, values in events if name in _DETAILS)):
        if (messages := find(of, "gen_ai.output.messages")) is not None:
            reply, reasons = _of_messages(messages, last=agent), find(of, "gen_ai.response.finish_reasons")
            return replace(reply, problem=CUT_TEXT) if _is_cut(reasons, last=agent) else reply
    for name, values in events:
        if name == "gen_ai.choice":
            message = _parsed(find(values, "message")) or values
            if isinstance(message, dict):
                return _of_choice(message, str(find(values, "finish_reason") or ""))
    return _of_openinference(attributes)


def _is_cut(reasons: Any, *, last: bool) -> bool:
    """Return whether the counted answer was cut. reasons: gen_ai.response.finish_reasons, which since 2026 takes the
    place of the reason in each message."""
    return isinstance(reasons, list) and bool(reasons) and reasons[-1 if last else 0] in CUT


def _of_messages(messages: Any, *, last: bool) -> Reply:
    """Read gen_ai.output.messages: one message a choice, of which the first counts; of an agent, the last with a
    text."""
    messages = _parsed(messages)
    if not isinstance(messages, list):
        return Reply(problem="gen_ai.output.messages is no JSON list; was it cut?")
    every = [_of_parts(item) for item in messages if isinstance(item, dict) and item.get("role", "assistant") != "tool"]
    if not every:
        return Reply()
    chosen = next((item for item in reversed(every) if item.text), every[-1]) if last else every[0]
    counted = every if last else [chosen]
    reasoning = tuple(text for item in counted for text in item.reasoning)
    return Reply(chosen.text, reasoning, tuple(call for item in counted for call in item.calls), chosen.problem)


def _of_parts(message: Mapping[str, Any]) -> Reply:
    texts, reasoning, calls = [], [], []
    listed = message.get("parts")
    for part in listed if isinstance(listed, list) else [{"type": "text", "content": message.get("content")}]:
        if not isinstance(part, dict):
            continue
        match part.get("type"):
            case "text" if isinstance(part.get("content"), str):
                texts.append(part["content"])
            case "reasoning" | "thinking":
                reasoning.append(_text(part.get("content")))
            case "tool_call" | "server_tool_call":
                arguments = part.get("arguments", part.get("server_tool_call"))
                calls.append(Call(str(part.get("id") or ""), str(part.get("name")), _text(arguments)))
    problem = CUT_TEXT if message.get("finish_reason") in CUT else ""
    return Reply("\n".join(texts), tuple(filter(None, reasoning)), tuple(calls), problem)


def _of_choice(message: Mapping[str, Any], finish_reason: str) -> Reply:
    """Read a message of OpenAI's form, in an event gen_ai.choice."""
    calls = []
    listed = _parsed(message.get("tool_calls"))
    for item in listed if isinstance(listed, list) else ():
        function = item.get("function") if isinstance(item, dict) else None
        if isinstance(function, dict):
            called = str(function.get("name")), _text(function.get("arguments"))
            calls.append(Call(str(item.get("id") or ""), *called))
    problem = CUT_TEXT if finish_reason in CUT else ""
    return Reply(_text(message.get("content")), (), tuple(calls), problem)


def _of_openinference(attributes: Mapping[str, Any]) -> Reply | None:
    kind = find(attributes, "openinference.span.kind")
    if kind is None:
        return None
    # Nested or by dotted names: flat they are one.
    leaves = dict(_leaves(attributes))
    first: dict[str, Any] = {}
    for name, value in leaves.items():
        if (match := _MESSAGE.fullmatch(name)) and match[1] == "0":
            first[match[2]] = value
    if not first:
        plain = kind in ("LLM", "AGENT", "CHAIN") and leaves.get("output.mime_type", "text/plain") == "text/plain"
        text = leaves.get("output.value") if plain else None
        return Reply(text) if isinstance(text, str) else None
    texts, reasoning, calls = [first.get("content")], list[Any](), list[Call]()
    for number in _numbers(first, "contents"):
        content = f"contents.{number}.message_content"
        kind_of = first.get(f"{content}.type")
        (reasoning if kind_of == "reasoning" else texts).append(first.get(f"{content}.text"))
    for number in _numbers(first, "tool_calls"):
        call = f"tool_calls.{number}.tool_call"
        called = str(first.get(f"{call}.function.name")), _text(first.get(f"{call}.function.arguments"))
        calls.append(Call(str(first.get(f"{call}.id") or ""), *called))
    problem = CUT_TEXT if leaves.get("llm.finish_reason") in CUT else ""
    written = "\n".join(text for text in texts if isinstance(text, str))
    return Reply(written, tuple(text for text in reasoning if isinstance(text, str)), tuple(calls), problem)


def _numbers(values: Mapping[str, Any], name: str) -> list[int]:
    matches = (re.match(rf"{name}\.(\d{{1,6}})\.", key) for key in values)
    return sorted({int(match[1]) for match in matches if match})


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def _executed(attributes: Mapping[str, Any], span_name: str) -> tuple[Call, ...]:
    """Return the call that a span executes, if it is a span of a tool."""
    tool = find(attributes, "gen_ai.tool.name")
    if tool and (
        find(attributes, "gen_ai.operation.name") == "execute_tool"
        or find(attributes, "mcp.method.name") == "tools/call"
    ):
        arguments = find(attributes, "gen_ai.tool.call.arguments")
        return (Call(str(find(attributes, "gen_ai.tool.call.id") or ""), str(tool), _text(arguments)),)
    if find(attributes, "openinference.span.kind") == "TOOL":
        name, id_ = find(attributes, "tool.name") or span_name, find(attributes, "tool_call.id")
        return (Call(str(id_ or ""), str(name), _text(find(attributes, "input.value"))),)
    return ()


def _records(records: Any) -> tuple[str, ...]:
    records = _parsed(records)
    listed = records if isinstance(records, list) else [records]
    return tuple(
        text for item in listed if (text := _text(item.get("content", item) if isinstance(item, dict) else item))
    )


def _parsed(value: Any) -> Any:
    """Return the JSON in a text; anything else, and a text that is none or ambiguous, as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, object_pairs_hook=merged)
    except (ValueError, RecursionError):
        return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
