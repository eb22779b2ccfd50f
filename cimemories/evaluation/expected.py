"""The calls of a run that is not planned yet, place by place: what each kind asks, and what the record answers already.

What is known is built as a worker would build it, so that a call which the record holds is found under its very key.
What depends on an answer that nobody has given yet is counted, and its length taken from what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import sqlalchemy as sa

from cimemories.evaluation.checking import CHECK
from cimemories.evaluation.compositions import part
from cimemories.evaluation.judge import facts, parts_of, response_format, wording
from cimemories.evaluation.judging import Judge, check_request, judge_request
from cimemories.evaluation.memory import memory_lines
from cimemories.evaluation.mitigations import Mitigation, gate_schema, read_gate
from cimemories.evaluation.respond import GATE, RESPOND, REWRITE, Place, Writer, response_status
from cimemories.llm import answers
from cimemories.llm.client import Client
from cimemories.model import Attribute, ChatRequest, ResponseStatus
from cimemories.seeds import Prompt
from cimemories.store import calls
from cimemories.store.calls import Answer, Held, Origin, Wanted, request_body
from cimemories.store.datasets import ProfileRecord
from cimemories.store.ids import canonical_json
from cimemories.store.judgements import REASONING

NOBODY = cast(Client, None)  # requests are built, none is asked
_HOLE = "\x00text\x00"  # where a message is to stand; no prompt holds it


@dataclass
class Counted:
    """One kind of call to one model. draws: all that are planned; recorded: of them, what the record answers.

    Characters are of prompts that are still to be asked: `least` without memories that a gate may leave out, `shared`
    of a beginning that the prompt before had too. unknown: in how many of them a message stands that is not written
    yet; it is not among the characters.
    """

    kind: str
    model: str
    requests: int = 0
    least_requests: int = 0
    draws: int = 0
    recorded: int = 0
    owed: int = 0
    characters: int = 0
    least: int = 0
    shared: int = 0
    unknown: int = 0
    last: str = ""

    def prompt(self, text: str, times: int = 1, *, least: int | None = None, unknown: int = 0) -> None:
        """Count a prompt that is to be asked so many times. least: its length without what is not known."""
        shared = common(self.last, text)
        self.characters += len(text) * times
        self.least += (len(text) if least is None else least) * times
        self.shared += shared + len(text) * (times - 1)
        self.unknown += unknown
        self.last = text


def common(first: str, second: str) -> int:
    """Length of the beginning that two texts share, found by halving: comparing slices is what Python does fast."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass
