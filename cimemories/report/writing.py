"""A report written to a file, whole or not at all: HTML by the name .html, Markdown with a folder of figures by .md."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cimemories.report.document import Report
from cimemories.report.html import as_html
from cimemories.report.markdown import as_markdown
from cimemories.store.engine import StoreError

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def figures_folder(path: Path) -> Path:
    """Where the figures of a Markdown report go: 'report-figures' beside 'report.md'."""
    return path.with_name(f"{path.stem}-figures")


def check(path: Path, *, force: bool) -> None:
    """Before any work is done: raises StoreError for a name of neither form, a folder that is not there, and a file
    that is, unless `force`."""
    if path.suffix.casefold() not in (*HTML, *MARKDOWN):
        raise StoreError(f"{path} is neither .html nor .md. Name the file by the form that it is to have.")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}. Make it first, or name another file.")
    if path.is_dir():
        raise StoreError(f"{path} is a folder. Name a file.")
    folder = figures_folder(path)
    beside = [folder] if path.suffix.casefold() in MARKDOWN else []
    for there in (path, *beside):
        if there.exists() and not force:
            raise StoreError(f"{there} is there already and stays as it is. Name another file, or add --force.")
    if beside and folder.exists() and not _only_figures(folder):
        raise StoreError(f"{folder} holds other things than figures of a report. Name another file.")


def write(report: Report, path: Path, *, force: bool = False) -> list[Path]:
    """Write the report; returns what was written, the report first. Raises StoreError as `check` does, and OSError; the
    file and its figures are then as they were before."""
    check(path, force=force)
    if path.suffix.casefold() in HTML:
        _place(path, as_html(report).encode())
        return [path]
    folder = figures_folder(path)
    text, pictures = as_markdown(report, folder.name)
    if pictures:
        _place_folder(folder, {name: drawn.encode() for name, drawn in pictures.items()})
    elif folder.exists():
        shutil.rmtree(folder)
    _place(path, text.encode())
    return [path, *(folder / name for name in pictures)]


def _only_figures(folder: Path) -> bool:
    return folder.is_dir() and all(item.is_file() and item.suffix == ".svg" for item in folder.iterdir())


def _place(path: Path, content: bytes) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        _readable(Path(draft), 0o666)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _place_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for name, content in files.items():
            (draft / name).write_bytes(content)
        _readable(draft, 0o777)
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _readable(path: Path, mode: int) -> None:
    """As readable as any new file; a draft is private to its owner."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(mode & ~mask)
