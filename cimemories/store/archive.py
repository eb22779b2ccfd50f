"""A dataset with its labels, decisions and runs, as rows without the ids of this workspace, and back again
(formats/tables.py)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from cimemories.model import ChatRequest, Persona, WorkStatus, is_bio
from cimemories.store import calls, datasets, decisions, generations, judgements, labellings, versions, work
from cimemories.store.calls import Answer, Exchange
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import (
    canonical_json,
    content_hash,
    in_chunks,
    insert_ignore,
    new_id,
    rows_in_chunks,
    values_of,
)
from cimemories.store.tables import (
    attribute,
    ballot,
    call,
    context,
    dataset,
    decision,
    edit,
    generation,
    imported_vote,
    judge,
    judgement,
    labelling,
    persona,
    profile,
    profile_context,
    prompt,
    response,
    reveal,
    rule,
    run,
    run_call,
    run_judge,
    vote,
)

# ---- contents
#
# Rows name each other by their number, from 0, in the order in which they are given out. Work in progress is given out
# as interrupted, since nobody goes on with it elsewhere; the name of the variable with an endpoint's key stays here.


LETTERS = {"necessary": "N", "inappropriate": "X", "abstain": "?", "conflict": "C"}
NO_VOTE = "-"
# Of a decision, apart from the pair and what it supersedes.
DECIDED = (
    *("annotator", "label", "reason", "seconds", "source", "batch", "blind", "created"),
    *("uid", "guideline", "cause"),
)
PRIVATE = ("api_key_env",)  # of a manifest: says where a secret is kept on this machine
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_EDIT = ("profile", "kind", "action", "before", "after", "annotator", "reason", "created")
_RUN = (
    *("name", "dataset_hash", "model", "simulated", "samples", "seed", "prompt_level", "prompt_hash", "composition"),
    *("error", "created", "finished"),
)
_MESSAGE = ("level", "sample", "status", "cause", "text", "reasoning", "finish_reason", "call", "before")
_JUDGE = ("kind", "model", "simulated", "prompt_hash", "channel")
_PROMPT = ("hash", "kind", "level", "template", "answers", "source", "created")
_REVEAL = ("quote", "start", "end", "grounded", "strength")
_HASH = re.compile(r"[0-9a-f]{64}")
Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Numbers:
    """Numbers of a dataset's rows by their ids. attributes [profile number]: ids in their order; places: the number of
    an attribute in its profile; recalls: by hash."""

    profiles: dict[int, int]
    attributes: list[list[int]]
    places: dict[int, int]
    contexts: dict[int, int]
    personas: dict[int, int]
    labellings: dict[str, int]
    runs: dict[str, int]
    judges: dict[int, int]
    messages: dict[int, int]
    recalls: dict[str, int]


def content_tables(
    connection: sa.Connection, dataset_id: int, *, with_calls: bool = True
) -> dict[str, Callable[[], Rows]]:
    """The rows of each table of a dataset, read in the connection's transaction; each can be asked for once or again.
    That is one snapshot on SQLite, and on PostgreSQL where the transaction is REPEATABLE READ."""
    numbers = _numbers(connection, dataset_id)
    keys = _call_keys(connection, numbers) if with_calls else []
    # dict.fromkeys keeps each request once, in the order of the calls: a reader goes through both files side by side.
    bodies = {digest: number for number, digest in enumerate(dict.fromkeys(row[1] for row in keys))}
    return {
        "profiles": lambda: _profiles(connection, dataset_id),
        "attributes": lambda: _attributes(connection, dataset_id, numbers),
        "contexts": lambda: _contexts(connection, dataset_id),
        "profile_contexts": lambda: _profile_contexts(connection, dataset_id, numbers),
        "personas": lambda: _personas(connection, numbers),
        "generations": lambda: _generations(connection, dataset_id),
        "labellings": lambda: _labellings(connection, numbers),
        "requests": lambda: _requests(connection, bodies),
        "calls": lambda: _calls(connection, keys, bodies),
        "ballots": lambda: _ballots(connection, numbers),
        "shares": lambda: _shares(connection, numbers),
        "decisions": lambda: _decisions(connection, dataset_id, numbers),
        "rules": lambda: _rules(connection, dataset_id),
        "edits": lambda: _edits(connection, dataset_id),
        "prompts": lambda: _prompts(connection, numbers),
        "runs": lambda: _runs(connection, numbers),
        "run_calls": lambda: _run_calls(connection, numbers, {key for key, _ in keys}),
        "recalls": lambda: _recalls(connection, numbers),
        "messages": lambda: _messages(connection, numbers),
        "judges": lambda: _judges(connection, numbers),
        "run_judges": lambda: _run_judges(connection, numbers),
        "judgements": lambda: _judgements(connection, numbers),
        "reveals": lambda: _reveals(connection, numbers),
    }


def shown_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without what is of this workspace: ids of personas, and where its secrets are kept."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shown(item) for name, item in value.items() if name not in PRIVATE}
        if isinstance(value, list):
            return [shown(item) for item in value]
        # A password may stand in an address, and what is exported is handed to others.
        return shown_address(value) if isinstance(value, str) else value

    return {name: shown(value) for name, value in manifest.items() if name not in (*PRIVATE, "personas")}


def shown_address(endpoint: str) -> str:
    """An endpoint without the name and password that may stand in it."""
    return _CREDENTIALS.sub("", endpoint)


def _numbers(connection: sa.Connection, dataset_id: int) -> Numbers:
    people = connection.execute(
        sa.select(profile.c.id).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    )
    profiles = {id_: number for number, id_ in enumerate(people.scalars())}
    attributes: list[list[int]] = [[] for _ in profiles]
    for row in connection.execute(
        sa.select(attribute.c.id, attribute.c.profile)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal, attribute.c.ordinal)
    ):
        attributes[profiles[row.profile]].append(row.id)
    contexts = connection.execute(
        sa.select(context.c.id).where(context.c.dataset == dataset_id).order_by(context.c.ordinal, context.c.id)
    ).scalars()
    labelling_rows = connection.execute(sa.select(labelling).where(labelling.c.dataset == dataset_id)).mappings().all()
    manifests = {row["id"]: json.loads(row["manifest"]) for row in labelling_rows}
    # Ids are drawn at random, so labellings of the same moment are told apart by what they are.
    ordered = sorted(
        labelling_rows,
        key=lambda r: (r["created"], r["model"], r["endpoint"], canonical_json(shown_manifest(manifests[r["id"]]))),
    )
    personas = dict.fromkeys(p for row in ordered for p in manifests[row["id"]]["personas"])
    # A run that explains a leak names responses and attributes by their ids in its manifest, and stays here.
    mine = sa.select(run).where(run.c.dataset == dataset_id, run.c.explains.is_(None))
    run_rows = sorted(connection.execute(mine).mappings(), key=lambda r: (r["created"], r["name"], r["manifest"]))
    judges: dict[int, None] = {}
    messages: list[int] = []
    recalls: dict[str, None] = {}
    for ran in run_rows:
        judged = sa.select(run_judge.c.judge).where(run_judge.c.run == ran["id"]).order_by(run_judge.c.ordinal)
        judges |= dict.fromkeys(connection.execute(judged).scalars())
        sent = (
            sa.select(response.c.id, response.c.recall)
            .join(profile, response.c.profile == profile.c.id)
            .where(response.c.run == ran["id"])
            .order_by(profile.c.ordinal, response.c.id)
        )
        for item in connection.execute(sent):
            messages.append(item.id)
            if item.recall is not None:
                recalls[item.recall] = None
    return Numbers(
        profiles=profiles,
        attributes=attributes,
        places={id_: number for ids in attributes for number, id_ in enumerate(ids)},
        contexts={id_: number for number, id_ in enumerate(contexts)},
        personas={id_: number for number, id_ in enumerate(personas)},
        labellings={row["id"]: number for number, row in enumerate(ordered)},
        runs={row["id"]: number for number, row in enumerate(run_rows)},
        judges={id_: number for number, id_ in enumerate(judges)},
        messages={id_: number for number, id_ in enumerate(messages)},
        recalls={digest: number for number, digest in enumerate(recalls)},
    )


def _profiles(connection: sa.Connection, dataset_id: int) -> Rows:
    query = sa.select(profile.c.ordinal, profile.c.name, profile.c.sex, profile.c.address, profile.c.age)
    rows = connection.execute(query.where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)).mappings()
    for number, row in enumerate(rows):
        yield {"number": number, **row}


def _attributes(connection: sa.Connection, dataset_id: int, numbers: Numbers) -> Rows:
    rows = connection.execute(
        sa.select(attribute, sa.type_coerce(attribute.c.event, sa.Text).label("spelling"))
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal, attribute.c.ordinal)
    ).mappings()
    before, number = None, 0
    for row in rows:
        number = number + 1 if row["profile"] == before else 0
        before = row["profile"]
        yield {
            "profile": numbers.profiles[row["profile"]],
            "number": number,
            "value": json.loads(row["value"]),
            "event": row["spelling"],
            **{name: row[name] for name in ("ordinal", "key", "domain", "statement")},
        }


def _contexts(connection: sa.Connection, dataset_id: int) -> Rows:
    query = sa.select(context.c.ordinal, context.c.task, context.c.recipient, context.c.sphere)
    rows = connection.execute(
        query.where(context.c.dataset == dataset_id).order_by(context.c.ordinal, context.c.id)
    ).mappings()
    for number, row in enumerate(rows):
        yield {"number": number, **row}


def _profile_contexts(connection: sa.Connection, dataset_id: int, numbers: Numbers) -> Rows:
    rows = connection.execute(
        sa.select(profile_context)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal, profile_context.c.ordinal, profile_context.c.context)
    )
    for row in rows:
        yield {
            "profile": numbers.profiles[row.profile],
            "context": numbers.contexts[row.context],
            "ordinal": row.ordinal,
        }


def _personas(connection: sa.Connection, numbers: Numbers) -> Rows:
    rows = connection.execute(sa.select(persona).where(persona.c.id.in_(numbers.personas))).mappings()
    by_id = {row["id"]: row for row in rows}
    for id_, number in numbers.personas.items():
        yield {"number": number, **{name: by_id[id_][name] for name in ("pack", "key", "name", "prior", "description")}}


def _settled(status: str) -> str:
    return str(WorkStatus.INTERRUPTED) if status in work.ACTIVE else status


def _generations(connection: sa.Connection, dataset_id: int) -> Rows:
    """The one that wrote the dataset or its first version, where a model did."""
    row = generations.of_dataset(connection, dataset_id)
    if row is not None:
        yield {
            **{name: getattr(row, name) for name in ("name", "model", "simulated", "error", "created", "finished")},
            "endpoint": shown_address(row.endpoint),
            "manifest": shown_manifest(row.manifest),
            "status": _settled(row.status),
        }


def _labellings(connection: sa.Connection, numbers: Numbers) -> Rows:
    rows = connection.execute(sa.select(labelling).where(labelling.c.id.in_(numbers.labellings))).mappings()
    by_id = {row["id"]: row for row in rows}
    plain = ("model", "simulated", "pack", "draws", "error", "created", "finished")
    for id_, number in numbers.labellings.items():
        row, manifest = by_id[id_], json.loads(by_id[id_]["manifest"])
        yield {
            "number": number,
            **{name: row[name] for name in plain},
            "endpoint": shown_address(row["endpoint"]),
            "personas": [numbers.personas[p] for p in manifest["personas"]],
            "manifest": shown_manifest(manifest),
            "status": _settled(row["status"]),
        }


def _call_keys(connection: sa.Connection, numbers: Numbers) -> list[tuple[str, str]]:
    """Return (key, hash of the request) of every call behind a ballot, a message or a judgement, draws of a request
    together; both are hexadecimal."""
    used = sa.union(
        sa.select(ballot.c.call).where(ballot.c.labelling.in_(numbers.labellings)),
        sa.select(response.c.call).where(response.c.run.in_(numbers.runs)),
        sa.select(response.c.before).where(response.c.run.in_(numbers.runs)),
        sa.select(judgement.c.call).join(response).where(response.c.run.in_(numbers.runs)),
        sa.select(run_call.c.call).where(run_call.c.run.in_(numbers.runs)),
    )
    query = (
        sa.select(call.c.key, call.c.request, call.c.draw)
        .where(call.c.key.in_(used))
        .order_by(call.c.request, call.c.draw, call.c.key)
    )
    return [(row.key, row.request) for row in connection.execute(query)]


def _requests(connection: sa.Connection, numbers: Mapping[str, int]) -> Rows:
    for chunk in in_chunks(numbers.items(), calls.BODIES_AT_ONCE):
        sent = calls.bodies(connection, (digest for digest, _ in chunk))
        yield from ({"number": number, "body": json.loads(sent[digest])} for digest, number in chunk)


def _calls(connection: sa.Connection, keys: list[tuple[str, str]], bodies: Mapping[str, int]) -> Rows:
    # Texts of calls are long: a few hundred at a time take little memory.
    for chunk in in_chunks(keys, 500):
        rows = connection.execute(sa.select(call).where(call.c.key.in_([key for key, _ in chunk]))).mappings()
        by_key = {row["key"]: row for row in rows}
        for key, digest in chunk:
            row = dict(by_key[key])
            yield {**row, "request": bodies[digest], "endpoint": shown_address(row["endpoint"])}


def _ballots(connection: sa.Connection, numbers: Numbers) -> Rows:
    for labelling_id, number in numbers.labellings.items():
        for profile_id, profile_number in numbers.profiles.items():
            # Profile by profile: a labelling may have millions of votes.
            here = (ballot.c.labelling == labelling_id, ballot.c.profile == profile_id)
            rows = connection.execute(sa.select(ballot).where(*here)).mappings().all()
            if not rows:
                continue
            verdicts = _verdicts(connection, here, numbers.attributes[profile_number])
            for row in sorted(
                rows, key=lambda r: (numbers.contexts[r["context"]], numbers.personas[r["persona"]], r["draw"])
            ):
                letters = verdicts.get(row["id"])
                yield {
                    "labelling": number,
                    "profile": profile_number,
                    "context": numbers.contexts[row["context"]],
                    "persona": numbers.personas[row["persona"]],
                    **{name: row[name] for name in ("draw", "status", "cause", "conflicts", "unknown", "call")},
                    "verdicts": None if letters is None else "".join(letters),
                }


def _verdicts(
    connection: sa.Connection, here: tuple[sa.ColumnElement[bool], ...], attributes: list[int]
) -> dict[int, list[str]]:
    position = {id_: number for number, id_ in enumerate(attributes)}
    by_ballot: dict[int, list[str]] = {}
    votes = sa.select(vote.c.ballot, vote.c.attribute, vote.c.verdict).join(ballot, vote.c.ballot == ballot.c.id)
    for ballot_id, attribute_id, verdict in connection.execute(votes.where(*here)):
        letters = by_ballot.get(ballot_id)
        if letters is None:
            letters = by_ballot[ballot_id] = [NO_VOTE] * len(attributes)
        letters[position[attribute_id]] = LETTERS[verdict]
    return by_ballot


def _shares(connection: sa.Connection, numbers: Numbers) -> Rows:
    for labelling_id, number in numbers.labellings.items():
        for profile_id, profile_number in numbers.profiles.items():
            attributes = numbers.attributes[profile_number]
            position = {id_: at for at, id_ in enumerate(attributes)}
            rows = connection.execute(
                sa.select(imported_vote).where(
                    imported_vote.c.labelling == labelling_id,
                    imported_vote.c.attribute.in_(sa.select(attribute.c.id).where(attribute.c.profile == profile_id)),
                )
            ).mappings()
            shares = [
                {
                    "labelling": number,
                    "profile": profile_number,
                    "attribute": position[row["attribute"]],
                    "context": numbers.contexts[row["context"]],
                    "persona": numbers.personas[row["persona"]],
                    **{name: float(row[name]) for name in ("necessary", "inappropriate", "abstain")},
                }
                for row in rows
            ]
            yield from sorted(shares, key=lambda r: (r["context"], r["attribute"], r["persona"]))


def _decisions(connection: sa.Connection, dataset_id: int, numbers: Numbers) -> Rows:
    numbers_of = {id_: (p, at) for p, ids in enumerate(numbers.attributes) for at, id_ in enumerate(ids)}
    mine = sa.select(decision).where(decision.c.dataset == dataset_id).order_by(decision.c.id)
    # Numbered beforehand: what was merged in later can be superseded by what came before it.
    ids = connection.execute(mine.with_only_columns(decision.c.id)).scalars()
    given = {int(id_): number for number, id_ in enumerate(ids)}
    for row in connection.execute(mine).mappings():
        profile_number, attribute_number = numbers_of[row["attribute"]]
        yield {
            "number": given[row["id"]],
            "profile": profile_number,
            "attribute": attribute_number,
            "context": numbers.contexts[row["context"]],
            **{name: row[name] for name in DECIDED},
            "supersedes": None if row["supersedes"] is None else given[row["supersedes"]],
        }


def _rules(connection: sa.Connection, dataset_id: int) -> Rows:
    rows = connection.execute(sa.select(rule).where(rule.c.dataset == dataset_id).order_by(rule.c.id)).mappings()
    for row in rows:
        plain = {name: row[name] for name in ("name", "threshold", "current", "annotator", "created")}
        yield {**plain, "priors": json.loads(row["priors"])}


def _edits(connection: sa.Connection, dataset_id: int) -> Rows:
    """Those of the versions before it are the dataset's history too."""
    query = sa.select(edit).where(edit.c.dataset.in_(versions.lineage(connection, dataset_id)))
    # By time: edits of a version that is deleted are copied to its children, under later ids.
    for row in connection.execute(query.order_by(edit.c.created, edit.c.id)).mappings():
        yield {name: row[name] for name in _EDIT}


