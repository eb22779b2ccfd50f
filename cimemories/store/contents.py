"""Everything a dataset consists of, as rows without ids of this workspace, and back again (formats.bundle_tables).

Rows name each other by their number, from 0, in the order in which they are given out. Work in progress is given out
as interrupted, since nobody goes on with it elsewhere; the name of the variable with an endpoint's key stays here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cimemories.model import WorkStatus
from cimemories.store import generations, versions, work
from cimemories.store.curation_tables import edit, freeze, imported_vote, rule
from cimemories.store.ids import canonical_json
from cimemories.store.tables import (
    attribute,
    ballot,
    call,
    context,
    decision,
    labelling,
    persona,
    profile,
    profile_context,
    request,
    vote,
)

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
Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Numbers:
    """Numbers of a dataset's rows by their ids. `attributes` [profile number]: ids in their order."""

    profiles: dict[int, int]
    attributes: list[list[int]]
    contexts: dict[int, int]
    personas: dict[int, int]
    labellings: dict[str, int]


def tables(connection: sa.Connection, dataset_id: int, *, with_calls: bool = True) -> dict[str, Callable[[], Rows]]:
    """The rows of each table of a dataset, in one snapshot; each can be asked for once or again."""
    numbers = _numbers(connection, dataset_id)
    keys = _call_keys(connection, numbers) if with_calls else []
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
    }


