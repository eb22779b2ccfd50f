"""A dataset with its labels, decisions and runs, as rows without the ids of this workspace, and back again
(formats/tables.py)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
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
    from_row,
    in_chunks,
    insert,
    insert_new,
    insert_one,
    insert_returning,
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
PRIVATE = ("api_key_env",)  # of a manifest: says where a secret is kept on this machine
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_HASH = re.compile(r"[0-9a-f]{64}")
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


class Contents:
    """The tables of a dataset, each by a method of its name, which can be called again; rows may have more columns than
    go along. numbers: of rows by their ids; of an attribute in its profile.

    All is read in the connection's transaction. That is one snapshot on SQLite, and on PostgreSQL if the transaction is
    REPEATABLE READ. Runs and calls are there once `number_runs` was called.
    """

    def __init__(self, connection: sa.Connection, dataset_id: int) -> None:
        self.connection, self.dataset = connection, dataset_id
        ids = datasets.attribute_ids(connection, dataset_id)
        self.attribute_ids = list(ids.values())
        of_dataset = sa.select(context.c.id).where(context.c.dataset == dataset_id)
        contexts = connection.scalars(of_dataset.order_by(context.c.ordinal, context.c.id))
        # Ids are drawn at random, so labellings of the same moment are told apart by what they are.
        voted = sorted(
            self._rows(sa.select(labelling).where(labelling.c.dataset == dataset_id)),
            key=lambda r: (r["created"], r["model"], r["endpoint"], canonical_json(shown_manifest(r["manifest"]))),
        )
        self.work = {row["id"]: row for row in voted}
        self.numbers: dict[str, dict[Any, int]] = {
            "profile": _numbered(ids),
            "attribute": {id_: number for ids in self.attribute_ids for number, id_ in enumerate(ids)},
            "context": _numbered(contexts),
            "persona": _numbered(p for row in voted for p in row["manifest"]["personas"]),
            "labelling": _numbered(self.work),
        }

    def number_runs(self, with_calls: bool) -> None:
        """Number the runs with all that belongs to them, and the calls."""
        # A run that explains a leak names responses and attributes by their ids in its manifest, and stays here.
        ran = sorted(
            self._rows(sa.select(run).where(run.c.dataset == self.dataset, run.c.explains.is_(None))),
            key=lambda r: (r["created"], r["name"], canonical_json(work.recorded(r))),
        )
        self.work |= {row["id"]: row for row in ran}
        self.numbers["run"] = _numbered(row["id"] for row in ran)
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

    def _out(self, row: sa.RowMapping | Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return the columns of a row, references as numbers and JSON read, and `more` in the place of some."""
        cells = dict(more)
        for name, value in row.items():
            if name in more:
                continue
            if value is None:
                cells[name] = None
            elif name in self.numbers:
                cells[name] = self.numbers[name][value]
            elif name in _JSON:
                cells[name] = json.loads(value) if isinstance(value, str) else value
            elif name in _MANIFESTS:
                cells[name] = shown_manifest(value.recorded if isinstance(value, RunManifest) else value)
            elif name == "status" and "manifest" in row:
                cells[name] = str(WorkStatus.INTERRUPTED) if value in work.ACTIVE else value
            else:
                cells[name] = shown_address(value) if name == "endpoint" else value
        return cells

    def profiles(self) -> Rows:
        query = sa.select(profile).where(profile.c.dataset == self.dataset).order_by(profile.c.ordinal)
        for number, row in enumerate(self._rows(query)):
            yield self._out(row, number=number)

    def attributes(self) -> Rows:
        spelled = sa.type_coerce(attribute.c.event, sa.Text).label("spelling")
        for profile_id in self.numbers["profile"]:
            query = sa.select(attribute, spelled).where(attribute.c.profile == profile_id)
            for number, row in enumerate(self._rows(query.order_by(attribute.c.ordinal))):
                yield self._out(row, number=number, event=row["spelling"])

    def contexts(self) -> Rows:
        query = sa.select(context).where(context.c.dataset == self.dataset)
        for number, row in enumerate(self._rows(query.order_by(context.c.ordinal, context.c.id))):
            yield self._out(row, number=number)

    def profile_contexts(self) -> Rows:
        for profile_id in self.numbers["profile"]:
            query = sa.select(profile_context).where(profile_context.c.profile == profile_id)
            for row in self._rows(query.order_by(profile_context.c.ordinal, profile_context.c.context)):
                yield self._out(row)

    def _by_id(self, source: sa.Table, numbers: Mapping[int, int]) -> Rows:
        rows = {row["id"]: row for row in rows_in_chunks(self.connection, sa.select(source), source.c.id, numbers)}
        yield from (self._out(rows[id_], number=number) for id_, number in numbers.items())

    def personas(self) -> Rows:
        return self._by_id(persona, self.numbers["persona"])

    def judges(self) -> Rows:
        return self._by_id(judge, self.numbers["judge"])

    def generations(self) -> Rows:
        """Yield the one that wrote the dataset or its first version, if a model did."""
        row = generations.of_dataset(self.connection, self.dataset)
        if row is not None:
            yield self._out(vars(row))

    def labellings(self) -> Rows:
        for id_, number in self.numbers["labelling"].items():
            voters = [self.numbers["persona"][p] for p in self.work[id_]["manifest"]["personas"]]
            yield self._out(self.work[id_], number=number, personas=voters)

    def runs(self) -> Rows:
        for id_, number in self.numbers["run"].items():
            yield self._out(self.work[id_], number=number)

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

    def ballots(self, labelling_ids: Iterable[str] | None = None) -> Rows:
        for labelling_id in labelling_ids or self.numbers["labelling"]:
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
                out = [self._out(r, verdicts="".join(verdicts[r["id"]]) if r["id"] in verdicts else None) for r in rows]
                yield from sorted(out, key=lambda r: (r["context"], r["persona"], r["draw"]))

    def shares(self, labelling_ids: Iterable[str] | None = None) -> Rows:
        for labelling_id in labelling_ids or self.numbers["labelling"]:
            for profile_id, number in self.numbers["profile"].items():
                rows = self._rows(
                    sa.select(imported_vote)
                    .join(attribute, imported_vote.c.attribute == attribute.c.id)
                    .where(imported_vote.c.labelling == labelling_id, attribute.c.profile == profile_id)
                )
                out = [self._out(row, profile=number) for row in rows]
                yield from sorted(out, key=lambda r: (r["context"], r["attribute"], r["persona"]))

    def decisions(self) -> Rows:
        rows = self._rows(sa.select(decision).where(decision.c.dataset == self.dataset).order_by(decision.c.id))
        owners = {id_: number for number, ids in enumerate(self.attribute_ids) for id_ in ids}
        # Numbered beforehand: what was merged in later can be superseded by what came before it.
        numbers = _numbered(row["id"] for row in rows)
        for row in rows:
            superseded = None if row["supersedes"] is None else numbers[row["supersedes"]]
            about = {"number": numbers[row["id"]], "profile": owners[row["attribute"]]}
            yield self._out(row, **about, supersedes=superseded)

    def rules(self) -> Rows:
        for row in self._rows(sa.select(rule).where(rule.c.dataset == self.dataset).order_by(rule.c.id)):
            yield self._out(row)

    def edits(self) -> Rows:
        """Yield the edits of the dataset and of the versions before it, by time: those of a version that is deleted are
        copied to its children, under later ids."""
        query = sa.select(edit).where(edit.c.dataset.in_(versions.lineage(self.connection, self.dataset)))
        for row in self._rows(query.order_by(edit.c.created, edit.c.id)):
            sides = {name: row[name] and json.dumps(row[name], ensure_ascii=False) for name in ("before", "after")}
            yield self._out(row, profile=row["profile"], **sides)  # an ordinal, and no id

    def prompts(self) -> Rows:
        """Yield the wordings that runs and judges name by their hash."""
        texts = (canonical_json(work.recorded(self.work[id_])) for id_ in self.numbers["run"])
        hashes = {digest for text in texts for digest in _HASH.findall(text)}
        hashes |= {row["prompt_hash"] for row in self.judges() if row["prompt_hash"] is not None}
        rows = rows_in_chunks(self.connection, sa.select(prompt), prompt.c.hash, hashes)
        yield from sorted((self._out(row) for row in rows), key=lambda row: str(row["hash"]))

    def run_calls(self) -> Rows:
        keys = {key for key, _ in self.keys}
        for id_ in self.numbers["run"]:
            for row in self._rows(sa.select(run_call).where(run_call.c.run == id_).order_by(run_call.c.call)):
                if row["call"] in keys:
                    yield self._out(row)

    def run_judges(self) -> Rows:
        for id_ in self.numbers["run"]:
            for row in self._rows(sa.select(run_judge).where(run_judge.c.run == id_).order_by(run_judge.c.ordinal)):
                yield self._out(row)

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
                    row,
                    number=self.message_numbers[row["id"]],
                    memory=listed.get(row["memory"]),
                    shown=listed.get(row["shown"]),
                    earlier=earlier and [self.numbers["context"][c] for c in earlier],
                )

    def judgements(self) -> Rows:
        query = sa.select(judgement).join(response, judgement.c.response == response.c.id)
        for chunk in self._of_runs(query):
            rows = [self._out(row, message=self.message_numbers[row["response"]]) for row in chunk]
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
                    row,
                    message=self.message_numbers[row["response"]],
                )
                for row in chunk
            ]
            yield from sorted(rows, key=lambda row: (row["message"], row["judge"], row["attribute"]))


