"""What a run would ask, use, cost and take, before anything of it is planned. Nothing is written.

    result = estimate(store, spec, find_labels=effective_labels)
    result.requests, result.cost_least, result.cost_most, result.assumptions

The scripts of the run (respond.py, judging.py) are driven as a worker drives them, by a client that sends nothing:
answers come from the record, and placeholders stand in for the rest. Servers are looked up, since the record's answers
depend on which one it is. Numbers of calls are exact as far as no answer decides about them. Lengths come from the real
prompts; those of answers from recorded calls of the same kind and model, or from the limit that the run sets.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, cast

import sqlalchemy as sa

from cimemories.answer import Column, Listing
from cimemories.evaluation.compositions import FindLabels, LabelsFor, LabelSource, compose, restrict
from cimemories.evaluation.costs import JUDGE, MODEL, models_in, role_of
from cimemories.evaluation.judging import PlannedJudge, at_work, judge_limit
from cimemories.evaluation.planning import LookUp, Prepared, look_up, prepare
from cimemories.evaluation.prices import Prices, money
from cimemories.evaluation.respond import (
    ASSISTANT,
    EMBEDDING,
    GATE,
    GROUND,
    MEMORY_TOKENS,
    REMEMBER,
    RESPOND,
    REWRITE,
    MemoryModel,
    Slot,
    Writer,
    message_branches,
    record_unasked,
)
from cimemories.evaluation.sessions import session_order
from cimemories.evaluation.spec import JUDGE_TOKENS, RunSpec
from cimemories.llm.capabilities import Server
from cimemories.llm.client import MOST_AT_ONCE, Client
from cimemories.llm.endpoint import SIMULATOR, Endpoint, EndpointError
from cimemories.llm.executor import Job
from cimemories.llm.identity import origin_of
from cimemories.llm.scripts import WRITTEN, Ask, Branch, Keep, Moves, Waiting, jobs_of, next_asks
from cimemories.store import calls, datasets
from cimemories.store.calls import NOT_KNOWN, Answer, Learned, Origin, Wanted, canonical_body
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import run_call
from cimemories.text import count

# ---- counting


class CountingClient(Client):
    """A client that sends nothing, for which the record answers as it would for this server."""

    def __init__(self, store: Store, base_url: str, server: Server, *, fresh: bool = False) -> None:
        self.endpoint, self.simulated = Endpoint(base_url, n_at_once=server.n), server.simulated
        # "planned" stands for the id that the work does not have yet: fresh answers are never in the record.
        self._origin = origin_of(store, server.simulated, server.identity, "planned" if fresh else None)

    def origin(self, model: str) -> Origin:
        return self._origin


@dataclass
class Counted:
    """One kind of call to one model. draws: all that are planned; recorded: of them, what the record answers.

    Characters are of prompts that are still to be sent: `least` without memories that a gate may leave out, `shared` of
    beginnings that the prompt before had too. unknown: how many messages that are not written yet stand in them, which
    are not among the characters. lengths: how many prompts have at least so many characters and such messages.
    """

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
    lengths: Counter[tuple[int, int]] = field(default_factory=Counter)

    def prompt(self, text: str, shortest: str, times: int) -> None:
        """Count a prompt that is sent so many times. shortest: what it may be instead."""
        bare, least = text.replace(WRITTEN, ""), shortest.replace(WRITTEN, "")
        self.unknown += times * (len(text) - len(bare)) // len(WRITTEN)
        self.lengths[len(least), (len(shortest) - len(least)) // len(WRITTEN)] += times
        self.characters += len(bare) * times
        self.least += len(least) * times
        # The first shares what the prompt before began with; the same prompt again shares all of itself.
        self.shared += common(self.last, bare) + len(bare) * (times - 1)
        self.last = bare


def common(first: str, second: str) -> int:
    """Return the length of the beginning that two texts share, found by halving: Python compares slices fast."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True)
class _Planned:
    """A job of the run. times: for how many samples alike. shortest: the job that it may be instead, if a placeholder
    led to it; no such job is in the record."""

    job: Job
    times: int = 1
    shortest: Job | None = None


