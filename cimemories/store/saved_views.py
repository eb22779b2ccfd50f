"""Views that people have given a name: a page and its parameters. A name saved again means the new view."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.engine import StoreError, plain_name
from cimemories.store.ids import canonical_json, now
from cimemories.store.review_tables import saved_view

LONGEST_NAME = 80


@dataclass(frozen=True)
class SavedView:
    """A name for an address of the app."""

    name: str
    page: str
    query: dict[str, str]
    annotator: str
    created: str


def save(connection: sa.Connection, name: str, page: str, query: Mapping[str, str], annotator: str) -> None:
    """Keep a view under a name. Raises StoreError for an empty or overlong one."""
    clean = plain_name(" ".join(name.split()), "view")
    if not 0 < len(clean) <= LONGEST_NAME:
        raise StoreError(f"a view needs a name of at most {LONGEST_NAME} characters.")
    connection.execute(sa.delete(saved_view).where(saved_view.c.name == clean))
    values = {"name": clean, "page": page, "query": canonical_json(dict(query))}
    who = plain_name(annotator, "annotator")
    connection.execute(sa.insert(saved_view).values(**values, annotator=who, created=now()))


def drop(connection: sa.Connection, name: str) -> None:
    """Forget a view."""
    connection.execute(sa.delete(saved_view).where(saved_view.c.name == name))


def of_page(connection: sa.Connection, page: str) -> list[SavedView]:
    """The views of a page by name."""
    query = sa.select(saved_view).where(saved_view.c.page == page).order_by(saved_view.c.name)
    return [
        SavedView(row["name"], row["page"], json.loads(row["query"]), row["annotator"], row["created"])
        for row in connection.execute(query).mappings()
    ]
