"""What a run would ask, use, cost and take, before anything of it is planned. Nothing is written.

Servers are asked what they are, as the run would ask them: whose answers the record holds depends on it.

    found = estimate(store, spec, find_labels=effective_labels)
    found.requests, found.cost_least, found.cost_most, found.assumptions

Numbers of calls are exact as far as nobody's answer decides about them. Lengths come from the real prompts; what an
answer will be long is taken from recorded calls of the same kind and model, or is the limit that the run sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import sqlalchemy as sa

from cimemories.evaluation.costs import JUDGE, MODEL, Prices, asked_in, money, role_of
from cimemories.evaluation.judging import (
    CHECK,
    LLM,
    Judge,
    check_request,
    facts,
    judge_request,
    parts_of,
    response_format,
    wording,
)
from cimemories.evaluation.planning import (
    JUDGE_TOKENS,
    FindLabels,
    JudgeSpec,
    LookUp,
    RunSpec,
    Server,
    judge_limit,
    judge_parameters,
    judge_prompt,
    look_up,
    refuse_simulated_judges,
    seed_of,
    thinking_of,
    told_apart,
    wording_of,
)
from cimemories.evaluation.respond import (
    GATE,
    RESPOND,
    REWRITE,
    Mitigation,
    Place,
    Writer,
    gate_schema,
    held,
    memory_lines,
    part,
    read_gate,
    response_status,
)
from cimemories.llm import client
from cimemories.llm.client import Client
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.identity import origin_of
from cimemories.llm.worker import SIMULATOR
from cimemories.model import Attribute, ChatRequest, ResponseStatus
from cimemories.seeds.prompts import Prompt, load_prompt
from cimemories.store import calls, datasets
from cimemories.store.calls import NOT_KNOWN, Answer, Held, Learned, Origin, Wanted, request_body
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.judgements import REASONING

# ---- expected
#
# The calls of a run that is not planned yet, place by place: what each kind asks, and what the record answers already.
#
# What is known is built as a worker would build it, so that a call which the record holds is found under its very key.
# What depends on an answer that nobody has given yet is counted, and its length taken from what is known.


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
        for (place, item, draws), known in zip(asked, there, strict=True):
            found = known.answers
            earlier = sum(key in self.asked for key in known.owed.values())
            owed = len(draws) - len(found) - earlier
            self.asked.update(known.owed.values())
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
                    except client.AnswerError:
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
        for (_, text), known in zip(asked.values(), there, strict=True):
            if known:
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
    return client.numbered([item.statement for item in attributes])


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


# ---- estimates


CHARACTERS_A_TOKEN = 4.0
Manifests = Sequence[tuple[str, Mapping[str, Any]]]  # of runs by their ids, the newest first
TITLES = {GATE: "gate", RESPOND: "messages", REWRITE: "rewrites", "judge": "judgements", "check": "task checks"}


@dataclass(frozen=True)
class StageEstimate:
    """One kind of call to one model. draws: all planned; recorded: of them, what the record answers at no cost.

    requests, tokens and seconds are of what is still to be asked; `least` where an answer decides about them.
    cacheable: prompt tokens in a beginning that the prompt before had too. completion_known: from recorded calls; else
    the limit. seconds: of all exchanges one after the other; None where nothing is recorded.
    """

    kind: str
    model: str
    draws: int
    recorded: int
    requests: int
    requests_least: int
    prompt_tokens: int
    prompt_tokens_least: int
    cacheable: int
    completion_tokens: int
    completion_known: bool
    seconds: float | None
    prices: Prices | None

    @property
    def title(self) -> str:
        return TITLES.get(self.kind, self.kind)

    @property
    def cost_most(self) -> float | None:
        """With nothing from a cache, and completions as long as expected or as the limit lets them be."""
        if not self.requests:
            return 0.0
        return self.prices.cost(self.prompt_tokens, 0, self.completion_tokens) if self.prices else None

    @property
    def cost_least(self) -> float | None:
        """With all from the cache that can be, and completions as expected, or none where that is not known."""
        if not self.requests:
            return 0.0
        completion = self.completion_tokens if self.completion_known else 0
        cached = min(self.cacheable, self.prompt_tokens_least)
        return self.prices.cost(self.prompt_tokens_least, cached, completion) if self.prices else None


@dataclass(frozen=True)
class Estimate:
    """What a run would come to. places: pairs of profile and context; responses: one a place and sample. assumptions:
    what the numbers rest on, one sentence each. concurrency: requests under way at once. unreachable: which servers
    could not be asked what they are, and what is counted instead."""

    places: int
    responses: int
    stages: tuple[StageEstimate, ...]
    assumptions: tuple[str, ...]
    concurrency: int
    cap: float | None = None
    unreachable: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The assumptions and what a cap cannot hold back, or that there is nothing to assume."""
        if self.requests:
            return (*self.unreachable, *self.assumptions, *([self.cap_note] if self.cap_note else []))
        return self.unreachable or ("all of it is in the record already: nothing is asked",)

    @property
    def requests(self) -> int:
        return sum(stage.requests for stage in self.stages)

    @property
    def draws(self) -> int:
        return sum(stage.draws for stage in self.stages)

    @property
    def recorded(self) -> int:
        return sum(stage.recorded for stage in self.stages)

    @property
    def prompt_tokens(self) -> int:
        return sum(stage.prompt_tokens for stage in self.stages)

    @property
    def cacheable(self) -> int:
        return sum(stage.cacheable for stage in self.stages)

    @property
    def completion_tokens(self) -> int:
        return sum(stage.completion_tokens for stage in self.stages)

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.model for s in self.stages if s.requests and s.prices is None))

    @property
    def cost_least(self) -> float | None:
        """None where a price is missing."""
        costs = [stage.cost_least for stage in self.stages]
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    @property
    def cost_most(self) -> float | None:
        costs = [stage.cost_most for stage in self.stages]
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    @property
    def currency(self) -> str:
        return next((stage.prices.currency for stage in self.stages if stage.prices), "")

    @property
    def seconds(self) -> float | None:
        """Of waiting, with `concurrency` requests at once; None where a stage has no recorded calls to go by."""
        if any(stage.requests and stage.seconds is None for stage in self.stages):
            return None
        return sum((s.seconds or 0.0) / max(1, min(self.concurrency, s.requests)) for s in self.stages)

    @property
    def cost_words(self) -> str:
        """The cost as a range for people, or which price is missing."""
        least, most = self.cost_least, self.cost_most
        if least is None or most is None:
            return f"not known: no price for {', '.join(self.unpriced)}"
        low, high = money(least, self.currency), money(most, self.currency)
        return low if low == high else f"{money(least)} to {high}"

    @property
    def cap_note(self) -> str | None:
        """By how much a cap may be exceeded: by the requests under way when it is reached, each as dear as those of the
        dearest stage are expected to be. None without a cap, or where nothing is asked or a price is missing."""
        if self.cap is None or not self.requests or self.cost_most is None:
            return None
        dearest = max((stage.cost_most or 0.0) / stage.requests for stage in self.stages if stage.requests)
        under_way = min(self.concurrency, self.requests)
        cap, price, most = (money(value, self.currency) for value in (self.cap, dearest, under_way * dearest))
        return (
            f"the cap of {cap} may be exceeded by the requests under way when it is reached: at most {under_way:,} x "
            f"about {price} = {most}"
        )

    @property
    def warning(self) -> str | None:
        """Where the cap will most likely, or may, end the work before it is done; None where it should not."""
        if self.cap is None or self.cost_most is None or self.cost_least is None or self.cost_most <= self.cap:
            return None
        word = "will most likely" if self.cost_least > self.cap else "may"
        return (
            f"the cap of {money(self.cap, self.currency)} {word} end this before it is done ({self.cost_words}); what "
            "is answered until then stays, and with a higher cap it goes on"
        )