@dataclass
class Traversal:
    """Follows the scripts of a run to their end. counted_keys: of calls counted so far, earlier runs included. unnamed:
    draws that the record answers by unknown servers. failure_causes: why messages would not be asked for."""

    connection: sa.Connection
    counted_keys: set[str] = field(default_factory=set)
    kinds: dict[tuple[str, str], Counted] = field(default_factory=dict)
    unnamed: int = 0
    failure_causes: dict[str, None] = field(default_factory=dict)

    def count(self, branches: Iterable[Sequence[Branch]]) -> None:
        """Count all that these scripts ask. branches: in groups that are begun together."""
        wave = [
            _Planned(job) for group in branches for job in self._jobs([(branch, branch.begin()) for branch in group])
        ]
        while wave:
            # One look-up for a whole wave: a profile has hundreds of calls, and a query costs more than a key.
            answers = iter(self._recorded([item.job for item in wave if item.shortest is None]))
            wave = [after for item in wave for after in self._after(item, {} if item.shortest else next(answers))]

    def _recorded(self, jobs: Sequence[Job]) -> Iterator[Mapping[int, Answer | None]]:
        """Count these jobs; yield what the record answers of each, by draw."""
        wanted = [Wanted(canonical_body(job.request), job.draws, job.client.origin(job.request.model)) for job in jobs]
        # An answer from which nothing follows is not read (None): there are thousands of judgements, some of them long.
        is_read = [bool(_waiting(job).ask.placeholders) for job in jobs]
        rest = [item for item, read in zip(wanted, is_read, strict=True) if not read]
        read_answers = iter(calls.look_up(self.connection, list(compress(wanted, is_read))))
        draws = iter(calls.recorded_draws(self.connection, rest))
        looked_up: list[tuple[Mapping[int, Answer | None], Mapping[int, str]]] = []
        for item, read in zip(wanted, is_read, strict=True):
            if read:
                held = next(read_answers)
                looked_up.append((held.answers, held.owed))
            else:
                there = next(draws)
                owed = item.origin.keys(item.body, [draw for draw in item.draws if draw not in there])
                looked_up.append((dict.fromkeys(there), owed))
        # Asked under the keys of servers that are not known: a person could declare them to be this server's answers.
        unnamed = [
            Wanted(item.body, list(keys), Origin(item.origin.simulated))
            for item, (_, keys) in zip(wanted, looked_up, strict=True)
            if keys and item.origin.server and not item.origin.fresh and not item.origin.counts_before
        ]
        self.unnamed += sum(map(len, calls.recorded_draws(self.connection, unnamed)))
        for job, (answers, keys) in zip(jobs, looked_up, strict=True):
            new = sum(key not in self.counted_keys for key in keys.values())
            # From here on they count as recorded: a run asks the same call once.
            self.counted_keys.update(keys.values())
            counted = self._counted(job)
            counted.draws += len(job.draws)
            counted.recorded += len(job.draws) - new
            if new:
                self._ask(_Planned(job), new)
            yield answers

    def _counted(self, job: Job) -> Counted:
        return self.kinds.setdefault((job.kind, job.request.model), Counted())

    def _ask(self, item: _Planned, draws: int) -> None:
        """Count the requests for so many draws."""
        counted, n = self._counted(item.job), item.job.client.endpoint.n_at_once
        # One request can carry samples of one prompt; behind placeholders each may lead to another prompt.
        at_once = -(-draws // MOST_AT_ONCE)
        requests = at_once if n and item.times == 1 else draws
        counted.owed += draws
        counted.requests += requests
        text, shortest = item.job.request.messages[0][1], (item.shortest or item.job).request.messages[0][1]
        # Samples whose gates choose the same memories are one request.
        counted.least_requests += at_once if n and shortest != text else requests
        counted.prompt(text, shortest, requests)

    def _after(self, item: _Planned, answers: Mapping[int, Answer | None]) -> Iterator[_Planned]:
        """Yield what follows from the recorded answers of a job, and from placeholders where there are none."""
        job, waiting = item.job, _waiting(item.job)
        # Nothing that a placeholder led to is in the record: counted here, where others were when they were looked up.
        if item.shortest is not None:
            # Behind a gate a placeholder leads to one sample, behind a memory system to all of a message.
            self._counted(job).draws += item.times * len(job.draws)
            self._ask(item, item.times * len(job.draws))
        if not waiting.ask.placeholders:
            return
        draw_of = {branch: waiting.ask.draw_of(branch) for branch in waiting.branches}
        recorded = [(branch, answers.get(draw)) for branch, draw in draw_of.items()]
        yield from map(_Planned, self._jobs([branch.after(answer) for branch, answer in recorded if answer]))
        missing = [branch for branch, draw in draw_of.items() if draw not in answers]
        if not missing:
            return
        # One placeholder stands for all samples that are missing: alike, they lead to the same jobs (`times`).
        times = item.times if waiting.ask.draw is not None else item.times * len(missing)
        longest = self._followed(missing, waiting.ask, 0)
        shortest = longest
        if len(set(waiting.ask.placeholders)) > 1 or item.shortest not in (None, job):
            # Behind another placeholder, what is shortest follows from the shortest.
            least = waiting if item.shortest is None else _waiting(item.shortest)
            shortest = self._followed(missing if least is waiting else least.branches, least.ask, -1)
            # Summaries may differ in whether the judge is asked about their lines.
            shortest = shortest if len(shortest) == len(longest) else longest
        yield from (_Planned(long, times, short) for long, short in zip(longest, shortest, strict=True))

    def _followed(self, branches: Sequence[Branch], ask: Ask, which: int) -> list[Job]:
        """Return the jobs that follow from a placeholder: of all branches if they share the answer, else of one."""
        text = ask.placeholders[which]
        answer = Answer("", 0, calls.OK, "", 0.0, "", content=text, reasoning=text)
        return self._jobs([branch.after(answer) for branch in (branches if ask.draw is not None else branches[:1])])

    def _jobs(self, moves: Moves) -> list[Job]:
        asked = []
        for item in next_asks(moves):
            if not isinstance(item, Keep):
                asked.append(item)
            elif item.write is record_unasked:
                self.failure_causes[item.row().cause.removeprefix("memory: ")] = None
        return jobs_of(asked)


def _waiting(job: Job) -> Waiting:
    return cast(Waiting, job.settle)


# ---- estimates


# A rule of thumb for English, used until a recorded call has told the model's own ratio.
CHARACTERS_A_TOKEN = 4.0
TITLES = {
    ASSISTANT: "assistant",
    REMEMBER: "memory system",
    EMBEDDING: "embeddings",
    GROUND: "grounding",
    GATE: "gate",
    RESPOND: "messages",
    REWRITE: "rewrites",
    "judge": "judgements",
    "check": "task checks",
    "label": "ballots",
    "generate": "parts of profiles",
}


STAGE_COLUMNS = {
    "stage": Column("text", "Stage"),
    "model": Column("text", "Model"),
    "draws": Column("count", "Calls"),
    "recorded": Column("count", "Recorded", "Answered by the record, at no cost"),
    "requests": Column("count", "Requests"),
    "prompt_tokens": Column("count", "Prompt tokens"),
    "cacheable": Column("count", "Cacheable", "Prompt tokens that can come from the server's prefix cache"),
    "completion": Column("text", "Completion tokens"),
    "cost": Column("text", "Cost"),
}


@dataclass(frozen=True)
class StageEstimate:
    """One kind of call to one model. draws: all planned; recorded: of them, what the record answers.

    The rest is of what is still to be asked, `least` if an answer decides about it. cacheable: prompt tokens in a
    beginning that the prompt before had too. completion_known: as expected; else the limit. seconds: of all exchanges
    one after the other; None if none is recorded. context: the tokens that the server takes in one request. too_long:
    requests that exceed it; longest: the tokens of the longest, with its answer.
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
    context: int | None = None
    too_long: int = 0
    longest: int = 0

    @property
    def misfit(self) -> str:
        """Return what does not fit into the server's context, and by how much, or ''."""
        if not self.context or not self.too_long:
            return ""
        which = f"{self.too_long:,} of {self.requests:,} requests for {self.title}"
        does = "does" if self.too_long == 1 else "do"
        return (
            f"{which} {does} not fit into the {self.context:,} tokens that the server of {self.model} takes: the "
            f"longest has about {self.longest:,} with room for its answer, {self.longest - self.context:,} too many"
        )

    @property
    def title(self) -> str:
        return TITLES.get(self.kind, self.kind)

    @property
    def cost_most(self) -> float | None:
        """Return the cost with nothing cached, and answers as long as expected or as their limit."""
        if not self.requests:
            return 0.0
        return self.prices.cost(self.prompt_tokens, 0, self.completion_tokens) if self.prices else None

    @property
    def cost_least(self) -> float | None:
        """Return the cost with all cached that can be, and answers as long as expected, or empty if that is not
        known."""
        if not self.requests:
            return 0.0
        completion = self.completion_tokens if self.completion_known else 0
        # The cacheable part is of the longest prompts; the shortest may have less than that.
        cached = min(self.cacheable, self.prompt_tokens_least)
        return self.prices.cost(self.prompt_tokens_least, cached, completion) if self.prices else None

    def plus(self, other: StageEstimate) -> StageEstimate:
        """Return both as one, with the kind, model and rates of this."""
        counts = ("draws", "recorded", "requests", "requests_least", "cacheable", "too_long")
        tokens = ("prompt_tokens", "prompt_tokens_least", "completion_tokens")
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in (*counts, *tokens)},
            completion_known=self.completion_known and other.completion_known,
            prices=self.prices or other.prices,
            # Of servers with one model the one with the shortest context decides what fits.
            context=min((c for c in (self.context, other.context) if c), default=None),
            longest=max(self.longest, other.longest),
        )


