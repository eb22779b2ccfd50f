"""Writing a dataset from the rows that `store.contents` gives out: the numbers in them become ids of this workspace.

Rows are taken as checked. All of it belongs into one transaction of the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import sqlalchemy as sa

from cimemories.model import ChatRequest, Persona, is_bio
from cimemories.store import calls, datasets, labellings, servers
from cimemories.store.calls import Answer, Exchange
from cimemories.store.contents import DECIDED, LETTERS, NO_VOTE
from cimemories.store.curation_tables import edit, generation, imported_vote, rule
from cimemories.store.datasets import DatasetRow
from cimemories.store.ids import canonical_json, content_hash, new_id
from cimemories.store.tables import (
    attribute,
    ballot,
    call,
    context,
    dataset,
    decision,
    labelling,
    profile,
    profile_context,
    vote,
)

CHUNK = 5000
VERDICTS = {letter: verdict for verdict, letter in LETTERS.items()}
Source = Callable[[str], Iterable[dict[str, Any]]]
_ANSWER = (
    *("exchange", "status", "error", "reasoning", "finish_reason", "seconds", "started", "attempts", "draw"),
    *("prompt_tokens", "cached_tokens", "completion_tokens"),
)


def request_of(body: Mapping[str, Any]) -> ChatRequest:
    """The request that was sent with this body. Raises KeyError, TypeError or ValueError where it is none."""
    parameters = {name: value for name, value in body.items() if name not in ("model", "messages", "seed")}
    messages = tuple((message["role"], message["content"]) for message in body["messages"])
    if not isinstance(body["model"], str) or not isinstance(body.get("seed"), int | None):
        raise TypeError("model must be text and seed a whole number")
    return ChatRequest(body["model"], messages, parameters, body.get("seed"))


def with_content(connection: sa.Connection, content: str, edits: int) -> DatasetRow | None:
    """The dataset that a bundle of this content was written as, if any, and that was not edited since: its history has
    as many edits as the bundle brought."""
    for row in datasets.all_rows(connection):
        if row.source_hash == content and row.version == 1:
            counted = sa.select(sa.func.count()).select_from(edit).where(edit.c.dataset == row.id)
            if connection.execute(counted).scalar_one() == edits:
                return row
    return None


def restore(
    connection: sa.Connection, name: str, rows: Source, *, origin: str, source_name: str, source_hash: str
) -> tuple[int, int]:
    """Write a dataset with all that belongs to it; returns its id, and how many ballots name a call that is not here.

    `rows` gives the rows of a table, and is asked for each once. Raises StoreError where the name is taken.
    """
    dataset_id = datasets.add(connection, name, (), origin=origin, source_name=source_name, source_hash=source_hash)
    contexts = _contexts(connection, dataset_id, rows("contexts"))
    profiles = _profiles(connection, dataset_id, rows("profiles"))
    attributes = _attributes(connection, profiles, rows("attributes"))
    _write(
        connection,
        profile_context,
        (
            {"profile": profiles[row["profile"]], "context": contexts[row["context"]], "ordinal": row["ordinal"]}
            for row in rows("profile_contexts")
        ),
    )
    personas = [_persona(connection, row) for row in rows("personas")]
    for row in rows("generations"):
        values = {**row, "manifest": canonical_json(row["manifest"]), "dataset": dataset_id}
        connection.execute(sa.insert(generation).values(id=new_id("generation"), **values))
    _calls(connection, rows("requests"), rows("calls"))
    made = [_labelling(connection, dataset_id, source_hash, personas, row) for row in rows("labellings")]
    lost = _ballots(connection, made, profiles, contexts, personas, attributes, rows("ballots"))
    _write(
        connection,
        imported_vote,
        (
            {
                **{name: row[name] for name in ("necessary", "inappropriate", "abstain")},
                "labelling": made[row["labelling"]],
                "attribute": attributes[row["profile"]][row["attribute"]],
                "context": contexts[row["context"]],
                "persona": personas[row["persona"]],
            }
            for row in rows("shares")
        ),
    )
    _decisions(connection, dataset_id, attributes, contexts, rows("decisions"))
    _write(
        connection,
        rule,
        ({**row, "priors": canonical_json(row["priors"]), "dataset": dataset_id} for row in rows("rules")),
    )
    _write(connection, edit, ({**row, "dataset": dataset_id} for row in rows("edits")))
    return dataset_id, lost


def _write(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    waiting = iter(rows)
    while chunk := list(islice(waiting, CHUNK)):
        connection.execute(sa.insert(table), chunk)


def _contexts(connection: sa.Connection, dataset_id: int, rows: Iterable[dict[str, Any]]) -> list[int]:
    values = (
        {"dataset": dataset_id, **{name: row[name] for name in ("ordinal", "task", "recipient", "sphere")}}
        for row in rows
    )
    _write(connection, context, values)
    found = sa.select(context.c.id).where(context.c.dataset == dataset_id).order_by(context.c.ordinal, context.c.id)
    return list(connection.execute(found).scalars())


def _profiles(connection: sa.Connection, dataset_id: int, rows: Iterable[dict[str, Any]]) -> list[int]:
    values = (
        {"dataset": dataset_id, **{name: row[name] for name in ("ordinal", "name", "sex", "address", "age")}}
        for row in rows
    )
    _write(connection, profile, values)
    return datasets.profile_ids(connection, dataset_id)


def _attributes(connection: sa.Connection, profiles: Sequence[int], rows: Iterable[dict[str, Any]]) -> list[list[int]]:
    values = (
        {
            "profile": profiles[row["profile"]],
            "value": json.dumps(row["value"], ensure_ascii=False),
            "bio": is_bio(row["key"], row["domain"]),
            **{name: row[name] for name in ("ordinal", "key", "domain", "event", "statement")},
        }
        for row in rows
    )
    _write(connection, attribute, values)
    return [
        list(
            connection.execute(
                sa.select(attribute.c.id).where(attribute.c.profile == profile_id).order_by(attribute.c.ordinal)
            ).scalars()
        )
        for profile_id in profiles
    ]


def _persona(connection: sa.Connection, row: Mapping[str, Any]) -> int:
    item = Persona(row["key"], row["name"], float(row["prior"]), row["description"])
    (persona_id,) = labellings.persona_ids(connection, row["pack"], [item])
    return persona_id


def _calls(connection: sa.Connection, requests: Iterable[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> None:
    """Both in the order of the requests. Calls that are here already stay as they are: the key is made of what was
    asked."""

    def alike(row: Mapping[str, Any]) -> tuple[object, ...]:
        return row["request"], row["kind"], row["endpoint"], row["simulated"], row["server"]

    waiting = iter(requests)
    asked = next(waiting, None)
    for (number, kind, endpoint, simulated, server), group in groupby(rows, key=alike):
        while asked is not None and asked["number"] != number:
            asked = next(waiting, None)
        if asked is None:
            break
        answers = [
            Answer(key=row["key"], content=row["response"], **{name: row[name] for name in _ANSWER}) for row in group
        ]
        item = request_of(asked["body"])
        answering = None if server is None else str(server)
        servers.remember(connection, [answering])
        exchange = Exchange(item, answers, str(kind), str(endpoint), bool(simulated), server=answering)
        calls.record_all(connection, [exchange])
    for _ in waiting:
        pass  # to the end of the file, whose hash is checked there


def _labelling(
    connection: sa.Connection, dataset_id: int, source_hash: str, personas: Sequence[int], row: Mapping[str, Any]
) -> str:
    """The id is a new one: nothing that was computed under an old id may be taken for this labelling's."""
    labelling_id = new_id("labelling")
    own = {"personas": [personas[number] for number in row["personas"]], "api_key_env": ""}
    plain = ("model", "endpoint", "simulated", "pack", "draws", "status", "error", "created", "finished")
    connection.execute(
        sa.insert(labelling).values(
            id=labelling_id,
            identity=content_hash(["restored", dataset_id, source_hash, row["number"]]),
            dataset=dataset_id,
            manifest=canonical_json({**row["manifest"], **own}),
            revision=1,
            **{name: row[name] for name in plain},
        )
    )
    return labelling_id


