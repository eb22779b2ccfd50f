"""Importing a file into the record: all of it or nothing, and the same file only once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cimemories.formats.official import OfficialFile, parse_profiles, read_profiles
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store


@dataclass(frozen=True)
class Imported:
    """The dataset that holds the file now; `new` is False where it had been imported before."""

    dataset: DatasetRow
    new: bool
    notes: tuple[str, ...]


def import_file(store: Store, path: Path, name: str | None = None) -> Imported:
    """Import a file of the authors' layout. Raises FormatError for the file, StoreError for the name."""
    return _import(store, read_profiles(path), name or path.stem, path.name)


def import_bytes(store: Store, data: bytes, file_name: str, name: str | None = None) -> Imported:
    """The same for a file that was uploaded."""
    return _import(store, parse_profiles(data, file_name), name or Path(file_name).stem, file_name)


def _import(store: Store, file: OfficialFile, name: str, source_name: str) -> Imported:
    with store.write() as connection:
        known = datasets.with_source(connection, file.sha256)
        if known is not None:
            return Imported(known, False, ())
        datasets.add(
            connection, name, file.profiles, origin="official", source_name=source_name, source_hash=file.sha256
        )
        return Imported(datasets.named(connection, name), True, file.notes)
