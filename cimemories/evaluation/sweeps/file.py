"""A sweep as a YAML file (docs/sweeps.md): models x memories x prompt levels x mitigations x thinking, all else shared.

`read_sweep(Path("small-models.yaml")).runs` has one RunSpec a cell, in the order in which they are worked off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from cimemories.evaluation.compositions import CompositionError, read_composition
from cimemories.evaluation.judging import LLM
from cimemories.evaluation.planning import (
    JUDGE_TOKENS,
    MESSAGE_TOKENS,
    PUBLISHED_LEVELS,
    SERVERS_LIMIT,
    SIMULATED_JUDGE_TOKENS,
    THINKING,
    JudgeSpec,
    Memory,
    RunSpec,
    as_reference,
)
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.respond import Mitigation
from cimemories.evaluation.sessions import read_sessions
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, NO_SERVERS, EndpointError, checked_address, checked_variable
from cimemories.llm.local_vllm import WORD, Servers
from cimemories.llm.worker import SIMULATOR
from cimemories.seeds.presets import preset
from cimemories.seeds.prompts import PromptFile, levels, read_prompt_file, reference_prompts
from cimemories.seeds.reading import Line, Seed, SeedError, checked, load
from cimemories.store.engine import StoreError

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
Address = Annotated[Line, _accepted_by(lambda text: text in (*NO_SERVERS, WORD) or checked_address(text))]
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
    memory_prices: PriceText = None
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


def read_sweep(path: Path, *, uploaded: bool = False, reference: bool = False, serve: Iterable[str] = ()) -> SweepSpec:
    """The sweep that a file describes. Raises SeedError that names the file, each field and what is wrong with it.
    uploaded: the file comes from a browser, which must not name files of this machine: a prompt file is refused.
    reference: by the authors' settings, whatever the file says. serve: the flags of models at the word local-vllm."""
    content = load(path)
    content = content | {"reference": True} if reference and isinstance(content, dict) else content
    return check_sweep(content, path, None if uploaded else path.parent, serve)


def check_sweep(content: object, path: Path, prompt_folder: Path | None = None, serve: Iterable[str] = ()) -> SweepSpec:
    """The same of content that did not come from a file, a form's say; `path` is what errors call it. prompt_folder:
    where a prompt file must stand, in it or below; None: none may be named."""
    try:
        file = _served(checked(path, content, SweepFile), Servers(serve))
    except EndpointError as error:
        raise SeedError(f"{path}: {error}") from None
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


def _served(file: SweepFile, servers: Servers) -> SweepFile:
    """The file with the address of a server of its own for each model and judge at the word local-vllm. Raises
    EndpointError for what cannot be served."""

    def model(entry: ModelEntry) -> ModelEntry:
        name = entry.model or (preset(entry.preset).name if entry.preset else "")
        return entry.model_copy(update={"base_url": entry.base_url and servers.at(entry.base_url, name)})

    def judge(entry: Literal["matcher"] | JudgeEntry) -> Literal["matcher"] | JudgeEntry:
        if isinstance(entry, str):
            return entry
        return entry.model_copy(update={"base_url": servers.at(entry.base_url, entry.model)})

    served = {"models": tuple(map(model, file.models)), "judges": tuple(map(judge, file.judges))}
    servers.checked()
    return file.model_copy(update=served)


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
        memory=_memory(file, entry, memory, known.name if known else ""),
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


def _memory(file: SweepFile, entry: ModelEntry, composition: str, preset_name: str) -> Memory:
    memory = Memory(composition, file.memory_order, file.memory_seed, file.memory_template)
    system = memory.read().system
    asks = system.asks if system else None
    # The other memories of the grid ask nobody, or the model under test, which has a price of its own.
    if file.memory_prices is None or asks is None or asks[0] == (entry.model or preset_name):
        return memory
    return replace(memory, prices=Prices.read(file.memory_prices))


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
    priced = [(spec.prices, spec.memory.prices, *(judge.prices for judge in spec.judges)) for spec in runs]
    units = {price.currency for own in priced for price in own if price}
    if len(units) > 1:
        raise SeedError(f"{path}: prices: all must be in one currency, not in {' and '.join(sorted(units))}")
