"""What annotators go by, in versions: append-only. The first is the one that ships, seeds/guideline.md.

A decision names the hash of the version that stood when it was made, so every version that anybody worked by is kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from cimemories.store.engine import StoreError, insert_ignore, plain_name, storable
from cimemories.store.ids import content_hash, now, text_hash
from cimemories.store.review_tables import guideline

FILE = "guideline.md"
LONGEST = 100_000  # characters
SHIPPED = "CIMemories Studio"  # who wrote the first version
# As seeds.SEEDS, which stands beside the store and cannot be asked from here.
_HOME = Path(__file__).resolve().parents[2] / "seeds"


@dataclass(frozen=True)
class Guideline:
    """One version, numbered from 1. `hash` is of the text; where an earlier text is taken up again, of the text and the
    version, so that each version has its own. `created` is empty for one that ships and that nobody has kept yet."""

    hash: str
    text: str
    annotator: str
    created: str
    version: int


def current(connection: sa.Connection) -> Guideline:
    """The newest version; the one that ships where none was saved. Raises StoreError where that cannot be read."""
    return all_versions(connection)[-1]


def all_versions(connection: sa.Connection) -> list[Guideline]:
    """Every version, oldest first; at least the one that ships."""
    rows = connection.execute(sa.select(guideline).order_by(guideline.c.id)).mappings()
    names = ("hash", "text", "annotator", "created")
    found = [Guideline(**{n: row[n] for n in names}, version=number) for number, row in enumerate(rows, start=1)]
    return found or [_shipped()]


def save(connection: sa.Connection, text: str, annotator: str) -> Guideline:
    """Append a version and return it; nothing is written where the text is the current one's.

    Raises StoreError for a text without a word or of more than 100,000 characters."""
    text = _clean(text)
    if not text.strip():
        raise StoreError("the guideline needs a word or more. An empty one would leave annotators without any.")
    if len(text) > LONGEST:
        raise StoreError(f"the guideline has {len(text):,} characters, more than {LONGEST:,}. Shorten it.")
    before = keep(connection)
    if before.text == text:
        return before
    versions = all_versions(connection)
    number = len(versions) + 1
    digest = text_hash(text)
    if any(item.hash == digest for item in versions):
        digest = content_hash([text, number])
    _write(connection, Guideline(digest, text, annotator, now(), number))
    return current(connection)


def keep(connection: sa.Connection) -> Guideline:
    """The current version, written to the record where it is the one that ships: a later release may ship another, and
    decisions name this one."""
    found = current(connection)
    if not found.created:
        _write(connection, found)
        found = current(connection)
    return found


def _write(connection: sa.Connection, item: Guideline) -> None:
    who = plain_name(item.annotator, "annotator")
    values = {"hash": item.hash, "text": item.text, "annotator": who, "created": item.created or now()}
    connection.execute(insert_ignore(connection, guideline).values(**values))


def _shipped() -> Guideline:
    folder = Path(os.environ.get("CIMEMORIES_SEEDS") or _HOME)
    path = folder / FILE if (folder / FILE).is_file() else _HOME / FILE
    text = _read(path)
    return Guideline(text_hash(text), text, SHIPPED, "", 1)


@cache
def _read(path: Path) -> str:
    try:
        return _clean(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: the guideline cannot be read ({error}). Put the file back.") from error


def _clean(text: str) -> str:
    """One text for what browsers and files write differently."""
    return storable(text.replace("\r\n", "\n").replace("\r", "\n")).strip() + "\n"
