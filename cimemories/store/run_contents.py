"""What a run consists of, profile by profile, as an export of it needs it."""

from __future__ import annotations

import json
from collections.abc import Collection

import sqlalchemy as sa

from cimemories.store.tables import call, judgement, request, response

CHUNK = 200


def responses(connection: sa.Connection, run_id: str, judge_id: int, profile_id: int) -> list[sa.RowMapping]:
    """The responses of one profile, contexts in the order of their ids, with what one judge made of them: columns id,
    context, level, sample, status, cause, text, memory, judgement, judgement_cause, request (of the recorded call)."""
    judged = sa.and_(judgement.c.response == response.c.id, judgement.c.judge == judge_id)
    query = (
        sa.select(
            response.c.id,
            response.c.context,
            response.c.level,
            response.c.sample,
            response.c.status,
            response.c.cause,
            response.c.text,
            response.c.memory,
            judgement.c.status.label("judgement"),
            judgement.c.cause.label("judgement_cause"),
            call.c.request,
        )
        .outerjoin(judgement, judged)
        .outerjoin(call, response.c.call == call.c.key)
        .where(response.c.run == run_id, response.c.profile == profile_id)
        .order_by(response.c.context, response.c.level, response.c.sample)
    )
    return list(connection.execute(query).mappings())


def prompts(connection: sa.Connection, request_hashes: Collection[str]) -> dict[str, str]:
    """What was sent in each of these requests, as one text: the messages' contents with a blank line between them."""
    wanted, found = sorted(request_hashes), {}
    for start in range(0, len(wanted), CHUNK):
        rows = connection.execute(sa.select(request).where(request.c.hash.in_(wanted[start : start + CHUNK])))
        for row in rows:
            messages = json.loads(row.body).get("messages", [])
            found[row.hash] = "\n\n".join(str(message.get("content", "")) for message in messages)
    return found
