"""Uploads are read by a separate process, with limits on its memory and time: one file cannot take the app down.

    imported = import_upload(store, upload.getbuffer(), upload.name, go_on=page.session_is_open)

The process imports the file into the record by itself, in one transaction, as the command line does, and prints the
outcome as JSON. It ends when its browser session is gone or the app ends, and then leaves nothing behind. Only texts
leave it, which pages escape. Sweeps and prompt files are read by the app itself: seeds.reading bounds them to half a
second of work."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cimemories import installation
from cimemories.access import readonly, roles
from cimemories.access.roles import Actor, Role
from cimemories.evaluation import importing
from cimemories.evaluation.compositions import LabelSource
from cimemories.files import uploaded
from cimemories.formats import importing as formats_importing
from cimemories.formats import review_events
from cimemories.formats.reading import FormatError
from cimemories.store import datasets
from cimemories.store.engine import DATABASE_URL, Store, StoreError, open_store
from cimemories.text import shown

MEMORY = 2 << 30  # bytes; without a file the process has 0.15 of these
SECONDS = 900  # the largest upload (256 MB of results) takes about two minutes
_ADDRESSES = 2 << 30  # bytes of addresses above MEMORY: libraries that are mapped, stacks of threads
_LONGEST_ANSWER = 4 << 20  # bytes; a longer answer counts as none
_SKIPPED_SHOWN = 100
_LOOK_SECONDS = 0.1
_BY_HAND = "import it on the command line, which has no such limit: cimemories import FILE"
_log = logging.getLogger(__name__)


def import_upload(
    store: Store,
    data: bytes | memoryview,
    file_name: str,
    name: str | None = None,
    *,
    model: str | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> formats_importing.Imported:
    """Import an uploaded file by its recognised kind. name: of the dataset; model: that wrote the results.

    go_on: asked while the file is read; once it returns False, the reading ends. Raises FormatError for the file, for
    one that takes too much and if the reading was ended, and StoreError for the name; then nothing is kept."""
    answer = _read(store, data, file_name, "import", {"name": name, "model": model}, go_on)
    with store.read() as connection:
        row = next((row for row in datasets.all_rows(connection) if row.id == answer["dataset"]), None)
    if row is None:
        raise StoreError("the dataset was deleted while its file was imported. Import it again.")
    return formats_importing.Imported(**{**_tuples(answer), "dataset": row})


def review_upload(
    store: Store,
    data: bytes | memoryview,
    file_name: str,
    *,
    go_on: Callable[[], bool] = lambda: True,
    **options: Any,
) -> review_events.Imported:
    """Add the review events of an uploaded file to a dataset. options: those of `review_events.import_events`. Raises
    like `import_upload`."""
    return review_events.Imported(**_tuples(_read(store, data, file_name, "review", options, go_on)))


def _tuples(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the lists of a JSON object back into tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in answer.items()}


def _read(
    store: Store,
    data: bytes | memoryview,
    file_name: str,
    do: str,
    options: Mapping[str, Any],
    go_on: Callable[[], bool],
) -> dict[str, Any]:
    """Return the answer of the process. Raises FormatError and StoreError with its message."""
    if readonly.chosen():
        raise StoreError(f"{readonly.REASON}, so nothing was imported.")
    if reason := roles.refused(Role.CURATOR):  # before a process reads the file; the record asks again
        raise StoreError(f"{reason} Nothing was imported.")
    name = shown(file_name or "upload")
    environment = {
        **installation.environment(),
        # Libraries that start a thread a core and keep memory for each: one file is read by one thread.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    # The record of this store, whatever the app's environment names. An address may hold a password:
    # only this user sees the environment, but all users see the arguments.
    environment.pop(DATABASE_URL, None)
    if not store.is_sqlite:
        environment[DATABASE_URL] = store.engine.url.render_as_string(hide_password=False)
    # Files and no pipes for its output: pipes would have to be emptied for it to go on.
    with uploaded(data, file_name) as path, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        request: dict[str, Any] = {"do": do, "options": options, "file": str(path)}
        request |= {"workspace": str(store.workspace.absolute()), "memory": MEMORY, "seconds": SECONDS}
        request["actor"] = vars(roles.actor())
        try:
            process = subprocess.Popen(
                installation.python("cimemories.uploads"),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                # Ctrl-C at the terminal reaches only the app, whose end then ends this process.
                start_new_session=True,
            )
        except OSError as error:
            raise StoreError(f"the file cannot be read now ({error.strerror}). Try again.") from error
        code = _watched(process, request, name, go_on)
        output.seek(0)
        # One byte more tells an answer that is too long from one that just fits.
        text = output.read(_LONGEST_ANSWER + 1)
        errors.seek(0, os.SEEK_END)
        errors.seek(max(0, errors.tell() - 4096))
        complaints = errors.read().decode("utf-8", "replace")
    try:
        answer = json.loads(text) if len(text) <= _LONGEST_ANSWER else {}
    except ValueError:
        answer = {}
    match answer:
        case {"result": dict(result)}:
            return result
        case {"problem": "file", "message": str(message)}:
            raise FormatError(message)
        case {"problem": "record", "message": str(message)}:
            raise StoreError(message)
    if answer.get("problem") == "memory" or "bad_alloc" in complaints or "MemoryError" in complaints:
        raise FormatError(f"{name}: needs more than {MEMORY >> 20:,} MiB of memory to read; {_BY_HAND}")
    if code == -signal.SIGXCPU:
        raise FormatError(f"{name}: not read within {SECONDS:,} seconds; {_BY_HAND}")
    _log.error("the process that read an upload ended with %s: %s", code, complaints)
    raise FormatError(f"{name}: could not be read: the process that read it has failed; {_BY_HAND}")


def _watched(process: subprocess.Popen[bytes], request: Mapping[str, Any], name: str, go_on: Callable[[], bool]) -> int:
    """Return the exit status of the process, which is gone when this returns or raises."""
    assert process.stdin is not None
    try:
        # It may have ended before it has read anything; its exit status says why.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        # The process itself has a limit of processor time; this one is for a process that waits.
        last = time.monotonic() + SECONDS
        while True:
            try:
                return process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if not go_on():
                    raise FormatError(f"{name}: its import was stopped: the browser window is gone") from None
                if time.monotonic() > last:
                    raise FormatError(f"{name}: not read within {SECONDS:,} seconds; {_BY_HAND}") from None
    finally:
        # Harmless for one that has ended. wait() below takes its exit status, or a zombie would be left.
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


# ---- inside the process


def _import(store: Store, path: Path, **options: Any) -> dict[str, Any]:
    imported = importing.import_file(store, path, find_labels=_find_labels, **options)
    return {**vars(imported), "dataset": imported.dataset.id}


def _find_labels(store: Store, dataset: int) -> LabelSource | None:
    # For logs of Inspect alone; pandas takes half a second, and memory.
    from cimemories.labels.whatif import effective_labels

    return effective_labels(store, dataset)


def _review(store: Store, path: Path, **options: Any) -> dict[str, Any]:
    done = review_events.import_events(store, path, **options)
    # A page shows how many there are, and the first. All of them could be longer than an answer may be, and what has
    # been imported by now would be reported as a failure.
    first = [shown(text, 500) for text in done.skipped[:_SKIPPED_SHOWN]]
    return {**vars(done), "skipped": first, "more_skipped": len(done.skipped) - len(first)}


def _limit(memory: int, seconds: int) -> None:
    limits = {
        resource.RLIMIT_AS: memory + _ADDRESSES,
        # The memory that it allocates. Addresses are more than that: libraries are mapped, and stacks are reserved.
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_CPU: seconds,
        # No core dump: it would hold uploaded data.
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # a system that has no such limit
            # Time has a soft limit alone, at which the process dies of a signal that says why.
            resource.setrlimit(kind, (soft, hard if kind == resource.RLIMIT_CPU else soft))
    with contextlib.suppress(OSError):
        os.nice(5)  # pages come first


def _end_with_the_app() -> None:
    """Exit when the app ends: it holds the other end of standard input, and sends nothing more."""
    while os.read(0, 4096):
        pass
    # At once, whatever the other thread is doing: a transaction that is not committed leaves nothing behind.
    os._exit(1)


def main() -> None:
    """Read one request from standard input, do it, and print the answer."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request["memory"], request["seconds"])
    threading.Thread(target=_end_with_the_app, daemon=True).start()
    answer: dict[str, Any]
    try:
        actor = request["actor"]
        who = Actor(actor["name"], actor["account"], Role(actor["role"]))
        roles.ask_by(lambda: who)
        store = open_store(request["workspace"])
        do = {"import": _import, "review": _review}[request["do"]]
        answer = {"result": do(store, Path(request["file"]), **request["options"])}
        store.close()
    except FormatError as error:
        answer = {"problem": "file", "message": str(error)}
    except StoreError as error:
        answer = {"problem": "record", "message": str(error)}
    except MemoryError:
        answer = {"problem": "memory"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