class _Sum:
    """An attribute of an estimate that adds up the attribute of this name over its stages; None if one has none."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimate: Estimate, owner: type) -> Any:
        values = [getattr(stage, self.name) for stage in estimate.stages]
        return None if None in values else sum(values)


@dataclass(frozen=True)
class Estimate:
    """The estimate of a piece of work. places: user-task pairs, or what `unit` says; responses: one a place and
    sample, or what `counts` says. concurrency: requests in flight. unreachable: servers that could not be asked, and
    what is counted instead."""

    places: int
    responses: int
    stages: tuple[StageEstimate, ...]
    assumptions: tuple[str, ...]
    concurrency: int
    cap: float | None = None
    unreachable: tuple[str, ...] = ()
    unit: str = "user-task pair"
    counts: tuple[str, str] = ("sample", "message")

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the assumptions and what a cap cannot hold back, or that there is nothing to assume."""
        if self.requests:
            return (*self.unreachable, *self.assumptions, *([self.cap_note] if self.cap_note else []))
        return self.unreachable or ("everything is already recorded: nothing is requested",)

    @property
    def misfits(self) -> tuple[str, ...]:
        """Return what does not fit into the contexts of the servers, and by how much; a sentence each."""
        return tuple(filter(None, (stage.misfit for stage in self.merged)))

    def as_json(self) -> dict[str, object]:
        """Return sums, stages and sentences for scripts."""
        sums = ("requests", "draws", "recorded", "prompt_tokens", "cacheable", "completion_tokens")
        names = ("places", "unit", "responses", *sums, "cost_least", "cost_most", "currency", "seconds", "cap")
        return {name: getattr(self, name) for name in names} | {
            "stages": self.table,
            "does_not_fit": self.misfits,
            "warning": self.warning,
            "notes": self.notes,
        }

    @property
    def size_text(self) -> str:
        """Return '80 user-task pairs × 3 samples = 240 messages'."""
        each, whole = self.counts
        pairs, answers = count(self.places, self.unit), count(self.responses, whole)
        return f"{pairs} × {count(self.responses // max(self.places, 1), each)} = {answers}"

    @property
    def table(self) -> Listing:
        """Return the stages, those of one kind and model as one. completion, cost: as text."""
        rows = []
        for stage in self.merged:
            limit = "" if stage.completion_known or not stage.requests else "at most "
            costs = {"cost_least": stage.cost_least, "cost_most": stage.cost_most}
            texts = {
                "stage": stage.title,
                "completion": f"{limit}{stage.completion_tokens:,}",
                "cost": money(stage.cost_least, self.currency, most=stage.cost_most),
            }
            rows.append(asdict(stage) | costs | texts)
        return Listing(rows, STAGE_COLUMNS)

    @property
    def merged(self) -> tuple[StageEstimate, ...]:
        """Return the stages, those of one kind and model from several cells of a sweep as one."""
        merged: dict[tuple[str, str], StageEstimate] = {}
        for stage in self.stages:
            key = stage.kind, stage.model
            merged[key] = merged[key].plus(stage) if key in merged else stage
        return tuple(merged.values())

    requests, draws, recorded = _Sum(), _Sum(), _Sum()
    prompt_tokens, cacheable, completion_tokens = _Sum(), _Sum(), _Sum()
    cost_least, cost_most = _Sum(), _Sum()

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.model for s in self.stages if s.requests and s.prices is None))

    @property
    def currency(self) -> str:
        return next((stage.prices.currency for stage in self.stages if stage.prices), "")

    @property
    def seconds(self) -> float | None:
        """Return the seconds of waiting with `concurrency` requests at once, or None if a stage has no recorded
        calls."""
        if any(stage.requests and stage.seconds is None for stage in self.stages):
            return None
        # Fewer requests than places leave places empty, so the smaller number divides.
        return sum((s.seconds or 0.0) / max(1, min(self.concurrency, s.requests)) for s in self.stages)

    @property
    def cost_text(self) -> str:
        """Return the cost as a range for people, or which price is missing."""
        least, most = self.cost_least, self.cost_most
        if least is None or most is None:
            return f"not known: no price for {', '.join(self.unpriced)}"
        return money(least, self.currency, most=most)

    @property
    def cost_once_more(self) -> float | None:
        """Return the highest cost of as many calls again that are not recorded, as twice the profiles or samples add,
        or None if a price is missing or all is recorded."""
        total = 0.0
        for stage in self.stages:
            most, owed = stage.cost_most, stage.draws - stage.recorded
            if most is None or (stage.draws and not owed):
                return None
            total += most / owed * stage.draws if stage.draws else 0.0
        return total

    @property
    def cap_note(self) -> str | None:
        """Return by how much a cap may be exceeded by the requests in flight when it is reached, each as dear as those
        of the dearest stage, or None."""
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
        """Return that the cap will or may end the work before it is done, or None."""
        if self.cap is None or self.cost_most is None or self.cost_least is None or self.cost_most <= self.cap:
            return None
        word = "will most likely" if self.cost_least > self.cap else "may"
        return (
            f"the cap of {money(self.cap, self.currency)} {word} end this before it is done ({self.cost_text}); "
            "recorded answers are kept, and a higher cap lets it continue"
        )