def _runs(connection: sa.Connection, numbers: Numbers) -> Rows:
    rows = {r["id"]: r for r in connection.execute(sa.select(run).where(run.c.id.in_(numbers.runs))).mappings()}
    for id_, number in numbers.runs.items():
        row = rows[id_]
        yield {
            "number": number,
            **{name: row[name] for name in _RUN},
            "endpoint": shown_address(row["endpoint"]),
            "parameters": json.loads(row["parameters"]),
            "manifest": shown_manifest(json.loads(row["manifest"])),
            "status": _settled(row["status"]),
        }


def _prompts(connection: sa.Connection, numbers: Numbers) -> Rows:
    """The wordings that runs and judges name by their hash."""
    texts = connection.execute(sa.select(run.c.manifest).where(run.c.id.in_(numbers.runs))).scalars()
    hashes = {digest for text in texts for digest in _HASH.findall(text)}
    of_judges = sa.select(judge.c.prompt_hash).where(judge.c.id.in_(numbers.judges), judge.c.prompt_hash.is_not(None))
    hashes |= set(connection.execute(of_judges).scalars())
    rows = rows_in_chunks(connection, sa.select(prompt), prompt.c.hash, hashes)
    yield from sorted(({name: row[name] for name in _PROMPT} for row in rows), key=lambda row: str(row["hash"]))


