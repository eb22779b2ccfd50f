"""A sweep as a YAML file (docs/sweeps.md): every setting of a run may be a list, and each combination is a cell.

`read_sweep(Path("small-models.yaml")).runs` has one RunSpec a cell, in the order in which they are worked off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, create_model, model_validator

from cimemories.evaluation.compositions import read_composition
from cimemories.evaluation.planning import PUBLISHED_LEVELS, as_reference
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.spec import (
    JUDGE_TOKENS,
    LLM,
    SERVERS_LIMIT,
    Fields,
    JudgeSpec,
    Limit,
    Priced,
    RunSpec,
    address_of_assistant,
)
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, NO_SERVERS, EndpointError, checked_address, checked_variable
from cimemories.llm.local_vllm import WORD, Servers
from cimemories.model import Channel
from cimemories.seeds.presets import preset
from cimemories.seeds.prompts import PromptFile, levels, read_prompt_file, reference_prompts
from cimemories.seeds.reading import Line, Seed, SeedError, checked, load
from cimemories.settings import Described
from cimemories.store.engine import StoreError, canonical_json

# Every cell is a run with all its responses, and one transaction writes them all.
CELLS_AT_MOST = 500
NUMBERS_AT_MOST = 200  # of one axis, before it is multiplied with the others
# Of each list: what follows compares every item with every other.
AT_MOST = Field(min_length=1, max_length=CELLS_AT_MOST)


def _distinct(items: tuple[Any, ...]) -> tuple[Any, ...]:
    # By their texts: some values cannot be hashed, and the short form gives many memories.
    texts = Counter(map(str, items))
    if twice := next((text for text, times in texts.items() if times > 1), None):
        raise ValueError(f"{twice} is given more than once")
    return items


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) or value is None else [value]


def _switches(values: object) -> object:
    """Undo that YAML reads on and off as true and false."""
    if not isinstance(values, list | tuple):
        return values
    return [{True: "on", False: "off"}[value] if isinstance(value, bool) else value for value in values]


def _accepted_by(check: Callable[[str], object]) -> AfterValidator:
    """Return a validator by a check that raises the library's own errors, where pydantic takes ValueErrors alone."""

    def validate(text: str) -> str:
        try:
            check(text)
        except (EndpointError, StoreError) as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(validate)


def _forms(types: tuple[type, ...], tag: str, other: str) -> Discriminator:
    """Tell the two forms of a field apart by type, so that an error is about the one that was meant alone."""
    return Discriminator(lambda value: tag if isinstance(value, types) else other)


Composed = Annotated[str, _accepted_by(read_composition)]
Count = Annotated[int, Field(ge=0, le=999_999)]


class Steps(Seed):
    """Numbers from one to another, both among them if the step hits the last."""

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


Listed = Annotated[tuple[Count, ...], Field(min_length=1, max_length=NUMBERS_AT_MOST)]
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


def _labels(listed: tuple[str | Compositions, ...]) -> tuple[str, ...]:
    return tuple(label for item in listed for label in ([item] if isinstance(item, str) else item.labels()))


Address = Annotated[Line, _accepted_by(lambda text: text in (*NO_SERVERS, WORD) or checked_address(text))]
KeyVariable = Annotated[Line, _accepted_by(checked_variable)]
# Of a run alone, or of the sweep as a whole; every other setting may be a list, here or in an entry of `models`.
SINGLE = ("dataset", "model", "base_url", "api_key_env", "preset", "prices", "cap", "fresh", "name")
AXES = {name: item for name, item in RunSpec.described().items() if name not in SINGLE}
# By memory first: the common part of prompts is then still in the server's cache.
AXES = {"memory": AXES.pop("memory"), **AXES}


