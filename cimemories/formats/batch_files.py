"""Batch files of OpenAI's layout, which `vllm run-batch` reads and writes too: one request, or one answer, a line.

    {"custom_id": KEY, "method": "POST", "url": "/v1/chat/completions", "body": {"model": ..., "messages": ...}}
    {"custom_id": KEY, "response": {"status_code": 200, "body": {"choices": ..., "usage": ...}}, "error": null}

    {"key": KEY, "memories": [...], "recipient": ..., "task": ...}
    {"key": KEY, "message": ..., "channels": {...}}     or {"key": KEY, "error": ...}

The last two are a task for an assistant, and its outcome (outcomes.py). custom_id and key are the key that the recorded
call will have. A file of answers is checked from end to end before it is used; only the offset of each answer is kept
in memory, and the answer is read on demand."""

from __future__ import annotations

import itertools
import json
import lzma
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from cimemories.formats.reading import FormatError, Record, checked, loads, numbered_lines, opened
from cimemories.model import ChatRequest
from cimemories.store import calls
from cimemories.store.archive import request_of
from cimemories.store.calls import KEEP, TASK, Answer, Exchange
from cimemories.store.engine import Store
from cimemories.text import merged, shown

# ---- recorded calls as a file: what one workspace paid for, another can be given
#
#     {"request": {"model": "m", "messages": [...], ...}}
#     {"kind": "label", "draw": 0, "simulated": true, "endpoint": "simulator", "answer": {"status": "ok", ...}}
#
# JSON lines, compressed with xz; a request line is followed by the answers to it. Keys are computed again on reading:
# they are made of the content, and of `server`, which answered, if the line has it.


_AT_ONCE = 1000
_FIELDS = ("status", "exchange", "seconds", "started", "error", "reasoning", "finish_reason")
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "attempts")


def write_calls(store: Store, path: Path, *, simulated: bool | None = None, servers: bool = True) -> int:
    """Write every recorded answer in the order of their first request, of simulators or of real servers alone if
    `simulated` is given; return how many. servers: whether each line names who gave the answer."""
    with store.read() as connection, lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        count, last = 0, None
        for row in calls.answered(connection):
            if row["fresh"] is not None or (simulated is not None and row["simulated"] != simulated):
                continue  # an answer requested fresh for one piece of work is of no use to another
            # Answers come in the order of their requests: a request of thousands of tokens is written once.
            if row["request"] != last:
                file.write(f'{{"request": {row["body"]}}}\n')
                last = row["request"]
            answer = {name: row[name] for name in (*_FIELDS, *_TOKENS)} | {"content": row["response"]}
            # Only if there is one, so that files of answers without another model stay unchanged.
            answer |= {"served_model": row["served_model"]} if row["served_model"] is not None else {}
            line = {key: row[key] for key in ("kind", "draw", "simulated", "endpoint")}
            line |= ({"server": row["server"]} if servers and row["server"] is not None else {}) | {"answer": answer}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_calls(store: Store, path: Path, *, server: str | None = None) -> int:
    """Add the answers of such a file to the record; existing ones stay. Return how many it holds. server: who gave the
    answers whose lines do not name it, as in the demo's. Raises FormatError, and adds
    nothing, if a line is invalid."""
    number = total = 0
    request: tuple[ChatRequest, str] | None = None
    exchanges: list[Exchange] = []
    try:
        # One transaction, many statements: nothing is added if a late line is bad, and memory stays flat.
        with lzma.open(path, "rt", encoding="utf-8") as file, store.write() as connection:
            for text in itertools.chain(file, [None]):
                number += 1
                if text is not None and "request" in (line := json.loads(text)):
                    item = request_of(line["request"])
                    request = item, calls.canonical_body(item)
                elif text is not None and request is not None:
                    about = (str(line["kind"]), str(line["endpoint"]), bool(line["simulated"]))
                    who, draw = line.get("server", server), line["draw"]
                    key = calls.keys_of(request[1], [draw], simulated=about[2], server=who)[draw]
                    answer = Answer(key=key, draw=draw, **line["answer"])
                    exchanges.append(Exchange(request[0], [answer], *about, request[1], who))
                if len(exchanges) == _AT_ONCE or text is None:
                    calls.keep_servers(connection, {exchange.server for exchange in exchanges})
                    calls.record_all(connection, exchanges)
                    total, exchanges = total + len(exchanges), []
    except (ValueError, KeyError, TypeError, EOFError, lzma.LZMAError) as error:
        what = f"line {number} is not a recorded call ({error})"
        raise FormatError(f"{path.name}: {what}; export the file again") from error
    return total


