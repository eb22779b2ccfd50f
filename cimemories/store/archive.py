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

from cimemories.manifest import RunManifest
from cimemories.model import ChatRequest, Persona, WorkStatus, is_bio
from cimemories.store import calls, datasets, decisions, generations, judgements, labellings, versions, work
from cimemories.store.calls import Answer, Exchange
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import canonical_json, content_hash, new_id
from cimemories.store.rows import (
    count,
    in_chunks,
    insert,
    insert_new,
    insert_one,
    insert_returning,
    made,
    rows_in_chunks,
    rows_of,
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
# as interrupted, since it does not continue elsewhere; the name of the variable with an endpoint's key stays here.


LETTERS = {"necessary": "N", "inappropriate": "X", "abstain": "?", "conflict": "C"}
NO_VOTE = "-"
# Of a decision, apart from the pair and what it supersedes.
DECIDED = (
    *("annotator", "label", "reason", "seconds", "source", "batch", "blind", "created"),
    *("uid", "guideline", "cause"),
)
PRIVATE = ("api_key_env",)  # of a manifest: says where a secret is kept on this machine
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_HASH = re.compile(r"[0-9a-f]{64}")
# The columns of each table that go along: references as numbers, JSON read, without what is of this workspace.
_WORK = "status error created finished"
_COLUMNS = {
    name: tuple(columns.split())
    for name, columns in {
        "profiles": "ordinal name sex address age",
        "attributes": "profile ordinal key value domain statement",
        "contexts": "ordinal task recipient sphere",
        "profile_contexts": "profile context ordinal",
        "personas": "pack key name prior description",
        "generations": f"name model endpoint simulated manifest {_WORK}",
        "labellings": f"model endpoint simulated pack draws manifest {_WORK}",
        "ballots": "labelling profile context persona draw status cause conflicts unknown call",
        "shares": "labelling attribute context persona necessary inappropriate abstain",
        "decisions": " ".join(("attribute", "context", *DECIDED)),
        "rules": "name threshold priors current annotator created",
        "edits": "kind action before after annotator reason created",
        "prompts": "hash kind level template answers source created",
        "runs": (
            "name dataset_hash model endpoint simulated samples seed prompt_level prompt_hash composition parameters "
            f"manifest {_WORK}"
        ),
        "run_calls": "run call asked",
        "messages": ("run profile context level sample status cause text reasoning finish_reason call before recall"),
        "judges": "identity kind model endpoint simulated prompt_hash parameters channel",
        "run_judges": "run judge settings",
        "judgements": "judge status cause unknown call verdict",
        "reveals": "attribute quote start end grounded strength",
    }.items()
}
_JSON = ("value", "priors", "parameters")
_MANIFESTS = ("manifest", "settings")
Rows = Iterator[dict[str, Any]]


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
    """Return an endpoint without the name and password that may stand in it."""
    return _CREDENTIALS.sub("", endpoint)


def content_tables(
    connection: sa.Connection, dataset_id: int, *, with_calls: bool = True
) -> dict[str, Callable[[], Rows]]:
    """Return the rows of each table of a dataset, read in the connection's transaction; each can be asked for once or
    again. That is one snapshot on SQLite, and on PostgreSQL if the transaction is REPEATABLE READ."""
    contents = _Contents(connection, dataset_id, with_calls)
    names = (*_COLUMNS, "requests", "calls", "recalls")
    return {name: getattr(contents, name) for name in names}


class _Contents:
    """The tables of a dataset, each by a method of its name. Numbers of rows by their ids; places: of attributes in
    their profile."""

    def __init__(self, connection: sa.Connection, dataset_id: int, with_calls: bool) -> None:
        self.connection, self.dataset = connection, dataset_id
        ids = datasets.attribute_ids(connection, dataset_id)
        self.attribute_ids = list(ids.values())
        own = sa.select(context.c.id).where(context.c.dataset == dataset_id)
        contexts = connection.scalars(own.order_by(context.c.ordinal, context.c.id))
        # Ids are drawn at random, so labellings of the same moment are told apart by what they are.
        voted = sorted(
            self._rows(sa.select(labelling).where(labelling.c.dataset == dataset_id)),
            key=lambda r: (r["created"], r["model"], r["endpoint"], canonical_json(shown_manifest(r["manifest"]))),
        )
        # A run that explains a leak names responses and attributes by their ids in its manifest, and stays here.
        ran = sorted(
            self._rows(sa.select(run).where(run.c.dataset == dataset_id, run.c.explains.is_(None))),
            key=lambda r: (r["created"], r["name"], canonical_json(work.recorded(r))),
        )
        self.work = {row["id"]: row for row in (*voted, *ran)}
        self.numbers: dict[str, dict[Any, int]] = {
            "profile": _numbered(ids),
            "attribute": {id_: number for ids in self.attribute_ids for number, id_ in enumerate(ids)},
            "context": _numbered(contexts),
            "persona": _numbered(p for row in voted for p in row["manifest"]["personas"]),
            "labelling": _numbered(row["id"] for row in voted),
            "run": _numbered(row["id"] for row in ran),
        }
        judged = (
            self._rows(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id).order_by(run_judge.c.ordinal))
            for run_id in self.numbers["run"]
        )
        self.numbers["judge"] = _numbered(row["judge"] for rows in judged for row in rows)
        sent = list(self._of_runs(sa.select(response.c.id, response.c.recall)))
        self.message_numbers = _numbered(row["id"] for rows in sent for row in rows)
        self.numbers["recall"] = _numbered(row["recall"] for rows in sent for row in rows if row["recall"] is not None)
        # Each request once, in the order of the calls: a reader goes through both files side by side.
        self.keys = self._call_keys() if with_calls else []
        self.bodies = _numbered(digest for _, digest in self.keys)

    def _rows(self, query: sa.Select) -> Sequence[sa.RowMapping]:
        return rows_of(self.connection, query)

    def _out(self, table: str, row: sa.RowMapping | Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return the columns of a row that go along."""
        cells = dict(more)
        for name in _COLUMNS[table]:
            value = row[name]
            if value is None or name in more:
                cells.setdefault(name, value)
            elif name in self.numbers:
                cells[name] = self.numbers[name][value]
            elif name in _JSON:
                cells[name] = json.loads(value) if isinstance(value, str) else value
            elif name in _MANIFESTS:
                cells[name] = shown_manifest(value.recorded if isinstance(value, RunManifest) else value)
            elif name == "status" and "manifest" in _COLUMNS[table]:
                cells[name] = str(WorkStatus.INTERRUPTED) if value in work.ACTIVE else value
            else:
                cells[name] = shown_address(value) if name == "endpoint" else value
        return cells

    def profiles(self) -> Rows:
        query = sa.select(profile).where(profile.c.dataset == self.dataset).order_by(profile.c.ordinal)
        for number, row in enumerate(self._rows(query)):
            yield self._out("profiles", row, number=number)

    def attributes(self) -> Rows:
        spelled = sa.type_coerce(attribute.c.event, sa.Text).label("spelling")
        for profile_id in self.numbers["profile"]:
            query = sa.select(attribute, spelled).where(attribute.c.profile == profile_id)
            for number, row in enumerate(self._rows(query.order_by(attribute.c.ordinal))):
                yield self._out("attributes", row, number=number, event=row["spelling"])

    def contexts(self) -> Rows:
        query = sa.select(context).where(context.c.dataset == self.dataset)
        for number, row in enumerate(self._rows(query.order_by(context.c.ordinal, context.c.id))):
            yield self._out("contexts", row, number=number)

    def profile_contexts(self) -> Rows:
        for profile_id in self.numbers["profile"]:
            query = sa.select(profile_context).where(profile_context.c.profile == profile_id)
            for row in self._rows(query.order_by(profile_context.c.ordinal, profile_context.c.context)):
                yield self._out("profile_contexts", row)

    def _by_id(self, table: str, source: sa.Table, numbers: Mapping[int, int]) -> Rows:
        rows = {row["id"]: row for row in rows_in_chunks(self.connection, sa.select(source), source.c.id, numbers)}
        yield from (self._out(table, rows[id_], number=number) for id_, number in numbers.items())

    def personas(self) -> Rows:
        return self._by_id("personas", persona, self.numbers["persona"])

    def judges(self) -> Rows:
        return self._by_id("judges", judge, self.numbers["judge"])

    def generations(self) -> Rows:
        """Yield the one that wrote the dataset or its first version, if a model did."""
        row = generations.of_dataset(self.connection, self.dataset)
        if row is not None:
            yield self._out("generations", vars(row))

    def labellings(self) -> Rows:
        for id_, number in self.numbers["labelling"].items():
            voters = [self.numbers["persona"][p] for p in self.work[id_]["manifest"]["personas"]]
            yield self._out("labellings", self.work[id_], number=number, personas=voters)

    def runs(self) -> Rows:
        for id_, number in self.numbers["run"].items():
            yield self._out("runs", self.work[id_], number=number)

    def _call_keys(self) -> list[tuple[str, str]]:
        """Return (key, hash of the request) of every call behind a ballot, a message or a judgement, draws of a request
        together; both are hexadecimal."""
        of_runs = response.c.run.in_(self.numbers["run"])
        used = sa.union(
            sa.select(ballot.c.call).where(ballot.c.labelling.in_(self.numbers["labelling"])),
            sa.select(response.c.call).where(of_runs),
            sa.select(response.c.before).where(of_runs),
            sa.select(judgement.c.call).join(response).where(of_runs),
            sa.select(run_call.c.call).where(run_call.c.run.in_(self.numbers["run"])),
        )
        query = sa.select(call.c.key, call.c.request).where(call.c.key.in_(used))
        rows = self._rows(query.order_by(call.c.request, call.c.draw, call.c.key))
        return [(row["key"], row["request"]) for row in rows]

    def requests(self) -> Rows:
        for chunk in in_chunks(self.bodies.items(), calls.BODIES_AT_ONCE):
            sent = calls.bodies(self.connection, (digest for digest, _ in chunk))
            yield from ({"number": number, "body": json.loads(sent[digest])} for digest, number in chunk)

    def calls(self) -> Rows:
        # Texts of calls are long: a few hundred at a time take little memory.
        for chunk in in_chunks(self.keys, 500):
            rows = self._rows(sa.select(call).where(call.c.key.in_([key for key, _ in chunk])))
            by_key = {row["key"]: row for row in rows}
            for key, digest in chunk:
                row = by_key[key]
                yield {**row, "request": self.bodies[digest], "endpoint": shown_address(row["endpoint"])}

    def ballots(self) -> Rows:
        for labelling_id in self.numbers["labelling"]:
            for profile_id, number in self.numbers["profile"].items():
                # Profile by profile: a labelling may have millions of votes.
                here = (ballot.c.labelling == labelling_id, ballot.c.profile == profile_id)
                rows = self._rows(sa.select(ballot).where(*here))
                if not rows:
                    continue
                verdicts: dict[int, list[str]] = {}
                votes = sa.select(vote).join(ballot, vote.c.ballot == ballot.c.id).where(*here)
                for ballot_id, attribute_id, verdict in self.connection.execute(votes):
                    letters = verdicts.setdefault(ballot_id, [])
                    letters += [NO_VOTE] * (len(self.attribute_ids[number]) - len(letters))
                    letters[self.numbers["attribute"][attribute_id]] = LETTERS[verdict]
                out = [
                    self._out("ballots", r, verdicts="".join(verdicts[r["id"]]) if r["id"] in verdicts else None)
                    for r in rows
                ]
                yield from sorted(out, key=lambda r: (r["context"], r["persona"], r["draw"]))

    def shares(self) -> Rows:
        for labelling_id in self.numbers["labelling"]:
            for profile_id, number in self.numbers["profile"].items():
                rows = self._rows(
                    sa.select(imported_vote)
                    .join(attribute, imported_vote.c.attribute == attribute.c.id)
                    .where(imported_vote.c.labelling == labelling_id, attribute.c.profile == profile_id)
                )
                out = [self._out("shares", row, profile=number) for row in rows]
                yield from sorted(out, key=lambda r: (r["context"], r["attribute"], r["persona"]))

    def decisions(self) -> Rows:
        rows = self._rows(sa.select(decision).where(decision.c.dataset == self.dataset).order_by(decision.c.id))
        owners = {id_: number for number, ids in enumerate(self.attribute_ids) for id_ in ids}
        # Numbered beforehand: what was merged in later can be superseded by what came before it.
        numbers = _numbered(row["id"] for row in rows)
        for row in rows:
            superseded = None if row["supersedes"] is None else numbers[row["supersedes"]]
            about = {"number": numbers[row["id"]], "profile": owners[row["attribute"]]}
            yield self._out("decisions", row, **about, supersedes=superseded)

    def rules(self) -> Rows:
        for row in self._rows(sa.select(rule).where(rule.c.dataset == self.dataset).order_by(rule.c.id)):
            yield self._out("rules", row)

    def edits(self) -> Rows:
        """Yield the edits of the dataset and of the versions before it, by time: those of a version that is deleted are
        copied to its children, under later ids."""
        query = sa.select(edit).where(edit.c.dataset.in_(versions.lineage(self.connection, self.dataset)))
        for row in self._rows(query.order_by(edit.c.created, edit.c.id)):
            sides = {name: row[name] and json.dumps(row[name], ensure_ascii=False) for name in ("before", "after")}
            yield self._out("edits", row, profile=row["profile"], **sides)  # an ordinal, and no id

    def prompts(self) -> Rows:
        """Yield the wordings that runs and judges name by their hash."""
        texts = (canonical_json(work.recorded(self.work[id_])) for id_ in self.numbers["run"])
        hashes = {digest for text in texts for digest in _HASH.findall(text)}
        hashes |= {row["prompt_hash"] for row in self.judges() if row["prompt_hash"] is not None}
        rows = rows_in_chunks(self.connection, sa.select(prompt), prompt.c.hash, hashes)
        yield from sorted((self._out("prompts", row) for row in rows), key=lambda row: str(row["hash"]))

    def run_calls(self) -> Rows:
        keys = {key for key, _ in self.keys}
        for id_ in self.numbers["run"]:
            for row in self._rows(sa.select(run_call).where(run_call.c.run == id_).order_by(run_call.c.call)):
                if row["call"] in keys:
                    yield self._out("run_calls", row)

    def run_judges(self) -> Rows:
        for id_ in self.numbers["run"]:
            for row in self._rows(sa.select(run_judge).where(run_judge.c.run == id_).order_by(run_judge.c.ordinal)):
                yield self._out("run_judges", row)

    def recalls(self) -> Rows:
        places = self.numbers["attribute"]
        for chunk in in_chunks(self.numbers["recall"].items()):
            records = datasets.recalls_of(self.connection, [digest for digest, _ in chunk])
            for digest, number in chunk:
                item = records[digest]
                lines = [
                    {"text": line.text, "attributes": [places[a] for a in line.attributes], "score": line.score}
                    for line in item.lines
                ]
                about = {"number": number, "profile": self.numbers["profile"][item.profile], "system": item.system}
                yield {**about, "lines": lines, "seconds": item.seconds, "cost": item.cost}

    def _of_runs(self, query: sa.Select) -> Iterator[Sequence[sa.RowMapping]]:
        """Yield the rows of a query about responses in the order of these, those of a run and a profile at a time."""
        for run_id in self.numbers["run"]:
            for profile_id in self.numbers["profile"]:
                here = query.where(response.c.run == run_id, response.c.profile == profile_id)
                yield self._rows(here.order_by(response.c.id))

    def messages(self) -> Rows:
        for chunk in self._of_runs(sa.select(response)):
            hashes = {row[name] for row in chunk for name in ("memory", "shown") if row[name] is not None}
            memories = datasets.memories_of(self.connection, hashes)
            listed = {digest: [self.numbers["attribute"][a] for a in ids] for digest, ids in memories.items()}
            for row in chunk:
                earlier = None if row["earlier"] is None else json.loads(row["earlier"])
                yield self._out(
                    "messages",
                    row,
                    number=self.message_numbers[row["id"]],
                    memory=listed.get(row["memory"]),
                    shown=listed.get(row["shown"]),
                    earlier=earlier and [self.numbers["context"][c] for c in earlier],
                )

    def judgements(self) -> Rows:
        query = sa.select(judgement).join(response, judgement.c.response == response.c.id)
        for chunk in self._of_runs(query):
            rows = [self._out("judgements", row, message=self.message_numbers[row["response"]]) for row in chunk]
            yield from sorted(rows, key=lambda row: (row["message"], row["judge"]))

    def reveals(self) -> Rows:
        query = (
            sa.select(reveal, judgement.c.response, judgement.c.judge)
            .join(judgement, reveal.c.judgement == judgement.c.id)
            .join(response, judgement.c.response == response.c.id)
        )
        for chunk in self._of_runs(query):
            rows = [
                self._out(
                    "reveals",
                    row,
                    message=self.message_numbers[row["response"]],
                    judge=self.numbers["judge"][row["judge"]],
                )
                for row in chunk
            ]
            yield from sorted(rows, key=lambda row: (row["message"], row["judge"], row["attribute"]))


def _numbered(ids: Iterable[Any]) -> dict[Any, int]:
    """Return the number of each id, in the order of their first appearance."""
    return {id_: number for number, id_ in enumerate(dict.fromkeys(ids))}


# ---- restoring
#
# Writing a dataset from the rows that `content_tables` gives out: the numbers in them become ids of this workspace.
#
# Rows are taken as checked. All of it belongs into one transaction of the caller.


VERDICTS = {letter: verdict for verdict, letter in LETTERS.items()}
Source = Callable[[str], Iterable[dict[str, Any]]]


def request_of(body: Mapping[str, Any]) -> ChatRequest:
    """Return the request that was sent with this body. Raises KeyError, TypeError or ValueError for anything else."""
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
    restored: list[tuple[int, int, DatasetRow]] = []
    for row in datasets.all_rows(connection):
        if row.source_hash != content or row.version != 1 or count(connection, edit, edit.c.dataset == row.id) != edits:
            continue
        brought = {_restored_identity(row.id, content, number) for number in range(labelled)}
        there = connection.scalars(sa.select(labelling.c.identity).where(labelling.c.dataset == row.id))
        restored.append((len(brought.difference(there)) + max(0, ran - row.runs), row.id, row))
    if not restored:
        return None
    missing, _, row = min(restored, key=lambda item: item[:2])
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
    for name_, table in (("contexts", context), ("profiles", profile)):
        plain = _COLUMNS[name_]
        insert(connection, table, ({"dataset": dataset_id, **{c: r[c] for c in plain}} for r in rows(name_)))
    query = sa.select(context.c.id).where(context.c.dataset == dataset_id).order_by(context.c.ordinal, context.c.id)
    contexts = list(connection.scalars(query))
    profiles = datasets.profile_ids(connection, dataset_id)
    values = (
        {
            **{name: row[name] for name in (*_COLUMNS["attributes"], "event")},
            "profile": profiles[row["profile"]],
            "value": json.dumps(row["value"], ensure_ascii=False),
            "bio": is_bio(row["key"], row["domain"]),
        }
        for row in rows("attributes")
    )
    insert(connection, attribute, values)
    attributes = list(datasets.attribute_ids(connection, dataset_id).values())
    insert(
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
        written = {**row, "manifest": canonical_json(row["manifest"]), "dataset": dataset_id}
        insert_one(connection, generation, id=new_id("generation"), **written)
    _restore_calls(connection, rows("requests"), rows("calls"))
    labelling_ids = [_labelling(connection, dataset_id, source_hash, personas, row) for row in rows("labellings")]
    lost = _restore_ballots(connection, labelling_ids, profiles, contexts, personas, attributes, rows("ballots"))
    insert(
        connection,
        imported_vote,
        (
            {
                **{name: row[name] for name in ("necessary", "inappropriate", "abstain")},
                "labelling": labelling_ids[row["labelling"]],
                "attribute": attributes[row["profile"]][row["attribute"]],
                "context": contexts[row["context"]],
                "persona": personas[row["persona"]],
            }
            for row in rows("shares")
        ),
    )
    _restore_decisions(connection, dataset_id, attributes, contexts, rows("decisions"))
    insert(
        connection,
        rule,
        ({**row, "priors": canonical_json(row["priors"]), "dataset": dataset_id} for row in rows("rules")),
    )
    insert(connection, edit, ({**row, "dataset": dataset_id} for row in rows("edits")))
    lost += _restore_runs(connection, dataset_id, profiles, contexts, attributes, rows)
    return dataset_id, lost


def _restore_calls(
    connection: sa.Connection, requests: Iterable[dict[str, Any]], rows: Iterable[dict[str, Any]]
) -> None:
    """Write calls, both in the order of the requests. Calls that are here already stay as they are: the key is made of
    the request."""

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
        answers = [made(Answer, row, content=row["response"], endpoint=None) for row in group]
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
    """Write a labelling and return its id, a new one: nothing computed under an old id may be taken for its own."""
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
    """Write ballots, those of one labelling on one profile at a time; return how many calls are not in the record."""
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
        insert(connection, ballot, values)
        own = sa.select(ballot).where(ballot.c.labelling == made[number], ballot.c.profile == profiles[person])
        ids = {(b.context, b.persona, b.draw): b.id for b in connection.execute(own)}
        # Ids are read back by what makes a ballot unique: a plain insert of many rows returns none.
        numbered = [ids[v["context"], v["persona"], v["draw"]] for v in values]
        insert(connection, vote, _votes(numbered, [row["verdicts"] for row in here], attributes[person]))
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
        ids.append(insert_one(connection, decision, **values))
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
    for chunk in in_chunks(rows("prompts")):
        insert_new(connection, prompt, chunk)
    run_ids: list[str] = []
    for row in rows("runs"):
        run_ids.append(new_id("run"))
        texts = {name: canonical_json(row[name]) for name in ("parameters", "manifest")}
        values = {name: row[name] for name in _COLUMNS["runs"]} | texts
        insert_one(connection, run, id=run_ids[-1], dataset=dataset_id, revision=1, **values)
    lost: set[str] = set()

    def recorded(chunk: Sequence[Mapping[str, Any]], *names: str) -> Collection[str]:
        keys = {row[name] for row in chunk for name in names if row[name] is not None}
        there = {row["key"] for row in rows_in_chunks(connection, sa.select(call.c.key), call.c.key, sorted(keys))}
        lost.update(keys - there)
        return there

    for chunk in in_chunks(rows("run_calls")):
        there = recorded(chunk, "call")
        calls.link(connection, [(run_ids[r["run"]], r["call"], r["asked"]) for r in chunk if r["call"] in there])
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

    for chunk in in_chunks(rows("messages")):
        there = recorded(chunk, "call", "before")
        new = [
            {
                **{name: row[name] for name in _COLUMNS["messages"]},
                **{name: row[name] if row[name] in there else None for name in ("call", "before")},
                **{
                    name: None if row[name] is None else held(row["profile"], tuple(row[name]))
                    for name in ("memory", "shown")
                },
                "run": run_ids[row["run"]],
                "profile": profiles[row["profile"]],
                "context": contexts[row["context"]],
                "recall": None if row["recall"] is None else recalls[row["recall"]],
                "earlier": None if row["earlier"] is None else json.dumps([contexts[c] for c in row["earlier"]]),
            }
            for row in chunk
        ]
        responses += (row.id for row in insert_returning(connection, response, new, "id"))
        owners += (row["profile"] for row in chunk)
    judges = [_restore_judge(connection, row) for row in rows("judges")]
    for row in rows("run_judges"):
        judge_id = judges[row["judge"]]
        judgements.assign(connection, run_ids[row["run"]], [judge_id], {judge_id: row["settings"]})
    # Read side by side, both in the order of the messages: no table of ids is held.
    claims = groupby(rows("reveals"), key=lambda row: (row["message"], row["judge"]))
    key, group = next(claims, (None, iter(())))
    for chunk in in_chunks(rows("judgements")):
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
        written = insert_returning(connection, judgement, judged, "id")
        claimed: list[dict[str, Any]] = []
        for (judgement_id,), row in zip(written, chunk, strict=True):
            if key == (row["message"], row["judge"]):
                own = attributes[owners[row["message"]]]
                claimed += [
                    {
                        "judgement": judgement_id,
                        "attribute": own[item["attribute"]],
                        **{name: item[name] for name in _COLUMNS["reveals"] if name != "attribute"},
                    }
                    for item in group
                ]
                key, group = next(claims, (None, iter(())))
        insert(connection, reveal, claimed)
    return len(lost)


def _restore_judge(connection: sa.Connection, row: Mapping[str, Any]) -> int:
    values = {name: row[name] for name in _COLUMNS["judges"]}
    plain = judgements.judge_identity(**{k: v for k, v in values.items() if k not in ("identity", "endpoint")})
    # One that was asked in a way of its own (options that are not in its row) cannot be told from a forged one: it
    # stands beside the judges of this workspace.
    identity = plain if row["identity"] == plain else content_hash(["restored", row["identity"], plain])
    row = {**values, "identity": identity, "parameters": canonical_json(values["parameters"])}
    insert_new(connection, judge, [row])
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