def _axis(item: Described) -> Any:
    """Return the type and default of the field for a setting: one value or a list of them, None if it is not given."""
    values: Any
    if item.name == "memory":
        # The short form gives many memories: its entries are counted here, its cells later.
        values = Annotated[tuple[MemoryEntry, ...], AT_MOST, AfterValidator(_labels)]
    else:
        one = Line if item.name in ("prompt_level", "memory_template") else item.type
        values = Annotated[tuple[one, ...], AT_MOST]  # type: ignore[valid-type]
        if "on" in item.choices:
            values = Annotated[values, BeforeValidator(_switches)]
    values = Annotated[values, BeforeValidator(_listed), AfterValidator(_distinct)]
    return values | None, Field(default=None, alias=item.setting.plural or None)


Axes = create_model("Axes", __base__=Seed, __module__=__name__, **{name: _axis(item) for name, item in AXES.items()})
Axes.model_config["populate_by_name"] = True
Axes.model_rebuild(force=True)


class ModelEntry(Axes):  # type: ignore[misc, valid-type]
    """One model under test. preset: fills in what is not given. Settings stand instead of those of the file."""

    model: Line | None = None
    preset: Line | None = None
    base_url: Address | None = None
    api_key_env: KeyVariable | None = None
    prices: Priced = None

    @model_validator(mode="after")
    def _can_be_asked(self) -> ModelEntry:
        known = preset(self.preset) if self.preset else None
        if self.assistant and all(map(address_of_assistant, self.assistant)):
            return self  # each has an address and a name
        if self.model is None and known is None:
            raise ValueError("give `model`, the name under which it is served, or a `preset`")
        if self.base_url is None and (known is None or known.base_url is None):
            raise ValueError("give `base_url`, where it is served (or the word simulator)")
        return self

    def single(self) -> dict[str, Any]:
        """Return the settings that say which model it is and where."""
        known = preset(self.preset) if self.preset else None
        return {
            "model": self.model or (known.name if known else ""),
            "base_url": self.base_url or (known.base_url if known else None) or "",
            "api_key_env": self.api_key_env or (known.api_key_env if known else None) or DEFAULT_KEY_ENV,
            "preset": self.preset,
            "prices": self.prices,
        }


class JudgeEntry(Seed):
    """A model that judges. channel: as of JudgeSpec."""

    model: Line
    base_url: Address
    api_key_env: KeyVariable = DEFAULT_KEY_ENV
    max_tokens: Limit = JUDGE_TOKENS
    channel: Channel = Channel.MESSAGE
    split: int | None = Field(default=None, ge=1)
    fields: Fields = Field(default_factory=dict)
    prices: Priced = None

    def spec(self) -> JudgeSpec:
        # The limit that is not given depends on the address.
        return JudgeSpec(kind=LLM, **{name: getattr(self, name) for name in self.model_fields_set})


def judge_entry(judge: JudgeSpec) -> dict[str, object] | str:
    """Return a judge as the file of a sweep has it, without what is usual."""
    if judge.kind != LLM:
        return "matcher"
    usual: dict[str, object] = {"api_key_env": DEFAULT_KEY_ENV, "channel": "message", "split": None, "fields": {}}
    given: dict[str, object] = {name: getattr(judge, name) for name in ("model", "base_url", *usual)}
    given |= {"max_tokens": SERVERS_LIMIT if judge.max_tokens is None else judge.max_tokens}
    return {name: value for name, value in given.items() if name not in usual or value != usual[name]}


Judging = Annotated[Annotated[Literal["matcher"], Tag("text")] | Annotated[JudgeEntry, Tag("mapping")], _EITHER]


class SweepFile(Axes):  # type: ignore[misc, valid-type]
    """The whole file. Every list spans the grid; everything else is the same in all cells."""

    name: Line
    dataset: Line
    models: Annotated[tuple[ModelEntry, ...], AT_MOST]
    prompt_file: Line | None = None
    judges: Annotated[tuple[Judging, ...], AT_MOST] = ("matcher",)
    cap: float | None = Field(default=None, gt=0)
    fresh: bool = False
    reference: bool = False

    def axes(self, entry: ModelEntry) -> dict[str, tuple[Any, ...]]:
        """Return the values of every setting for a model: its own where it has some, else those of the file."""
        given = {name: getattr(entry, name) or getattr(self, name) for name in AXES}
        return {name: values for name, values in given.items() if values}