def or_recorded(store: Store, look_up: LookUp, unreachable: dict[str, None]) -> LookUp:
    """Return a look-up that takes a server which cannot be asked as the newest run recorded it; that is noted in
    `unreachable`."""

    def ask(base_url: str, key_env: str, model: str, *question: Any) -> Server:
        try:
            return look_up(base_url, key_env, model, *question)
        except EndpointError as error:
            with store.read() as connection:
                manifests = [manifest for _, manifest in calls.manifests(connection)]
            asked = (item for m in manifests for role in (MODEL, JUDGE) for item in models_in(m, role))
            recorded = (item.server for item in asked if (item.name, item.base_url) == (model, base_url))
            last = next((Server.of(server.recorded) for server in recorded if server is not None), None)
            instead = "counted as if the server last asked there answered" if last else "none of it is counted"
            reason = str(error).split(". ")[0].rstrip(".")
            unreachable[f"recorded answers of {model} at {base_url} cannot be told ({reason}): {instead}"] = None
            return last or Server(simulated=base_url == SIMULATOR)

    return ask


def estimate(
    store: Store,
    spec: RunSpec,
    *,
    find_labels: FindLabels | None = None,
    concurrency: int = 32,
    counted: set[str] | None = None,
    look_up: LookUp = partial(look_up, retries=1),
) -> Estimate:
    """Return what a run would come to. counted: keys of calls that runs before it will have made, which count as
    recorded; its own are added. look_up: asks a server; one that does not answer is taken as the newest run recorded
    it. Raises StoreError, SeedError or CompositionError if the run could not be planned."""
    what, unreachable = spec.composition, dict[str, None]()
    with store.read() as connection:
        dataset = datasets.by_name(connection, spec.dataset)
        profile_ids = datasets.profile_ids(connection, dataset.id, spec.profiles)
    source = find_labels(store, dataset.id) if find_labels and what.needs_labels else None

    prepared = prepare(store, spec, or_recorded(store, look_up, unreachable))
    if what.system is not None and (planned := what.system.planned) is not what.system:
        unreachable[
            f"what {what.system.name} will recall is not asked before the run: as many statements as {planned.name} "
            "recalls are counted instead, and recorded messages may be counted again"
        ] = None
    places, stages, assumptions, lost = _traversed(store, prepared, source, profile_ids, counted)
    unreachable |= {f"the memory system fails, and its messages are not counted: {cause}": None for cause in lost}
    if not places:
        raise StoreError(f"'{spec.dataset}' has no context for the memory '{what.label}': there is nothing to run.")
    if late := prepared.server.too_slow(spec.max_tokens, spec.timeout):
        assumptions = (late, *assumptions)
    return Estimate(places, places * spec.samples, stages, assumptions, concurrency, spec.cap, tuple(unreachable))


