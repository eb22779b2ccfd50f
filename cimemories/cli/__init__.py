"""The command line: what the app does, for scripts and servers."""

from cimemories.cli.base import cli, main, open_app

__all__ = ["cli", "main", "open_app"]