# ---- batch files


URL = "/v1/chat/completions"
LONGEST_LINE = 64 << 20  # bytes
_OK = range(200, 300)


@dataclass(frozen=True)
class BatchAnswer:
    """One line of answers. body: of the response, None if there is none; failure: what went wrong, '' if nothing
    did; status_code: of HTTP, 0 if the line has none."""

    custom_id: str
    id: str
    status_code: int
    body: Any
    failure: str


@dataclass
class BatchAnswers:
    """The answers of a file by custom_id. Of several with the same one, the first success is taken."""

    name: str
    stream: BinaryIO
    offsets: dict[str, int] = field(default_factory=dict)
    repeated: int = 0

    def get(self, custom_id: str) -> BatchAnswer | None:
        """Return the answer to that request, read from the file now; None if there is none."""
        if custom_id not in self.offsets:
            return None
        self.stream.seek(self.offsets[custom_id])
        return _answer(loads(self.stream.readline(), self.name, pairs=merged), self.name)


def request_line(custom_id: str, body: Mapping[str, Any]) -> str:
    """Return one request or task, with its line break."""
    if body["messages"][0]["role"] == TASK:
        task = {name: value for name, value in json.loads(body["messages"][0]["content"]).items() if name != KEEP}
        return json.dumps({"key": custom_id, **task}) + "\n"
    line = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}
    # Keys keep their order: servers write the fields of a JSON schema in the order given.
    return json.dumps(line, separators=(",", ":")) + "\n"


@contextmanager
def batch_answers(path: Path) -> Iterator[BatchAnswers]:
    """Yield the answers of a file, which has been checked to its end. Raises FormatError that names line and field."""
    name = shown(path.name or path)
    with opened(path) as stream:
        answers = BatchAnswers(name, stream)
        good: set[str] = set()
        end = 0
        for number, line in numbered_lines(stream, name, LONGEST_LINE, "this is not a batch file"):
            offset, end = end, end + len(line)
            if not line.strip():
                continue
            where = f"{name}: line {number}"
            answer = _answer(loads(line, where, pairs=merged), where)
            # The first good answer of an id counts, else the first failure: failed requests may be sent again.
            answers.repeated += answer.custom_id in answers.offsets
            if answer.custom_id not in answers.offsets or (answer.custom_id not in good and not answer.failure):
                answers.offsets[answer.custom_id] = offset
            if not answer.failure:
                good.add(answer.custom_id)
        if not answers.offsets:
            raise FormatError(f"{name}: the file is empty; it must hold one answer a line")
        yield answers


class _Response(Record):
    status_code: int = 200
    body: Any = None


class _Line(Record):
    custom_id: Annotated[str, Field(min_length=1)]
    response: _Response | None = None
    error: Any = None
    id: Any = None


class _OutcomeLine(Record):
    """message and channels are read when the outcome is settled: one that is wrong is a missing message."""

    key: Annotated[str, Field(min_length=1)]
    message: Any = None
    channels: Any = None
    usage: Any = None
    error: Any = None


def _answer(raw: object, where: str) -> BatchAnswer:
    if isinstance(raw, dict) and "method" in raw and "response" not in raw:
        raise FormatError(f"{where}: this is a request; import the file of answers that the batch returned")
    if isinstance(raw, dict) and "key" in raw:
        if "memories" in raw:
            raise FormatError(f"{where}: this is a task; import the file of outcomes")
        outcome = checked(_OutcomeLine, raw, where)
        failure = _message(outcome.error) if outcome.error is not None else ""
        return BatchAnswer(outcome.key, "", 0 if failure else 200, None if failure else raw, failure)
    line = checked(_Line, raw, where)
    body, status = (line.response.body, line.response.status_code) if line.response else (None, 0)
    error = line.error
    if line.response is None and not error:
        error = "the batch gave neither a response nor an error"
    failure = _message(error) if error is not None else ""
    if not failure and status not in _OK:
        failure = _message(body) or f"HTTP {status}"
    return BatchAnswer(line.custom_id, str(line.id or ""), status, body, failure)


def _message(error: object) -> str:
    """Return the message of an error: a text, {"message": ...}, or the latter under "error"."""
    if isinstance(error, dict):
        inner = error.get("error", error)
        message = inner.get("message") or inner.get("code") if isinstance(inner, dict) else inner
        return shown(message or "an error without a message", 500)
    return shown(error, 500) if error else ""