@dataclass(frozen=True)
class _Known:
    """What earlier runs teach: their manifests, and the connection to read their calls with."""

    connection: sa.Connection
    manifests: Manifests

    def runs_of(self, role: str, model: str) -> list[str]:
        found = [i for i, manifest in self.manifests if any(name == model for name, _ in asked_in(manifest, role))]
        return found[:5]


def _last_known(manifests: Manifests, role: str, model: str, base_url: str) -> Server | None:
    """What the newest run that asked this model at this address found out of its server."""
    for _, manifest in manifests:
        for name, settings in asked_in(manifest, role):
            facts = settings.get("server") if role == JUDGE else settings
            if name == model and (settings.get("endpoint") or settings.get("base_url")) == base_url and facts:
                values = {k: facts[k] for k in Server.__dataclass_fields__ if k in facts}
                return Server(**{**values, "notes": tuple(values.get("notes", ()))})
    return None


def estimate(
    store: Store,
    spec: RunSpec,
    *,
    find_labels: FindLabels | None = None,
    concurrency: int = 32,
    asked: set[str] | None = None,
    look_up: LookUp = partial(look_up, retries=1),
) -> Estimate:
    """What a run would come to. Raises StoreError, SeedError or CompositionError where it could not be planned.

    asked: keys of calls that runs before it will have asked: they count as recorded. Its own are added. look_up: how a
    server is asked; one that does not answer is taken as the newest run found it.
    """
    spec.checked()
    what, wording = spec.memory.read(), wording_of(spec)
    with store.read() as connection:
        dataset = datasets.named(connection, spec.dataset)
    source = find_labels(store, dataset.id) if find_labels and what.needs_labels else None
    with store.read() as connection:
        manifests = calls.manifests(connection)
    asking = _Asking(store, manifests, look_up)
    schema = spec.mitigation == Mitigation.GATE
    server = asking.server(MODEL, spec.base_url, spec.api_key_env, spec.model, spec.samples, schema, spec.seed)
    judges = [
        (judge, asking.server(JUDGE, judge.base_url, judge.api_key_env, judge.model, 1, True, None))
        for judge in spec.judges
        if judge.kind == LLM
    ]
    origin = _origin(store, spec, server)
    judged = [_origin(store, spec, of) for _, of in judges]
    with store.read() as connection:
        known = _Known(connection, manifests)
        refuse_simulated_judges(server.simulated, judges)
        seats = [_judge(judge, of) for judge, of in judges]
        seats += [_checker(spec, *judges[0])] if spec.check == "model" and judges else []
        walk = Walk(
            connection,
            Writer(
                NOBODY,
                spec.model,
                wording.respond,
                wording.lines,
                spec.parameters(server.token_limit, thinking_of(spec.preset)),
                seed_of(spec, server),
                (),
                Mitigation(spec.mitigation),
                wording.before,
                server.schema,
            ),
            seats,
            origin,
            # What is behind the judges is the task check, which asks the first judge's model.
            judged + judged[:1] * (len(seats) - len(judges)),
            server.n,
            set() if asked is None else asked,
        )
        contexts = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
        places = 0
        for profile_id in datasets.profile_ids(connection, dataset.id, spec.profiles):
            record = datasets.profile_record(connection, profile_id)
            positions = None if what.is_plain else held(what, record, source.labels if source else None)
            found = places_of(record, spec.samples, positions, contexts)
            places += len(found)
            walk.profile(found)
        if not places:
            raise StoreError(f"'{spec.dataset}' has no context for the memory '{what.label}': there is nothing to run.")
        return _told(known, spec, server, judges, walk, places, concurrency, asking.unreachable)