def _run_calls(connection: sa.Connection, numbers: Numbers, keys: Collection[str]) -> Rows:
    for id_, number in numbers.runs.items():
        used = sa.select(run_call.c.call, run_call.c.asked).where(run_call.c.run == id_).order_by(run_call.c.call)
        for row in connection.execute(used).mappings():
            if row["call"] in keys:
                yield {"run": number, **row}


def _recalls(connection: sa.Connection, numbers: Numbers) -> Rows:
    for chunk in in_chunks(numbers.recalls.items()):
        records = datasets.recalls_of(connection, [digest for digest, _ in chunk])
        for digest, number in chunk:
            item = records[digest]
            lines = [
                {"text": line.text, "attributes": [numbers.places[a] for a in line.attributes], "score": line.score}
                for line in item.lines
            ]
            yield {
                "number": number,
                "profile": numbers.profiles[item.profile],
                "system": item.system,
                "lines": lines,
                "seconds": item.seconds,
                "cost": item.cost,
            }


def _of_runs(connection: sa.Connection, numbers: Numbers, query: sa.Select) -> Iterator[Sequence[sa.RowMapping]]:
    """Yield the rows of a query about responses in the order of these, those of a run and a profile at a time."""
    for run_id in numbers.runs:
        for profile_id in numbers.profiles:
            here = query.where(response.c.run == run_id, response.c.profile == profile_id)
            yield connection.execute(here.order_by(response.c.id)).mappings().all()


