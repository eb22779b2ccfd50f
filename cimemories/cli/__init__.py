"""The command line: what the app does, for scripts and servers."""

# In the order in which `--help` lists the commands.
from cimemories.cli import datasets, labels, review, runs, sweeps, work, batch, metrics, compare, leaks, serve, upkeep  # noqa: F401, I001
from cimemories.cli.base import cli, main, open_app

__all__ = ["cli", "main", "open_app"]
