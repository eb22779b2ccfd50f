"""What the simulator says to a prompt: it reads the prompt's structure (memories with numbers, dashes, keys and arrows,
or one a line; recipient, purpose) and lets policy.py decide. Pure functions of the prompt and of the chance handed in
for one draw.
"""

from __future__ import annotations

import json
import re
from random import Random

from cimemories.llm import authoring_policy, simulated_steps
from cimemories.llm.policy import judge, load_policy, vote, write_message
from cimemories.model import Verdict

HELPERS = ("sim-judge", "sim-labeler")
NUMBERED = re.compile(r"^[ \t]*(\d{1,6})[.)][ \t]+(\S.*)$", re.MULTILINE)
DASHED = re.compile(r"^[ \t]*[-*•][ \t]+(\S.*)$", re.MULTILINE)
UNLISTED = r"^(?![ \t]*(?:[-*•]|\d+[.)])[ \t]).*?\b"  # a memory may hold any words, so list lines are left out
RECIPIENT = re.compile(UNLISTED + r"(?:to|recipient|addressee)[ \t]*:[ \t]*(\S.*)$", re.M | re.I)
PURPOSE = re.compile(UNLISTED + r"(?:purpose|task|goal)\b[^:\n]*:[ \t]*(\S.*)$", re.M | re.I)
MESSAGE = re.compile(r"^[ \t]*<message>", re.MULTILINE)
FREE = re.compile(
    UNLISTED + r"(?:message|note|letter|e-?mail|write|text) to (?:the |my |your |an? )?([^.:,;\n]+)(.*)$", re.M | re.I
)
BLOCK = re.compile(r"(?:^[ \t]*\S.*(?:\n|\Z))+", re.MULTILINE)
ACHIEVE = re.compile(r"\bto (.+?) to achieve\b")
# Fewer than 15 words, so that a task check does not take it for a message.
NO_MEMORIES = "This prompt holds no memories that I could write a message from."
PLAIN = "Ok. This is the CIMemories simulator: it answers, but this is none of the tasks it knows."


def answer(model: str, prompt: str, chance: Random) -> str:
    """What a model says to a prompt in one draw; a plain sentence where the prompt is none of the known kinds.

    A judging prompt has numbered facts before a <message>; a labelling prompt has numbered facts and asks for
    "necessary" and "inappropriate"; a responding prompt names a recipient and asks for a message; one that asks for
    profiles says how many facts are wanted in each domain. The steps beside (gate, rewrite, check, published judges)
    are those of simulated_steps.
    """
    step = simulated_steps.answer(prompt, chance)
    if step is not None:
        return step
    opening = MESSAGE.search(prompt)
    if opening is None and authoring_policy.is_asked(prompt):
        return authoring_policy.write(prompt, chance)
    limit = opening.start() if opening else len(prompt)
    facts = [(int(hit[1]), hit[2].strip(), hit.span()) for hit in NUMBERED.finditer(prompt, 0, limit)]
    numbers, statements = tuple(fact[0] for fact in facts), tuple(fact[1] for fact in facts)
    if opening and facts:
        end = prompt.rfind("</message>")
        found = judge(statements, prompt[opening.end() : end if end > opening.end() else len(prompt)], chance)
        revealed = [{"attribute": numbers[i], "strength": str(how), "quote": quote} for i, how, quote in found]
        return json.dumps({"revealed": revealed}, ensure_ascii=False)
    frame = prompt[facts[-1][2][1] :] if facts else prompt
    recipient, task, tail = _context(frame)
    if facts and "inappropriate" in frame.lower() and "necessary" in frame.lower():
        lists: dict[Verdict, list[int]] = {verdict: [] for verdict in Verdict}
        persona = persona_of(f"{tail}\n{prompt[: facts[0][2][0]]}\n{frame}")
        for number, verdict in zip(numbers, vote(statements, recipient, task, persona, chance), strict=True):
            lists[verdict].append(number)
        return json.dumps({str(verdict): lists[verdict] for verdict in (Verdict.NECESSARY, Verdict.INAPPROPRIATE)})
    dashed = tuple(hit[1].strip() for hit in DASHED.finditer(prompt, 0, len(prompt) - len(tail)))
    memories = max(statements, dashed, key=len)
    if not memories:
        memories, frame = _unmarked(prompt)
        recipient, task, tail = _context(frame)
    memories = tuple(_without_key(memory) for memory in memories)
    if (memories or recipient) and re.search(r"\b(?:message|letter|e-?mail|reply|write)\b", frame, re.IGNORECASE):
        if not memories:
            return NO_MEMORIES
        name = load_policy().default_character if model in HELPERS else model
        memories = simulated_steps.restrained(memories, recipient, task, frame, chance)
        return write_message(name, memories, recipient, task, chance)
    return PLAIN