def _numbered(ids: Iterable[Any]) -> dict[Any, int]:
    """Return the number of each id, in the order of their first appearance."""
    return {id_: number for number, id_ in enumerate(dict.fromkeys(ids))}


# ---- restoring
#
# Writing a dataset from the rows that `Contents` gives out: the numbers in them become ids of this workspace.
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
    dataset_id = datasets.add(connection, name, (), origin=origin, source_name=source_name, source_hash=source_hash)
    writer = _Writer(connection, dataset_id, rows)
    # In an order in which each table finds what it refers to.
    writer.profiles()
    for row in rows("generations"):
        written = {**row, "manifest": canonical_json(row["manifest"]), "dataset": dataset_id}
        insert_one(connection, generation, id=new_id("generation"), **written)
    _restore_calls(connection, rows("requests"), rows("calls"))
    writer.labellings(source_hash)
    lost = len(writer.lost)
    writer.lost.clear()
    writer.decisions()
    writer.insert("rules", rule)
    # Their profile is an ordinal, and no number.
    insert(connection, edit, ({**row, "dataset": dataset_id} for row in rows("edits")))
    writer.runs()
    return dataset_id, lost + len(writer.lost)


class _Writer:
    """Writes the tables of a dataset. ids: of the rows of a table by their numbers, under the names of the columns that
    refer to them; attributes: ids by profile; lost: keys of calls that are named and are not in the record."""

    def __init__(self, connection: sa.Connection, dataset_id: int, rows: Source) -> None:
        self.connection, self.dataset, self.rows = connection, dataset_id, rows
        self.ids: dict[str, Sequence[Any]] = {}
        self.attributes: list[list[int]] = []
        self.lost: set[str] = set()

    def row(self, table: sa.Table, row: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return the values of a row's columns that the table has, numbers as ids, and `more` in the place of some."""
        values: dict[str, Any] = {"dataset": self.dataset} if "dataset" in table.c else {}
        for name, value in row.items():
            if name in more or name not in table.c:
                continue
            if value is not None and name in self.ids:
                values[name] = self.ids[name][value]
            elif name == "attribute":
                values[name] = self.attributes[row["profile"]][value]
            else:
                values[name] = canonical_json(value) if isinstance(value, dict) else value
        return values | more

    def insert(self, name: str, table: sa.Table) -> None:
        insert(self.connection, table, (self.row(table, row) for row in self.rows(name)))

    def known_calls(self, chunk: Sequence[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
        """Return rows without the calls, in these columns, that are not in the record: a dataset may come without its
        calls, and a key that is not here would break the foreign key."""
        keys = {row[name] for row in chunk for name in names if row[name] is not None}
        there = {row["key"] for row in rows_in_chunks(self.connection, sa.select(call.c.key), call.c.key, sorted(keys))}
        self.lost |= keys - there
        return [{**row, **{name: row[name] if row[name] in there else None for name in names}} for row in chunk]

    def profiles(self) -> None:
        self.insert("contexts", context)
        query = sa.select(context.c.id).where(context.c.dataset == self.dataset)
        self.ids["context"] = list(self.connection.scalars(query.order_by(context.c.ordinal, context.c.id)))
        self.insert("profiles", profile)
        self.ids["profile"] = datasets.profile_ids(self.connection, self.dataset)
        attributes = (
            self.row(
                attribute,
                row,
                value=json.dumps(row["value"], ensure_ascii=False),
                bio=is_bio(row["key"], row["domain"]),
            )
            for row in self.rows("attributes")
        )
        insert(self.connection, attribute, attributes)
        self.attributes = list(datasets.attribute_ids(self.connection, self.dataset).values())
        self.insert("profile_contexts", profile_context)

    def labellings(self, source_hash: str) -> None:
        personas: list[int] = []
        for row in self.rows("personas"):
            item = Persona(row["key"], row["name"], float(row["prior"]), row["description"])
            personas += labellings.personas_of(self.connection, row["pack"], [item])
        self.ids["persona"] = personas
        ids: list[str] = []
        for row in self.rows("labellings"):
            of_here = {"personas": [personas[number] for number in row["personas"]], "api_key_env": ""}
            # A new id: nothing computed under an old one may be taken for its own.
            about = {
                "id": new_id("labelling"),
                "identity": _restored_identity(self.dataset, source_hash, row["number"]),
                "manifest": canonical_json({**row["manifest"], **of_here}),
                "revision": 1,
            }
            ids.append(insert_one(self.connection, labelling, **self.row(labelling, row, **about)))
        self.ids["labelling"] = ids
        # Those of one labelling on one profile at a time.
        for (_, number), group in groupby(self.rows("ballots"), key=lambda row: (row["labelling"], row["profile"])):
            rows = self.known_calls(list(group), "call")
            written = insert_returning(self.connection, ballot, [self.row(ballot, row) for row in rows], "id")
            votes = [
                {"ballot": ballot_id, "attribute": attribute_id, "verdict": VERDICTS[letter]}
                for (ballot_id,), row in zip(written, rows, strict=True)
                # Not strict: a ballot without votes has no letters.
                for attribute_id, letter in zip(self.attributes[number], row["verdicts"] or "", strict=False)
                if letter != NO_VOTE
            ]
            insert(self.connection, vote, votes)
        self.insert("shares", imported_vote)

    def decisions(self) -> None:
        rows = list(self.rows("decisions"))
        values = [self.row(decision, row, supersedes=None) for row in rows]
        ids = [row.id for row in insert_returning(self.connection, decision, values, "id")]
        # Once all are there: one that was merged in later can be superseded by what came before it.
        links = [
            {"this": ids[number], "other": ids[row["supersedes"]]}
            for number, row in enumerate(rows)
            if row["supersedes"] is not None
        ]
        if links:
            statement = sa.update(decision).where(decision.c.id == sa.bindparam("this"))
            self.connection.execute(statement.values(supersedes=sa.bindparam("other")), links)
        # One for each decision, as if they had been made here one by one.
        of_dataset = sa.update(dataset).where(dataset.c.id == self.dataset)
        self.connection.execute(of_dataset.values(revision=len(ids)))

    def runs(self) -> None:
        for chunk in in_chunks(self.rows("prompts")):
            insert_new(self.connection, prompt, chunk)
        self.ids["run"] = [
            insert_one(self.connection, run, **self.row(run, row, id=new_id("run"), revision=1))
            for row in self.rows("runs")
        ]
        for chunk in in_chunks(self.rows("run_calls")):
            recorded = (row for row in self.known_calls(chunk, "call") if row["call"] is not None)
            calls.link(self.connection, [(self.ids["run"][r["run"]], r["call"], r["asked"]) for r in recorded])
        self.ids["recall"] = [self._recall(row) for row in self.rows("recalls")]
        owners = self._messages()
        self.ids["judge"] = [_restore_judge(self.connection, row) for row in self.rows("judges")]
        for row in self.rows("run_judges"):
            judge_id = self.ids["judge"][row["judge"]]
            judgements.assign(self.connection, self.ids["run"][row["run"]], [judge_id], {judge_id: row["settings"]})
        self._judgements(owners)

    def _recall(self, row: Mapping[str, Any]) -> str:
        ids = self.attributes[row["profile"]]
        lines = tuple(
            datasets.RecalledLine(line["text"], tuple(ids[a] for a in line["attributes"]), line["score"])
            for line in row["lines"]
        )
        profile_id = self.ids["profile"][row["profile"]]
        item = datasets.RecallRecord(profile_id, row["system"], lines, row["seconds"], row["cost"])
        return datasets.keep_recall(self.connection, item)

    def _messages(self) -> list[int]:
        """Write the messages; return for each the number of its profile."""
        contexts, owners, ids = self.ids["context"], list[int](), list[int]()

        @lru_cache(maxsize=10_000)
        def held(number: int, listed: tuple[int, ...]) -> str:
            attributes = [self.attributes[number][a] for a in listed]
            return datasets.keep_memories(self.connection, self.ids["profile"][number], attributes)

        def values(row: Mapping[str, Any]) -> dict[str, Any]:
            earlier = None if row["earlier"] is None else json.dumps([contexts[c] for c in row["earlier"]])
            memories = {
                name: None if row[name] is None else held(row["profile"], tuple(row[name]))
                for name in ("memory", "shown")
            }
            return self.row(response, row, earlier=earlier, **memories)

        for chunk in in_chunks(self.rows("messages")):
            rows = [values(row) for row in self.known_calls(chunk, "call", "before")]
            ids += (row.id for row in insert_returning(self.connection, response, rows, "id"))
            owners += (row["profile"] for row in chunk)
        self.ids["response"] = ids
        return owners

    def _judgements(self, owners: Sequence[int]) -> None:
        """Write judgements with their reveals. Read side by side, both in the order of the messages: no table of ids is
        held."""
        claims = groupby(self.rows("reveals"), key=lambda row: (row["message"], row["judge"]))
        key, group = next(claims, (None, iter(())))
        for chunk in in_chunks(self.rows("judgements")):
            rows = [self.row(judgement, {**r, "response": r["message"]}) for r in self.known_calls(chunk, "call")]
            claimed: list[dict[str, Any]] = []
            for (id_,), row in zip(insert_returning(self.connection, judgement, rows, "id"), chunk, strict=True):
                if key == (row["message"], row["judge"]):
                    of = {"profile": owners[row["message"]], "judgement": id_}
                    claimed += [self.row(reveal, {**item, **of}) for item in group]
                    key, group = next(claims, (None, iter(())))
            insert(self.connection, reveal, claimed)


def _restore_calls(
    connection: sa.Connection, requests: Iterable[dict[str, Any]], rows: Iterable[dict[str, Any]]
) -> None:
    """Write calls, both in the order of the requests. Calls that are here already stay as they are: the key is made of
    the request."""

    def alike(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["request"], row["kind"], row["endpoint"], row["simulated"], row["server"], row["fresh"]

    waiting = iter(requests)
    request_row = next(waiting, None)
    # Calls come in the order of their requests, so each request is read once and none is held.
    for (number, kind, endpoint, simulated, server, fresh), group in groupby(rows, key=alike):
        while request_row is not None and request_row["number"] != number:
            request_row = next(waiting, None)
        if request_row is None:
            break
        answers = [from_row(Answer, row, content=row["response"], endpoint=None) for row in group]
        calls.keep_servers(connection, [server])
        item = request_of(request_row["body"])
        calls.record_all(connection, [Exchange(item, answers, kind, endpoint, simulated, server=server, fresh=fresh)])
    for _ in waiting:
        pass  # to the end of the file, whose hash is checked there


def _restore_judge(connection: sa.Connection, row: Mapping[str, Any]) -> int:
    about = {k: v for k, v in row.items() if k not in ("number", "identity", "endpoint")}
    plain = judgements.judge_identity(**about)
    # One that was asked in a way of its own (options that are not in its row) cannot be told from a forged one: it
    # stands beside the judges of this workspace.
    identity = plain if row["identity"] == plain else content_hash(["restored", row["identity"], plain])
    values = {**about, "endpoint": row["endpoint"], "parameters": canonical_json(row["parameters"])}
    insert_new(connection, judge, [{"identity": identity, **values}])
    return int(connection.execute(sa.select(judge.c.id).where(judge.c.identity == identity)).scalar_one())


# ---- freezes
#
# The rows that a freeze covers, in an order and wording that no other workspace changes.


class Positions(Contents):
    """A dataset by positions from 0: attributes in their profile; contexts by their wording, personas by their hash."""

    def __init__(self, connection: sa.Connection, dataset_id: int) -> None:
        super().__init__(connection, dataset_id)
        self.wordings = [canonical_json([row["task"], row["recipient"]]) for row in self.contexts()]
        hashes = {row.id: row.hash for row in connection.execute(sa.select(persona.c.id, persona.c.hash))}
        self.persona_hashes = [hashes[id_] for id_ in self.numbers["persona"]]

    def votes_hash(self, labelling_id: str) -> tuple[str, int]:
        """Return a hash over every vote of a labelling, or every share of an imported one, and how many there are. One
        vote more, less or other gives another hash; the order in which they came, and their ids, do not matter."""
        digest, votes = hashlib.sha256(), 0
        # Ballots profile by profile, so that memory holds those of one; sorted, as engines give rows in any order.
        ballots = groupby(self.ballots([labelling_id]), key=lambda row: row["profile"])
        for lines in chain([map(self._share, self.shares([labelling_id]))], (map(self._ballot, b) for _, b in ballots)):
            for text, number in sorted(line for line in lines if line[1]):
                digest.update(f"{text}\n".encode("utf-8", "surrogatepass"))
                votes += number
        return digest.hexdigest()[:32], votes

    def _ballot(self, row: Mapping[str, Any]) -> tuple[str, int]:
        letters = row["verdicts"] or ""
        where = [row["profile"], self.wordings[row["context"]], self.persona_hashes[row["persona"]], row["draw"]]
        return canonical_json([*where, letters]), len(letters) - letters.count(NO_VOTE)

    def _share(self, row: Mapping[str, Any]) -> tuple[str, int]:
        where = [row["profile"], row["attribute"], self.wordings[row["context"]], self.persona_hashes[row["persona"]]]
        return canonical_json([*where, row["necessary"], row["inappropriate"], row["abstain"]]), 1

    def decision_lines(self) -> list[object]:
        """Return every decision ever made on a dataset, those taken back too, in their order."""
        owners = {id_: number for number, ids in enumerate(self.attribute_ids) for id_ in ids}
        return [
            [
                *(owners[d.attribute], self.numbers["attribute"][d.attribute]),
                self.wordings[self.numbers["context"][d.context]],
                d.annotator,
                None if d.label is None else str(d.label),
                *(d.reason, d.source, bool(d.blind), d.created),
            ]
            for d in decisions.history(self.connection, self.dataset)
        ]