def shown_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what is of this workspace: ids of personas, and where its secrets are kept."""
    kept = {name: value for name, value in manifest.items() if name not in (*PRIVATE, "personas")}
    asked = kept.get("asked")
    if isinstance(asked, dict):
        kept["asked"] = {name: value for name, value in asked.items() if name not in PRIVATE}
        if isinstance(kept["asked"].get("base_url"), str):
            kept["asked"]["base_url"] = address(kept["asked"]["base_url"])
    return kept


def address(endpoint: str) -> str:
    """An endpoint without the name and password that may stand in it."""
    return _CREDENTIALS.sub("", endpoint)


def frozen(connection: sa.Connection, dataset_id: int) -> dict[str, Any] | None:
    """Under which hash a dataset was frozen, when and by whom; None where it is not."""
    row = connection.execute(sa.select(freeze).where(freeze.c.dataset == dataset_id)).mappings().first()
    return None if row is None else {name: row[name] for name in ("hash", "annotator", "created")}


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
    found = connection.execute(sa.select(labelling).where(labelling.c.dataset == dataset_id)).mappings().all()
    manifests = {row["id"]: json.loads(row["manifest"]) for row in found}
    # Ids are drawn at random, so labellings of the same moment are told apart by what they are.
    ordered = sorted(
        found,
        key=lambda r: (r["created"], r["model"], r["endpoint"], canonical_json(shown_manifest(manifests[r["id"]]))),
    )
    personas = dict.fromkeys(p for row in ordered for p in manifests[row["id"]]["personas"])
    return Numbers(
        profiles=profiles,
        attributes=attributes,
        contexts={id_: number for number, id_ in enumerate(contexts)},
        personas={id_: number for number, id_ in enumerate(personas)},
        labellings={row["id"]: number for number, row in enumerate(ordered)},
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
    found = {row["id"]: row for row in rows}
    for id_, number in numbers.personas.items():
        yield {
            "number": number,
            **{name: found[id_][name] for name in ("pack", "key", "name", "prior", "description")},
        }


def _settled(status: str) -> str:
    return str(WorkStatus.INTERRUPTED) if status in work.ACTIVE else status


def _generations(connection: sa.Connection, dataset_id: int) -> Rows:
    """The one that wrote the dataset or its first version, where a model did."""
    row = generations.of_dataset(connection, dataset_id)
    if row is not None:
        yield {
            **{name: getattr(row, name) for name in ("name", "model", "simulated", "error", "created", "finished")},
            "endpoint": address(row.endpoint),
            "manifest": shown_manifest(row.manifest),
            "status": _settled(row.status),
        }


def _labellings(connection: sa.Connection, numbers: Numbers) -> Rows:
    rows = connection.execute(sa.select(labelling).where(labelling.c.id.in_(numbers.labellings))).mappings()
    found = {row["id"]: row for row in rows}
    plain = ("model", "simulated", "pack", "draws", "error", "created", "finished")
    for id_, number in numbers.labellings.items():
        row, manifest = found[id_], json.loads(found[id_]["manifest"])
        yield {
            "number": number,
            **{name: row[name] for name in plain},
            "endpoint": address(row["endpoint"]),
            "personas": [numbers.personas[p] for p in manifest["personas"]],
            "manifest": shown_manifest(manifest),
            "status": _settled(row["status"]),
        }


def _call_keys(connection: sa.Connection, numbers: Numbers) -> list[tuple[str, str]]:
    """(key, hash of the request) of every call behind a ballot, draws of a request together; both are hexadecimal."""
    query = (
        sa.select(call.c.key, call.c.request, call.c.draw)
        .where(call.c.key.in_(sa.select(ballot.c.call).where(ballot.c.labelling.in_(numbers.labellings))))
        .order_by(call.c.request, call.c.draw, call.c.key)
    )
    return [(row.key, row.request) for row in connection.execute(query)]


def _requests(connection: sa.Connection, bodies: Mapping[str, int]) -> Rows:
    for digest, number in bodies.items():
        body = connection.execute(sa.select(request.c.body).where(request.c.hash == digest)).scalar_one()
        yield {"number": number, "body": json.loads(body)}


def _calls(connection: sa.Connection, keys: list[tuple[str, str]], bodies: Mapping[str, int]) -> Rows:
    for start in range(0, len(keys), 500):
        chunk = keys[start : start + 500]
        rows = connection.execute(sa.select(call).where(call.c.key.in_([key for key, _ in chunk]))).mappings()
        found = {row["key"]: row for row in rows}
        for key, digest in chunk:
            row = dict(found[key])
            yield {**row, "request": bodies[digest], "endpoint": address(row["endpoint"])}


def _ballots(connection: sa.Connection, numbers: Numbers) -> Rows:
    for labelling_id, number in numbers.labellings.items():
        for profile_id, profile_number in numbers.profiles.items():
            here = (ballot.c.labelling == labelling_id, ballot.c.profile == profile_id)
            rows = connection.execute(sa.select(ballot).where(*here)).mappings().all()
            if not rows:
                continue
            verdicts = _verdicts(connection, here, numbers.attributes[profile_number])
            ordered = sorted(
                rows, key=lambda r: (numbers.contexts[r["context"]], numbers.personas[r["persona"]], r["draw"])
            )
            for row in ordered:
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
    found: dict[int, list[str]] = {}
    votes = sa.select(vote.c.ballot, vote.c.attribute, vote.c.verdict)
    for ballot_id, attribute_id, verdict in connection.execute(
        votes.join(ballot, vote.c.ballot == ballot.c.id).where(*here)
    ):
        letters = found.get(ballot_id)
        if letters is None:
            letters = found[ballot_id] = [NO_VOTE] * len(attributes)
        letters[position[attribute_id]] = LETTERS[verdict]
    return found


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
            found = [
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
            yield from sorted(found, key=lambda r: (r["context"], r["attribute"], r["persona"]))


def _decisions(connection: sa.Connection, dataset_id: int, numbers: Numbers) -> Rows:
    place = {id_: (p, at) for p, ids in enumerate(numbers.attributes) for at, id_ in enumerate(ids)}
    mine = sa.select(decision).where(decision.c.dataset == dataset_id).order_by(decision.c.id)
    # Numbered beforehand: what was merged in later can be superseded by what came before it.
    ids = connection.execute(mine.with_only_columns(decision.c.id)).scalars()
    given = {int(id_): number for number, id_ in enumerate(ids)}
    for row in connection.execute(mine).mappings():
        profile_number, attribute_number = place[row["attribute"]]
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
    for row in connection.execute(query.order_by(edit.c.created, edit.c.id)).mappings():
        yield {name: row[name] for name in _EDIT}