def _messages(connection: sa.Connection, numbers: Numbers) -> Rows:
    for chunk in _of_runs(connection, numbers, sa.select(response)):
        hashes = {row[name] for row in chunk for name in ("memory", "shown") if row[name] is not None}
        memories = {
            digest: [numbers.places[a] for a in ids] for digest, ids in datasets.memories_of(connection, hashes).items()
        }
        for row in chunk:
            earlier = None if row["earlier"] is None else [numbers.contexts[c] for c in json.loads(row["earlier"])]
            yield {
                "number": numbers.messages[row["id"]],
                "run": numbers.runs[row["run"]],
                "profile": numbers.profiles[row["profile"]],
                "context": numbers.contexts[row["context"]],
                **{name: row[name] for name in _MESSAGE},
                "memory": memories.get(row["memory"]),
                "shown": memories.get(row["shown"]),
                "recall": None if row["recall"] is None else numbers.recalls[row["recall"]],
                "earlier": earlier,
            }


def _judges(connection: sa.Connection, numbers: Numbers) -> Rows:
    rows = {r["id"]: r for r in connection.execute(sa.select(judge).where(judge.c.id.in_(numbers.judges))).mappings()}
    for id_, number in numbers.judges.items():
        row = rows[id_]
        yield {
            "number": number,
            "identity": row["identity"],
            **{name: row[name] for name in _JUDGE},
            "endpoint": shown_address(row["endpoint"]),
            "parameters": json.loads(row["parameters"]),
        }


