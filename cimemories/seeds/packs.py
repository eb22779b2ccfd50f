"""Packs: sets of contexts and sets of personas, those that ship and those that a workspace adds.

    contexts    core      seeds/contexts.yaml       germany, india              seeds/contexts/NAME.yaml
    personas    westin    seeds/personas.yaml       five-views, shared-privacy  seeds/personas/NAME.yaml
    in a workspace        WORKSPACE/packs/contexts/NAME.yaml     WORKSPACE/packs/personas/NAME.yaml

A pack has the name of its file. A file that does not fit raises SeedError, which names the file, the entry
(counted from 0) and the field; a pack is read as a whole or not at all. The layout is explained in docs/packs.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from cimemories.model import Context, Persona
from cimemories.seeds.reading import SEEDS, Identifier, Line, Paragraph, Seed, SeedError, load, read, refuse_repeats

Kind = Literal["contexts", "personas"]
Sphere = Literal[
    "finance",
    "health",
    "relationships",
    "legal",
    "education",
    "employment",
    "scheduling",
    "housing",
    "mental_health",
    "immigration",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
SPHERES: tuple[str, ...] = get_args(Sphere)
DEFAULTS: dict[Kind, str] = {"contexts": "core", "personas": "westin"}
PRIOR_TOLERANCE = 1e-6  # absolute: decimals such as 0.1 are not exact in floats, and need not add to 1 exactly
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class _Context(Seed):
    task: Line
    recipient: Line
    sphere: Sphere


class _Persona(Seed):
    key: Identifier
    name: Line
    prior: float = Field(gt=0, le=1, strict=True)
    description: Paragraph


class _Pack(Seed):
    name: Line = Field(alias="pack")
    own_title: Line = Field("", alias="title")
    about: Paragraph = ""

    @property
    def title(self) -> str:
        return self.own_title or self.name


class ContextPack(_Pack):
    """A named set of contexts, in the order of its file."""

    entries: tuple[_Context, ...] = Field(alias="contexts", min_length=1)

    @property
    def contexts(self) -> tuple[Context, ...]:
        return tuple(Context(entry.task, entry.recipient, entry.sphere) for entry in self.entries)


class PersonaPack(_Pack):
    """The voters whose verdicts are mixed, in the order of the file; their priors add to 1.

    priors_from: the source of the priors; empty if the file does not name one.
    """

    entries: tuple[_Persona, ...] = Field(alias="personas", min_length=1)
    priors_from: Paragraph = ""

    @property
    def personas(self) -> tuple[Persona, ...]:
        return tuple(Persona(entry.key, entry.name, entry.prior, entry.description) for entry in self.entries)


@dataclass(frozen=True)
class PackFile:
    """A file that should hold a pack: read it with `load_pack`. `shipped`: it comes with the project."""

    kind: Kind
    name: str
    path: Path
    shipped: bool

    @property
    def default(self) -> bool:
        """Return True if it is used when no pack is named."""
        return self.shipped and self.name == DEFAULTS[self.kind]


def folder_of(workspace: Path, kind: Kind) -> Path:
    """Return the folder of a workspace's packs, whether or not it exists."""
    return workspace / "packs" / kind


def pack_files(kind: Kind, workspace: Path | None = None) -> tuple[PackFile, ...]:
    """Return all packs of a kind: the default, the others that ship, then the workspace's own, by name. Nothing is
    read."""
    files = [PackFile(kind, DEFAULTS[kind], SEEDS / f"{kind}.yaml", True)]
    files += [PackFile(kind, path.stem, path, True) for path in sorted((SEEDS / kind).glob("*.yaml"))]
    if workspace is not None:
        added = sorted(path for ending in ("*.yaml", "*.yml") for path in folder_of(workspace, kind).glob(ending))
        files += [PackFile(kind, path.stem, path, False) for path in added]
    return tuple(file for file in files if not file.name.startswith("."))  # an editor's own backup files


