"""Recorded calls as a file: JSON lines, compressed with xz. What one workspace paid for, another can be given.

    {"request": {"model": "m", "messages": [...], ...}}
    {"kind": "label", "draw": 0, "simulated": true, "endpoint": "simulator", "answer": {"status": "ok", ...}}

A request line is followed by the answers to it. Keys are computed anew on reading: they are made of the content, and of
`server` where the line has it: who answered.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cimemories.formats.official import FormatError
from cimemories.model import ChatRequest
from cimemories.store import calls, servers
from cimemories.store.calls import Answer, Exchange
from cimemories.store.engine import Store
from cimemories.store.ids import canonical_json

_AT_ONCE = 200
_FIELDS = ("status", "exchange", "seconds", "started", "error", "reasoning", "finish_reason")
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "attempts")


def write_calls(store: Store, path: Path, kinds: Sequence[str] | None = None, *, simulated: bool | None = None) -> int:
    """Write every recorded answer (of these kinds; of simulators alone, or of real servers alone, where that is given),
    in the order in which they were first asked; returns how many."""
    with store.read() as connection, lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        count, last = 0, None
        for row in calls.answered(connection, kinds):
            if row["fresh"] is not None or (simulated is not None and row["simulated"] != simulated):
                continue  # what was drawn anew for one piece of work is of no use to another
            if row["request"] != last:
                file.write(f'{{"request": {row["body"]}}}\n')
                last = row["request"]
            answer = {name: row[name] for name in (*_FIELDS, *_TOKENS)} | {"content": row["response"]}
            line = {key: row[key] for key in ("kind", "draw", "simulated", "endpoint")}
            line |= ({"server": row["server"]} if row["server"] is not None else {}) | {"answer": answer}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_calls(store: Store, path: Path, *, server: str | None = None) -> int:
    """Add the answers of such a file to the record; those that are there stay. Returns how many it holds.

    server: who gave the answers whose lines do not say it, as those of before servers were told apart.
    Raises FormatError, and adds nothing, where a line is no such line.
    """
    count = 0
    with store.write() as connection:
        groups = _groups(path, server)
        while chunk := list(islice(groups, _AT_ONCE)):
            servers.remember(connection, {exchange.server for exchange in chunk})
            calls.restore(connection, chunk)
            count += sum(len(exchange.answers) for exchange in chunk)
    return count


def _groups(path: Path, server: str | None) -> Iterator[Exchange]:
    item: ChatRequest | None = None
    held: list[dict[str, Any]] = []
    number = 0
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for text in file:
                number += 1
                line = json.loads(text)
                if "request" in line:
                    if item is not None and held:
                        yield from _exchanges(item, held, server)
                    item, held = _request(line["request"]), []
                else:
                    held.append(line)
        if item is not None and held:
            yield from _exchanges(item, held, server)
    except (ValueError, KeyError, TypeError, EOFError, lzma.LZMAError) as error:
        raise FormatError(
            f"{path.name}: line {number} is no recorded call ({error}). Export the file again."
        ) from error


def _request(body: dict[str, Any]) -> ChatRequest:
    parameters = {name: value for name, value in body.items() if name not in ("model", "messages", "seed")}
    messages = tuple((m["role"], m["content"]) for m in body["messages"])
    return ChatRequest(body["model"], messages, parameters, body.get("seed"))


def _exchanges(item: ChatRequest, held: list[dict[str, Any]], server: str | None) -> Iterator[Exchange]:
    """The answers to one request, those of each server by themselves."""
    body = canonical_json(calls.request_body(item))
    for of in dict.fromkeys((line.get("server", server), bool(line["simulated"])) for line in held):
        lines = [line for line in held if (line.get("server", server), bool(line["simulated"])) == of]
        answering, simulated = of
        keys = calls.keys_of(body, [line["draw"] for line in lines], simulated=simulated, server=answering)
        answers = [Answer(key=keys[line["draw"]], draw=line["draw"], **line["answer"]) for line in lines]
        kind, endpoint = str(lines[0]["kind"]), str(lines[0]["endpoint"])
        yield Exchange(item, answers, kind, endpoint, simulated, body, answering)