def _run_judges(connection: sa.Connection, numbers: Numbers) -> Rows:
    for id_, number in numbers.runs.items():
        query = sa.select(run_judge).where(run_judge.c.run == id_).order_by(run_judge.c.ordinal)
        for row in connection.execute(query).mappings():
            settings = shown_manifest(json.loads(row["settings"]))
            yield {"run": number, "judge": numbers.judges[row["judge"]], "settings": settings}


def _judgements(connection: sa.Connection, numbers: Numbers) -> Rows:
    query = sa.select(judgement).join(response, judgement.c.response == response.c.id)
    plain = ("status", "cause", "unknown", "call", "verdict")
    for chunk in _of_runs(connection, numbers, query):
        rows = [{**_judged(row, numbers), **{name: row[name] for name in plain}} for row in chunk]
        yield from sorted(rows, key=lambda row: (row["message"], row["judge"]))


def _reveals(connection: sa.Connection, numbers: Numbers) -> Rows:
    query = (
        sa.select(reveal, judgement.c.response, judgement.c.judge)
        .join(judgement, reveal.c.judgement == judgement.c.id)
        .join(response, judgement.c.response == response.c.id)
    )
    for chunk in _of_runs(connection, numbers, query):
        rows = [
            {
                **_judged(row, numbers),
                "attribute": numbers.places[row["attribute"]],
                **{name: row[name] for name in _REVEAL},
            }
            for row in chunk
        ]
        yield from sorted(rows, key=lambda row: (row["message"], row["judge"], row["attribute"]))


def _judged(row: sa.RowMapping, numbers: Numbers) -> dict[str, Any]:
    return {"message": numbers.messages[row["response"]], "judge": numbers.judges[row["judge"]]}


# ---- restoring
#
# Writing a dataset from the rows that `content_tables` gives out: the numbers in them become ids of this workspace.
#
# Rows are taken as checked. All of it belongs into one transaction of the caller.


CHUNK = 5000
VERDICTS = {letter: verdict for verdict, letter in LETTERS.items()}
Source = Callable[[str], Iterable[dict[str, Any]]]


def request_of(body: Mapping[str, Any]) -> ChatRequest:
    """The request that was sent with this body. Raises KeyError, TypeError or ValueError where it is none."""
    parameters = {name: value for name, value in body.items() if name not in ("model", "messages", "seed")}
    messages = tuple((message["role"], message["content"]) for message in body["messages"])
    if not isinstance(body["model"], str) or not isinstance(body.get("seed"), int | None):
        raise TypeError("model must be text and seed a whole number")
    return ChatRequest(body["model"], messages, parameters, body.get("seed"))


def with_content(
    connection: sa.Connection, content: str, edits: int, labelled: int, ran: int = 0
) -> tuple[DatasetRow, int] | None:
    """Return the dataset that was restored from this content, if any, and that was not edited since: its history has
    as many edits as the content. With how many of its labellings and runs were deleted since; of several datasets the
    one that lacks the fewest. labelled, ran: how many labellings and runs the content has."""
    known: list[tuple[int, int, DatasetRow]] = []
    for row in datasets.all_rows(connection):
        if row.source_hash == content and row.version == 1:
            counted = sa.select(sa.func.count()).select_from(edit).where(edit.c.dataset == row.id)
            if connection.execute(counted).scalar_one() == edits:
                wanted = {_restored_identity(row.id, content, number) for number in range(labelled)}
                there = connection.execute(sa.select(labelling.c.identity).where(labelling.c.dataset == row.id))
                missing = len(wanted.difference(there.scalars())) + max(0, ran - row.runs)
                known.append((missing, row.id, row))
    if not known:
        return None
    missing, _, row = min(known, key=lambda item: item[:2])
    return row, missing