def _traversed(
    store: Store,
    prepared: Prepared,
    source: LabelSource | None,
    profile_ids: Sequence[int],
    counted: set[str] | None = None,
) -> tuple[int, tuple[StageEstimate, ...], tuple[str, ...], Iterable[str]]:
    """Return the number of user-task pairs of these profiles, the stages, the assumptions, and what cannot be asked."""
    spec, what, places = prepared.spec, prepared.composition, 0
    writer, responses = _writer(store, prepared), {sample: sample for sample in range(spec.samples)}
    with store.snapshot() as connection:
        counter = Traversal(connection, set() if counted is None else counted)
        dataset = datasets.by_name(connection, spec.dataset)
        contexts = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
        for profile_id in profile_ids:
            record = datasets.profile_record(connection, profile_id)
            tested = [context for context in record.context_ids if context in contexts]
            if what.is_plain:
                slots = [Slot(record, context, responses) for context in tested]
            else:
                held = compose(what, record, source.labels if source else None)
                ids = record.attribute_ids
                # One record for the contexts that share a memory: what is made of it is cached by it.
                memories = {some: restrict(record, [ids[at] for at in some]) for some in set(held.values())}
                slots = [Slot(memories[held[context]], context, responses) for context in tested if context in held]
            places += len(slots)
            if spec.remembered is not None:
                by_id = {slot.context_id: slot for slot in slots}
                slots = [by_id[context] for context in session_order(spec.remembered, record, by_id)]
            counter.count(message_branches(writer, slots))
        stages, assumptions = stages_of(connection, calls_of_run(connection, prepared.judges, prepared), counter)
    return places, stages, assumptions, counter.failure_causes


