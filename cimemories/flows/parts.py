"""The flow relation of a run that does not fit into memory: Parquet files on disk, one a block of profiles.

    cache/flows-run-3f9a-judge1-<version>-<place>/00000.parquet ... 00199.parquet

Every number is a sum or a mean over profiles, so it is counted block by block (arrays.blocks, metrics/blocks.py):
memory is that of one block, and 100 times as many profiles take 100 times as long. A part is written whole or not at
all; what an interrupted build has written is used by the next one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from cimemories.access import readonly
from cimemories.flows.scope import Scope
from cimemories.store import runs
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, profile

LARGE_PAIRS = 20_000_000  # from there on a run is counted in blocks: dense arrays of so many pairs take 2 GB
PROFILES_A_PART = 250  # 1.8 million pairs at the sizes of the released profiles
_MOST_ATTRIBUTES = 400  # of a profile; a run that is not large even with so many need not be counted


@dataclass(frozen=True)
class Part:
    """Some profiles of a run: all in these files, or those of a stretch of record ids (first, last). files: none of a
    run that fits into memory."""

    files: tuple[Path, ...]
    stretch: tuple[int, int] | None = None

    @property
    def sql(self) -> str:
        """Source of its rows, as SQL after FROM."""
        rows = f"read_parquet([{', '.join(map(quoted, self.files))}])"
        if self.stretch is None:
            return rows
        return f"(SELECT * FROM {rows} WHERE profile BETWEEN {self.stretch[0]} AND {self.stretch[1]})"


IN_MEMORY = Part(())


def quoted(text: object) -> str:
    """Quote a text as a string of SQL, for statements without parameters (views, files)."""
    return "'" + str(text).replace("'", "''") + "'"


def pairs_at_most(store: Store, scope: Scope) -> int:
    """Estimate how many pairs (profile, attribute, context) a run plans: its slots times the mean number of attributes
    of its dataset, rounded up to _MOST_ATTRIBUTES where even that is not large."""
    slots = scope.run.expected // max(scope.run.samples, 1)
    if slots * _MOST_ATTRIBUTES < LARGE_PAIRS:
        return slots * _MOST_ATTRIBUTES
    of_dataset = profile.c.dataset == scope.run.dataset
    with store.read() as connection:
        people = connection.execute(sa.select(sa.func.count()).select_from(profile).where(of_dataset)).scalar_one()
        query = sa.select(sa.func.count()).select_from(attribute.join(profile)).where(of_dataset)
        attributes = connection.execute(query).scalar_one()
    return slots * attributes // max(people, 1)


def build(
    store: Store, scope: Scope, folder: Path, name: str, write: Callable[[Sequence[int], Path], None]
) -> list[Path]:
    """Return the parts of a run, in the order of its profiles; those that are not there are written by `write` (ids of
    profiles, file). name: of this way of counting; folders of its older versions are dropped. Raises StoreError in a
    read-only app, and where the disk is full."""
    with store.read() as connection:
        people = sorted(runs.profile_ids(connection, scope.run.id))
    blocks = [people[start : start + PROFILES_A_PART] for start in range(0, len(people), PROFILES_A_PART)]
    files = [folder / f"{number:05}.parquet" for number in range(len(blocks))]
    missing = [(block, file) for block, file in zip(blocks, files, strict=True) if not file.exists()]
    if missing and readonly.chosen():
        raise StoreError(f"{readonly.REASON}, and {scope.run.id} is too large to be counted without its files.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for block, file in missing:
            draft = file.with_suffix(f".{id(block)}.draft")
            write(block, draft)
            draft.replace(file)
    except OSError as error:
        raise StoreError(
            f"the flows of {scope.run.id} cannot be written to {folder} ({error.strerror}). Free some space, then do "
            "it again; what is written is kept."
        ) from error
    for old in folder.parent.glob(f"{name}-*"):
        if old != folder and old.is_dir():
            with suppress(OSError):
                shutil.rmtree(old)
    return files


class TooLargeError(StoreError):
    """Error of numbers that are not counted in blocks: the flows of a run do not fit into memory."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(
            f"{scope.run.id} is too large for this: its flows do not fit into memory. Ask it of a run on "
            "fewer profiles (`cimemories run --profiles`); docs/large.md lists what is counted at any size."
        )
