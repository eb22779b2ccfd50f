"""`python warm_python.py SOCKET`: imports once what the app and the command line need, and becomes one of them in a
fork for each message of those who connect (forked.py). The imports take 1.5 to 5 s of the processor, which each process
would take again.

The last of the files that come with a message gets the id of the process, and how it ended when it has.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

gc.disable()  # what is imported here is no garbage
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cimemories.cli import base  # noqa: E402
from cimemories.ui import server  # noqa: E402

LONGEST = 1 << 20


def become(module: str, arguments: list[str]) -> NoReturn:
    """`python -m module arguments`, in this process."""
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    raise SystemExit(0)


def in_place(_program: str, command: list[str], environment: dict[str, str]) -> NoReturn:
    """os.execvpe for the app, which hands itself over by `python -P -m`: what is imported stays."""
    assert command[:3] == [sys.executable, "-P", "-m"], command
    os.environ.clear()
    os.environ.update(environment)
    become(command[3], command[4:])


def begin(message: dict[str, Any], files: list[int]) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((nothing, *files)):
        os.dup2(source, target)
    os.closerange(3, max(nothing, *files) + 1)
    os.environ.clear()
    os.environ.update(message["environment"])
    os.execvpe = in_place  # type: ignore[assignment]
    exec(message["first"], {})
    become("cimemories", message["words"])


def reap(*_: object) -> None:
    """Let those be gone who have watched over a process that has ended; their time counts as this one's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    parts = [f"pages.{path.parent.name}.{path.stem}" for path in server._parts(ROOT / "pages")]
    base.load()
    for name in (*server.HEAVY, *parts, "cimemories.llm.http.transport", "cimemories.simulator.server"):
        importlib.import_module(name)
    # Looked through once, here: each fork would, and would copy every page of memory that it marks.
    gc.collect()
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, reap)
    door = socket.socket(fileno=int(sys.argv[1]))
    workers = [door.accept()[0]]
    while workers:  # until the tests have ended
        (readable, *_), *_ = select.select([door, *workers], [], [])
        if readable is door:
            workers.append(door.accept()[0])
            continue
        message, files, *_ = socket.recv_fds(readable, LONGEST, 3)
        if not message:
            workers.remove(readable)
            readable.close()
            continue
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (door, *workers):
                each.close()
            *outputs, status_pipe = files
            process = os.fork()
            if process == 0:
                os.close(status_pipe)
                begin(json.loads(message), outputs)
            os.write(status_pipe, process.to_bytes(4, "little"))
            for file in outputs:
                os.close(file)
            os.write(status_pipe, os.waitpid(process, 0)[1].to_bytes(4, "little"))
            os._exit(0)
        for file in files:
            os.close(file)


if __name__ == "__main__":
    main()
