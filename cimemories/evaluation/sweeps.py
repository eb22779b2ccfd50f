"""A sweep at work: planned in one transaction, worked off run by run, and resumed as one piece of work.

    sweep_id = plan(store, read_sweep(path), find_labels=effective_labels)
    execute(store, sweep_id)

Every cell is an ordinary run. Runs of one model follow each other, and of one memory within it, so that what they have
in common is still in the server's cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from cimemories.access.roles import Role
from cimemories.evaluation import runs
from cimemories.evaluation.compositions import CompositionError, read_composition
from cimemories.evaluation.costs import CapWatch, Prices
from cimemories.evaluation.estimates import Estimate, estimate
from cimemories.evaluation.judging import LLM
from cimemories.evaluation.planning import (
    JUDGE_TOKENS,
    MESSAGE_TOKENS,
    PUBLISHED_LEVELS,
    SERVERS_LIMIT,
    SIMULATED_JUDGE_TOKENS,
    THINKING,
    FindLabels,
    JudgeSpec,
    LookUp,
    Memory,
    RunSpec,
    as_reference,
    look_up,
    prepare,
    write,
)
from cimemories.evaluation.respond import Mitigation
from cimemories.evaluation.sessions import read_sessions
from cimemories.llm import worker
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, NO_SERVERS, EndpointError, checked_address, checked_variable
from cimemories.llm.executor import UNREACHABLE, Progress
from cimemories.llm.worker import CANCELLED, HEARTBEAT_SECONDS, PAUSED, SIMULATOR, WorkError, stopped_message
from cimemories.model import WorkStatus
from cimemories.seeds.presets import preset
from cimemories.seeds.prompts import PromptFile, levels, read_prompt_file, reference_prompts
from cimemories.seeds.reading import Line, Seed, SeedError, checked, load
from cimemories.store import datasets, judgements, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import DatabaseLost, Store, StoreError
from cimemories.store.runs import RunRow
from cimemories.store.team import log

# ---- sweep file
#
# A sweep as a YAML file (docs/sweeps.md): models x memories x prompt levels x mitigations x thinking, all else shared.
#
# read_sweep(Path("small-models.yaml")).runs # one RunSpec a cell, in the order in which they are worked off


# Every cell is a run with all its responses, and one transaction writes them all.
CELLS_AT_MOST = 500
NUMBERS_AT_MOST = 200  # of one axis, before it is multiplied with the others
AT_MOST = Field(max_length=CELLS_AT_MOST)  # of each list: what follows compares every item with every other
Scalar = bool | int | float | str | None


def _prices(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError("write prices as PROMPT/CACHED/COMPLETION for a million tokens, such as 0.15/0.075/0.60 EUR")
    try:
        return Prices.read(value).text
    except StoreError as error:
        raise ValueError(str(error)) from None


def _thinking(value: object) -> object:
    """YAML reads on and off as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str | bool) else value


