"""Starting the process that works on a labelling or a run. It outlives the page that launched it, the app, and a closed
browser; the record says how it stands.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from cimemories import installation
from cimemories.access.roles import Role
from cimemories.files import NotAFileError, open_regular, tail
from cimemories.llm import engines
from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.engine import Store, StoreError
from cimemories.store.team import log as audit_log


def log_path(store: Store, work_id: str) -> Path:
    """Return the path of the log of a piece of work."""
    return store.workspace / "logs" / f"{work_id}.log"


def launch(store: Store, work_id: str, engine: str | None = None) -> None:
    """Mark the work as queued and start a worker for it. engine: `local`, or as of llm/engines.py; by default the one
    that did the work last, else the one that the environment names.

    Raises StoreError if the work does not exist, is already being done, or no process can be started; work that was
    queued for a process that could not be started is marked as failed."""
    with store.write(Role.OPERATOR) as connection:
        work.queue(connection, work_id)
        audit_log.add(connection, f"{work.kind_of(work_id)}.started", work_id)
        if engine is None:
            engine = engines.last(connection, work_id)
        else:
            engines.record(connection, work_id, engine)
    command = installation.python("cimemories", "resume", work_id, "--queued")
    command += ["--workspace", str(store.workspace.absolute()), *(("--engine", engine) if engine else ())]
    log = log_path(store, work_id)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open_regular(log, "ab", follow=False) as output:
            subprocess.Popen(
                command,
                env=installation.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        cause = f"its log is {error.strerror}" if isinstance(error, NotAFileError) else error.strerror
        reason = f"the worker could not be started ({cause})"
        with store.write(Role.OPERATOR) as connection:
            work.finish(connection, work_id, WorkStatus.FAILED, reason)
        raise StoreError(f"{work_id}: {reason}. `cimemories resume {work_id}` starts it by hand.") from error


def log_tail(store: Store, work_id: str, lines: int = 12) -> str:
    """Return the last lines that the worker wrote; '' if it wrote none."""
    return "\n".join(tail(log_path(store, work_id), 16_384).splitlines()[-lines:])