def _restored_identity(dataset_id: int, source_hash: str, number: int) -> str:
    return content_hash(["restored", dataset_id, source_hash, number])


def restore(
    connection: sa.Connection, name: str, rows: Source, *, origin: str, source_name: str, source_hash: str
) -> tuple[int, int]:
    """Write a dataset with all that belongs to it; return its id, and how many calls behind votes and messages are not
    here. `rows` gives the rows of a table, and is asked for each once. Raises StoreError if the name is taken."""
    # In an order in which each table finds what it refers to.
    dataset_id = datasets.add(connection, name, (), origin=origin, source_name=source_name, source_hash=source_hash)
    contexts = _restore_contexts(connection, dataset_id, rows("contexts"))
    bio = ("ordinal", "name", "sex", "address", "age")
    people = ({"dataset": dataset_id, **{name: row[name] for name in bio}} for row in rows("profiles"))
    _write(connection, profile, people)
    profiles = datasets.profile_ids(connection, dataset_id)
    attributes = _restore_attributes(connection, dataset_id, profiles, rows("attributes"))
    _write(
        connection,
        profile_context,
        (
            {"profile": profiles[row["profile"]], "context": contexts[row["context"]], "ordinal": row["ordinal"]}
            for row in rows("profile_contexts")
        ),
    )
    personas: list[int] = []
    for row in rows("personas"):
        item = Persona(row["key"], row["name"], float(row["prior"]), row["description"])
        personas += labellings.personas_of(connection, row["pack"], [item])
    for row in rows("generations"):
        values = {**row, "manifest": canonical_json(row["manifest"]), "dataset": dataset_id}
        connection.execute(sa.insert(generation).values(id=new_id("generation"), **values))
    _restore_calls(connection, rows("requests"), rows("calls"))
    made = [_labelling(connection, dataset_id, source_hash, personas, row) for row in rows("labellings")]
    lost = _restore_ballots(connection, made, profiles, contexts, personas, attributes, rows("ballots"))
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
    _restore_decisions(connection, dataset_id, attributes, contexts, rows("decisions"))
    _write(
        connection,
        rule,
        ({**row, "priors": canonical_json(row["priors"]), "dataset": dataset_id} for row in rows("rules")),
    )
    _write(connection, edit, ({**row, "dataset": dataset_id} for row in rows("edits")))
    lost += _restore_runs(connection, dataset_id, profiles, contexts, attributes, rows)
    return dataset_id, lost


def _write(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    for chunk in in_chunks(rows, CHUNK):
        connection.execute(sa.insert(table), chunk)


def _restore_contexts(connection: sa.Connection, dataset_id: int, rows: Iterable[dict[str, Any]]) -> list[int]:
    plain = ("ordinal", "task", "recipient", "sphere")
    _write(connection, context, ({"dataset": dataset_id, **{name: row[name] for name in plain}} for row in rows))
    query = sa.select(context.c.id).where(context.c.dataset == dataset_id).order_by(context.c.ordinal, context.c.id)
    return list(connection.execute(query).scalars())


def _restore_attributes(
    connection: sa.Connection, dataset_id: int, profiles: Sequence[int], rows: Iterable[dict[str, Any]]
) -> list[list[int]]:
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
    return list(datasets.attribute_ids(connection, dataset_id).values())


def _restore_calls(
    connection: sa.Connection, requests: Iterable[dict[str, Any]], rows: Iterable[dict[str, Any]]
) -> None:
    """Both in the order of the requests. Calls that are here already stay as they are: the key is made of what was
    asked."""

    def alike(row: Mapping[str, Any]) -> tuple[object, ...]:
        return row["request"], row["kind"], row["endpoint"], row["simulated"], row["server"], row["fresh"]

    waiting = iter(requests)
    request_row = next(waiting, None)
    # Calls come in the order of their requests, so each request is read once and none is held.
    for (number, kind, endpoint, simulated, server, fresh), group in groupby(rows, key=alike):
        while request_row is not None and request_row["number"] != number:
            request_row = next(waiting, None)
        if request_row is None:
            break
        answers = [Answer(**values_of(row, Answer, "content", "endpoint"), content=row["response"]) for row in group]
        item = request_of(request_row["body"])
        answering = None if server is None else str(server)
        calls.keep_servers(connection, [answering])
        anew = None if fresh is None else str(fresh)
        exchange = Exchange(item, answers, str(kind), str(endpoint), bool(simulated), server=answering, fresh=anew)
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
            identity=_restored_identity(dataset_id, source_hash, row["number"]),
            dataset=dataset_id,
            manifest=canonical_json({**row["manifest"], **own}),
            revision=1,
            **{name: row[name] for name in plain},
        )
    )
    return labelling_id