def require_fit(store: Store, prepared: Prepared, labels: LabelsFor | None) -> None:
    """Raises StoreError if requests about the longest profile do not fit into a server's context. One profile, so that
    it costs the same for a run of thousands."""
    servers = [prepared.server, prepared.memory_server, *(judge.server for judge in prepared.judges)]
    if not any(server is not None and server.max_model_len for server in servers):
        return
    with store.read() as connection:
        dataset = datasets.by_name(connection, prepared.spec.dataset)
        longest = datasets.longest_profile(connection, dataset.id, prepared.spec.profiles)
    _, stages, _, _ = _traversed(store, prepared, labels.source if labels else None, longest)
    refuse_misfits(Estimate(0, 0, stages, (), 1))


def refuse_misfits(estimated: Estimate) -> None:
    """Raises StoreError if the estimate says that requests do not fit into a server's context."""
    if estimated.misfits:
        raise StoreError(
            f"{estimated.misfits[0]}. Nothing was sent. Use a server with a longer context, a lower token limit (on "
            "the command line: --max-tokens, --judge-max-tokens) or fewer memories; or send it all the same (on the "
            "command line: --allow-too-long)."
        )


def estimate_slots(store: Store, prepared: Prepared, slots: Sequence[Slot], *, concurrency: int = 32) -> Estimate:
    """Return what the messages of these slots and their judgements would come to, by the servers of `prepared`."""
    writer = _writer(store, prepared)
    with store.read() as connection:
        counter = Traversal(connection)
        counter.count(message_branches(writer, slots))
        stages, assumptions = stages_of(connection, calls_of_run(connection, prepared.judges, prepared), counter)
    responses = sum(len(slot.responses) for slot in slots)
    return Estimate(len(slots), responses, stages, assumptions, concurrency, prepared.spec.cap, unit="variant")


