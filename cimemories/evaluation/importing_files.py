"""Importing whatever file it is: a dataset (formats.importing) or the results of runs (importing_results)."""

from __future__ import annotations

from pathlib import Path

from cimemories.evaluation.importing_results import import_results
from cimemories.files import uploaded
from cimemories.formats import importing
from cimemories.formats.errors import FormatError
from cimemories.formats.importing import Imported, Kind
from cimemories.formats.official_records import shown
from cimemories.store.engine import Store


def import_file(
    store: Store,
    path: Path,
    name: str | None = None,
    kind: Kind | None = None,
    *,
    model: str | None = None,
    judge: str | None = None,
) -> Imported:
    """Import a file as what it is recognised to be, or as `kind`. name: of the dataset. model, judge: of results, what
    wrote and what judged them. Raises FormatError for the file and StoreError for the name; then nothing is kept."""
    found = importing.recognise(path)
    if found != "results":
        if model or judge:
            raise FormatError(
                f"{shown(path.name)}: a model and a judge are told of results, and this holds none; leave them out"
            )
        return importing.import_file(store, path, name, kind)
    if kind not in (None, "results"):
        raise FormatError(f"{shown(path.name)}: this is no file of the format {kind}; its content is results")
    return import_results(store, path, name, model=model, judge=judge)


def import_bytes(
    store: Store, data: bytes | memoryview, file_name: str, name: str | None = None, *, model: str | None = None
) -> Imported:
    """The same for a file that was uploaded."""
    with uploaded(data, file_name) as path:
        return import_file(store, path, name, model=model)
