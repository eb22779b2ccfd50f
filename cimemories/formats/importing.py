"""Importing a file into the record: recognised by its content, all of it or nothing, and the same file only once.

profiles        the authors' profiles (JSON)                              formats.official
labelled        the same with shares of votes inside each context         formats.labelled
huggingface     one row a pair, Parquet or CSV, or a folder with such     formats.huggingface
folder          all of a dataset as tables, a folder or zip file          formats.tables
bundle          the same as earlier versions wrote it                     formats.bundle
results         the authors' results, one profile a line                  evaluation.importing
inspect         a log of Inspect (.eval) of our own task                  evaluation.importing

Results and logs are recognised here and imported there: looking their quotes up in the messages is a part of
evaluation.
"""

from __future__ import annotations

import re
import zipfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from cimemories import extras
from cimemories.access.roles import Role
from cimemories.formats.bundle import MANIFEST, opened_bundle
from cimemories.formats.huggingface import is_header, read_columns
from cimemories.formats.labelled import read_labelled
from cimemories.formats.official import ProfileFile, read_profiles
from cimemories.formats.reading import BAD_ZIP, FormatError, file_hash, opened
from cimemories.formats.tables import FOLDER, check, notes_of, opened_folder, prefix_of
from cimemories.store import archive, datasets, labellings
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Connection, Store, StoreError
from cimemories.store.labellings import SharedLabels
from cimemories.store.team import log
from cimemories.text import count, shown

Kind = Literal["profiles", "labelled", "huggingface", "folder", "bundle", "results", "inspect"]
OF_RUNS: tuple[Kind, ...] = ("results", "inspect")
KINDS: tuple[Kind, ...] = get_args(Kind)
KIND_TITLES: dict[Kind, str] = {
    "profiles": "the authors' profiles",
    "labelled": "the authors' labelled profiles",
    "huggingface": "the published columns, one row a pair",
    "folder": "a folder of CIMemories Studio",
    "bundle": "a bundle of CIMemories Studio",
    "results": "the authors' results, responses with judgements",
    "inspect": "a log of Inspect, responses with judgements",
}
ORIGINS: dict[Kind, str] = {kind: kind for kind in KINDS} | {"profiles": "official"}
_HEAD = 1 << 16
# An object that is on one line and begins with a field of a profile, as no list of profiles does.
_PROFILE_A_LINE = re.compile(r'\{ *"(bio|information_attributes|contexts|run|labelling)" *:')
# As Inspect writes a log as JSON: version, status, eval.
_JSON_LOG = re.compile(r'\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:')
_PART = re.compile(r"-\d{5}-of-(\d{5})$")  # of one table in several files
_READS = (
    "JSON profiles (from '['), results (one profile a line), Parquet, CSV with a header, our own exports (zip or "
    "folder) and logs of Inspect (.eval)"
)
_OTHER = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z"}


@dataclass(frozen=True)
class Imported:
    """The dataset that now holds the file; `new` is False if it had been imported before, also if deleted labels of it
    were restored. `runs`: ids of the imported runs."""

    dataset: DatasetRow
    new: bool
    notes: tuple[str, ...]
    kind: Kind = "profiles"
    runs: tuple[str, ...] = ()

    @property
    def recognised(self) -> str:
        """Return the kind of the file, in words."""
        return KIND_TITLES[self.kind]


def snapshot_files(folder: Path) -> list[Path]:
    """Return the Parquet files of one table in a folder that was downloaded from the Hugging Face Hub, in the order of
    their parts ('test-00000-of-00002.parquet'); else its one CSV or JSON file. Hidden files and folders are ignored.
    Raises FormatError if there is none, more than one table, or a part is missing."""
    name = shown(folder.name or folder)
    # Sorted by path; links are followed, as all files of a snapshot in the Hub's cache are links.
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    paths = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    for ending in (".parquet", ".csv", ".json"):
        tables: dict[str, list[Path]] = {}
        for path in paths:
            if path.suffix.lower() == ending:
                tables.setdefault(_PART.sub("", str(path.relative_to(folder).with_suffix(""))), []).append(path)
        if len(tables) > 1:
            named = ", ".join(shown(str(parts[0].relative_to(folder))) for parts in list(tables.values())[:4])
            raise FormatError(f"{name}: this folder holds several tables ({named}); choose one of the files")
        for parts in tables.values():
            numbered = _PART.search(parts[0].stem)
            expected = int(numbered[1]) if numbered else 1
            if len(parts) != expected:
                raise FormatError(f"{name}: {len(parts)} of {expected} parts are here; download it again")
            return parts
    raise FormatError(f"{name}: this is a folder without a table; choose a file, or a folder that was exported")


