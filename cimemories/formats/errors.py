"""What goes wrong with a file, for people."""

from __future__ import annotations


class FormatError(ValueError):
    """A file that cannot be imported or written. The message is one line: file, record, field and what to do."""
