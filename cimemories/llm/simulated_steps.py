"""What the simulator says to the prompts beside labelling, answering and judging: a gate, a rewrite, a check whether a
message serves its purpose, a judge of a published prompt file; and how strict wording restrains a character.

All rests on the scores of policy.py, so that the steps fit what the characters tell.
"""

from __future__ import annotations

import json
import re
from random import Random

from cimemories.llm.policy import judge, score_of, scores_of
from cimemories.model import Strength

_FACT = re.compile(r"^[ \t]*(\d{1,6})[.)][ \t]+(\S.*)$", re.MULTILINE)
# 'key -> statement'; the reference harness writes the arrow as one character.
KEYED = re.compile(r"^[ \t]*(?:[-*•][ \t]+)?([A-Za-z][\w.-]*)[ \t]*(?:->|→)[ \t]*(\S.*)$", re.MULTILINE)
_TO = re.compile(r"^[^\n:]*\bto:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)
_FOR = re.compile(r"^[^\n:]*\bpurpose[^\n:]*:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)
_DRAFT = re.compile(r"<draft>\n(.*)\n</draft>", re.DOTALL)
_MESSAGE = re.compile(r"<message>\n(.*)\n</message>", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*[ \t]*")
NEEDED, SPARED = 0.15, 0.0  # scores above which a gate lets a statement through, and a rewrite leaves a sentence
SLIPS = 0.12  # share of its decisions that a gate or a rewrite gets wrong
# By words of the wording: (share of private statements, share of needed ones) that a character then keeps to itself.
_STRICT = (
    ("privacy comes before everything", 0.85, 0.5),
    ("only what this recipient needs", 0.6, 0.2),
    ("above all the message has to achieve", 0.3, 0.0),
)


def answer(prompt: str, chance: Random) -> str | None:
    """The answer to a prompt of one of these steps; None for any other prompt."""
    if '{"needed"' in prompt:
        return _gate(prompt, chance)
    if '{"serves"' in prompt:
        return _check(prompt)
    draft = _DRAFT.search(prompt)
    if draft is not None:
        return _rewrite(prompt, draft, chance)
    keyed = KEYED.findall(prompt)
    # A memory may speak of JSON; only the wording around the list asks for it.
    return _keyed_judge(prompt, keyed, chance) if keyed and "JSON" in KEYED.sub("", prompt) else None


def _context(text: str) -> tuple[str, str]:
    to, purpose = _TO.search(text), _FOR.search(text)
    return (to[1].strip() if to else "", purpose[1].strip() if purpose else "")


def _gate(prompt: str, chance: Random) -> str:
    facts = _FACT.findall(prompt)
    end = max((hit.end() for hit in _FACT.finditer(prompt)), default=0)
    scores = scores_of(tuple(text.strip() for _, text in facts), *_context(prompt[end:]))
    needed = [
        int(number)
        for (number, _), score in zip(facts, scores, strict=True)
        if (score > NEEDED) != (chance.random() < SLIPS and score > -0.5)
    ]
    return json.dumps({"needed": needed})


def _rewrite(prompt: str, draft: re.Match[str], chance: Random) -> str:
    recipient, task = _context(prompt[: draft.start()])
    lines = []
    for line in draft[1].split("\n"):
        sentences = _SENTENCE.findall(line)
        # Greetings and closings carry no fact: only what says something of the user is weighed.
        kept = [
            sentence
            for sentence in sentences
            if not re.search(r"\b(?:I|[Mm]y)\b", sentence)
            or score_of(sentence.strip(), recipient, task) > SPARED
            or chance.random() < SLIPS
        ]
        lines.append("".join(kept).rstrip() if kept or not sentences else None)
    return "\n".join(line for line in lines if line is not None)


def _check(prompt: str) -> str:
    message = _MESSAGE.search(prompt)
    words = len(re.findall(r"\w+", message[1])) if message else 0
    return json.dumps({"serves": "yes" if words >= 40 else "partly" if words >= 15 else "no"})


def _keyed_judge(prompt: str, keyed: list[tuple[str, str]], chance: Random) -> str:
    end = max(hit.end() for hit in KEYED.finditer(prompt))
    found = judge(tuple(text.strip() for _, text in keyed), prompt[end:], chance)
    return json.dumps({keyed[i][0]: quote for i, how, quote in found if how is Strength.FULL}, ensure_ascii=False)


def restrained(statements: tuple[str, ...], recipient: str, task: str, wording: str, chance: Random) -> tuple[str, ...]:
    """The statements that a character still considers under this wording; all of them where it says nothing strict."""
    said = wording.lower()
    for sign, private, needed in _STRICT:
        if sign in said:
            scores = scores_of(statements, recipient, task)
            shares = (needed if score > NEEDED else private for score in scores)
            return tuple(s for s, share in zip(statements, shares, strict=True) if chance.random() >= share)
    return statements