@dataclass(frozen=True)
class SweepSpec:
    """A sweep that can be planned: its runs in the order of their cells, and the file as it was read."""

    name: str
    dataset: str
    runs: tuple[RunSpec, ...]
    cap: float | None
    source: dict[str, Any]


def read_sweep(path: Path, *, uploaded: bool = False, reference: bool = False, serve: Iterable[str] = ()) -> SweepSpec:
    """Return the sweep that a file describes. uploaded: the file comes from a browser and must not name a prompt file.
    reference: use the authors' settings. serve: flags of models at the word local-vllm. Raises SeedError that names the
    file, each field and its problem."""
    content = load(path)
    content = content | {"reference": True} if reference and isinstance(content, dict) else content
    return check_sweep(content, path, None if uploaded else path.parent, serve)


def check_sweep(content: object, path: Path, prompt_folder: Path | None = None, serve: Iterable[str] = ()) -> SweepSpec:
    """Return the sweep that content from elsewhere, a form say, describes; errors call it `path`. prompt_folder: the
    folder of its prompt file; None: it may name none."""
    try:
        file = _served(checked(path, content, SweepFile), Servers(serve))
    except EndpointError as error:
        raise SeedError(f"{path}: {error}") from None
    wording = _wording(file, path, prompt_folder)
    # Counted before it is built: small lists multiply to millions of cells.
    cells = sum(prod(map(len, file.axes(entry).values())) for entry in file.models)
    if cells > CELLS_AT_MOST:
        raise SeedError(
            f"{path}: the grid has {cells:,} cells, more than {CELLS_AT_MOST}. Split it into several sweeps"
        )
    try:
        runs = tuple(spec for entry in file.models for spec in _runs(file, entry, wording))
        _check_together(runs)
    except StoreError as error:
        raise SeedError(f"{path}: {error}") from None
    return SweepSpec(file.name, file.dataset, runs, file.cap, _source(file))


def _runs(file: SweepFile, entry: ModelEntry, wording: PromptFile | None) -> Iterator[RunSpec]:
    """Yield the cells of a model. Raises StoreError for one that cannot be."""
    axes, same = file.axes(entry), {"dataset": file.dataset, "fresh": file.fresh, **entry.single()}
    judges = tuple(JudgeSpec() if isinstance(item, str) else item.spec() for item in file.judges)
    seen = set[str]()
    for cell in product(*axes.values()):
        given = _of_cell(dict(zip(axes, cell, strict=True)), same)
        level, template = given.get("prompt_level", "base"), given.get("memory_template", "bullets")
        prompts = wording.prompts(level, template) if wording and not file.reference else {}
        # The cap is that of the sweep: checked with every cell, and in none.
        spec = RunSpec(**same, **given, judges=judges, prompts=prompts, cap=file.cap).model_copy(update={"cap": None})
        # Settings that a cell does not have make no cells of their own.
        if (key := canonical_json(spec.as_json())) not in seen:
            seen.add(key)
            yield as_reference(spec, wording) if file.reference else spec