@dataclass
class _Asking:
    """Asks servers what they are, and falls back on what is known of them. unreachable: of whom that was, in words."""

    store: Store
    manifests: Manifests
    look_up: LookUp
    unreachable: dict[str, None] = field(default_factory=dict)

    def server(
        self, role: str, base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None
    ) -> Server:
        """What the run would find out of a server, by the same questions."""
        try:
            found = self.look_up(base_url, key_env, model, samples, wants_schema, seed)
        except EndpointError as error:
            last = _last_known(self.manifests, role, model, base_url)
            counted = "counted as if the server that was last asked there answered" if last else "none of it is counted"
            reason = str(error).split(". ")[0].rstrip(".")
            told = f"what the record holds of {model} at {base_url} is not known ({reason}): {counted}"
            self.unreachable[told] = None
            found = last or Server(simulated=base_url == SIMULATOR)
        return told_apart(self.store, base_url, found)


def _origin(store: Store, spec: RunSpec, server: Server) -> Origin:
    """Whose recorded answers would serve calls to a server."""
    return origin_of(store, server.simulated, server.identity, "planned" if spec.fresh else None)


def _judge(judge: JudgeSpec, server: Server) -> Judge:
    parameters, schema = judge_parameters(judge, server), judge.schema or server.schema
    return Judge(0, LLM, judge.model, parameters, None, judge_prompt(judge), judge.split, schema, judge.channel)


def _checker(spec: RunSpec, judge: JudgeSpec, server: Server) -> Judge:
    parameters = judge_parameters(judge, server)
    prompt = spec.prompts.get("check") or load_prompt("check")
    return Judge(0, CHECK, judge.model, parameters, None, prompt, None, server.schema)


def _told(
    known: _Known,
    spec: RunSpec,
    server: Server,
    judges: Sequence[tuple[JudgeSpec, Server]],
    walk: Walk,
    places: int,
    concurrency: int,
    unreachable: Mapping[str, None],
) -> Estimate:
    said: dict[str, None] = {}
    stages: list[StageEstimate] = []
    last = REWRITE if spec.mitigation == Mitigation.REWRITE else RESPOND
    message = _learned(known, last, spec.model, server.simulated)
    draft = _learned(known, RESPOND, spec.model, server.simulated)
    for (kind, model), counted in walk.kinds.items():
        role = role_of(kind)
        simulated = server.simulated if role != JUDGE else next(s.simulated for j, s in judges if j.model == model)
        ratio = calls.characters_a_token(known.connection, known.runs_of(role, model), model, simulated)
        if counted.requests:
            said[_ratio_words(model, ratio)] = None
        ratio = ratio or CHARACTERS_A_TOKEN
        limit, bound = _limit(spec, kind, model, server, judges)
        text = draft if kind == REWRITE else message
        length = text.characters if text else _limit(spec, RESPOND, spec.model, server, judges)[0] * ratio
        if counted.unknown and text is None:
            said["a message that is not written yet is taken to be as long as its limit lets it be"] = None
        stages.append(
            _stage(known, counted, role, simulated, ratio, limit, length, text is not None, _prices(spec, kind, model))
        )
        said[_completion_words(stages[-1], counted, bound)] = None
    said.update(dict.fromkeys(_more_words(stages, walk.before)))
    said.pop("", None)
    return Estimate(
        places, places * spec.samples, tuple(stages), tuple(said), concurrency, spec.cap, tuple(unreachable)
    )


