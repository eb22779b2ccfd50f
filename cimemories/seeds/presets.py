"""The models of the paper as they are served: presets of seeds/models.yaml, read and checked.

    - {key: qwen3-8b, name: Qwen/Qwen3-8B, kind: local, family: Qwen by Alibaba, roles: [tested], ...}

A preset fills in forms and command lines; nothing of it is sent that the user does not see. Prices are not here.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from cimemories.seeds import SEEDS
from cimemories.seeds.reading import Line, Paragraph, Seed, SeedError, read, refuse_repeats

FILE = "models.yaml"
Key = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Scalar = bool | int | float | str
Body = dict[Line, Scalar | dict[Line, Scalar]]


class Kind(StrEnum):
    """The place where a model runs: the user's own vLLM, or its maker."""

    LOCAL = "local"
    HOSTED = "hosted"


class Serve(Seed):
    """The flags with which `vllm serve` serves the model. What is left out is vLLM's own default for it."""

    reasoning_parser: Line | None = None
    quantisation: Line | None = None
    tensor_parallel: int | None = Field(default=None, ge=1, le=64)
    max_model_len: int | None = Field(default=None, ge=1)
    extra: tuple[Line, ...] = ()

    @property
    def flags(self) -> str:
        """Return the flags as they are typed."""
        values = {
            "--reasoning-parser": self.reasoning_parser,
            "--quantization": self.quantisation,
            "--tensor-parallel-size": self.tensor_parallel,
            "--max-model-len": self.max_model_len,
        }
        return " ".join([*(f"{flag} {value}" for flag, value in values.items() if value), *self.extra])


class Thinking(Seed):
    """Fields of the request body that switch thinking on or off; None where that cannot be done. `default`: what the
    model does when neither is sent."""

    on: Body | None = None
    off: Body | None = None
    default: Literal["on", "off"]

    @model_validator(mode="after")
    def _says_something(self) -> Thinking:
        if self.on is None and self.off is None:
            raise ValueError("give what switches thinking on, off, or both")
        return self


class Sampling(Seed):
    """Sampling parameters that the makers recommend, and their source. `thinking`: None where it does not matter."""

    thinking: bool | None = None
    values: dict[Line, float | int] = Field(min_length=1)
    source: Line


class Preset(Seed):
    """One model of the paper.

    name: what requests call it, and for a local one what vLLM loads. family: of `families` in the same file. roles:
    what the paper used it for. gpus: a hint for people, not a promise. base_url, api_key_env: of a hosted one.
    token_limit: the field that limits an answer. withdrawn: since when its maker no longer serves it.
    """

    key: Key
    name: Line
    title: Line
    kind: Kind
    family: Line
    roles: tuple[Literal["tested", "judge", "labeller", "author"], ...] = Field(min_length=1)
    serve: Serve | None = None
    gpus: Line | None = None
    base_url: Line | None = None
    api_key_env: Line | None = None
    thinking: Thinking | None = None
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sampling: tuple[Sampling, ...] = ()
    withdrawn: Line | None = None
    notes: Paragraph | None = None

    @model_validator(mode="after")
    def _is_served_somewhere(self) -> Preset:
        if (self.kind == Kind.LOCAL) != (self.serve is not None):
            raise ValueError(f"'{self.key}': `serve` goes with a local model, and only with one")
        if (self.kind == Kind.HOSTED) != (self.base_url is not None and self.api_key_env is not None):
            raise ValueError(f"'{self.key}': base_url and api_key_env go with a hosted model, and only with one")
        return self


class FamilyEntry(Seed):
    """A family of models, and the words in a model's name that identify it."""

    name: Line
    words: tuple[Line, ...] = Field(min_length=1)
    excepted: tuple[Line, ...] = Field(default=(), alias="except")


class ModelsFile(Seed):
    """seeds/models.yaml as a whole."""

    families: tuple[FamilyEntry, ...] = Field(min_length=1)
    presets: tuple[Preset, ...] = ()


@lru_cache(maxsize=4)
def load_presets(path: Path | None = None) -> tuple[Preset, ...]:
    """Return the presets, in the file's order. Raises SeedError for a repeated key or a family that the file does not
    have."""
    path = path or SEEDS / FILE
    file = read(path, ModelsFile)
    refuse_repeats(path, "preset", [preset.key for preset in file.presets])
    families = {family.name for family in file.families}
    for preset in file.presets:
        if preset.family not in families:
            raise SeedError(f"{path}: presets: '{preset.key}' has the family '{preset.family}', which is not listed")
    return file.presets


def preset(key: str, path: Path | None = None) -> Preset:
    """Return one preset. Raises SeedError, which lists the keys, for an unknown one."""
    presets = {item.key: item for item in load_presets(path)}
    if key not in presets:
        raise SeedError(f"there is no preset '{key}'. Available: {', '.join(presets)}.")
    return presets[key]
