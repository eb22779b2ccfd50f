"""A program that stands where `vllm serve` does and answers: the simulator in the clothes of a real server.

`install(folder)` makes it `folder/bin/vllm`. It serves the model that it is given, by a simulated policy of that
name, and is ready after LOADING_SECONDS; each start adds its process and port to `folder/starts`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOADING_SECONDS = 0.5
PROGRAM = """#!{python} -P
import os, sys, time
sys.path.insert(0, {root!r})
port = int(sys.argv[sys.argv.index("--port") + 1])
with open({starts!r}, "a") as starts:
    starts.write(f"{{os.getpid()}} {{port}}\\n")
if "never" in sys.argv[2]:
    time.sleep(600)
if "broken" in sys.argv[2]:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
time.sleep({loading})
from cimemories.simulator import server
server.OWNER = "vllm"
with server._listen("127.0.0.1", port) as listener:
    server._uvicorn(server.create_app()).run(sockets=[listener])
"""


def install(folder: Path) -> Path:
    """The program; to be named in CIMEMORIES_VLLM."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    starts = str(folder / "starts")
    program.write_text(PROGRAM.format(python=sys.executable, root=str(ROOT), starts=starts, loading=LOADING_SECONDS))
    program.chmod(0o755)
    return program


def starts(folder: Path) -> list[tuple[int, int]]:
    """The servers that were started so far: process and port."""
    path = folder / "starts"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), int(port)) for pid, port in map(str.split, lines)]