def _stage(
    known: _Known,
    counted: Counted,
    role: str,
    simulated: bool,
    ratio: float,
    limit: int,
    length: float,
    length_known: bool,
    prices: Prices | None,
) -> StageEstimate:
    learned = _learned(known, counted.kind, counted.model, simulated)
    completion = learned.completion_tokens if learned else limit
    unknown = counted.unknown * length
    return StageEstimate(
        kind=counted.kind,
        model=counted.model,
        draws=counted.draws,
        recorded=counted.recorded,
        requests=counted.requests,
        requests_least=counted.least_requests,
        prompt_tokens=round((counted.characters + unknown) / ratio),
        prompt_tokens_least=round((counted.least + (unknown if length_known else 0)) / ratio),
        cacheable=round(counted.shared / ratio),
        completion_tokens=round(counted.owed * completion),
        completion_known=learned is not None,
        seconds=learned.seconds * counted.requests if learned else None,
        prices=prices,
    )


def _learned(known: _Known, kind: str, model: str, simulated: bool) -> Learned | None:
    runs = known.runs_of(role_of(kind), model)
    return calls.learned(known.connection, runs, kind, model, simulated) if runs else None


def _limit(
    spec: RunSpec, kind: str, model: str, server: Server, judges: Sequence[tuple[JudgeSpec, Server]]
) -> tuple[int, str]:
    """The most tokens that one completion may have, and what that is. Where no limit is sent, the server's context
    bounds it; where that is not known either, it is taken to be as much as a judge is allowed."""
    asked = [(spec.max_tokens, server)]
    if role_of(kind) == JUDGE:
        asked = [(judge_limit(judge, of), of) for judge, of in judges if judge.model == model]
    sent = [limit for limit, _ in asked if limit is not None]
    if len(sent) == len(asked):
        return max(sent), f"the limit of {max(sent):,} completion tokens each, as an upper bound"
    context = max((of.max_model_len or 0 for limit, of in asked if limit is None), default=0)
    if context:
        return context, f"no limit is sent: the server's context of {context:,} tokens each, as an upper bound"
    return JUDGE_TOKENS, f"no limit is sent, and the server's is not known: {JUDGE_TOKENS:,} completion tokens each"


def _prices(spec: RunSpec, kind: str, model: str) -> Prices | None:
    if role_of(kind) != JUDGE:
        return spec.prices
    return next((judge.prices for judge in spec.judges if judge.model == model and judge.prices), None)


def _ratio_words(model: str, ratio: float | None) -> str:
    if ratio is None:
        return f"{CHARACTERS_A_TOKEN:g} characters a token: no call of {model} is recorded in a run yet"
    return f"{ratio:.2f} characters a token, as counted in recorded calls of {model}"


def _completion_words(stage: StageEstimate, counted: Counted, bound: str) -> str:
    if not stage.requests:
        return ""
    if stage.completion_known:
        mean = stage.completion_tokens / counted.owed
        return f"{stage.title}: {mean:,.0f} completion tokens each, the mean of recorded calls of {stage.model}"
    return f"{stage.title}: {bound}; none is recorded yet"


def _more_words(stages: Sequence[StageEstimate], before: int) -> list[str]:
    found: list[str] = []
    if not any(stage.requests for stage in stages):
        return found
    if before:
        found.append(
            f"{before:,} of these calls are answered in the record by servers that are not known: where this server "
            f'gave those answers, `cimemories same-server URL "{NOT_KNOWN}"` lets them serve'
        )
    if any(stage.recorded for stage in stages):
        found.append("what the record answers already is neither asked nor paid again")
    if any(stage.cacheable for stage in stages):
        found.append("how much of a shared beginning a server really takes from its cache is up to the server")
    if any(stage.requests != stage.requests_least for stage in stages):
        found.append("behind a gate, samples that chose the same memories are one request; counted is one each")
    if any(stage.kind in ("judge", "check") for stage in stages):
        found.append("every message comes back and is judged")
    if any(stage.requests and stage.seconds is not None for stage in stages):
        found.append("time as in the recorded calls, whatever load the server had then")
    return found
