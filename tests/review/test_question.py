"""What is asked of a pair, as sentences."""

from __future__ import annotations

import pytest

from cimemories.review.queue import question


@pytest.mark.parametrize(
    ("sex", "recipient", "task", "expected"),
    [
        ("F", "Triage nurse", "Say what hurts", "*triage nurse*. Her task: say what hurts. Does this belong in her"),
        ("male", "IRS", "IRS audit response.", "*IRS*. His task: IRS audit response. Does this belong in his"),
        ("X", "Anna Meyer", "Write a letter", "*Anna Meyer*. Their task: write a letter. Does this belong in their"),
        ("", "My mother", "", "*my mother*. Their task: . Does this belong in their"),
    ],
)
def test_a_role_gets_its_article_and_a_person_their_pronoun(sex: str, recipient: str, task: str, expected: str) -> None:
    segments = question("Ann Lee", sex, recipient, task)
    article = "the " if recipient == "Triage nurse" else ""
    said = "".join(f"*{text}*" if kind == "strong" else text for text, kind in segments)
    assert said == f"Ann Lee writes to {article}{expected} message?"
    # Names and tasks have a direction of their own.
    assert [kind for _, kind in segments] == ["data", "", "strong", "", "data", ""]
