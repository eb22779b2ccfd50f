"""A baseline: the counts of a run in a file, so that a later run can be compared with it flow by flow elsewhere.

    {"format": "cimemories-baseline", "version": 1, "run": {"model": ..., "samples": 5, ...}, "profiles": [
      {"profile": "9c1f...", "attributes": ["04ab...", ...], "contexts": ["77e0...", ...], "samples": 5,
       "judged": [[3, 0, 4]], "revealed": [[3, 1, 2]]}, ...]}

One object a profile. Attributes and contexts are named by digests of their content, so that the file holds no name, no
statement and no message, and means the same in every workspace. `samples`: the number of judged messages that have an
attribute in memory; `judged`: [attribute, context, samples] if it differs; `revealed`: [attribute, context, reveals] if
there are any. It holds no labels: a comparison reads both runs by the current ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cimemories.answer import plain
from cimemories.files import NotAFileError, open_regular
from cimemories.flows.arrays import FlowArrays, axes, blocks
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics.headline import Headline
from cimemories.seeds.reading import SeedError
from cimemories.store import datasets
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, content_hash, now
from cimemories.text import complaint, visible
from cimemories.version import __version__

FORMAT, VERSION = "cimemories-baseline", 1
LARGEST = 256 * 2**20  # bytes; five profiles of 41 attributes take 6,500
MOST_PROFILES = 10_000
DIGITS = 16  # of a digest, 64 bits

Digest = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{DIGITS}}}$")]
Count = Annotated[int, Field(ge=0, le=32_000)]
Cell = tuple[Count, Count, Count]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class BaselineRun(_Part):
    """The run that a baseline was written from, and how its reveals were counted."""

    id: str = Field(max_length=300)
    name: str = Field(max_length=300)
    model: str = Field(max_length=300)
    samples: int = Field(ge=1, le=32_000)
    judge: str = Field(max_length=1_000)
    grounded: bool
    simulated: Annotated[list[str], Field(max_length=3)]


class _Profile(_Part):
    profile: Digest
    attributes: Annotated[list[Digest], Field(max_length=5_000)]
    contexts: Annotated[list[Digest], Field(max_length=2_000)]
    samples: Count
    judged: list[Cell]
    revealed: list[Cell]

    @model_validator(mode="after")
    def _fits(self) -> _Profile:
        for attribute, context, _ in (*self.judged, *self.revealed):
            if attribute >= len(self.attributes) or context >= len(self.contexts):
                raise ValueError("names an attribute or context that the profile does not list")
        draws = {(a, c): n for a, c, n in self.judged}
        if any(reveals > draws.get((a, c), self.samples) for a, c, reveals in self.revealed):
            raise ValueError("has more reveals than judged messages")
        return self


class Baseline(_Part):
    format: Literal["cimemories-baseline"]
    version: Literal[1]
    run: BaselineRun
    profiles: Annotated[list[_Profile], Field(max_length=MOST_PROFILES)]


@dataclass(frozen=True)
class Aligned:
    """A baseline as arrays with the axes and labels of a run, and its own counts. shared: judged flows of the baseline
    that the run has judged too."""

    arrays: FlowArrays
    shared: int


def judged_flows(baseline: Baseline) -> int:
    """Count the judged flows of a baseline."""
    number = 0
    for item in baseline.profiles:
        draws = np.full((len(item.attributes), len(item.contexts)), item.samples, np.int64)
        for a, c, n in item.judged:
            draws[a, c] = n
        number += int((draws > 0).sum())
    return number


def read_baseline(path: Path) -> Baseline:
    """Read a baseline. Raises SeedError that names the file, and says what to do if it is missing or is no baseline."""
    again = f"Write it with `cimemories check ... --write-baseline {visible(path.name)}`"
    try:
        with open_regular(path) as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise SeedError(f"{path}: larger than the {LARGEST >> 20} MiB that a baseline may have")
        # From the bytes: only then does strict mode accept a JSON list as a tuple.
        return Baseline.model_validate_json(data)
    except FileNotFoundError:
        raise SeedError(f"{path}: there is no such baseline. {again}") from None
    except NotAFileError as error:
        raise SeedError(f"{path}: this is {error.strerror}, no baseline. {again}") from None
    except OSError as error:
        raise SeedError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValidationError as error:
        # Without the cause: pydantic's error repeats the input.
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:100] or "the file as a whole"
        raise SeedError(f"{path}: no baseline ({visible(place)} {visible(complaint(first))}). {again}") from None


def baseline_text(flows: Flows, scope: Scope, numbers: Headline) -> str:
    """Return the baseline of a run as the text of a file: one line a profile, so that a diff shows whose counts have
    changed. numbers: for readers of the file; a comparison does not use them."""
    people = axes(flows, scope).profiles
    digests = profile_digests(flows.store, people)
    if len(people) > MOST_PROFILES:
        raise StoreError(
            f"a baseline holds at most {MOST_PROFILES:,} profiles, and {scope.run.id} has {len(people):,}: write it "
            "of a run on fewer, or compare two runs of one workspace with `cimemories compare`."
        )
    head = {
        "format": FORMAT,
        "version": VERSION,
        "written": now(),
        "by": f"CIMemories Studio {__version__}",
        "simulated": bool(scope.simulated),
        "run": BaselineRun(
            id=scope.run.id,
            name=scope.run.name,
            model=scope.run.model,
            samples=scope.run.samples,
            judge=scope.judge_text,
            grounded=scope.grounded,
            simulated=list(scope.simulated),
        ).model_dump(),
        "numbers": plain(
            {
                "violation": numbers.violation,
                "completeness": numbers.completeness,
                "coverage": numbers.coverage,
                "labels_rule": scope.labels_text,
                "identifier_rule": numbers.rule,
            }
        ),
    }
    rows = [
        json.dumps({"profile": digest, **_counts(record, data, place)}, separators=(",", ":"))
        for data in blocks(flows, scope)
        for place, (digest, record) in enumerate(_records(flows.store, data.profiles, digests))
    ]
    profiles = ",\n".join(rows)
    return f'{json.dumps(head, indent=1)[:-2]},\n "profiles": [\n{profiles}\n ]\n}}\n'


def _counts(record: ProfileRecord, data: FlowArrays, place: int) -> dict[str, Any]:
    attributes, contexts = _digests(record)
    columns = {context: c for c, context in enumerate(data.contexts)}
    # Contexts that the run did not plan have no column.
    chosen = [(i, columns[context]) for i, context in enumerate(record.context_ids) if context in columns]
    rows = {int(attribute): a for a, attribute in enumerate(data.names.attribute[place]) if attribute >= 0}
    places = [rows[attribute] for attribute in record.attribute_ids]
    cells = np.ix_([place], places, [c for _, c in chosen])
    draws, reveals = data.draws[cells][0], data.reveals[cells][0]
    usual = Counter(draws.reshape(-1).tolist()).most_common(1)
    samples = usual[0][0] if usual else 0
    return {
        "attributes": attributes,
        "contexts": [contexts[i] for i, _ in chosen],
        "samples": samples,
        "judged": [[int(a), int(c), int(draws[a, c])] for a, c in np.argwhere(draws != samples)],
        "revealed": [[int(a), int(c), int(reveals[a, c])] for a, c in np.argwhere(reveals > 0)],
    }


def aligned(store: Store, data: FlowArrays, baseline: Baseline, digests: Mapping[int, str] | None = None) -> Aligned:
    """Return the counts of a baseline on the axes of a run's arrays, matched by content. digests: of all profiles of
    the run, if the arrays are a part of it."""
    digests = profile_digests(store, data.profiles) if digests is None else digests
    draws, reveals = np.zeros_like(data.draws, np.int64), np.zeros_like(data.reveals, np.int64)
    by_digest = {item.profile: item for item in baseline.profiles}
    columns = {context: c for c, context in enumerate(data.contexts)}
    for p, (digest, record) in enumerate(_records(store, data.profiles, digests)):
        if digest not in by_digest:
            continue
        item = by_digest[digest]
        attributes, contexts = _digests(record)
        positions = {int(attribute): a for a, attribute in enumerate(data.names.attribute[p]) if attribute >= 0}
        row_of = {name: positions[i] for name, i in zip(attributes, record.attribute_ids, strict=True)}
        column_of = {name: columns[i] for name, i in zip(contexts, record.context_ids, strict=True) if i in columns}
        rows = np.array([row_of.get(name, -1) for name in item.attributes], np.int64)
        places = np.array([column_of.get(name, -1) for name in item.contexts], np.int64)
        kept = np.ix_(rows[rows >= 0], places[places >= 0])
        draws[p][kept] = item.samples
        for target, cells in ((draws, item.judged), (reveals, item.revealed)):
            for a, c, n in cells:
                if rows[a] >= 0 and places[c] >= 0:
                    target[p, rows[a], places[c]] = n
    shared = int(((draws > 0) & (data.draws > 0)).sum())
    return Aligned(replace(data, draws=draws, reveals=reveals, planned=None, read_at=None), shared)


def profile_digests(store: Store, profiles: Sequence[int]) -> dict[int, str]:
    """Return a digest of each profile's biography by id, equal in all workspaces. profiles: those of a run, in
    order."""
    with store.read() as connection:
        people = datasets.biographies(connection, profiles)
    return dict(zip(profiles, _numbered([list(people[i]) for i in profiles]), strict=True))


def _records(store: Store, profiles: Sequence[int], digests: Mapping[int, str]) -> list[tuple[str, ProfileRecord]]:
    with store.read() as connection:
        return [(digests[profile], datasets.profile_record(connection, profile)) for profile in profiles]


def _digests(record: ProfileRecord) -> tuple[list[str], list[str]]:
    """Return the digests of a profile's attributes, and of its contexts."""
    attributes = _numbered([[item.key, item.statement] for item in record.profile.attributes])
    return attributes, _numbered([[item.task, item.recipient] for item in record.profile.contexts])


def _numbered(contents: Sequence[list[Any]]) -> list[str]:
    """Return a digest of each content; equal contents are told apart by a running number."""
    seen: Counter[str] = Counter()
    digests = []
    for content in contents:
        digest = content_hash(content)[:DIGITS]
        digests.append(content_hash([digest, seen[digest]])[:DIGITS] if seen[digest] else digest)
        seen[digest] += 1
    return digests
