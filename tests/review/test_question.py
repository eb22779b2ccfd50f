"""What is asked of a pair, as a sentence."""

from __future__ import annotations

import pytest

from cimemories.review.queue import question


@pytest.mark.parametrize(
    ("recipient", "task", "expected"),
    [
        ("Triage nurse", "Say what is wrong", "May the *triage nurse* learn this, to say what is wrong?"),
        ("IRS", "IRS audit response.", "May *IRS* learn this, to IRS audit response?"),
        ("Anna Meyer", "Write a letter", "May *Anna Meyer* learn this, to write a letter?"),
        ("My mother", "Catch up", "May *my mother* learn this, to catch up?"),
        ("", "", "May ** learn this, to ?"),
    ],
)
def test_a_role_gets_its_article_and_a_name_stays(recipient: str, task: str, expected: str) -> None:
    assert "".join(f"*{text}*" if strong else text for text, strong in question(recipient, task)) == expected