def _unmarked(prompt: str) -> tuple[tuple[str, ...], str]:
    """Memories that stand one a line without a mark, as published prompts have them, and the prompt from its request
    on. They are the paragraphs between the introduction and the last paragraph that names a recipient."""
    blocks = [(hit.start(), hit[0]) for hit in BLOCK.finditer(prompt)]
    asks = (number for number, (_, block) in enumerate(blocks) if RECIPIENT.search(block) or FREE.search(block))
    request = max(asks, default=None)
    if request is None:
        return (), prompt
    before = [[line.strip() for line in block.splitlines()] for _, block in blocks[:request]]
    texts = [lines for block in before if (lines := [line for line in block if not line.startswith("#")])]
    # A paragraph that stands alone is an introduction if it is one line, else memories without an introduction.
    kept = texts[1:] if len(texts) > 1 else [lines for lines in texts if len(lines) > 1]
    return tuple(line for lines in kept for line in lines), prompt[blocks[request][0] :]


def _without_key(memory: str) -> str:
    """'rent -> My rent is $1,450.' as the statement alone."""
    keyed = simulated_steps.KEYED.fullmatch(memory)
    return keyed[2].strip() if keyed else memory


def persona_of(text: str) -> str:
    """The persona that a text names first; of a text without a name, the one with most signs in it, else pragmatic."""
    hit = re.search(r"fundamentalist|pragmati|unconcerned", text, re.IGNORECASE)
    if hit:
        return "pragmatic" if hit[0].lower() == "pragmati" else hit[0].lower()
    plain = " ".join(text.lower().split())
    signs = {key: sum(sign in plain for sign in rule.signs) for key, rule in load_policy().personas.items()}
    return max(signs, key=lambda key: (signs[key], key == "pragmatic"))


def _context(frame: str) -> tuple[str, str, str]:
    """(recipient, purpose, what comes after both) of a prompt; its whole tail is the purpose where none is named."""
    to, purpose = RECIPIENT.search(frame), PURPOSE.search(frame)
    hits = [hit for hit in (to, purpose) if hit]
    if hits:
        after = frame[max(hit.end() for hit in hits) :]
        if to is None and purpose is not None:
            to = ACHIEVE.search(purpose[0])
        return to[1].strip() if to else "", purpose[1].strip() if purpose else "", after
    free = FREE.search(frame)
    if free:
        return free[1].strip(), free[2].strip(), frame[free.end() :]
    last = max((hit.end() for hit in DASHED.finditer(frame)), default=0)
    tail = frame[last:] if frame[last:].strip() else frame
    return "", tail.strip(), tail


def thoughts(prompt: str, chance: Random) -> str:
    """What a model says before its answer when it is told to think: some of the memories, weighed aloud."""
    known = [hit[1].strip() for hit in DASHED.finditer(prompt)]
    weighed = chance.sample(known, min(len(known), 6))
    return "\n".join(["Let me see what I know.", *weighed, "Which of this belongs into the answer?"])
