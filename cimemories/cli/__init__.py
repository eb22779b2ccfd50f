"""The command line: the same verbs and words as the pages, for scripts and servers.

Results go to standard output, progress and errors to standard error. Exit status 0 only on success; an error is one
clear line, 1 for what could not be done, 2 for a command that was not understood, and 3 for work that ended and lacks
part of what was planned.
"""

from cimemories.cli import curate, evaluate, explore, same_server, serve, upkeep
from cimemories.cli.base import cli, main

__all__ = [
    "accumulating",
    "batch",
    "cli",
    "comparing",
    "curate",
    "evaluate",
    "exchange",
    "explore",
    "generate",
    "labels_report",
    "leaking",
    "main",
    "packs",
    "pause",
    "ranking",
    "report",
    "review",
    "run",
    "same_server",
    "sensitivity",
    "serve",
    "servers",
    "sweep",
    "upkeep",
    "versions",
]
