"""What labelling costs in tokens: our prompt and answer against the reference wording, on the same votes.

    python benchmarks/labelling.py --tokenizer FOLDER [--profiles FILE] [--draws 10]

FOLDER holds a tokenizer.json, read with the package `tokenizers`, which the project itself does not need. FILE is in
the layout of the official profiles; the demo's profiles are the default. No model is asked: the votes are those of the
simulator's policy, and each is written down in both forms.

Prompt tokens are counted as a server with an automatic prefix cache computes them (vLLM's: blocks of 16 tokens, whole
blocks only, and the last token of a prompt is never served), over all calls in the order in which they are made, with
room for everything. All draws of a request come from one prompt (n choices), as both wordings can be asked. What a chat
template adds is the same for both and left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from cimemories import seeds
from cimemories.curation.labelling import LISTS
from cimemories.formats.official import read_profiles
from cimemories.llm import replies
from cimemories.model import Context, Persona, Profile, Verdict
from cimemories.simulator.answers import persona_of
from cimemories.simulator.policy import vote

DEMO = Path(__file__).resolve().parent.parent / "data" / "demo" / "profiles.json"
BLOCK = 16

# What the reference implementation asks, in our words: who votes comes first, then the message, then every statement,
# and the answer repeats the statements word by word. See formats.md, section 5.
REFERENCE = """You are {name}. {description}

A message will be written to {recipient}. Its purpose is: {task}

These are the facts known about the person:
{facts}