def snapshot_name(folder: Path) -> str:
    """Return the name of a downloaded dataset: the folder's name, in the Hub's cache that of the repository
    ('datasets--facebook--CIMemories/snapshots/1f2e')."""
    folder = folder.resolve()
    return folder.parent.parent.name.split("--")[-1] if folder.parent.name == "snapshots" else folder.name


def is_export(folder: Path) -> Kind | None:
    """Return which of our own exports a folder is; None if it is none."""
    if (folder / MANIFEST).is_file():
        return "bundle"
    return "folder" if (folder / FOLDER / "dataset.parquet").is_file() else None


def recognise(path: Path) -> Kind:
    """Return the kind of a file by its content, whatever its name; labelled profiles count as profiles. Raises
    FormatError if it is of no known kind."""
    if path.is_dir():
        return is_export(path) or recognise(snapshot_files(path)[0])
    name = shown(path.name or path)
    with opened(path) as stream:
        head = stream.read(_HEAD)
        if head.startswith(b"PK"):
            return _zipped(stream)
    if head.startswith(b"PAR1"):
        return "huggingface"
    for magic, packed in _OTHER.items():
        if head.startswith(magic):
            raise FormatError(f"{name}: this is packed with {packed}; unpack it first")
    # `replace`: the head may end in the middle of a character.
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    first = text.strip(" \t\r\n").split("\n", 1)
    if _PROFILE_A_LINE.match(first[0]):
        return "results"
    if len(first) == 2 and all(line.lstrip().startswith("{") for line in first) and first[0].rstrip().endswith("}"):
        raise FormatError(
            f"{name}: this has one JSON object a line, but is neither the authors' results nor a whole export (zip or "
            "folder); import one of these"
        )
    if _JSON_LOG.match(text.lstrip(" \t\r\n")):
        raise FormatError(
            f"{name}: this is a log of Inspect as JSON, and logs are read as .eval; `inspect log convert --to eval "
            "--output-dir FOLDER LOG` makes one of it"
        )
    if text.lstrip(" \t\r\n").startswith(("[", "{")) or not text.strip(" \t\r\n"):
        return "profiles"  # its own reader explains best what is wrong with an empty file or a single object
    if is_header(next(iter(text.splitlines()), "")):
        return "huggingface"
    raise FormatError(f"{name}: unknown format, the file begins with '{shown(text, 20)}'; supported are {_READS}")


def _zipped(stream: BinaryIO) -> Kind:
    """Return the kind of a zip file. A damaged one counts as a folder, whose reader says what is wrong with it."""
    with suppress(*BAD_ZIP), zipfile.ZipFile(stream) as packed:
        if prefix_of(packed.namelist()) is None:
            readers = {} if MANIFEST in packed.namelist() else extras.registered("results")
            logs = (kind for kind in OF_RUNS if kind in readers and extras.load(readers[kind]).recognises(packed))
            return next(logs, "bundle")
    return "folder"


def import_as(
    store: Store, path: Path, content: Kind, name: str | None = None, *, labels: bool | None = None
) -> Imported:
    """Import a file of this recognised kind, which is none of OF_RUNS. name: of the dataset; that of the file by
    default. labels: whether profiles must have some, or these are left out; None: as there are.

    A file that was imported before adds only those of its labels that were deleted since; its dataset keeps its name,
    and a note says so if another one is asked for. A folder or bundle whose labels or runs were deleted is imported as
    a separate dataset. Raises FormatError for the file and StoreError for the name; then nothing is kept."""
    if content in ("folder", "bundle"):
        return _import_tables(store, path, name, content)
    paths = snapshot_files(path) if path.is_dir() else [path]
    asked, name = name, name or (snapshot_name(path) if path.is_dir() else path.stem)
    digest = file_hash(*paths)
    with store.read() as connection:  # before any work on these bytes
        existing = datasets.with_source(connection, digest)
    # Else it is read again, to find its labels, and whether they are here.
    if existing is not None and labels is False:
        return Imported(existing, False, _other_name(existing, asked), _kind_of(existing))
    if content == "huggingface":
        file = read_columns(*paths)
    else:
        file = read_profiles(paths[0]) if labels is False else read_labelled(paths[0])
        content = "labelled" if file.labels else "profiles"
    if labels and not file.labels:
        raise FormatError(f"{shown(path.name)}: there are no labels in its contexts; import it as profiles")
    if existing is not None:  # labels that are here already are visible to every role
        with store.read() as connection:
            if not _missing(connection, existing, file):
                return Imported(existing, False, _other_name(existing, asked), _kind_of(existing))
    return _import(store, file, name, asked, path.name or name, content)


def _kind_of(row: DatasetRow) -> Kind:
    return next((kind for kind in KINDS if ORIGINS[kind] == row.origin), "profiles")


def _other_name(existing: DatasetRow, asked: str | None) -> tuple[str, ...]:
    if asked in (None, existing.name):
        return ()
    return (f"this file is here as '{existing.name}', so nothing was imported as '{asked}'",)


