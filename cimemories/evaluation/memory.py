"""MEM: a user's attributes as the memory part of a prompt (paper, Section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from cimemories.model import Attribute


def memory_lines(attributes: Sequence[Attribute]) -> str:
    """One line a memory statement, in the order given, each on one line whatever it holds."""
    return "\n".join(f"- {' '.join(item.statement.split())}" for item in attributes)