def _writer(store: Store, prepared: Prepared) -> Writer:
    """Return what writes the messages of the run, and its judges, with clients that send nothing."""
    spec, system, memory_model = prepared.spec, prepared.composition.system, None
    client = partial(CountingClient, store, fresh=spec.fresh)
    judges = [
        at_work(judge, 0, client(judge.spec.base_url, judge.server), judge.prompt)
        for judge in (*prepared.judges, prepared.checker)
        if judge is not None and judge.server is not None
    ]
    if prepared.memory_server is not None and system is not None and system.asks is not None:
        (model, base_url), server = system.asks, prepared.memory_server
        memory_model = MemoryModel(client(base_url or spec.base_url, server), model, server, system.embeds)
    return Writer(
        client(spec.base_url, prepared.server),
        spec.model,
        prepared.wording,
        prepared.parameters,
        prepared.seed,
        judges,
        spec,
        prepared.server.schema,
        system.planned if system is not None else None,
        memory_model,
    )


# ---- stages: what was counted, in tokens, time and money


@dataclass(frozen=True)
class Expected:
    """The settings of the calls of one kind to one model, and what tells how long the calls are.

    works: those that asked the same before, the newest first; used: the table of their calls. sent: the token limit as
    sent. limit: the most tokens of an answer, and what sets it; if not `is_bound`, answers are about as long. message,
    message_limit: of messages that are not written yet, what was learned, and the most tokens that one may have.
    """

    server: Server
    prices: Prices | None
    works: Sequence[str]
    sent: int | None
    limit: tuple[int, str]
    used: sa.Table = run_call
    is_bound: bool = True
    message: Learned | None = None
    message_limit: int = 0

    def learned(self, connection: sa.Connection, kind: str, model: str) -> Learned | None:
        # The newest five: enough for a mean, where a query over all of them would grow with the workspace.
        return calls.learned(connection, self.works[:5], kind, model, self.server.simulated, self.used)


def calls_of_run(
    connection: sa.Connection, judges: Sequence[PlannedJudge], prepared: Prepared | None = None
) -> Callable[[str, str], Expected]:
    """Return what tells, by kind and model, the expected calls of a run. prepared: None for those of judges alone."""
    manifests = calls.manifests(connection)

    def works(kind: str, model: str) -> list[str]:
        role = role_of(kind)
        return [i for i, manifest in manifests if model in (item.name for item in models_in(manifest, role))]

    def of_judge(kind: str, model: str) -> Expected:
        asked = [judge for judge in judges if judge.spec.model == model]
        limits = [(judge_limit(judge.spec, judge.server), judge.server) for judge in asked if judge.server]
        # Several judges of one model may be served in several places: the shortest context decides what fits.
        server = min((server for _, server in limits), key=lambda server: server.max_model_len or sys.maxsize)
        prices = next((judge.spec.prices for judge in asked if judge.spec.prices), None)
        sent = max((limit for limit, _ in limits if limit is not None), default=None)
        return Expected(server, prices, works(kind, model), sent, limit_of(limits))

    def of_run(kind: str, model: str) -> Expected:
        assert prepared is not None
        spec, server, prices = prepared.spec, prepared.server, prepared.spec.prices
        max_tokens = spec.max_tokens if spec.applies("max_tokens") else None  # an assistant is sent no limit
        message_limit = limit_of([(max_tokens, server)])
        if role_of(kind) == JUDGE:
            known = of_judge(kind, model)
        else:
            if model != spec.model:
                server, prices = prepared.memory_server or server, spec.memory_prices
            sent, limit = max_tokens, message_limit
            if kind == REMEMBER:
                sent, limit = MEMORY_TOKENS, limit_of([(MEMORY_TOKENS, server)])
            elif kind == EMBEDDING:
                sent, limit = None, (0, "vectors are no completion tokens")
            known = Expected(server, prices, works(kind, model), sent, limit)
        # A rewrite reads a draft, a judge what the run ends with.
        written = REWRITE if spec.mitigation == "rewrite" and kind != REWRITE else RESPOND
        before = Expected(prepared.server, None, works(written, spec.model), None, message_limit)
        message = before.learned(connection, written, spec.model)
        return replace(known, message=message, message_limit=message_limit[0])

    return of_judge if prepared is None else of_run