def _ballots(
    connection: sa.Connection,
    made: Sequence[str],
    profiles: Sequence[int],
    contexts: Sequence[int],
    personas: Sequence[int],
    attributes: Sequence[Sequence[int]],
    rows: Iterable[dict[str, Any]],
) -> int:
    """One labelling's ballots on one profile at a time; returns how many calls are not in the record."""
    lost = 0
    for (number, person), group in groupby(rows, key=lambda row: (row["labelling"], row["profile"])):
        here = list(group)
        keys = {row["call"] for row in here if row["call"] is not None}
        known = _known(connection, sorted(keys))
        lost += len(keys - known)
        plain = ("draw", "status", "cause", "conflicts", "unknown")
        values = [
            {
                "labelling": made[number],
                "profile": profiles[person],
                "context": contexts[row["context"]],
                "persona": personas[row["persona"]],
                "call": row["call"] if row["call"] in known else None,
                **{name: row[name] for name in plain},
            }
            for row in here
        ]
        _write(connection, ballot, values)
        ids = {
            (b.context, b.persona, b.draw): b.id
            for b in connection.execute(
                sa.select(ballot.c.id, ballot.c.context, ballot.c.persona, ballot.c.draw).where(
                    ballot.c.labelling == made[number], ballot.c.profile == profiles[person]
                )
            )
        }
        numbered = [ids[v["context"], v["persona"], v["draw"]] for v in values]
        _write(connection, vote, _votes(numbered, [row["verdicts"] for row in here], attributes[person]))
    return lost


def _votes(
    ids: Sequence[int], verdicts: Sequence[str | None], attributes: Sequence[int]
) -> Iterator[dict[str, object]]:
    for ballot_id, letters in zip(ids, verdicts, strict=True):
        for attribute_id, letter in zip(attributes, letters or "", strict=False):
            if letter != NO_VOTE:
                yield {"ballot": ballot_id, "attribute": attribute_id, "verdict": VERDICTS[letter]}


def _known(connection: sa.Connection, keys: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(keys), 500):
        found |= set(
            connection.execute(sa.select(call.c.key).where(call.c.key.in_(keys[start : start + 500]))).scalars()
        )
    return found


def _decisions(
    connection: sa.Connection,
    dataset_id: int,
    attributes: Sequence[Sequence[int]],
    contexts: Sequence[int],
    rows: Iterable[dict[str, Any]],
) -> None:
    ids: list[int] = []
    ahead: list[tuple[int, int]] = []
    for row in rows:
        superseded: int | None = row["supersedes"]
        if superseded is not None and superseded >= len(ids):
            ahead.append((len(ids), superseded))
            superseded = None
        values = {
            "dataset": dataset_id,
            "attribute": attributes[row["profile"]][row["attribute"]],
            "context": contexts[row["context"]],
            "supersedes": None if superseded is None else ids[superseded],
            **{name: row[name] for name in DECIDED},
        }
        ids.append(connection.execute(sa.insert(decision).values(**values).returning(decision.c.id)).scalar_one())
    for number, superseded in ahead:
        statement = sa.update(decision).where(decision.c.id == ids[number])
        connection.execute(statement.values(supersedes=ids[superseded]))
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=len(ids)))