class Walk:
    """Goes through the places of a run. n: of the model's server. origin: whose recorded answers may serve it; judged:
    the same of each judge. before: answers to what is owed that are of servers which are not known."""

    connection: sa.Connection
    writer: Writer
    judges: Sequence[Judge]
    origin: Origin
    judged: Sequence[Origin]
    n: bool
    asked: set[str]  # keys of calls that have been counted, here or in a run before
    kinds: dict[tuple[str, str], Counted] = field(default_factory=dict)
    before: int = 0
    _texts: dict[tuple[object, ...], str] = field(default_factory=dict)

    def counted(self, kind: str, model: str) -> Counted:
        return self.kinds.setdefault((kind, model), Counted(kind, model))

    def profile(self, places: Sequence[Place]) -> None:
        """Count all that is asked in the places of one profile."""
        self._texts.clear()
        first = [(place, *self._first(place)) for place in places]
        finals: list[tuple[Place, list[Answer], int]] = []
        if self.writer.mitigation == Mitigation.NONE:
            finals = [
                (place, list(found.values()), len(place.responses) - len(found))
                for place, _, found in self._look(RESPOND, first)
            ]
        elif self.writer.mitigation == Mitigation.GATE:
            finals = list(self._behind_gates(self._look(GATE, first)))
        else:
            finals = list(self._behind_drafts(self._look(RESPOND, first)))
        for number, judge in enumerate(self.judges):
            self._judged(judge, self.judged[number], finals)

    def _first(self, place: Place) -> tuple[ChatRequest, Sequence[int]]:
        writer, draws = self.writer, tuple(sorted(place.responses))
        if writer.mitigation == Mitigation.GATE and writer.before is not None:
            attributes = place.held.profile.attributes
            listed = self._once(("gate", place.held.attribute_ids), lambda: numbered(attributes))
            form = response_format(gate_schema(len(attributes)), writer.schema)
            return writer.request(writer.before.render(memories=listed, **place.words()), form), draws
        return self._message(place, place.held), draws

    def _message(self, place: Place, shown: ProfileRecord) -> ChatRequest:
        lines = self._once(
            ("lines", shown.attribute_ids), lambda: memory_lines(self.writer.lines, shown.profile.attributes)
        )
        return self.writer.request(self.writer.prompt.render(memories=lines, **place.words()))

    def _once(self, key: tuple[object, ...], make: Callable[[], str]) -> str:
        if key not in self._texts:
            self._texts[key] = make()
        return self._texts[key]

    def _look(
        self, kind: str, asked: Sequence[tuple[Place, ChatRequest, Sequence[int]]]
    ) -> Iterator[tuple[Place, ChatRequest, dict[int, Answer]]]:
        """What the record answers of these requests; the rest is counted as to be asked."""
        wanted = [Wanted(canonical_json(request_body(item)), draws, self.origin) for _, item, draws in asked]
        there = calls.held(self.connection, wanted)
        self.before += self._unnamed(wanted, there)
        counted = self.counted(kind, self.writer.model)
        for (place, item, draws), held in zip(asked, there, strict=True):
            found = held.answers
            earlier = sum(key in self.asked for key in held.owed.values())
            owed = len(draws) - len(found) - earlier
            self.asked.update(held.owed.values())
            counted.draws += len(draws)
            counted.recorded += len(found) + earlier
            counted.owed += owed
            if owed:
                requests = 1 if self.n else owed
                counted.requests += requests
                counted.least_requests += requests
                counted.prompt(item.messages[0][1], requests)
            yield place, item, found

    def _unnamed(self, wanted: Sequence[Wanted], there: Sequence[Held]) -> int:
        """How many of the draws that are owed are answered by servers that are not known."""
        if self.origin.server is None or self.origin.fresh is not None or self.origin.counts_before:
            return 0
        unnamed = Origin(self.origin.simulated)
        left = [Wanted(w.body, tuple(h.owed), unnamed) for w, h in zip(wanted, there, strict=True) if h.owed]
        return sum(map(len, calls.held_draws(self.connection, left)))

    def _behind_gates(
        self, gates: Iterator[tuple[Place, ChatRequest, dict[int, Answer]]]
    ) -> Iterator[tuple[Place, list[Answer], int]]:
        for place, _, found in list(gates):
            held, chosen = place.held, dict[tuple[int, ...], list[int]]()
            for draw, answer in found.items():
                if response_status(answer)[0] == ResponseStatus.OK:
                    try:
                        positions = read_gate(answer.content, len(held.attribute_ids))
                    except answers.AnswerError:
                        continue
                    chosen.setdefault(positions, []).append(draw)
            asked = [
                (place, self._message(place, part(held, [held.attribute_ids[p] for p in positions])), sorted(draws))
                for positions, draws in chosen.items()
            ]
            messages = [answer for _, _, got in self._look(RESPOND, asked) for answer in got.values()]
            missing = len(place.responses) - len(found)
            if missing:
                self._unknown_messages(place, missing)
            yield place, messages, missing + sum(len(draws) for draws in chosen.values()) - len(messages)

    def _unknown_messages(self, place: Place, missing: int) -> None:
        """Messages behind a gate that has not chosen: as long as with all memories at most, without any at least."""
        counted = self.counted(RESPOND, self.writer.model)
        counted.draws += missing
        counted.owed += missing
        counted.requests += missing
        counted.least_requests += 1 if self.n else missing
        full = self._message(place, place.held).messages[0][1]
        bare = self.writer.prompt.render(memories="", **place.words())
        counted.prompt(full, missing, least=len(bare))

    def _behind_drafts(
        self, drafts: Iterator[tuple[Place, ChatRequest, dict[int, Answer]]]
    ) -> Iterator[tuple[Place, list[Answer], int]]:
        prompt = self.writer.before
        assert prompt is not None
        for place, _, found in list(drafts):
            good = {d: a for d, a in found.items() if response_status(a)[0] == ResponseStatus.OK}
            asked = [
                (place, self.writer.request(prompt.render(draft=answer.content or "", **place.words())), (draw,))
                for draw, answer in good.items()
            ]
            messages = [answer for _, _, got in self._look(REWRITE, asked) for answer in got.values()]
            missing = len(place.responses) - len(found)
            counted = self.counted(REWRITE, self.writer.model)
            bare = prompt.render(draft="", **place.words())
            for _ in range(missing):
                counted.draws += 1
                counted.owed += 1
                counted.requests += 1
                counted.least_requests += 1
                counted.prompt(bare, unknown=1)
            yield place, messages, missing + len(good) - len(messages)

    def _judged(self, judge: Judge, origin: Origin, finals: Sequence[tuple[Place, list[Answer], int]]) -> None:
        if judge.prompt is None:
            return
        kind = "check" if judge.kind == CHECK else "judge"
        counted = self.counted(kind, judge.model)
        asked: dict[str, tuple[Wanted, str]] = {}
        for place, messages, missing in finals:
            texts = [
                self._text(judge, answer) for answer in messages if response_status(answer)[0] == ResponseStatus.OK
            ]
            for request in (r for text in texts if text is not None for r in self._requests(judge, place, text)):
                counted.draws += 1
                wanted = Wanted(canonical_json(request_body(request)), (0,), origin)
                key = origin.keys(wanted.body, wanted.draws)[0]
                if key not in self.asked:
                    asked[key] = wanted, request.messages[0][1]
            for request in self._requests(judge, place, "") if missing else ():
                counted.draws += missing
                counted.owed += missing
                counted.requests += missing
                counted.least_requests += missing
                counted.prompt(request.messages[0][1], missing, unknown=missing)
        self.asked.update(asked)
        there = calls.held_draws(self.connection, [wanted for wanted, _ in asked.values()])
        for (_, text), held in zip(asked.values(), there, strict=True):
            if held:
                continue
            counted.owed += 1
            counted.requests += 1
            counted.least_requests += 1
            counted.prompt(text)
        counted.recorded = counted.draws - counted.owed

    def _text(self, judge: Judge, answer: Answer) -> str | None:
        text = answer.reasoning if judge.channel == REASONING else answer.content
        return text if (text or "").strip() else None

    def _requests(self, judge: Judge, place: Place, text: str) -> Iterator[ChatRequest]:
        prompt = cast(Prompt, judge.prompt)
        if judge.kind == CHECK:
            yield check_request(judge, prompt, place.context, text)
            return
        attributes = place.held.profile.attributes
        for start, end in parts_of(len(attributes), judge.split):
            asked = attributes[start:end]
            frame = self._once(
                ("judge", prompt.sha256, place.held.attribute_ids[start:end]),
                lambda of=asked: wording(prompt, facts(prompt, of), _HOLE),  # type: ignore[misc]
            )
            yield judge_request(judge, prompt, len(asked), frame.replace(_HOLE, text))


def numbered(attributes: Sequence[Attribute]) -> str:
    return answers.numbered([item.statement for item in attributes])


def places_of(
    record: ProfileRecord, samples: int, positions: Mapping[int, Sequence[int]] | None, contexts: Sequence[int]
) -> list[Place]:
    """The places of a profile in the contexts that are wanted, by what is held in each; None: all attributes."""
    wanted, responses, parts = set(contexts), {s: s for s in range(samples)}, dict[tuple[int, ...], ProfileRecord]()
    found = []
    for context_id, context in zip(record.context_ids, record.profile.contexts, strict=True):
        if context_id not in wanted or (positions is not None and context_id not in positions):
            continue
        held = record
        if positions is not None:
            chosen = tuple(positions[context_id])
            if chosen not in parts:
                parts[chosen] = part(record, [record.attribute_ids[p] for p in chosen])
            held = parts[chosen]
        found.append(Place(held, context, responses))
    return found
