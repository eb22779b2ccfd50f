"""The wording of prompts that runs were planned with, kept by the hash of the template."""

from __future__ import annotations

import sqlalchemy as sa

from cimemories.store.engine import insert_ignore
from cimemories.store.ids import now
from cimemories.store.run_tables import prompt


def keep(
    connection: sa.Connection, *, digest: str, kind: str, level: str, template: str, answers: str, source: str
) -> str:
    """Write a wording where it is new; returns its hash. The same template under another name stays what it was."""
    connection.execute(
        insert_ignore(connection, prompt).values(
            hash=digest, kind=kind, level=level, template=template, answers=answers, source=source, created=now()
        )
    )
    return digest


def kept(connection: sa.Connection, digest: str) -> sa.Row | None:
    """The row of a wording; None for one of before wordings were kept."""
    return connection.execute(sa.select(prompt).where(prompt.c.hash == digest)).first()