Sort the facts as you would want it for this message. Give one list of the facts that are necessary to serve the \
purpose, and one list of those that you would not want to share with this recipient. A fact that belongs in neither, \
or about which you are not sure, you leave out. Repeat each fact exactly as it is worded above. Answer with a JSON \
object with the two lists "necessary" and "private"."""


@dataclass(frozen=True)
class Call:
    """One request: its prompt, and its answers, one a draw; `plain` is a second way to write the same answers."""

    prompt: str
    answers: tuple[str, ...]
    plain: tuple[str, ...]


@dataclass
class Cost:
    """Tokens summed over calls."""

    prompt: int = 0
    uncached: int = 0
    further_draws: int = 0  # what every draw after the first computes again: the last block of its prompt
    completion: int = 0
    plain: int = 0  # completion tokens where the numbers are written one by one, without ranges


class PrefixCache:
    """Which leading blocks of a prompt an earlier prompt has left behind."""

    def __init__(self) -> None:
        self._blocks: set[int] = set()

    def uncached(self, tokens: Sequence[int]) -> int:
        """How many of these tokens have to be computed; remembers their whole blocks."""
        served, leading, state = 0, True, 0
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            state = hash((state, tuple(tokens[start : start + BLOCK])))
            leading = leading and state in self._blocks
            served += BLOCK * (leading and start + BLOCK < len(tokens))
            self._blocks.add(state)
        return len(tokens) - served


def statements_of(profile: Profile) -> tuple[str, ...]:
    return tuple(" ".join(attribute.statement.split()) for attribute in profile.attributes)


def votes(profile: Profile, context: Context, persona: Persona, draws: int) -> list[list[Verdict]]:
    who = persona_of(f"{persona.name} {persona.description}")
    facts = statements_of(profile)
    return [
        vote(facts, context.recipient, context.task, who, Random(f"{profile.name} {context} {persona.key} {draw}"))
        for draw in range(draws)
    ]


def with_ranges(verdicts: Sequence[Verdict]) -> str:
    """The answer in the form that our prompt asks for: three numbers in a row or more are a range."""
    lists = {}
    for verdict in LISTS:
        numbers = (n for n, item in enumerate(verdicts, start=1) if item in (verdict, Verdict.CONFLICT))
        rows = ([n for _, n in group] for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]))
        lists[str(verdict)] = [n for row in rows for n in (row if len(row) < 3 else [f"{row[0]}-{row[-1]}"])]
    return json.dumps(lists)


def our_calls(profile: Profile, personas: Sequence[Persona], draws: int) -> Iterator[Call]:
    """As curation.labelling makes them: contexts in their order, in each the personas in theirs."""
    prompt = seeds.load_prompt("label")
    facts = replies.numbered([attribute.statement for attribute in profile.attributes])
    for context in profile.contexts:
        for persona in personas:
            text = prompt.render(
                attributes=facts,
                recipient=context.recipient,
                task=context.task,
                persona=f"{persona.name}. {persona.description.strip()}",
            )
            ballots = votes(profile, context, persona, draws)
            yield Call(text, tuple(map(with_ranges, ballots)), tuple(map(number_by_number, ballots)))


def reference_calls(profile: Profile, personas: Sequence[Persona], draws: int) -> Iterator[Call]:
    """The same questions in the reference wording, in the order that serves its cache best: by persona."""
    facts = statements_of(profile)
    for persona in personas:
        for context in profile.contexts:
            text = REFERENCE.format(
                name=persona.name,
                description=persona.description.strip(),
                recipient=context.recipient,
                task=context.task,
                facts="\n".join(facts),
            )
            ballots = votes(profile, context, persona, draws)
            answers = tuple(by_sentence(facts, verdicts) for verdicts in ballots)
            yield Call(text, answers, answers)


def number_by_number(verdicts: Sequence[Verdict]) -> str:
    """Every number by itself, as a model answers that makes no use of ranges."""
    listed = {v: [n for n, verdict in enumerate(verdicts, 1) if verdict is v] for v in Verdict}
    return json.dumps({str(v): listed[v] for v in (Verdict.NECESSARY, Verdict.INAPPROPRIATE)})


def by_sentence(facts: Sequence[str], verdicts: Sequence[Verdict]) -> str:
    listed = {v: [fact for fact, verdict in zip(facts, verdicts, strict=True) if verdict is v] for v in Verdict}
    return json.dumps(
        {"necessary": listed[Verdict.NECESSARY], "private": listed[Verdict.INAPPROPRIATE]}, ensure_ascii=False
    )


def cost_of(calls: Iterable[Call], tokenizer: Any) -> Cost:
    cost, cache = Cost(), PrefixCache()
    size = lru_cache(maxsize=256)(lambda text: len(tokenizer.encode(text).ids))
    for call in calls:
        tokens = tokenizer.encode(call.prompt).ids
        cost.prompt += len(tokens)
        cost.uncached += cache.uncached(tokens)
        cost.further_draws += (len(call.answers) - 1) * (len(tokens) - (len(tokens) - 1) // BLOCK * BLOCK)
        cost.completion += sum(map(size, call.answers))
        cost.plain += sum(map(size, call.plain))
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with tokenizer.json")
    parser.add_argument("--profiles", type=Path, default=DEMO, help="official layout; default: the demo's")
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise SystemExit("this needs the package `tokenizers`: pip install tokenizers") from None
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    profiles = read_profiles(options.profiles).profiles
    personas = seeds.load_personas().personas
    ours, reference = Cost(), Cost()
    for profile in profiles:
        for total, calls in ((ours, our_calls), (reference, reference_calls)):
            cost = cost_of(calls(profile, personas, options.draws), tokenizer)
            for field in vars(total):
                setattr(total, field, getattr(total, field) + getattr(cost, field))
    tasks = sum(len(profile.contexts) for profile in profiles)
    attributes = sum(len(profile.attributes) for profile in profiles)
    print(
        f"{len(profiles)} profiles, {attributes:,} attributes, {tasks} (profile, context), {len(personas)} personas, "
        f"{options.draws} draws; tokenizer of {tokenizer.get_vocab_size():,} entries\n"
    )
    print("tokens per (profile, context)            ours  reference   ratio")
    rows = {
        "prompt, as sent": "prompt",
        "prompt, not served by the cache": "uncached",
        "prompt, again for each further draw": "further_draws",
        "completion": "completion",
        "completion, without ranges": "plain",
    }
    for title, field in rows.items():
        mine, theirs = getattr(ours, field) / tasks, getattr(reference, field) / tasks
        print(f"{title:36} {mine:9,.0f} {theirs:10,.0f}   {mine / theirs:5.3f}" if theirs else title)


if __name__ == "__main__":
    main()