def load_pack(file: PackFile, workspace: Path | None = None) -> ContextPack | PersonaPack:
    """Read a pack and check it. Raises SeedError for a file that does not fit, a pack whose name is not that of its
    file, and a name that another pack of the workspace or of the project has."""
    same = [other.path for other in pack_files(file.kind, workspace) if other.name == file.name]
    # A pack of the workspace must not stand in for one that ships: results name packs, and would mean another.
    if len(same) > 1:
        raise SeedError(f"{same[-1]}: there already is a pack named '{file.name}' ({same[0]}). Rename this one")
    pack = _read(file.kind, file.path)
    if pack.name != file.name:
        raise SeedError(f"{file.path}: pack: is '{pack.name}', but the file is named '{file.name}'. Make them the same")
    return pack


def _read(kind: Kind, path: Path) -> ContextPack | PersonaPack:
    return load_personas(path) if kind == "personas" else _read_contexts(path)


def _read_contexts(path: Path) -> ContextPack:
    pack = read(path, ContextPack)
    _check_name(path, pack.name)
    refuse_repeats(path, "context", [f"{entry.task} / {entry.recipient}" for entry in pack.entries])
    return pack


def load_contexts(path: Path | None = None) -> tuple[Context, ...]:
    """Return the contexts of a file, by default those of the paper. Raises SeedError if it does not fit, or a (task,
    recipient) is given twice."""
    return _read_contexts(path or SEEDS / "contexts.yaml").contexts


def load_personas(path: Path | None = None) -> PersonaPack:
    """Return the personas of a file, by default those of the paper. Raises SeedError if it does not fit, a key is given
    twice, or the priors do not add to 1 (within 1e-6)."""
    path = path or SEEDS / "personas.yaml"
    pack = read(path, PersonaPack)
    _check_name(path, pack.name)
    refuse_repeats(path, "persona", [entry.key for entry in pack.entries])
    total = sum(entry.prior for entry in pack.entries)
    if abs(total - 1) > PRIOR_TOLERANCE:
        raise SeedError(f"{path}: the priors must add to 1, and add to {total:.6g}")
    return pack


def read_any(path: Path) -> tuple[Kind, ContextPack | PersonaPack]:
    """Return a pack of either kind, by what the file lists. Raises SeedError if it is neither."""
    content = load(path)
    listed = [kind for kind in KINDS if isinstance(content, dict) and kind in content]
    if len(listed) != 1:
        raise SeedError(f"{path}: a pack must be a mapping with `pack`, and with either `contexts` or `personas`")
    return listed[0], _read(listed[0], path)


CORE = ("core",)  # the packs of contexts that are used where none is named


def contexts_of(names: Iterable[str], workspace: Path | None = None) -> tuple[Context, ...]:
    """Return the contexts of these packs, one pack after the other. A context of two packs comes once, with the sphere
    of the first. Raises SeedError where no pack is named, or one is unknown or does not fit."""
    contexts: dict[tuple[str, str], Context] = {}
    for name in names:
        for context in context_pack(name, workspace).contexts:
            contexts.setdefault((context.task, context.recipient), context)
    if not contexts:
        raise SeedError("no pack of contexts is named. The default is `core`")
    return tuple(contexts.values())


def context_pack(name: str = DEFAULTS["contexts"], workspace: Path | None = None) -> ContextPack:
    """Return one pack of contexts by name. Raises SeedError where it is unknown or does not fit."""
    pack = load_pack(_named("contexts", name, workspace), workspace)
    assert isinstance(pack, ContextPack)
    return pack


def persona_pack(name: str = DEFAULTS["personas"], workspace: Path | None = None) -> PersonaPack:
    """Return one pack of personas by name. Raises SeedError where it is unknown or does not fit."""
    pack = load_pack(_named("personas", name, workspace), workspace)
    assert isinstance(pack, PersonaPack)
    return pack


def _named(kind: Kind, name: str, workspace: Path | None) -> PackFile:
    files = pack_files(kind, workspace)
    for file in files:
        if file.name == name:
            return file
    available = ", ".join(file.name for file in files)
    hint = f". Your own packs go into {folder_of(workspace, kind)}" if workspace is not None else ""
    raise SeedError(f"there is no pack of {kind} named '{name}'. Available: {available}{hint}")


def _check_name(path: Path, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SeedError(
            f"{path}: pack: '{name}' is not a valid name. Use at most 64 lower-case letters, digits, - and _, a letter "
            "first"
        )
