"""Recipient and purpose out of the end of a prompt, whose wording is the file's and not known beforehand.

    "... - My rent is $1,450.\\n\\nWrite a message to: Landlord\\nPurpose: Renew a lease\\n\\nThe message alone."

Three ways, in this order: lines that name the two; what differs between the prompts of one profile (all else in them
is the same); a sentence of the kind "a message to X for the purpose of Y".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Found = tuple[str, str] | None  # recipient, task
LONGEST = 300
_MOST_WORDS = 200  # of recipient and purpose together, white space counted
_FEWEST = 3  # prompts that tell what differs from what does not
_RECIPIENT = re.compile(r"(?im)^.*\b(?:recipient|to)\b[^:\n]{0,20}:[ \t]*(\S.*?)[ \t]*$")
_TASK = re.compile(r"(?im)^.*\b(?:purpose|task|goal)\b[^:\n]{0,40}:[ \t]*(\S.*?)[ \t]*$")
_SENTENCE = re.compile(
    r"(?is)\b(?:message|letter|e-?mail|note|reply)\s+to\s+(?:the\s+|your\s+)?(?P<recipient>\S.{0,200}?)[,:]?\s+"
    r"(?:(?:for|with|serving)\s+the\s+(?:following\s+)?purpose(?:\s+of)?|for\s+the\s+task(?:\s+of)?|in\s+order\s+to|"
    r"so\s+as\s+to|for)\s*:?\s+(?P<task>\S[^\n]{0,300}?)\s*(?:[.\n]|$)"
)
_QUOTES = "\"'“”‘’`*<>[]{} \t"


def ends(prompts: Sequence[str], statements: Sequence[str]) -> list[str]:
    """What stands after the memories in each prompt of one profile; the whole prompt where no statement is found."""
    cut = []
    for prompt in prompts:
        last = max((prompt.rfind(s) + len(s) for s in statements if s in prompt), default=0)
        cut.append(prompt[last:])
    return cut


def recipients_and_tasks(tails: Sequence[str]) -> list[Found]:
    """One answer for each prompt of a profile; None where recipient or purpose cannot be told."""
    named = [_named(tail) for tail in tails]
    if _usable(named):
        return named
    differing = _differing(tails) if len(set(tails)) >= _FEWEST else []
    if differing and _usable(differing):
        return differing
    said = [_said(tail) for tail in tails]
    return said if _usable(said) else [None] * len(tails)


def _usable(found: Sequence[Found]) -> bool:
    """Every prompt tells both, and no two prompts the same: else the wording was misread."""
    return all(found) and len(set(found)) == len(found)


def _named(tail: str) -> Found:
    recipient, task = _RECIPIENT.search(tail), _TASK.search(tail)
    if recipient is None or task is None or recipient.start() == task.start():
        return None
    return _pair(recipient[1], task[1])


def _said(tail: str) -> Found:
    match = _SENTENCE.search(tail)
    return _pair(match["recipient"], match["task"]) if match else None


def _differing(tails: Sequence[str]) -> list[Found]:
    """Beginning and end that all share are cut off; what all the middles share divides recipient from purpose."""
    words = [re.findall(r"\s+|[^\s]+", tail) for tail in tails]
    before = _agreeing(words)
    after = _agreeing([line[before:][::-1] for line in words])
    middles = [line[before : len(line) - after] for line in words]
    glue = _shared(middles)
    if not glue:
        return []
    found: list[Found] = []
    for middle in middles:
        at = next(i for i in range(len(middle)) if middle[i : i + len(glue)] == glue)
        found.append(_pair("".join(middle[:at]), "".join(middle[at + len(glue) :])))
    return found


def _agreeing(lines: Sequence[Sequence[str]]) -> int:
    """How many words all begin with."""
    return next((i for i, column in enumerate(zip(*lines, strict=False)) if len(set(column)) > 1), min(map(len, lines)))


def _shared(middles: Sequence[Sequence[str]]) -> list[str]:
    """The longest run of words that stands in every middle, neither at its beginning nor at its end."""
    shortest = min(middles, key=len)
    best: list[str] = []
    if len(shortest) > _MOST_WORDS:
        return best
    for start in range(1, len(shortest)):
        for end in range(len(shortest) - 1, start + len(best), -1):
            run = list(shortest[start:end])
            if "".join(run).strip() and all(_inside(middle, run) for middle in middles):
                best = run
                break
    return best


def _inside(middle: Sequence[str], run: Sequence[str]) -> bool:
    return any(list(middle[i : i + len(run)]) == run for i in range(1, len(middle) - len(run)))


def _pair(recipient: str, task: str) -> Found:
    texts = (" ".join(recipient.split()).strip(_QUOTES).rstrip(".,;:"), " ".join(task.split()).strip(_QUOTES))
    if not all(texts) or any(len(text) > LONGEST for text in texts):
        return None
    return texts[0], texts[1].rstrip(".") or texts[1]
