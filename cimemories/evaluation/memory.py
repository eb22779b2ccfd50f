"""MEM: a user's attributes as the memory part of a prompt (paper, Section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from cimemories.llm.answers import one_line
from cimemories.model import Attribute
from cimemories.seeds import Prompt


def memory_lines(template: Prompt, attributes: Sequence[Attribute]) -> str:
    """One line a memory statement by the template, in the order given, each on one line whatever it holds.

    template: of the kind `memory`; {number} counts from 1, {key} and {domain} are the attribute's.
    """
    return "\n".join(
        template.render(
            statement=one_line(item.statement), number=str(number), key=one_line(item.key), domain=one_line(item.domain)
        )
        for number, item in enumerate(attributes, start=1)
    )