def _some(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if not items:
        raise ValueError("give at least one")
    return items


def _repeats(items: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = [item for item in items if items.count(item) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given more than once")
    return _some(items)


def _accepted_by(check: Callable[[str], object]) -> AfterValidator:
    """A validator by a check that raises the library's own errors, where pydantic takes ValueErrors alone."""

    def validate(text: str) -> str:
        try:
            check(text)
        except EndpointError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(validate)


def _forms(types: tuple[type, ...], tag: str, other: str) -> Discriminator:
    """Tells the two forms of a field apart by type, so that an error is about the one that was meant alone."""
    return Discriminator(lambda value: tag if isinstance(value, types) else other)


# A limit on tokens, or the word for none of ours.
Limit = Annotated[
    Annotated[int, Field(ge=1), Tag("number")] | Annotated[Literal["server"], Tag("text")],
    _forms((str,), "text", "number"),
]
PriceText = Annotated[str | None, BeforeValidator(_prices)]
Thinking = Annotated[Literal["default", "on", "off", "low", "medium", "high"], BeforeValidator(_thinking)]
# A Literal cannot be built from a tuple: this keeps the two lists the same.
assert set(THINKING) == {"default", "on", "off", "low", "medium", "high"}
Composed = Annotated[str, _accepted_by(read_composition)]
Count = Annotated[int, Field(ge=0, le=999_999)]


def _tokens(limit: int | str) -> int | None:
    return None if limit == SERVERS_LIMIT else int(limit)


class Steps(Seed):
    """Numbers from one to another, both among them where the step hits the last."""

    first: Count = Field(alias="from")
    last: Count = Field(alias="to")
    step: int = Field(ge=1)

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Steps:
        if self.last < self.first:
            raise ValueError(f"`to` ({self.last}) is less than `from` ({self.first})")
        if (self.last - self.first) // self.step >= NUMBERS_AT_MOST:
            raise ValueError(f"more than {NUMBERS_AT_MOST} steps")
        return self

    def numbers(self) -> Iterator[int]:
        yield from range(self.first, self.last + 1, self.step)


Listed = Annotated[tuple[Count, ...], Field(max_length=NUMBERS_AT_MOST), AfterValidator(_some)]
Numbers = Annotated[
    Annotated[Listed, Tag("list")] | Annotated[Steps, Tag("steps")], _forms((dict, Seed), "steps", "list")
]


class Compositions(Seed):
    """The short form: one kind of memory with several numbers."""

    necessary: Numbers | None = None
    inappropriate: Numbers | None = None
    random: Numbers | None = None
    all_share: Numbers | None = None
    all_not_share: Numbers | None = None
    iid: Numbers | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Compositions:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"give one of {', '.join(type(self).model_fields)}, with its numbers")
        return self

    def labels(self) -> Iterator[str]:
        kind, numbers = next((kind, numbers) for kind, numbers in self if numbers is not None)
        sign = "-" if kind in ("random", "iid") else "+"
        yield from (f"{kind}{sign}{n}" for n in (numbers.numbers() if isinstance(numbers, Steps) else numbers))


_EITHER = _forms((str, bool), "text", "mapping")
MemoryEntry = Annotated[Annotated[Composed, Tag("text")] | Annotated[Compositions, Tag("mapping")], _EITHER]
Memories = Annotated[tuple[MemoryEntry, ...], AT_MOST, AfterValidator(_some)]
Kept = Annotated[str, Field(pattern=r"^(none|all|last-[1-9]\d{0,3})$")]
Levels = Annotated[tuple[Line, ...], AT_MOST, AfterValidator(_repeats)]
Address = Annotated[Line, _accepted_by(lambda text: text in NO_SERVERS or checked_address(text))]
KeyVariable = Annotated[Line, _accepted_by(checked_variable)]


class ModelEntry(Seed):
    """One model under test. preset: what seeds/models.yaml knows of it; it fills in what is not given here. thinking,
    memory, prompt_levels, profiles: instead of those of the file."""

    model: Line | None = None
    preset: Line | None = None
    base_url: Address | None = None
    api_key_env: KeyVariable | None = None
    thinking: Annotated[tuple[Thinking, ...], BeforeValidator(_listed), AT_MOST, AfterValidator(_repeats)] | None = None
    prices: PriceText = None
    sampling: dict[Line, Scalar] | None = None
    max_tokens: Limit | None = None
    memory: Memories | None = None
    prompt_levels: Levels | None = None
    profiles: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _can_be_asked(self) -> ModelEntry:
        known = preset(self.preset) if self.preset else None
        if self.model is None and known is None:
            raise ValueError("give `model`, the name under which it is served, or a `preset`")
        if self.base_url is None and (known is None or known.base_url is None):
            raise ValueError("give `base_url`, where it is served (or the word simulator)")
        return self


class JudgeEntry(Seed):
    """A model that judges. channel: message, or reasoning."""

    model: Line
    base_url: Address
    api_key_env: KeyVariable = DEFAULT_KEY_ENV
    max_tokens: Limit | None = None
    channel: Literal["message", "reasoning"] = "message"
    split: int | None = Field(default=None, ge=1)
    fields: dict[Line, Scalar] = Field(default_factory=dict)
    prices: PriceText = None

    def spec(self) -> JudgeSpec:
        prices = Prices.read(self.prices) if self.prices else None
        usual = SIMULATED_JUDGE_TOKENS if self.base_url == SIMULATOR else JUDGE_TOKENS
        limit = usual if self.max_tokens is None else _tokens(self.max_tokens)
        return JudgeSpec(kind=LLM, **{**self.model_dump(), "prices": prices, "max_tokens": limit})


def judge_entry(judge: JudgeSpec) -> dict[str, object] | str:
    """A judge as the file of a sweep has it, without what is usual."""
    if judge.kind != LLM:
        return "matcher"
    given: dict[str, object] = {
        name: getattr(judge, name) for name in ("model", "base_url", "api_key_env", "channel", "split")
    }
    given |= {"max_tokens": SERVERS_LIMIT if judge.max_tokens is None else judge.max_tokens}
    given |= {"fields": dict(judge.fields)}
    usual: dict[str, object] = {"api_key_env": DEFAULT_KEY_ENV, "channel": "message", "split": None, "fields": {}}
    return {name: value for name, value in given.items() if name not in usual or value != usual[name]}


Judging = Annotated[Annotated[Literal["matcher"], Tag("text")] | Annotated[JudgeEntry, Tag("mapping")], _EITHER]


class SweepFile(Seed):
    """The file as a whole. What is a list spans the grid; everything else is the same in all cells."""

    name: Line
    dataset: Line
    models: Annotated[tuple[ModelEntry, ...], AT_MOST, AfterValidator(_some)]
    memory: Memories = ("full",)
    memory_order: Literal["fixed", "shuffled"] = "fixed"
    memory_seed: int = 0
    memory_template: Line = "bullets"
    prompt_levels: Levels = ("base",)
    prompt_file: Line | None = None
    mitigations: Annotated[tuple[Mitigation, ...], AT_MOST, AfterValidator(_repeats)] = (Mitigation.NONE,)
    thinking: Annotated[tuple[Thinking, ...], AT_MOST, AfterValidator(_repeats)] = ("default",)
    sessions: Annotated[tuple[Kept, ...], AT_MOST, AfterValidator(_repeats)] = ("none",)
    session_order: Literal["fixed", "shuffled"] = "fixed"
    session_seed: int = 0
    samples: int = Field(default=5, ge=1, le=100)
    profiles: int | None = Field(default=None, ge=1)
    contexts: int | None = Field(default=None, ge=1)
    sampling: dict[Line, Scalar] = Field(default_factory=dict)
    max_tokens: Limit = MESSAGE_TOKENS
    seed: int | None = None
    timeout: float = Field(default=120.0, ge=1)  # seconds
    judges: Annotated[tuple[Judging, ...], AT_MOST, AfterValidator(_some)] = ("matcher",)
    check: Literal["rules", "model", "none"] = "rules"
    cap: float | None = Field(default=None, gt=0)
    fresh: bool = False
    reference: bool = False

    def of(self, entry: ModelEntry, axis: str) -> Any:
        """The model's own list where it has one."""
        return getattr(self, axis) if getattr(entry, axis) is None else getattr(entry, axis)


@dataclass(frozen=True)
class SweepSpec:
    """A sweep that can be planned: its runs in the order of their cells, and the file as it was read."""

    name: str
    dataset: str
    runs: tuple[RunSpec, ...]
    cap: float | None
    source: dict[str, Any]


def read_sweep(path: Path, *, uploaded: bool = False, reference: bool = False) -> SweepSpec:
    """The sweep that a file describes. Raises SeedError that names the file, each field and what is wrong with it.
    uploaded: the file comes from a browser, which must not name files of this machine: a prompt file is refused.
    reference: by the authors' settings, whatever the file says."""
    content = load(path)
    content = content | {"reference": True} if reference and isinstance(content, dict) else content
    return check_sweep(content, path, None if uploaded else path.parent)


def check_sweep(content: object, path: Path, prompt_folder: Path | None = None) -> SweepSpec:
    """The same of content that did not come from a file, a form's say; `path` is what errors call it. prompt_folder:
    where a prompt file must stand, in it or below; None: none may be named."""
    file = checked(path, content, SweepFile)
    wording = _wording(file, path, prompt_folder)
    axes = [
        (_memories(file, e, path), file.of(e, "prompt_levels"), file.mitigations, file.of(e, "thinking"), file.sessions)
        for e in file.models
    ]
    # Counted before it is built: small lists multiply to millions of cells.
    cells = sum(prod(map(len, own)) for own in axes)
    if cells > CELLS_AT_MOST:
        raise SeedError(
            f"{path}: the grid has {cells:,} cells, more than {CELLS_AT_MOST}. Split it into several sweeps"
        )
    grid = ((entry, cell) for entry, own in zip(file.models, axes, strict=True) for cell in product(*own))
    runs = tuple(_run(path, file, entry, cell, wording) for entry, cell in grid)
    _check(path, file, runs)
    return SweepSpec(file.name, file.dataset, runs, file.cap, file.model_dump(mode="json", by_alias=True))


def _memories(file: SweepFile, entry: ModelEntry, path: Path) -> list[str]:
    listed = file.of(entry, "memory")
    labels = [label for item in listed for label in ([item] if isinstance(item, str) else item.labels())]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise SeedError(f"{path}: memory: {twice} is given more than once")
    try:
        for label in labels:
            read_composition(label)
    except CompositionError as error:
        raise SeedError(f"{path}: memory: {error}") from None
    return labels


def _wording(file: SweepFile, path: Path, folder: Path | None) -> PromptFile | None:
    """The user's file of prompts; None where the levels are those of the seeds."""
    given, known = None, reference_prompts().levels("respond") if file.reference else levels("respond")
    if file.prompt_file is not None:
        if folder is None:
            where = "Start it from the command line (cimemories sweep FILE), or use the prompt levels that ship"
            raise SeedError(f"{path}: prompt_file: a sweep in the app cannot name a file of this machine. {where}")
        given = read_prompt_file(_below(path, folder, file.prompt_file))
        known = given.levels("respond")
    named = (*file.prompt_levels, *(level for entry in file.models for level in entry.prompt_levels or ()))
    known += tuple(PUBLISHED_LEVELS) if file.reference else ()
    if unknown := next((item for item in enumerate(named) if item[1] not in known), None):
        raise SeedError(f"{path}: prompt_levels[{unknown[0]}]: no level '{unknown[1]}'. Available: {', '.join(known)}")
    if given is None and file.memory_template not in levels("memory"):
        raise SeedError(f"{path}: memory_template: must be one of {', '.join(levels('memory'))}")
    return given


def _below(path: Path, folder: Path, name: str) -> Path:
    """The file of that name in the folder or below it, wherever links lead. Raises SeedError for any other place."""
    try:
        base = folder.resolve()
        # Resolved before it is compared: '..' and links inside the folder may lead out of it.
        target = (base / name).resolve()
    except (OSError, ValueError, RuntimeError):
        raise SeedError(f"{path}: prompt_file: not a usable path") from None
    if not target.is_relative_to(base):
        raise SeedError(f"{path}: prompt_file: must be in the folder of the sweep's file or below it. Copy it there")
    return target


def _run(path: Path, file: SweepFile, entry: ModelEntry, cell: tuple[Any, ...], wording: PromptFile | None) -> RunSpec:
    memory, level, mitigation, thinking, kept = cell
    known = preset(entry.preset) if entry.preset else None
    judges = [JudgeSpec() if isinstance(item, str) else item.spec() for item in file.judges]
    prompts = {} if wording is None else {"respond": wording.prompt("respond", level)}
    if wording is not None and file.memory_template in wording.levels("memory"):
        prompts["memory"] = wording.prompt("memory", file.memory_template)
    spec = RunSpec(
        dataset=file.dataset,
        model=entry.model or (known.name if known else ""),
        base_url=entry.base_url or (known.base_url if known else None) or "",
        samples=file.samples,
        profiles=entry.profiles or file.profiles,
        contexts=file.contexts,
        judge=judges[0],
        more_judges=tuple(judges[1:]),
        api_key_env=entry.api_key_env or (known.api_key_env if known else None) or DEFAULT_KEY_ENV,
        sampling=entry.sampling if entry.sampling is not None else file.sampling,
        max_tokens=_tokens(entry.max_tokens or file.max_tokens),
        seed=file.seed,
        prompt_level=level,
        prompts=prompts,
        memory=Memory(memory, file.memory_order, file.memory_seed, file.memory_template),
        thinking=thinking,
        mitigation=mitigation,
        check=file.check,
        preset=entry.preset,
        timeout=file.timeout,
        prices=Prices.read(entry.prices) if entry.prices else None,
        fresh=file.fresh,
        sessions=None if kept == "none" else read_sessions(kept, file.session_order, file.session_seed),
    )
    try:
        return as_reference(spec, wording) if file.reference else spec
    except StoreError as error:
        raise SeedError(f"{path}: {error}") from None


def _check(path: Path, file: SweepFile, runs: tuple[RunSpec, ...]) -> None:
    """What can be seen to be wrong of single cells and of all together."""
    seen: set[tuple[object, ...]] = set()
    prices: dict[str, Prices] = {}
    for spec in runs:
        try:
            replace(spec, cap=file.cap).checked()
        except StoreError as error:
            raise SeedError(f"{path}: {error}") from None
        cell = spec.model, spec.base_url, spec.memory, spec.prompt_level, spec.mitigation, spec.thinking, spec.profiles
        # Two entries of one model that differ in their sampling alone are two cells.
        whole = (
            *cell,
            spec.sessions,
            spec.max_tokens,
            tuple(sorted((k, str(v)) for k, v in spec.sampling.items())),
            spec.preset,
        )
        if whole in seen:
            raise SeedError(f"{path}: models: {spec.model} is given more than once with the same settings")
        seen.add(whole)
        if spec.prices is not None and prices.setdefault(spec.model, spec.prices) != spec.prices:
            raise SeedError(
                f"{path}: models: {spec.model} has two prices. Give one: a call that cells share is paid once"
            )
    units = {price.currency for spec in runs for price in (spec.prices, *(j.prices for j in spec.judges)) if price}
    if len(units) > 1:
        raise SeedError(f"{path}: prices: all must be in one currency, not in {' and '.join(sorted(units))}")


# ---- sweeps


Report = Callable[[Progress], None]
Begin = Callable[[RunRow, int, int], AbstractContextManager[Report | None]]
WAITS = "waiting for its turn in"


@dataclass(frozen=True)
class SweepEstimate:
    """What the cells of a sweep would come to, in their order; what one cell asks and another asks too counts once."""

    runs: tuple[RunSpec, ...]
    cells: tuple[Estimate, ...]
    cap: float | None = None

    @property
    def total(self) -> Estimate:
        """All cells as one, its stages in the order of the cells."""
        stages = tuple(stage for cell in self.cells for stage in cell.stages)
        assumptions = tuple(dict.fromkeys(text for cell in self.cells for text in cell.assumptions))
        return Estimate(
            places=sum(cell.places for cell in self.cells),
            responses=sum(cell.responses for cell in self.cells),
            stages=stages,
            assumptions=assumptions,
            concurrency=self.cells[0].concurrency,
            cap=self.cap,
            unreachable=tuple(dict.fromkeys(text for cell in self.cells for text in cell.unreachable)),
        )

    def as_json(self) -> dict[str, object]:
        """The sums, as they are kept with the sweep."""
        total = self.total
        counts = ("responses", "requests", "draws", "recorded", "prompt_tokens", "completion_tokens")
        names = (*counts, "cost_least", "cost_most", "currency", "seconds")
        return {"cells": len(self.cells), **{name: getattr(total, name) for name in names}}


def estimate_sweep(
    store: Store, spec: SweepSpec, *, find_labels: FindLabels | None = None, concurrency: int = 32
) -> SweepEstimate:
    """What a sweep would come to. Raises StoreError, SeedError or CompositionError where it could not be planned."""
    # `counted` goes from cell to cell: a call that an earlier cell makes is in the record when the later one comes.
    find, counted, ask = _once(find_labels), set[str](), _look_up_once(partial(look_up, retries=1))
    cells = tuple(
        estimate(store, run, find_labels=find, concurrency=concurrency, counted=counted, look_up=ask)
        for run in spec.runs
    )
    return SweepEstimate(spec.runs, cells, spec.cap)


def plan(
    store: Store, spec: SweepSpec, *, find_labels: FindLabels | None = None, estimated: SweepEstimate | None = None
) -> str:
    """Look every server up, then write the sweep with all its runs in one transaction; returns its id. estimated: what
    it was said to come to, to be kept with it. Raises EndpointError, StoreError, SeedError or CompositionError before
    anything is written."""
    # All servers are asked before the transaction: none of them may hold the lock on writing.
    ask, find = _look_up_once(look_up), _once(find_labels)
    prepared = [prepare(store, run, ask) for run in spec.runs]
    with store.write(Role.OPERATOR) as connection:
        sweep_id = store_runs.add_sweep(
            connection,
            name=spec.name,
            dataset_id=datasets.named(connection, spec.dataset).id,
            spec=spec.source,
            plan=estimated.as_json() if estimated else {},
            cap=spec.cap,
        )
        for cell, item in enumerate(prepared):
            run_id = write(connection, store, item, find_labels=find, sweep=sweep_id, cell=cell)
            # Queued work whose worker does not come would soon be shown as interrupted.
            work.finish(connection, run_id, WorkStatus.PAUSED, f"{WAITS} {sweep_id}")
        log.add(connection, "sweep.planned", sweep_id, name=spec.name, dataset=spec.dataset, runs=len(prepared))
    return sweep_id


def _look_up_once(ask: LookUp) -> LookUp:
    """Each question to a server asked once for all cells, one that was not answered among them."""

    @cache
    def answer(*question: Any) -> Server | EndpointError:
        try:
            return ask(*question)
        except EndpointError as error:
            # Kept too: a server that is away would be waited for again with each cell.
            return error

    def server(*question: Any) -> Server:
        known = answer(*question)
        if isinstance(known, EndpointError):
            raise known
        return known

    return server


def _once(find_labels: FindLabels | None) -> FindLabels | None:
    # Effective labels of a dataset are the same for all cells, and costly to put together.
    return cache(find_labels) if find_labels else None


def execute(store: Store, sweep_id: str, *, begin: Begin | None = None, queued: bool = False, **how: Any) -> None:
    """Work off what the runs of a sweep owe, one after the other; waits until all is done.

    begin: entered around each run with (run, its number from 1, how many there are), and gives what its progress is
    reported to. how: `concurrency` and `cluster`, as of runs.execute. A sweep that was asked to pause returns, and its
    status is `paused`. Raises StoreError where another process is at it, and WorkError where it ended early (cancelled,
    at its cap, a server is gone) or, once all others are done, where runs failed, naming them.
    """
    own = worker.begin(store, sweep_id, queued=queued)
    # The sweep is claimed by `own`; each of its runs claims itself, so that a run can be looked at and paused alone.
    heart = _Heart(own, sweep_id)
    try:
        with heart.beating():
            failed = _work_off(store.patient(), sweep_id, heart, begin, how)
    except work.ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except _End as end:
        _finish(own, sweep_id, end.status, end.reason)
        if end.status == WorkStatus.PAUSED:
            return
        raise WorkError(stopped_message(sweep_id, end.reason)) from end
    except KeyboardInterrupt as error:
        # Without patience: who pressed Ctrl-C does not wait for a database that went away.
        _finish(own.patient(0), sweep_id, WorkStatus.CANCELLED, "stopped by the keyboard")
        raise WorkError(f"{sweep_id}: stopped. Continue with `cimemories resume {sweep_id}`.") from error
    except (sa.exc.DBAPIError, DatabaseLost) as error:
        reason = worker.why_not_written(error)
        # Without patience: a database that has just failed is not waited for once more.
        _finish(own.patient(0), sweep_id, WorkStatus.INTERRUPTED, reason)
        raise WorkError(f"{sweep_id}: {reason}. Free some space or fix the database, then resume it.") from error
    if failed:
        reason = f"{len(failed)} of its runs did not finish: {'; '.join(failed)}"
        _finish(own, sweep_id, WorkStatus.FAILED, reason)
        raise WorkError(f"{sweep_id}: {reason}. Try again with `cimemories resume {sweep_id}`.")
    _finish(own, sweep_id, None, None)


class _End(Exception):
    """The sweep ends here, with this status and for this reason."""

    def __init__(self, status: WorkStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Heart:
    """Beats once a second for the sweep, and passes a request to pause or cancel it on to the run at work. lost: that
    another process has taken the sweep over; the run at work then has to end."""

    def __init__(self, store: Store, sweep_id: str) -> None:
        self.store, self.sweep_id = store, sweep_id
        self.run_id: str | None = None
        self.requested: WorkStatus | None = None
        self.lost: str | None = None
        # An event, not a sleep: the thread ends at once when the sweep does.
        self._over = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
        # A thread of its own: the run at work has this one until it ends.
        thread = threading.Thread(target=self._beat, name=f"heart of {self.sweep_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS / 2):
            try:
                self.look()
            except work.ClaimLost as lost:
                self.lost = str(lost)
                return  # the next check raises it
            except (sa.exc.DBAPIError, StoreError):
                continue  # one missed beat is no reason to stop

    def look(self) -> None:
        """Beat once. A request is passed on at every beat: the run may not have been claimed at the last."""
        with self.store.write(relaxed=True) as connection:
            status = work.beat(connection, self.sweep_id)
            if status in (WorkStatus.CANCELLING, WorkStatus.PAUSING):
                self.requested = status
            run_id = self.run_id
            if run_id is not None and self.requested == WorkStatus.CANCELLING:
                # The run is claimed by this same process: it sees the request at its own next beat.
                work.request_cancel(connection, run_id)
            elif run_id is not None and self.requested == WorkStatus.PAUSING:
                work.request_pause(connection, run_id)

    def check(self) -> None:
        """Raises _End where somebody asked the sweep to stop."""
        # Beats itself, so that a request made since the last beat is seen before the next run begins.
        self.store.retry(self.look)
        if self.requested == WorkStatus.CANCELLING:
            raise _End(WorkStatus.CANCELLED, CANCELLED)
        if self.requested == WorkStatus.PAUSING:
            raise _End(WorkStatus.PAUSED, PAUSED)


def _work_off(store: Store, sweep_id: str, heart: _Heart, begin: Begin | None, how: Mapping[str, Any]) -> list[str]:
    """Do the runs that owe something; returns what failed, a sentence each."""
    with store.read() as connection:
        rows = store_runs.of_sweep(connection, sweep_id)
    failed: list[str] = []
    gone: set[tuple[str, str]] = set()  # (model, address) that refuse us: their other cells would fail as well
    for number, row in enumerate(rows, start=1):
        heart.check()
        if _is_done(store, row):
            continue
        # A server that refused one cell would be asked, with all its retries, for every other.
        if (row.model, row.endpoint) in gone:
            failed.append(f"{row.id} ({row.name}) was not started, for the same reason")
            continue
        # Anew for each run: what the one before has paid counts, and the cap may have been raised.
        watch = CapWatch(store, sweep_id)
        if reason := watch.reached():
            raise _End(WorkStatus.INTERRUPTED, reason)
        heart.run_id = row.id
        try:
            with begin(row, number, len(rows)) if begin else nullcontext() as report:
                stop = partial(_stop_when, heart, watch)
                runs.execute(store, row.id, on_progress=report, stop_when=stop, **how)
        except WorkError as error:
            heart.check()
            reason = _why(store, row, error, watch)
            failed.append(reason)
            # Cancelled by somebody says nothing of the server: its other cells may go well.
            if _status(store, row.id)[0] != WorkStatus.CANCELLED:
                gone.add((row.model, row.endpoint))
        except (sa.exc.DBAPIError, DatabaseLost, work.ClaimLost):
            raise
        except Exception as error:
            heart.check()
            failed.append(f"{row.id} ({row.name}): {error}")
        finally:
            # The heart must not hand a request down to a run that has ended.
            heart.run_id = None
        heart.check()
        if _status(store, row.id)[0] == WorkStatus.PAUSED:
            failed.append(f"{row.id} ({row.name}) was paused on its own")
    return failed


def _stop_when(heart: _Heart, watch: CapWatch, done: Progress) -> str | None:
    return heart.lost or watch(done)


def _why(store: Store, row: RunRow, error: WorkError, watch: CapWatch) -> str:
    """Why a run ended early, where the sweep can go on without it. Raises _End where it cannot."""
    status, reason = _status(store, row.id)
    # worker.perform turns Ctrl-C into a WorkError; what was pressed is in its cause.
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise _End(WorkStatus.CANCELLED, "stopped by the keyboard") from error
    if watch.reached():
        raise _End(WorkStatus.INTERRUPTED, str(watch.reached())) from error
    sentence = f"{row.id} ({row.name}): {reason or error}"
    # A server that is away may come back: the sweep ends as interrupted and can be resumed.
    if status == WorkStatus.INTERRUPTED and (reason or "").startswith(UNREACHABLE):
        raise _End(WorkStatus.INTERRUPTED, sentence) from error
    if isinstance(error.__cause__, (sa.exc.DBAPIError, DatabaseLost)):
        raise _End(WorkStatus.INTERRUPTED, sentence) from error
    return sentence


def _status(store: Store, run_id: str) -> tuple[WorkStatus, str | None]:
    with store.read() as connection:
        row = work.load(connection, run_id)
    return WorkStatus(row["status"]), row["error"]


def _is_done(store: Store, row: RunRow) -> bool:
    """Whether a run has ended and owes nothing, failures included."""
    if not row.status.is_finished or any(row.responses.get(status) for status in store_runs.RETRIABLE):
        return False
    with store.read() as connection:
        judges = runs.judges_of(connection, row.id)
        profiles = store_runs.profile_ids(connection, row.id)
        return not any(judgements.owed(connection, row.id, j.id, p) for j in judges for p in profiles)


def _finish(store: Store, sweep_id: str, status: WorkStatus | None, reason: str | None) -> None:
    """Set the status at the end of one's own sweep; None: it came to its end, and what is missing in its runs decides.
    Raises WorkError where it is somebody else's by now."""
    try:
        with store.write() as connection:
            if status is None:
                work.finish_by_outcome(connection, sweep_id)
            else:
                work.finish(connection, sweep_id, status, reason)
            work.bump(connection, sweep_id)
    except work.ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except (sa.exc.DBAPIError, StoreError):
        return  # where the disk is full, not even this can be written: the dead heartbeat then tells