def _restore_ballots(
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
        # A bundle may come without its calls: a key that is not here would break the foreign key.
        known = {row["key"] for row in rows_in_chunks(connection, sa.select(call.c.key), call.c.key, sorted(keys))}
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
        own = sa.select(ballot).where(ballot.c.labelling == made[number], ballot.c.profile == profiles[person])
        ids = {(b.context, b.persona, b.draw): b.id for b in connection.execute(own)}
        # Ids are read back by what makes a ballot unique: a plain insert of many rows returns none.
        numbered = [ids[v["context"], v["persona"], v["draw"]] for v in values]
        _write(connection, vote, _votes(numbered, [row["verdicts"] for row in here], attributes[person]))
    return lost


def _votes(
    ids: Sequence[int], verdicts: Sequence[str | None], attributes: Sequence[int]
) -> Iterator[dict[str, object]]:
    for ballot_id, letters in zip(ids, verdicts, strict=True):
        # Not strict: a ballot without votes has no letters.
        for attribute_id, letter in zip(attributes, letters or "", strict=False):
            if letter != NO_VOTE:
                yield {"ballot": ballot_id, "attribute": attribute_id, "verdict": VERDICTS[letter]}


def _restore_decisions(
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
            # It is not written yet: noted, and linked once all are there.
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
    # One for each decision, as if they had been made here one by one.
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=len(ids)))


def _restore_runs(
    connection: sa.Connection,
    dataset_id: int,
    profiles: Sequence[int],
    contexts: Sequence[int],
    attributes: Sequence[Sequence[int]],
    rows: Source,
) -> int:
    """Write runs with their messages and judgements; return how many calls they name that are not in the record."""
    for chunk in in_chunks(rows("prompts"), CHUNK):
        connection.execute(insert_ignore(connection, prompt), chunk)
    made = []
    for row in rows("runs"):
        made.append(new_id("run"))
        values = {name: row[name] for name in (*_RUN, "endpoint", "status")} | {"dataset": dataset_id, "revision": 1}
        texts = {name: canonical_json(row[name]) for name in ("parameters", "manifest")}
        connection.execute(sa.insert(run).values(id=made[-1], **values, **texts))
    lost: set[str] = set()

    def recorded(chunk: Sequence[Mapping[str, Any]], *names: str) -> Collection[str]:
        keys = {row[name] for row in chunk for name in names if row[name] is not None}
        there = {row["key"] for row in rows_in_chunks(connection, sa.select(call.c.key), call.c.key, sorted(keys))}
        lost.update(keys - there)
        return there

    for chunk in in_chunks(rows("run_calls"), CHUNK):
        there = recorded(chunk, "call")
        calls.link(connection, [(made[r["run"]], r["call"], r["asked"]) for r in chunk if r["call"] in there])
    recalls = [
        datasets.keep_recall(
            connection,
            datasets.RecallRecord(
                profiles[row["profile"]],
                row["system"],
                tuple(
                    datasets.RecalledLine(
                        line["text"], tuple(attributes[row["profile"]][a] for a in line["attributes"]), line["score"]
                    )
                    for line in row["lines"]
                ),
                row["seconds"],
                row["cost"],
            ),
        )
        for row in rows("recalls")
    ]
    responses: list[int] = []
    owners: list[int] = []  # of each response the number of its profile

    @lru_cache(maxsize=10_000)
    def held(number: int, listed: tuple[int, ...]) -> str:
        return datasets.keep_memories(connection, profiles[number], [attributes[number][a] for a in listed])

    for chunk in in_chunks(rows("messages"), CHUNK):
        there = recorded(chunk, "call", "before")
        new = [
            {
                **{name: row[name] for name in _MESSAGE},
                **{name: row[name] if row[name] in there else None for name in ("call", "before")},
                **{
                    name: None if row[name] is None else held(row["profile"], tuple(row[name]))
                    for name in ("memory", "shown")
                },
                "run": made[row["run"]],
                "profile": profiles[row["profile"]],
                "context": contexts[row["context"]],
                "recall": None if row["recall"] is None else recalls[row["recall"]],
                "earlier": None if row["earlier"] is None else json.dumps([contexts[c] for c in row["earlier"]]),
            }
            for row in chunk
        ]
        statement = sa.insert(response).returning(response.c.id, sort_by_parameter_order=True)
        responses += connection.execute(statement, new).scalars()
        owners += (row["profile"] for row in chunk)
    judges = [_restore_judge(connection, row) for row in rows("judges")]
    for row in rows("run_judges"):
        judge_id = judges[row["judge"]]
        judgements.assign(connection, made[row["run"]], [judge_id], {judge_id: row["settings"]})
    # Read side by side, both in the order of the messages: no table of ids is held.
    claims = groupby(rows("reveals"), key=lambda row: (row["message"], row["judge"]))
    key, group = next(claims, (None, iter(())))
    for chunk in in_chunks(rows("judgements"), CHUNK):
        there = recorded(chunk, "call")
        plain = ("status", "cause", "unknown", "verdict")
        judged = [
            {
                "response": responses[row["message"]],
                "judge": judges[row["judge"]],
                "call": row["call"] if row["call"] in there else None,
                **{name: row[name] for name in plain},
            }
            for row in chunk
        ]
        statement = sa.insert(judgement).returning(judgement.c.id, sort_by_parameter_order=True)
        found: list[dict[str, Any]] = []
        for judgement_id, row in zip(connection.execute(statement, judged).scalars(), chunk, strict=True):
            if key == (row["message"], row["judge"]):
                own = attributes[owners[row["message"]]]
                found += [
                    {
                        "judgement": judgement_id,
                        "attribute": own[item["attribute"]],
                        **{name: item[name] for name in _REVEAL},
                    }
                    for item in group
                ]
                key, group = next(claims, (None, iter(())))
        _write(connection, reveal, found)
    return len(lost)


