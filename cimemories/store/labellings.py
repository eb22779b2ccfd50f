"""Labellings: passes of persona votes over a dataset. A ballot is one persona's draw in one context of one profile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from cimemories.model import Persona, Verdict, WorkStatus
from cimemories.store import ended, work
from cimemories.store.curation_tables import imported_vote
from cimemories.store.engine import insert_ignore, insert_rows, plain_name
from cimemories.store.ids import canonical_json, content_hash, new_id, now
from cimemories.store.tables import attribute, ballot, call, context, labelling, persona, profile, profile_context, vote

IMPORTED = "imported"  # the endpoint of a labelling whose shares came from a file, without votes
OWED = "owed"
OK = "ok"
# A failure of the way to the server, and an answer that never came, are asked for again by a resume; an answer that
# came but cannot be used would come again, since the same draw is the same call.
RETRIABLE = (OWED, "failed")
# Built once, as they are carried out for every ballot.
_SETTLE = (
    sa.update(ballot)
    .where(ballot.c.id == sa.bindparam("of"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("status", "cause", "call", "conflicts", "unknown")})
)


@dataclass(frozen=True)
class LabellingRow:
    """One labelling in a list, with its ballots by status."""

    id: str
    dataset: int
    model: str
    endpoint: str
    simulated: bool
    pack: str
    draws: int
    manifest: dict[str, object]
    status: WorkStatus
    error: str | None
    created: str
    finished: str | None
    revision: int
    ballots: dict[str, int]

    @property
    def imported(self) -> bool:
        """Whether its labels came from a file, as shares without votes."""
        return self.endpoint == IMPORTED

    @property
    def expected(self) -> int:
        return sum(self.ballots.values())


@dataclass(frozen=True)
class BallotGroup:
    """The draws that one persona still owes in one context of one profile: one request."""

    profile: int
    context: int
    persona: int
    ballots: dict[int, int]  # draw -> ballot id


def persona_ids(connection: sa.Connection, pack: str, personas: Sequence[Persona]) -> list[int]:
    """The ids of these personas, written where they are new; a changed wording or prior is another persona."""
    ids = []
    for item in personas:
        values = {
            "pack": pack,
            "key": item.key,
            "name": item.name,
            "prior": item.prior,
            "description": item.description,
        }
        digest = content_hash(values)
        connection.execute(insert_ignore(connection, persona).values(hash=digest, **values))
        ids.append(connection.execute(sa.select(persona.c.id).where(persona.c.hash == digest)).scalar_one())
    return ids


def personas(connection: sa.Connection, labelling_id: str) -> dict[int, Persona]:
    """The personas that vote in a labelling, by id, in the order of their pack."""
    manifest = json.loads(
        connection.execute(sa.select(labelling.c.manifest).where(labelling.c.id == labelling_id)).scalar_one()
    )
    rows = connection.execute(sa.select(persona).where(persona.c.id.in_(manifest["personas"]))).mappings()
    found = {r["id"]: Persona(r["key"], r["name"], r["prior"], r["description"]) for r in rows}
    return {i: found[i] for i in manifest["personas"]}


def add(
    connection: sa.Connection,
    *,
    identity: str,
    dataset_id: int,
    model: str,
    endpoint: str,
    simulated: bool,
    pack: str,
    draws: int,
    manifest: Mapping[str, object],
) -> str:
    """The labelling of that identity: the one that is there, asked now for `draws` draws, or a new one."""
    plain_name(model, "model")
    fresh = new_id("labelling")
    connection.execute(
        insert_ignore(connection, labelling).values(
            id=fresh,
            identity=identity,
            dataset=dataset_id,
            model=model,
            endpoint=endpoint,
            simulated=simulated,
            pack=pack,
            draws=draws,
            manifest=canonical_json(manifest),
            status=WorkStatus.QUEUED,
            created=now(),
        )
    )
    row = connection.execute(sa.select(labelling).where(labelling.c.identity == identity)).mappings().one()
    if row["id"] != fresh:
        connection.execute(
            sa.update(labelling)
            .where(labelling.c.id == row["id"])
            .values(draws=max(draws, row["draws"]), endpoint=endpoint)
        )
    return str(row["id"])


def with_identity(connection: sa.Connection, identity: str) -> str | None:
    """The address at which the labelling of that identity was asked last; None where there is none."""
    return connection.execute(sa.select(labelling.c.endpoint).where(labelling.c.identity == identity)).scalar()


def plan(
    connection: sa.Connection,
    labelling_id: str,
    profile_ids: Sequence[int],
    context_ids: Sequence[int],
    persona_ids_: Sequence[int],
    draws: int,
) -> None:
    """Write the ballots that are wanted as owed; those that are already there stay as they are."""
    pairs = connection.execute(
        sa.select(profile_context.c.profile, profile_context.c.context)
        .where(profile_context.c.profile.in_(profile_ids), profile_context.c.context.in_(context_ids))
        .order_by(profile_context.c.profile, profile_context.c.ordinal)
    ).all()
    rows = (
        {
            "labelling": labelling_id,
            "profile": pair.profile,
            "context": pair.context,
            "persona": persona_id,
            "draw": draw,
            "status": OWED,
        }
        for pair in pairs
        for persona_id in persona_ids_
        for draw in range(draws)
    )
    statement = insert_ignore(connection, ballot)
    while chunk := list(islice(rows, 5000)):
        connection.execute(statement, chunk)


def all_rows(connection: sa.Connection, dataset_id: int | None = None) -> list[LabellingRow]:
    """Labellings with their ballots counted by status, oldest first; of one dataset where given."""
    query = work.select(labelling).order_by(labelling.c.created, labelling.c.id)
    if dataset_id is not None:
        query = query.where(labelling.c.dataset == dataset_id)
    rows = connection.execute(query).mappings().all()
    own = ballot.c.labelling, ballot.c.status
    counts = ended.by_work(connection, "ballots", rows, lambda ids: ended.by_status(connection, *own, ids))
    return [
        LabellingRow(
            id=row["id"],
            dataset=row["dataset"],
            model=row["model"],
            endpoint=row["endpoint"],
            simulated=row["simulated"],
            pack=row["pack"],
            draws=row["draws"],
            manifest=json.loads(row["manifest"]),
            status=work.shown_status(row, sum(n for status, n in counts[row["id"]].items() if status != OK)),
            error=row["error"],
            created=row["created"],
            finished=row["finished"],
            revision=row["revision"],
            ballots=dict(counts[row["id"]]),
        )
        for row in rows
    ]


def owed(connection: sa.Connection, labelling_id: str, profile_id: int) -> list[BallotGroup]:
    """What is still owed for one profile, one group a request, contexts in their order."""
    rows = connection.execute(
        sa.select(ballot.c.context, ballot.c.persona, ballot.c.draw, ballot.c.id)
        .join(context, ballot.c.context == context.c.id)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id, ballot.c.status.in_(RETRIABLE))
        .order_by(context.c.ordinal, ballot.c.persona, ballot.c.draw)
    )
    groups: dict[tuple[int, int], dict[int, int]] = {}
    for row in rows:
        groups.setdefault((row.context, row.persona), {})[row.draw] = row.id
    return [BallotGroup(profile_id, c, p, draws) for (c, p), draws in groups.items()]


def owing_profiles(connection: sa.Connection, labelling_id: str) -> list[int]:
    """The profiles for which ballots are owed, in order."""
    return list(
        connection.execute(
            sa.select(profile.c.id)
            .where(
                sa.exists().where(
                    ballot.c.labelling == labelling_id,
                    ballot.c.profile == profile.c.id,
                    ballot.c.status.in_(RETRIABLE),
                )
            )
            .order_by(profile.c.ordinal)
        ).scalars()
    )


@dataclass(frozen=True)
class Settled:
    """What came of one ballot. call: the key of the call that was answered. votes: (attribute id, verdict)."""

    ballot: int
    status: str
    cause: str | None
    call: str
    votes: Sequence[tuple[int, Verdict]] = ()
    conflicts: int = 0
    unknown: int = 0


def settle(connection: sa.Connection, outcomes: Sequence[Settled]) -> None:
    """Write what came of ballots, each named once, votes included; one that is settled already is left as it is."""
    of = ballot.c.id.in_([outcome.ballot for outcome in outcomes])
    open_ = sa.select(ballot.c.id).where(of, ballot.c.status.in_(RETRIABLE)).with_for_update()
    owed = set(connection.execute(open_).scalars())
    fresh = [outcome for outcome in outcomes if outcome.ballot in owed]
    if not fresh:
        return
    connection.execute(
        _SETTLE,
        [
            {
                "of": outcome.ballot,
                "new_status": outcome.status,
                "new_cause": outcome.cause,
                "new_call": outcome.call,
                "new_conflicts": outcome.conflicts,
                "new_unknown": outcome.unknown,
            }
            for outcome in fresh
        ],
    )
    votes = [(outcome.ballot, said_of, str(verdict)) for outcome in fresh for said_of, verdict in outcome.votes]
    insert_rows(connection, vote, ("ballot", "attribute", "verdict"), votes)


def tallies(connection: sa.Connection, labelling_id: str, profile_id: int | None = None) -> sa.CursorResult[tuple]:
    """Votes counted by (attribute, context, persona): columns attribute, context, persona, necessary, inappropriate,
    abstain, conflict. Of one profile where given. Of an imported labelling: the shares of its file, 0 to 1."""
    endpoint = connection.execute(sa.select(labelling.c.endpoint).where(labelling.c.id == labelling_id)).scalar()
    if endpoint == IMPORTED:
        return _shares(connection, labelling_id, profile_id)

    def count(verdict: Verdict) -> sa.ColumnElement[int]:
        return sa.func.sum(sa.case((vote.c.verdict == str(verdict), 1), else_=0)).label(str(verdict))

    query = (
        sa.select(vote.c.attribute, ballot.c.context, ballot.c.persona, *(count(v) for v in Verdict))
        .join(ballot, vote.c.ballot == ballot.c.id)
        .where(ballot.c.labelling == labelling_id)
        .group_by(vote.c.attribute, ballot.c.context, ballot.c.persona)
    )
    if profile_id is not None:
        query = query.where(ballot.c.profile == profile_id)
    return connection.execute(query)


def _shares(connection: sa.Connection, labelling_id: str, profile_id: int | None) -> sa.CursorResult[tuple]:
    shares = imported_vote.c
    query = sa.select(
        shares.attribute,
        shares.context,
        shares.persona,
        shares.necessary,
        shares.inappropriate,
        shares.abstain,
        sa.literal(0).label(str(Verdict.CONFLICT)),
    ).where(shares.labelling == labelling_id)
    if profile_id is not None:
        own = sa.select(attribute.c.id).where(attribute.c.profile == profile_id)
        query = query.where(shares.attribute.in_(own))
    return connection.execute(query)


def context_votes(
    connection: sa.Connection, labelling_id: str, profile_id: int, context_id: int
) -> dict[int, dict[int, list[tuple[int, str]]]]:
    """Every vote of a profile in one context: attribute -> persona -> [(draw, verdict)], draws in order."""
    rows = connection.execute(
        sa.select(vote.c.attribute, ballot.c.persona, ballot.c.draw, vote.c.verdict)
        .join(ballot, vote.c.ballot == ballot.c.id)
        .where(ballot.c.labelling == labelling_id, ballot.c.profile == profile_id, ballot.c.context == context_id)
        .order_by(ballot.c.draw)
    )
    found: dict[int, dict[int, list[tuple[int, str]]]] = {}
    for attribute_id, persona_id, draw, verdict in rows:
        found.setdefault(attribute_id, {}).setdefault(persona_id, []).append((draw, verdict))
    return found


def failures(connection: sa.Connection, labelling_id: str) -> list[tuple[str, str, int]]:
    """Why ballots are missing: (status, cause, count), the most frequent first."""
    rows = connection.execute(
        sa.select(ballot.c.status, sa.func.coalesce(ballot.c.cause, ""), sa.func.count().label("n"))
        .where(ballot.c.labelling == labelling_id, ballot.c.status.not_in((OK, OWED)))
        .group_by(ballot.c.status, ballot.c.cause)
        .order_by(sa.desc("n"))
    )
    return [(status, cause, count) for status, cause, count in rows]


def tokens(connection: sa.Connection, labelling_id: str) -> tuple[int, int, int]:
    """Prompt, cached and completion tokens of all calls of a labelling."""
    row = connection.execute(
        sa.select(
            sa.func.coalesce(sa.func.sum(call.c.prompt_tokens), 0),
            sa.func.coalesce(sa.func.sum(call.c.cached_tokens), 0),
            sa.func.coalesce(sa.func.sum(call.c.completion_tokens), 0),
        )
        .join(ballot, ballot.c.call == call.c.key)
        .where(ballot.c.labelling == labelling_id)
    ).one()
    return int(row[0]), int(row[1]), int(row[2])


def attribute_count(connection: sa.Connection, labelling_id: str) -> int:
    """How many attributes have at least one vote in a labelling."""
    return int(
        connection.execute(
            sa.select(sa.func.count())
            .select_from(attribute)
            .where(
                attribute.c.profile.in_(
                    sa.select(ballot.c.profile).where(ballot.c.labelling == labelling_id, ballot.c.status == OK)
                )
            )
        ).scalar_one()
    )