def _missing(connection: Connection, existing: DatasetRow, file: ProfileFile) -> list[SharedLabels]:
    """Return those labels of a file that its dataset lacks: they were deleted, or it was imported without them."""
    return [labels for labels in file.labels if not labellings.has_imported(connection, existing.id, labels)]


def _restored(connection: Connection, existing: DatasetRow, file: ProfileFile, source_name: str) -> list[str]:
    """Add the labels of a file that its dataset lacks; return notes on it."""
    missing = _missing(connection, existing, file)
    if existing.frozen:
        left = f"'{existing.name}' is frozen: the labels by {{}} in the file, which it lacks, were left out"
        return [left.format(shown(labels.model)) for labels in missing]
    notes = []
    for labels in missing:
        records = datasets.profile_records(connection, existing.id)
        added = labellings.add_imported(connection, existing.id, records, labels)
        notes.append(f"'{existing.name}' had no labels by {shown(labels.model)} from this file: added as {added}")
    if missing:
        log.add(connection, "dataset.imported", existing.name, file=source_name, labellings=len(missing))
    return notes


def _import(store: Store, file: ProfileFile, name: str, asked: str | None, source_name: str, kind: Kind) -> Imported:
    file = with_one_sphere(file, shown(source_name))
    with store.write(Role.CURATOR) as connection:
        # Asked again: another process may have imported the same file while this one was read.
        existing = datasets.with_source(connection, file.sha256)
        if existing is not None:
            notes = (*_other_name(existing, asked), *_restored(connection, existing, file, source_name))
            return Imported(existing, False, notes, _kind_of(existing))
        dataset_id = datasets.add(
            connection, name, file.profiles, origin=ORIGINS[kind], source_name=source_name, source_hash=file.sha256
        )
        records = datasets.profile_records(connection, dataset_id) if file.labels else []
        for labels in file.labels:
            labellings.add_imported(connection, dataset_id, records, labels)
        log.add(connection, "dataset.imported", name, file=source_name, profiles=len(file.profiles))
        return Imported(datasets.by_name(connection, name), True, file.notes, kind)


def with_one_sphere(file: ProfileFile, name: str) -> ProfileFile:
    """Give each context its sphere in all profiles: given by one profile, it holds for the others."""
    # By task and recipient, which make a context the same one in several profiles.
    spheres: dict[tuple[str, str], str] = {}
    for number, profile in enumerate(file.profiles, 1):
        for position, item in enumerate(profile.contexts, 1):
            sphere = spheres.setdefault((item.task, item.recipient), item.sphere) if item.sphere else item.sphere
            if sphere != item.sphere:
                raise FormatError(
                    f"{name}: profile {number}, context {position}: sphere is '{shown(item.sphere)}', and "
                    f"'{shown(sphere)}' for the same context of another profile; use one"
                )
    filled = 0
    profiles = []
    for profile in file.profiles:
        stated = [spheres.get((c.task, c.recipient)) for c in profile.contexts]
        filled += sum(c.sphere != sphere for c, sphere in zip(profile.contexts, stated, strict=True))
        contexts = tuple(replace(c, sphere=sphere) for c, sphere in zip(profile.contexts, stated, strict=True))
        profiles.append(replace(profile, contexts=contexts))
    if not filled:
        return file
    note = f"spheres that only some profiles give were filled in for the others, in {count(filled, 'context')}"
    return replace(file, profiles=tuple(profiles), notes=(*file.notes, note))


def _import_tables(store: Store, path: Path, name: str | None, kind: Kind) -> Imported:
    # Rows are read twice: checked as a whole before the transaction, and written in it.
    with opened_folder(path) if kind == "folder" else opened_bundle(path) as content:
        check(content)
        with store.write(Role.CURATOR) as connection:
            dataset_name = name or str(content.about["name"])
            sizes = (content.counts[table] for table in ("edits", "labellings", "runs"))
            there = archive.with_content(connection, content.hash, *sizes)
            if there is not None and not there[1]:
                return Imported(there[0], False, _other_name(there[0], name), kind)
            if there is not None and there[0].name == dataset_name:
                raise StoreError(
                    f"'{dataset_name}' was imported from this file, and {there[1]} of its labellings and runs were "
                    "deleted since. Import it again under another name with --dataset."
                )
            _, lost = archive.restore(
                connection,
                dataset_name,
                content.rows,
                origin=ORIGINS[kind],
                source_name=path.name,
                source_hash=content.hash,
            )
            log.add(connection, "dataset.imported", dataset_name, file=path.name)
            notes = notes_of(content)
            if lost:
                notes.append(f"{count(lost, 'call')} neither in the file nor here; what rests on them is kept")
            return Imported(datasets.by_name(connection, dataset_name), True, tuple(notes), kind)
