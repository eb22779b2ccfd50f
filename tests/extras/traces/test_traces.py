"""Traces as outcomes: both forms of a file, both conventions, keys, and what is missing or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from evaluating import DATASET, ROOT, add, cli_inside, outside, row_of, small_profiles
from hypothesis import given
from hypothesis import strategies as st

from cimemories.extras.traces.outcomes import TraceCounts, TracedOutcome, outcomes, read_keys
from cimemories.extras.traces.spans import read_spans
from cimemories.formats.outcomes import as_read, read_sent
from cimemories.formats.reading import FormatError
from cimemories.store.engine import Store
from cimemories.store.tables import response

EMAIL = {"to": "bank@example.org", "body": "My rent is 900."}
KEYED = {"cimemories.key": "k1"}


def text(*parts: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "parts": [{"type": "text", "content": part} for part in parts]}]


def chat(*parts: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "parts": list(parts), "finish_reason": reason}
    return {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([message])}


def says(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


CALLS = {"type": "tool_call", "id": "c1", "name": "send_email", "arguments": EMAIL}
THINKS = {"type": "reasoning", "content": "The rent is known."}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "send_email",
    "gen_ai.tool.call.id": "c1",
    "gen_ai.tool.call.arguments": json.dumps(EMAIL),
}
ASKS = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": [says("My diagnosis is flu.")]}])}
REMEMBERS = {
    "gen_ai.operation.name": "upsert_memory",
    "gen_ai.memory.records": json.dumps([{"id": "m1", "content": "Pays 900 for rent."}]),
}
# One task: the model asks for a mail, the tool sends it, the model writes, the assistant remembers.
TASK = [
    (None, KEYED),
    (0, chat(THINKS, CALLS) | ASKS),
    (0, TOOL),
    (0, chat(says("Dear bank,\nthank you."))),
    (0, REMEMBERS),
]
STATE = {"output.value": '{"state": 1}', "output.mime_type": "application/json"}
WRITES = {"role": "assistant", "content": "Dear bank,\nthank you."}
OPENINFERENCE = [
    (None, KEYED | {"openinference.span.kind": "AGENT"} | STATE),
    (
        0,
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.content": "My diagnosis is flu.",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
            "llm.output_messages.0.message.contents.0.message_content.text": "The rent is known.",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "send_email",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": json.dumps(EMAIL, indent=1),
        },
    ),
    (0, {"openinference.span.kind": "TOOL", "tool.name": "send_email", "input.value": json.dumps(EMAIL)}),
    (0, {"openinference.span.kind": "LLM", "llm.output_messages": [{"message": WRITES}]}),
]
Items = list[tuple[int | None, dict[str, Any]]]


def flat(items: Items, trace: str = "a" * 32, **more: Any) -> list[dict[str, Any]]:
    """The spans as the SDK of Python writes them; each ends after the one before, but a first one last."""
    spans = []
    for number, (parent, attributes) in enumerate(items):
        spans.append(
            {
                "name": f"span {number}",
                "context": {"trace_id": f"0x{trace}", "span_id": f"0x{number + 1:016x}"},
                "parent_id": None if parent is None else f"0x{parent + 1:016x}",
                "end_time": f"2026-01-01T00:00:{30 if parent is None else number:02d}.000000Z",
                "attributes": attributes,
                "status": {"status_code": "OK"},
                **more,
            }
        )
    return spans


def any_value(value: Any) -> dict[str, Any]:
    match value:
        case list():
            return {"arrayValue": {"values": [any_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": [{"key": k, "value": any_value(v)} for k, v in value.items()]}}
        case int():
            return {"intValue": str(value)}
        case _:
            return {"stringValue": value}


def otlp(items: Items) -> list[dict[str, Any]]:
    spans = []
    for number, (parent, attributes) in enumerate(items):
        span = {
            "traceId": "a" * 32,
            "spanId": f"{number + 1:016x}",
            "name": f"span {number}",
            "endTimeUnixNano": str(10**18 + (30 if parent is None else number)),
            "attributes": [{"key": k, "value": any_value(v)} for k, v in attributes.items()],
        }
        spans.append(span | ({} if parent is None else {"parentSpanId": f"{parent + 1:016x}"}))
    return [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}]


def nested(items: Items) -> list[dict[str, Any]]:
    """Attributes as objects within objects, structured values as they are."""

    def tree(attributes: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in attributes.items():
            *path, last = name.split(".")
            inner = made
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = json.loads(value) if name.startswith("gen_ai") and value[:1] == "[" else value
        return made

    return [{**span, "attributes": tree(span["attributes"])} for span in flat(items)]


def read(
    lines: list[Any], folder: Path, keys: dict[str, str] | None = None, counts: TraceCounts | None = None
) -> list[TracedOutcome]:
    file = folder / "spans.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return list(outcomes(read_spans(file), keys or {}, counts))


@pytest.mark.parametrize("form", [flat, otlp, nested])
def test_a_task_of_the_genai_convention(tmp_path: Path, form: Any) -> None:
    (outcome,) = read(form(TASK), tmp_path)
    assert outcome.line() == {
        "key": "k1",
        "message": "Dear bank,\nthank you.",
        "channels": {
            "memory:write": ["Pays 900 for rent."],
            "reasoning": "The rent is known.",
            "tool:send_email": [{"arguments": EMAIL}],
        },
    }
    assert "diagnosis" not in str(outcome), "what the model was given did not leave it"


@pytest.mark.parametrize("form", [flat, otlp])
def test_a_task_of_openinference(tmp_path: Path, form: Any) -> None:
    (outcome,) = read(form(OPENINFERENCE), tmp_path)
    assert outcome.message == "Dear bank,\nthank you."
    assert {
        name: [json.loads(item) for item in texts] for name, texts in outcome.channels.items() if "tool" in name
    } == {"tool:send_email": [EMAIL]}, "what the model asks for and the tool does is one call"
    assert outcome.channels["reasoning"] == ("The rent is known.",)


def test_older_conventions_and_events(tmp_path: Path) -> None:
    function = {"id": "c1", "type": "function", "function": {"name": "send_email", "arguments": json.dumps(EMAIL)}}
    choice = {
        "name": "gen_ai.choice",
        "attributes": {"index": 0, "message": json.dumps({"content": "Hi.", "tool_calls": [function]})},
    }
    details = {
        "name": "gen_ai.client.inference.operation.details",
        "attributes": {"gen_ai.output.messages": text("Hello.")},
    }
    for event, expected in ((choice, "Hi."), (details, "Hello.")):
        (outcome,) = read(flat([(None, KEYED)], events=[event]), tmp_path)
        assert outcome.message == expected
    assert read(flat([(None, KEYED)], events=[choice]), tmp_path)[0].channels == {
        "tool:send_email": (json.dumps(EMAIL),)
    }
    plain = {**KEYED, "openinference.span.kind": "CHAIN", "output.value": "Hello there."}
    assert read(flat([(None, plain)]), tmp_path)[0].message == "Hello there."
    several = {
        **KEYED,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.output.messages": text("First.") + text("Last."),
    }
    assert read(flat([(None, several)]), tmp_path)[0].message == "Last.", "of an agent the last"
    assert read(flat([(None, several | {"gen_ai.operation.name": "chat"})]), tmp_path)[0].message == "First.", (
        "a choice"
    )


def test_keys_are_those_of_spans_above_or_of_the_mapping(tmp_path: Path) -> None:
    one, other = (0, {"cimemories.key": "k1"}), (0, {"cimemories.key": "k2"})
    two = [(None, {}), one, (1, chat(says("One."))), other, (3, chat(says("Two."))), (0, TOOL)]
    counts = TraceCounts()
    made = {item.key: item.message for item in read(flat(two), tmp_path, counts=counts)}
    assert made == {"k1": "One.", "k2": "Two."} and (counts.left_out, counts.unmatched) == (2, 0)
    # A key on the model's span alone is that of the whole trace, the tool beside it too.
    beside = [(None, {}), (0, chat(says("One.")) | KEYED), (0, TOOL)]
    assert read(flat(beside), tmp_path)[0].channels == {"tool:send_email": (json.dumps(EMAIL),)}
    unkeyed = flat([(None, {}), (0, chat(says("One.")))])
    counts = TraceCounts()
    assert read(unkeyed, tmp_path, counts=counts) == [] and counts.unmatched == 1
    mapping = tmp_path / "keys.csv"
    mapping.write_text(f"id,key\n0x{'A' * 32},k7\n{'b' * 32},k8\n", "utf-8")
    counts = TraceCounts()
    assert [item.key for item in read(unkeyed, tmp_path, read_keys(mapping), counts)] == ["k7"] and counts.unused == 1
    mapping.write_text(f'{{"id": "{"a" * 32}", "key": "k1"}}\n{{"id": "{"a" * 32}", "key": "k2"}}\n', "utf-8")
    with pytest.raises(FormatError, match="line 2: .* has another key above"):
        read_keys(mapping)


def test_a_key_that_ran_again_has_its_last_message(tmp_path: Path) -> None:
    first = flat([(None, KEYED), (0, chat(says("First.")))], "a" * 32)
    again = flat([(None, KEYED), (0, chat(says("Again.")))], "b" * 32)
    failed = flat([(None, KEYED)], "c" * 32, status={"status_code": "ERROR", "description": "out of memory"})
    for span in again:
        span["end_time"] = span["end_time"].replace("2026", "2027")
    counts = TraceCounts()
    assert [item.message for item in read([*again, *first, *failed, *again], tmp_path, counts=counts)] == ["Again."]
    assert (counts.spans, counts.traces, counts.repeated) == (5, 3, 2)


ENDED = {"gen_ai.response.finish_reasons": ["max_tokens"]}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": text("Dear b")}


@pytest.mark.parametrize(
    ("items", "status", "cause"),
    [
        ([(None, KEYED), (0, {"gen_ai.operation.name": "chat"})], "OK", "were the contents of messages recorded"),
        ([(None, KEYED)], "ERROR", "the span failed"),
        ([(None, KEYED), (0, chat(says("Dear b"), reason="length"))], "OK", "cut at the token limit"),
        ([(None, KEYED), (0, chat(says("Dear b"), reason="") | ENDED)], "OK", "cut at"),
        # The agent repeats what its model says.
        ([(None, KEYED | AGENT), (0, chat(says("Dear b"), reason="length"))], "OK", "cut at"),
        ([(None, KEYED), (0, {"gen_ai.output.messages": '[{"role": "assistant", "par'})], "OK", "was it cut"),
    ],
)  # fmt: skip
def test_a_missing_message_has_its_cause(tmp_path: Path, items: Items, status: str, cause: str) -> None:
    (outcome,) = read(flat(items, status={"status_code": status}), tmp_path)
    assert outcome.message is None and cause in outcome.cause
    assert outcome.line() == {"key": "k1", "error": outcome.cause}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ([1], "line 1: a line must be an object"),
        ({"name": "x"}, "line 1: no span: trace_id or span_id is missing"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "1"}]}]}]}, "line 1: not OTLP as JSON"),
        ({"resourceSpans": 3}, "line 1: not OTLP as JSON"),
    ],
)
def test_what_is_no_span_is_named(tmp_path: Path, line: Any, error: str) -> None:
    with pytest.raises(FormatError, match=error):
        read([line], tmp_path)


def test_hostile_spans_cost_no_more_than_their_outcome(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = {"a": [deep]}
    circle = flat([(1, {}), (0, chat(says("Round."))), (0, KEYED)])
    assert [item.message for item in read(circle, tmp_path)] == ["Round."]
    odd = [(None, KEYED | {"gen_ai.output.messages": deep}), (0, chat(says("Fine."))), (0, {"gen_ai.tool.name": deep})]
    assert read(flat(odd), tmp_path)[0].key == "k1"
    file = tmp_path / "deep.jsonl"
    file.write_text('{"a":' * 5000 + "1" + "}" * 5000 + "\n", "utf-8")
    with pytest.raises(FormatError, match="nested too deeply"):
        list(read_spans(file))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *("gen_ai.output.messages", "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.arguments"),
        *("gen_ai.memory.records", "gen_ai.response.finish_reasons", "openinference.span.kind", "output.value"),
        *("llm.output_messages", "llm.output_messages.0.message.content", "cimemories.key", "message", "tool_calls"),
        *("events", "attributes", "status", "end_time", "parent_id"),
    ]
)


@given(st.dictionaries(NAMES, JSON | st.sampled_from(["chat", "execute_tool", "upsert_memory", "LLM", "TOOL"])))
def test_whatever_a_span_holds_is_an_outcome_or_an_error_that_names_it(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("spans")
    events = [values, {"name": "gen_ai.choice", "attributes": values}]
    span = {"trace_id": "1", "span_id": "2", "attributes": KEYED | values, "events": events}
    for lines in ([span], [span | values]):
        try:
            json.dumps([item.line() for item in read(lines, folder)], allow_nan=False)
        except FormatError as error:
            assert "line 1" in str(error)


def test_what_stands_twice_is_neither_dropped_nor_guessed(tmp_path: Path) -> None:
    ambiguous = '{"body": "a secret", "body": ""}'
    assert TracedOutcome("k", "Done.", {"tool:mail": [ambiguous]}).line()["channels"] == {"tool:mail": [ambiguous]}
    file = tmp_path / "spans.jsonl"
    file.write_text('{"trace_id": "1", "span_id": "2", "attributes": {"a": 1, "a": 2}}\n', "utf-8")
    with pytest.raises(FormatError, match="line 1: the key 'a' stands twice"):
        list(read_spans(file))


def test_calls_of_tools_whose_names_are_cut_alike_stay() -> None:
    channels = {"tool:" + "x" * 100 + last: [f"to {last}"] for last in "ab"}
    assert [*TracedOutcome("k", "Done.", channels).line()["channels"].values()] == [["to a", "to b"]]


def test_traces_become_messages_of_a_run(sqlite_store: Store, tmp_path: Path) -> None:
    """From the tasks of a run, by an assistant that leaves spans, to judged messages with their channels."""
    add(sqlite_store, small_profiles(1, 2))

    def done(*command: object) -> str:
        ended = cli_inside(outside(), *command, folder=tmp_path)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    place = ("--workspace", sqlite_store.workspace)
    planned = ("--assistant", "tasks", "-m", "my-agent", "--judge", "matcher", "--samples", 1)
    run_id = done("run", "-d", DATASET, *planned, *place).split()[0]
    done("batch", "export", run_id, "--out", "tasks.jsonl", *place)
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text("utf-8").splitlines()]
    spans = []
    for number, task in enumerate(tasks):
        memory, long = task["memories"][-1], {"gen_ai.tool.name": "x" * 500, "gen_ai.tool.call.id": "c2"}
        wrote = [(None, {"cimemories.key": task["key"]}), (0, chat(THINKS, CALLS)), (0, TOOL), (0, TOOL | long)]
        spans += flat([*wrote, (0, chat(says(f"Dear {task['recipient']}, {memory}")))], f"{number:032x}")
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(span) + "\n" for span in spans), "utf-8")
    done("traces", "spans.jsonl", "--out", "outcomes.jsonl")
    done("batch", "import", run_id, "outcomes.jsonl", *place)
    assert row_of(sqlite_store, run_id).responses == {"ok": len(tasks)} == {"ok": 2}
    with sqlite_store.read() as connection:
        rows = connection.execute(sa.select(response.c.text, response.c.reasoning, response.c.channels)).all()
    assert {row.text for row in rows} == {f"Dear {task['recipient']}, {task['memories'][-1]}" for task in tasks}
    for row in rows:
        assert row.reasoning == "The rent is known."
        assert "to: bank@example.org\nbody: My rent is 900." in (as_read(read_sent(row.channels), "tools") or "")


def test_the_command_and_the_example_of_the_documentation(tmp_path: Path) -> None:
    read([*flat(TASK), *flat([(None, {"cimemories.key": "k2"})], "b" * 32), *flat([(None, {})], "c" * 32)], tmp_path)
    page = (ROOT / "docs" / "onward.md").read_text("utf-8")
    example = next(line.split()[1:] for line in page.splitlines() if line.startswith("    cimemories traces "))
    done = cli_inside(outside(), *example, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "outcomes.jsonl").read_text("utf-8").splitlines()]
    assert [line["key"] for line in lines] == ["k1", "k2"] and "message" in lines[0] and "error" in lines[1]
    assert "1 outcome without a message" in done.stderr and "1 trace without a key" in done.stderr
    again = cli_inside(outside(), *example, folder=tmp_path)
    assert again.returncode == 1 and "--replace" in again.stderr
    read(flat([(None, {})]), tmp_path)
    none = cli_inside(outside(), *example, "--replace", folder=tmp_path)
    assert none.returncode == 1 and "Set the attribute cimemories.key" in none.stderr
    assert len((tmp_path / "outcomes.jsonl").read_text("utf-8").splitlines()) == 2, "the file is as it was"