def _of_cell(given: dict[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a cell without those that mean nothing beside its others. same: those of its model."""
    applicable = RunSpec.applicable({**same, **given})
    settings = {name: value for name, value in given.items() if name in applicable}
    system = read_composition(given.get("memory", "full")).system
    # The other memories of the grid ask no model, or the one under test, which has a price of its own.
    if system is None or system.asks is None or system.asks[0] == same["model"]:
        settings.pop("memory_prices", None)
    return settings


def _source(file: SweepFile) -> dict[str, Any]:
    """Return the file as it was read, a list of one value as the value."""
    dumped = file.model_dump(mode="json", by_alias=True, exclude_unset=True)
    many = ("models", "judges")

    def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
        if limits := fields.get("max_tokens"):
            # None alone would read as not given.
            fields = {**fields, "max_tokens": [SERVERS_LIMIT if limit is None else limit for limit in limits]}
        return {
            name: value[0] if isinstance(value, list) and len(value) == 1 and name not in many else value
            for name, value in fields.items()
        }

    return plain(dumped) | {"models": [plain(entry) for entry in dumped["models"]]}


def _served(file: SweepFile, servers: Servers) -> SweepFile:
    """Return the file with the address of a server for each model and judge at the word local-vllm. Raises
    EndpointError."""

    def model(entry: ModelEntry) -> ModelEntry:
        address = entry.base_url and servers.at(entry.base_url, entry.single()["model"])
        return cast(ModelEntry, entry.model_copy(update={"base_url": address}))

    def judge(entry: Literal["matcher"] | JudgeEntry) -> Literal["matcher"] | JudgeEntry:
        if isinstance(entry, str):
            return entry
        return entry.model_copy(update={"base_url": servers.at(entry.base_url, entry.model)})

    served = {"models": tuple(map(model, file.models)), "judges": tuple(map(judge, file.judges))}
    servers.checked()
    return cast(SweepFile, file.model_copy(update=served))


def _wording(file: SweepFile, path: Path, folder: Path | None) -> PromptFile | None:
    """Return the user's file of prompts; None if the levels are those of the seeds."""
    given, known = None, reference_prompts().levels("respond") if file.reference else levels("respond")
    if file.prompt_file is not None:
        if folder is None:
            where = "Start it from the command line (cimemories sweep FILE), or use the prompt levels that ship"
            raise SeedError(f"{path}: prompt_file: a sweep in the app cannot name a file of this machine. {where}")
        given = read_prompt_file(_below(path, folder, file.prompt_file))
        known = given.levels("respond")
    known += tuple(PUBLISHED_LEVELS) if file.reference else ()

    def require(axis: str, field: str, available: tuple[str, ...]) -> None:
        for where in (file, *file.models):
            for number, level in enumerate(getattr(where, axis) or ()):
                if level not in available:
                    there = ", ".join(available)
                    raise SeedError(f"{path}: {field}[{number}]: no level '{level}'. Available: {there}")

    require("prompt_level", "prompt_levels", known)
    if given is None:
        require("memory_template", "memory_template", levels("memory"))
    return given


def _below(path: Path, folder: Path, name: str) -> Path:
    """Return the file of that name in the folder or below it, links resolved. Raises SeedError for any other place."""
    try:
        base = folder.resolve()
        # Resolved before it is compared: '..' and links inside the folder may lead out of it.
        target = (base / name).resolve()
    except (OSError, ValueError, RuntimeError):
        raise SeedError(f"{path}: prompt_file: not a usable path") from None
    if not target.is_relative_to(base):
        raise SeedError(f"{path}: prompt_file: must be in the folder of the sweep's file or below it. Copy it there")
    return target


def _check_together(runs: tuple[RunSpec, ...]) -> None:
    """Raises StoreError for what can be seen to be wrong of all cells together."""
    seen: set[str] = set()
    prices: dict[str, Prices] = {}
    for spec in runs:
        # Two entries of one model that differ in their sampling alone are two cells.
        if (key := canonical_json(spec.as_json())) in seen:
            raise StoreError(f"models: {spec.model} is given more than once with the same settings")
        seen.add(key)
        if spec.prices is not None and prices.setdefault(spec.model, spec.prices) != spec.prices:
            raise StoreError(f"models: {spec.model} has two prices. Give one: a call that cells share is paid once")
    priced = [(spec.prices, spec.memory_prices, *(judge.prices for judge in spec.judges)) for spec in runs]
    units = {price.currency for own in priced for price in own if price}
    if len(units) > 1:
        raise StoreError(f"prices: all must be in one currency, not in {' and '.join(sorted(units))}")
