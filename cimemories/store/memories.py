"""What an assistant holds, or was shown, in one context: attributes of a profile in the order of the prompt.

Responses name it by its hash, so that the memory of thousands of them is written once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import sqlalchemy as sa

from cimemories.store.engine import insert_ignore
from cimemories.store.ids import content_hash
from cimemories.store.run_tables import memory

CHUNK = 500


def memory_hash(profile_id: int, attribute_ids: Sequence[int]) -> str:
    """The name of these attributes of a profile in this order. Ids are of one workspace, and so is the hash."""
    return content_hash([int(profile_id), [int(a) for a in attribute_ids]])


def remember(connection: sa.Connection, profile_id: int, attribute_ids: Sequence[int]) -> str:
    """Write a memory of this profile where it is new; returns its hash. An empty one is a memory too.

    The attributes must be the profile's own: nobody checks it here.
    """
    digest = memory_hash(profile_id, attribute_ids)
    connection.execute(
        insert_ignore(connection, memory).values(
            hash=digest, profile=profile_id, attributes=json.dumps([int(a) for a in attribute_ids])
        )
    )
    return digest


def of_hashes(connection: sa.Connection, hashes: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Attribute ids of each memory, in the order of the prompt. A hash that is unknown is left out."""
    found: dict[str, tuple[int, ...]] = {}
    wanted = list(dict.fromkeys(hashes))
    for start in range(0, len(wanted), CHUNK):
        rows = connection.execute(
            sa.select(memory.c.hash, memory.c.attributes).where(memory.c.hash.in_(wanted[start : start + CHUNK]))
        )
        found.update((row.hash, tuple(json.loads(row.attributes))) for row in rows)
    return found