def limit_of(limits: Sequence[tuple[int | None, Server]]) -> tuple[int, str]:
    """Return the most tokens of one answer, and what sets it: the limits as sent, else the server's context, else what
    a judge is allowed."""
    sent = [limit for limit, _ in limits if limit is not None]
    if len(sent) == len(limits):
        return max(sent), f"the limit of {max(sent):,} completion tokens each, as an upper bound"
    context = max((server.max_model_len or 0 for limit, server in limits if limit is None), default=0)
    if context:
        return context, f"no limit is sent: the server's context of {count(context, 'token')} each, as an upper bound"
    return JUDGE_TOKENS, f"no limit is sent, and the server's is not known: {JUDGE_TOKENS:,} completion tokens each"


def stages_of(
    connection: sa.Connection, expects: Callable[[str, str], Expected], counter: Traversal
) -> tuple[tuple[StageEstimate, ...], tuple[str, ...]]:
    """Return the stages, and the assumptions behind their numbers. expects: by kind and model."""
    stages: list[StageEstimate] = []
    assumptions: dict[str, None] = {}
    for (kind, model), counted in counter.kinds.items():
        known = expects(kind, model)
        learned, message, server = known.learned(connection, kind, model), known.message, known.server
        recorded = calls.characters_a_token(connection, known.works[:5], model, server.simulated, known.used)
        ratio = recorded or CHARACTERS_A_TOKEN
        if counted.requests:
            counts = f"{ratio:.2f} characters a token, as counted in recorded calls of {model}"
            guess = f"{ratio:g} characters a token: no call of {model} is recorded yet"
            assumptions[counts if recorded else guess] = None
        # A message that is not written yet is as long as others of its kind, or as its limit lets it be.
        unknown = counted.unknown * (message.characters if message else known.message_limit * ratio)
        if counted.unknown and message is None:
            assumptions["a message that is not written yet is taken to be as long as its limit lets it be"] = None
        limit, bound = known.limit
        context = server.max_model_len
        # Most servers refuse a prompt whose answer might exceed their context; llama.cpp begins, and cuts the answer.
        answer = 1 if server.cuts_answers else known.sent or 1
        written = message.characters if message else 0.0
        tokens = {key: math.ceil((key[0] + key[1] * written) / ratio) + answer for key in counted.lengths}
        stage = StageEstimate(
            kind=kind,
            model=model,
            draws=counted.draws,
            recorded=counted.recorded,
            requests=counted.requests,
            requests_least=counted.least_requests,
            prompt_tokens=round((counted.characters + unknown) / ratio),
            # Where nothing tells how long a message is, the least is none.
            prompt_tokens_least=round((counted.least + (unknown if message else 0)) / ratio),
            cacheable=round(counted.shared / ratio),
            completion_tokens=round(counted.owed * (learned.completion_tokens if learned else limit)),
            completion_known=learned is not None or not known.is_bound,
            seconds=learned.seconds * counted.requests if learned else None,
            prices=known.prices,
            context=context,
            too_long=sum(counted.lengths[key] for key, n in tokens.items() if context and n > context),
            longest=max(tokens.values(), default=0),
        )
        stages.append(stage)
        if stage.requests and learned:
            mean = f"{count(stage.completion_tokens / counted.owed, 'completion token')} each"
            assumptions[f"{stage.title}: {mean}, the mean of recorded calls of {model}"] = None
        elif stage.requests:
            assumptions[f"{stage.title}: {bound}; none is recorded yet"] = None
    rests_on_all = {
        f"{counter.unnamed:,} of these calls are answered in the record by servers that are not known: where this "
        f'server gave those answers, `cimemories servers same URL "{NOT_KNOWN}"` lets them serve': counter.unnamed,
        "recorded answers are reused and cost nothing": any(stage.recorded for stage in stages),
        "how much of a shared prefix comes from the server's cache depends on the server": any(
            stage.cacheable for stage in stages
        ),
        "behind a gate, samples that chose the same memories share one request; one each is counted": any(
            stage.requests != stage.requests_least for stage in stages
        ),
        "every message is written and judged": any(stage.kind in ("judge", "check") for stage in stages),
        "time as in the recorded calls, whatever the server's load was then": any(
            stage.requests and stage.seconds is not None for stage in stages
        ),
    }
    if any(stage.requests for stage in stages):
        assumptions |= {text: None for text, holds in rests_on_all.items() if holds}
    return tuple(stages), tuple(assumptions)
