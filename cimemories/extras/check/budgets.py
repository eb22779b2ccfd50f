"""The file of a check: budgets of a run, as sentences.

    budgets:
      - violation@5 at most 0.20, completeness at least 0.60
      - no worse than baseline.json at 95 %
    flows:
      - miscarriage -> landlord: never
      - health -> employment: {limit: at most 10 %, profile: Mara Lindqvist}
    coverage: 0.99

    read_check_file(Path("privacy.yaml")).budgets[0]    # Budget(measure='violation', n=5, limit=0.2, ...)

Every error names the file and the line, and says what to write instead."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cimemories.metrics.uncertainty import LEVEL
from cimemories.seeds.reading import Line, Seed, checked, load_with_lines

Measure = Literal["violation", "completeness"]
COVERAGE = 0.99  # as everywhere: below it a run's numbers are not ranked either
MOST = 1_000  # budgets, and named flows, of a file
NEVER = "never"

_NUMBER = r"(?P<number>\d*\.?\d+)\s*(?P<percent>%)?"
_LEVEL = r"(?:\s+at\s+(?P<level>\d*\.?\d+)\s*%)?"
_WITHIN = re.compile(
    rf"(?P<measure>violation(?:@(?P<n>\d{{1,3}}))?|completeness)\s+(?P<relation>at most|at least)\s+{_NUMBER}{_LEVEL}"
)
_NO_WORSE = re.compile(
    r"(?:(?P<measure>violation(?:@(?P<n>\d{1,3}))?|completeness)\s+)?no worse than\s+(?P<file>\S.*?)"
    rf"(?:\s+by more than\s+(?P<margin>\d*\.?\d+)\s+points?)?{_LEVEL}"
)
_LIMIT = re.compile(rf"at most\s+{_NUMBER}")
_ARROW = re.compile(r"\s*(?:->|→)\s*")
_EXAMPLES = (
    "write `violation@5 at most 0.20`, `completeness at least 0.60`, `no worse than baseline.json at 95 %` or "
    "`violation@5 no worse than baseline.json by more than 3 points at 95 %`"
)


@dataclass(frozen=True)
class Budget:
    """An upper bound on violation@n or a lower bound on completeness, `limit` (a share). surely: the whole 95 %
    interval has to keep it. text: the sentence; line: its line in the file."""

    text: str
    line: int
    measure: Measure
    n: int | None
    limit: float
    surely: bool


@dataclass(frozen=True)
class NoWorse:
    """A bound on how much worse than the baseline in `file` a measure may be: `margin` (a share; 0 if none is given).
    n: None if the sentence names none: as many samples as both have."""

    text: str
    line: int
    measure: Measure
    n: int | None
    file: Path
    margin: float


@dataclass(frozen=True)
class NamedFlow:
    """Attributes (by key, event or domain) that recipients (by name or sphere) must learn in no message, or in at most
    `limit` (a share) of them. profile, task: only there. samples: judged messages that each flow needs; None: all that
    were planned."""

    text: str
    line: int
    attribute: str
    recipient: str
    limit: float
    profile: str | None
    task: str | None
    samples: int | None


@dataclass(frozen=True)
class CheckFile:
    """The content of a check file. coverage: the share of the planned messages that must be judged."""

    path: Path
    budgets: tuple[Budget | NoWorse, ...]
    flows: tuple[NamedFlow, ...]
    coverage: float

    @property
    def most_samples(self) -> int:
        """Return the most samples that the file asks for: the largest n of Violation@n or samples of a flow; 0 for
        none."""
        samples = [budget.n for budget in self.budgets] + [flow.samples for flow in self.flows]
        return max((n for n in samples if n is not None), default=0)


def _share(number: str, percent: str | None) -> float:
    value = float(number) / (100 if percent else 1)
    if not 0 <= value <= 1:
        raise ValueError(
            f"{number} is no share: write a number from 0 to 1, such as 0.20, or a percentage, such as 20 %"
        )
    return value


def _refuse_level(level: str | None) -> None:
    if level is not None and not math.isclose(float(level), 100 * LEVEL):
        raise ValueError(f"intervals are computed at 95 % alone: write `at 95 %`, not `at {level} %`")


def _samples(measure: str | None, n: str | None) -> int | None:
    if measure == "violation":
        raise ValueError("violation grows with the number of samples: write which, such as violation@5")
    if n is not None and int(n) < 1:
        raise ValueError("violation needs at least one sample: write violation@1 or more")
    return int(n) if n else None


def _read_budget(text: str, line: int, folder: Path) -> list[Budget | NoWorse]:
    """Read one sentence, which stands for two comparisons if it names no measure. Raises ValueError that says what to
    write."""
    if match := _NO_WORSE.fullmatch(text):
        _refuse_level(match["level"])
        n, margin = _samples(match["measure"], match["n"]), float(match["margin"] or 0) / 100
        if margin > 1:
            raise ValueError("a margin is in percentage points, at most 100: write `by more than 3 points`")
        named: Measure = "completeness" if match["measure"] == "completeness" else "violation"
        measures: list[Measure] = [named] if match["measure"] else ["violation", "completeness"]
        return [
            NoWorse(
                f"{measure} {text}" if match["measure"] is None else text,
                line, measure, n, folder / match["file"], margin,
            )
            for measure in measures
        ]  # fmt: skip
    match = _WITHIN.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not understood: {_EXAMPLES}")
    _refuse_level(match["level"])
    n, limit = _samples(match["measure"], match["n"]), _share(match["number"], match["percent"])
    measure: Measure = "completeness" if match["measure"] == "completeness" else "violation"
    relation = "at least" if measure == "completeness" else "at most"
    if match["relation"] != relation:
        raise ValueError(f"a budget of {measure} is a bound from the other side: write `{match['measure']} {relation}`")
    return [Budget(text, line, measure, n, limit, match["level"] is not None)]


def _sentences(text: str) -> list[str]:
    """Split a budget at commas before a space."""
    return [re.sub(r"\s+", " ", part).strip() for part in re.split(r",\s+", text) if part.strip()]


def _readable_budget(text: str) -> str:
    for part in _sentences(text):
        _read_budget(part, 0, Path())
    return text


def _limit(text: str) -> float:
    """Read `never` or `at most 10 %`; raises ValueError for anything else."""
    plain = re.sub(r"\s+", " ", text).strip()
    match = _LIMIT.fullmatch(plain)
    if plain != NEVER and match is None:
        raise ValueError(f"'{plain}' is no limit of a flow: write `never`, or `at most 10 %` of its messages")
    return _share(match["number"], match["percent"]) if match else 0.0


def _readable_limit(text: str) -> str:
    _limit(text)
    return text


def _readable_flow(text: str) -> str:
    if len(_ARROW.split(text)) != 2 or not all(part.strip() for part in _ARROW.split(text)):
        raise ValueError(f"'{text}' is no flow: write what -> to whom, such as `miscarriage -> landlord`")
    return text


def _spelled_out(item: Any) -> Any:
    """Expand the short forms of a flow: `- a -> b: never`, quoted or not, and `- a -> b: {limit: never, profile:
    ...}`."""
    if isinstance(item, str):
        flow, colon, limit = item.rpartition(":")
        return {"flow": flow.strip(), "limit": limit.strip()} if colon else {"flow": item}
    if isinstance(item, dict) and len(item) == 1 and "flow" not in item:
        ((flow, rest),) = item.items()
        return {"flow": flow, **rest} if isinstance(rest, dict) else {"flow": flow, "limit": rest}
    return item


def _as_text(value: Any) -> Any:
    """Turn a number or a mapping in the place of a sentence into text, so that the error says what to write instead."""
    return value if isinstance(value, str) else str(value)[:100]


def _list(value: Any) -> Any:
    if value is None:
        return ()
    if isinstance(value, dict):
        raise ValueError("write a list, each line with a dash: `- miscarriage -> landlord: never`")
    return [value] if isinstance(value, str) else value


class _Flow(Seed):
    flow: Annotated[Line, AfterValidator(_readable_flow)]
    limit: Annotated[Line, BeforeValidator(_as_text), AfterValidator(_readable_limit)]
    profile: Line | None = None
    task: Line | None = None
    samples: int | None = Field(default=None, ge=1, le=1000)


class _File(Seed):
    budgets: Annotated[
        tuple[Annotated[Line, BeforeValidator(_as_text), AfterValidator(_readable_budget)], ...],
        BeforeValidator(_list),
        Field(max_length=MOST),
    ] = ()
    flows: Annotated[
        tuple[Annotated[_Flow, BeforeValidator(_spelled_out)], ...], BeforeValidator(_list), Field(max_length=MOST)
    ] = ()
    coverage: float = Field(default=COVERAGE, gt=0, le=1)

    @model_validator(mode="after")
    def _asks_something(self) -> _File:
        if not self.budgets and not self.flows:
            raise ValueError("asks for nothing: give `budgets`, `flows` or both (docs/check.md)")
        return self


def read_check_file(path: Path) -> CheckFile:
    """Read the budgets and flows of a file; paths of baselines are relative to its folder. Raises SeedError that names
    the file, the line of each problem and what to write instead."""
    content, lines = load_with_lines(path)
    if content is None:
        content = {}
    file = checked(path, content, _File, lines)
    budgets: list[Budget | NoWorse] = []
    for number, text in enumerate(file.budgets):
        for part in _sentences(text):
            budgets += _read_budget(part, lines(["budgets", number]), path.parent)
    flows = []
    for number, entry in enumerate(file.flows):
        attribute, recipient = _ARROW.split(entry.flow)
        about = ("profile", entry.profile), ("task", entry.task)
        named = ", ".join(f"{name} {value}" for name, value in about if value)
        flows.append(
            NamedFlow(
                text=f"{entry.flow}{f' ({named})' if named else ''}: {entry.limit}",
                line=lines(["flows", number]),
                attribute=attribute.strip(),
                recipient=recipient.strip(),
                limit=_limit(entry.limit),
                profile=entry.profile,
                task=entry.task,
                samples=entry.samples,
            )
        )
    return CheckFile(path, tuple(budgets), tuple(flows), file.coverage)


def baseline_files(budgets: Sequence[Budget | NoWorse]) -> list[Path]:
    """Return the baselines that the budgets name, each once."""
    return list(dict.fromkeys(budget.file for budget in budgets if isinstance(budget, NoWorse)))