def _restore_judge(connection: sa.Connection, row: Mapping[str, Any]) -> int:
    values = {name: row[name] for name in _JUDGE} | {"endpoint": row["endpoint"], "parameters": row["parameters"]}
    plain = judgements.judge_identity(**{name: item for name, item in values.items() if name != "endpoint"})
    # One that was asked in a way of its own (options that are not in its row) cannot be told from a forged one: it
    # stands beside the judges of this workspace.
    identity = plain if row["identity"] == plain else content_hash(["restored", row["identity"], plain])
    row = {**values, "identity": identity, "parameters": canonical_json(values["parameters"])}
    connection.execute(insert_ignore(connection, judge).values(row))
    return int(connection.execute(sa.select(judge.c.id).where(judge.c.identity == identity)).scalar_one())


# ---- freezes
#
# The rows that a freeze covers, in an order and wording that no other workspace changes.


@dataclass(frozen=True)
class Positions:
    """Where rows stand: attributes and contexts by their position in their profile, profiles by that in the dataset."""

    profiles: dict[int, int]
    attributes: dict[int, tuple[int, int]]
    contexts: dict[int, str]
    personas: dict[int, str]


def positions(connection: sa.Connection, dataset_id: int) -> Positions:
    """The positions of everything in a dataset, by id, from 0; contexts by their wording, personas by their hash."""
    profiles: dict[int, int] = {}
    attributes: dict[int, tuple[int, int]] = {}
    for number, (profile_id, own) in enumerate(datasets.attribute_ids(connection, dataset_id).items()):
        profiles[profile_id] = number
        attributes |= {attribute_id: (number, position) for position, attribute_id in enumerate(own)}
    contexts = {
        r.id: canonical_json([r.context.task, r.context.recipient]) for r in datasets.contexts(connection, dataset_id)
    }
    personas = {row.id: row.hash for row in connection.execute(sa.select(persona.c.id, persona.c.hash))}
    return Positions(profiles, attributes, contexts, personas)


def votes_hash(connection: sa.Connection, labelling_id: str, places: Positions) -> tuple[str, int]:
    """A hash over every vote of a labelling, or every share of an imported one, and how many there are. One vote more,
    less or other gives another hash; the order in which they came, and the ids they got, do not matter."""
    endpoint = connection.execute(sa.select(labelling.c.endpoint).where(labelling.c.id == labelling_id)).scalar()
    digest, count = hashlib.sha256(), 0
    lines = (
        [_share_lines(connection, labelling_id, places)]
        if endpoint == labellings.IMPORTED
        else (_ballot_lines(connection, labelling_id, i, places) for i in places.profiles)
    )
    # Ballots profile by profile, so that memory holds those of one; sorted, because engines give rows in any order.
    for chunk in lines:
        for text, votes in sorted(chunk):
            digest.update(f"{text}\n".encode("utf-8", "surrogatepass"))
            count += votes
    return digest.hexdigest()[:32], count


def _ballot_lines(
    connection: sa.Connection, labelling_id: str, profile_id: int, places: Positions
) -> Iterator[tuple[str, int]]:
    """One line a ballot of a profile that has votes: where it stands, and a letter for each attribute."""
    rows = connection.execute(
        sa.select(ballot.c.context, ballot.c.persona, ballot.c.draw, vote.c.attribute, vote.c.verdict)
        .join(ballot, vote.c.ballot == ballot.c.id)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id)
    )
    # A letter for every attribute, voted on or not: the place of a letter says which attribute it is about.
    width = sum(1 for number, _ in places.attributes.values() if number == places.profiles[profile_id])
    ballots: dict[tuple[int, int, int], list[str]] = {}
    for context_id, persona_id, draw, attribute_id, verdict in rows:
        letters = ballots.setdefault((context_id, persona_id, draw), [NO_VOTE] * width)
        letters[places.attributes[attribute_id][1]] = LETTERS[verdict]
    for (context_id, persona_id, draw), letters in ballots.items():
        where = [places.profiles[profile_id], places.contexts[context_id], places.personas[persona_id], draw]
        yield canonical_json([*where, "".join(letters)]), width - letters.count(NO_VOTE)


def _share_lines(connection: sa.Connection, labelling_id: str, places: Positions) -> Iterator[tuple[str, int]]:
    for row in connection.execute(sa.select(imported_vote).where(imported_vote.c.labelling == labelling_id)):
        where = [*places.attributes[row.attribute], places.contexts[row.context], places.personas[row.persona]]
        yield canonical_json([*where, row.necessary, row.inappropriate, row.abstain]), 1


def decision_lines(connection: sa.Connection, dataset_id: int, places: Positions) -> list[object]:
    """Every decision ever made on a dataset, those taken back too, in their order."""
    return [
        [
            *places.attributes[d.attribute],
            places.contexts[d.context],
            d.annotator,
            None if d.label is None else str(d.label),
            d.reason,
            d.source,
            bool(d.blind),
            d.created,
        ]
        for d in decisions.history(connection, dataset_id)
    ]
