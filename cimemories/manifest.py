"""The manifest of a run, which records its plan: typed, and read the same from every version.

    row.manifest.memory.order        # 'shuffled'; 'fixed' if the run is older than that setting
    row.manifest.recorded            # the JSON object itself, for files and screens

Manifests are only ever added to, so an old one lacks parts, and one from a newer version has more of them. A part that
is missing or unreadable takes its default: reading a record never fails because of its manifests. Writing and exporting
use `recorded` with its changes, never the typed values, so that unknown keys and the form of numbers stay as they
are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

Json = dict[str, Any]


class Part(BaseModel):
    """An object in a manifest. Unknown keys are no error; a value of another type counts as not recorded."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)
    _recorded: Json = PrivateAttr(default_factory=dict)

    @property
    def recorded(self) -> Json:
        """Return the object as it stands in the record; empty for a part that is not there."""
        return self._recorded

    @model_validator(mode="wrap")
    @classmethod
    def _keep_recorded(cls, value: Any, read: ModelWrapValidatorHandler[Part]) -> Part:
        # wrap: once it is validated, keys that no field is named for are gone.
        part = read(value)
        if isinstance(value, Mapping):
            part._recorded = dict(value)
        return part

    @field_validator("*", mode="wrap")
    @classmethod
    def _default_where_unreadable(cls, value: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
        try:
            return read(value)
        except ValidationError:
            # pydantic copies a default that can be changed, so that no two manifests share one.
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


class DatasetPart(Part):
    name: str | None = None
    hash: str | None = None
    source: str | None = None


class PromptPart(Part):
    """A wording by its hash; the text itself is in the record's table of prompts."""

    kind: str = ""
    level: str = ""
    sha256: str = ""
    answers: str = ""
    source: str = ""


class ServerPart(Part):
    """A server's own description when the run was planned, and the form of requests it takes."""

    identity: str | None = None
    simulated: bool | None = None  # None: older than the distinction, the run's own mark holds
    n: bool = True  # takes several samples a request
    json_schema: str = Field(default="json_schema", alias="schema")
    version: str | None = None


class ModelPart(ServerPart):
    """The model under test and its server."""

    name: str = ""
    endpoint: str = ""
    prices: Json | None = None


class JudgePart(Part):
    """A judge as it was asked for, and its server. prompt_sha256: the only part of the wording that the first version
    kept."""

    kind: str = ""
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    max_tokens: int | None = None
    channel: str = "message"
    split: int | None = None
    json_schema: str | None = Field(default=None, alias="schema")
    simulated: bool = False
    server: ServerPart | None = None
    prompt: PromptPart | None = None
    prompt_sha256: str | None = None
    prices: Json | None = None
    parameters: Json = {}
    reference: Json | None = None  # read by evaluation.reference.Reference.of


class SystemPart(Part):
    """A memory system. options: all of them, defaults too. server, prices: of the model that it asks, if that is not
    the one under test."""

    name: str = ""
    version: str = ""
    options: Json = {}
    server: ServerPart | None = None
    prices: Json | None = None


class MemoryPart(Part):
    """The assistant's memory. labels: source of those that the memory was composed by. system: the one that recalled
    from it; None: all of it was in the prompt."""

    composition: str = "full"
    order: str = "fixed"
    seed: int = 0
    template: PromptPart | None = None
    labels: Json | None = None
    system: SystemPart | None = None


class SessionsPart(Part):
    """The sessions of a run whose tasks remember earlier messages; read by evaluation.sessions.Sessions.of."""

    order: str = "fixed"
    seed: int = 0
    kept: str = ""
    template: PromptPart | None = None


class MitigationPart(Part):
    kind: str = "none"
    prompt: PromptPart | None = None


class RequestPart(Part):
    """The request, field by field of a RunSpec: `recorded` has those that are not named here."""

    api_key_env: str = ""
    timeout: float = 120.0
    thinking: str = "default"
    preset: str | None = None
    more_judges: list[Json] = []


class ImportPart(Part):
    """The file that an imported run came from. description: what the file says of the run."""

    file: str | None = None
    sha256: str | None = None
    description: Json | None = Field(default=None, alias="own")


class VariantPart(Part):
    """One variant of a request. shown: hash of the attributes in the prompt, in its order. statement: the wording of
    the leaked memory there; None: its own. paraphrase: the prompt by which the model under test is asked for that
    wording. removed: attributes that are left out."""

    level: str = ""
    shown: str = ""
    statement: str | None = None
    paraphrase: PromptPart | None = None
    removed: list[int] = []


class AttributionPart(Part):
    """The reveal that is explained, and the variants that explain it. first: number of the first sample. skipped: by
    requested variant, the reason why there is none."""

    response: int = 0
    profile: int = 0
    context: int = 0
    attribute: int = 0
    first: int = 0
    samples: int = 0
    variants: list[VariantPart] = []
    skipped: Json = {}


class RunManifest(Part):
    """Everything that shaped a run. request: None for an imported run, whose request is unknown."""

    dataset: DatasetPart = DatasetPart()
    model: ModelPart = ModelPart()
    prompt: PromptPart = PromptPart()
    memory: MemoryPart = MemoryPart()
    mitigation: MitigationPart = MitigationPart()
    parameters: Json = {}  # of each request, as sent
    judge: JudgePart = JudgePart()  # the first one
    all_judges: list[JudgePart] = Field(default=[], alias="judges")
    check: str | None = None
    cap: float | None = None
    fresh: bool = False
    reference: Json | None = None  # of a run by the authors' settings
    sessions: SessionsPart | None = None  # of a run with sessions
    seeds_hash: str | None = None
    request: RequestPart | None = Field(default=None, alias="asked")
    versions: Json = {}
    imported: ImportPart | None = None
    attribution: AttributionPart | None = None  # of a run that explains a leak

    @property
    def judges(self) -> list[JudgePart]:
        """Return the judges, the first one first. Before several could judge, a manifest had `judge` alone."""
        return self.all_judges or ([self.judge] if self.judge.kind else [])

    @property
    def thinking(self) -> str:
        """Return the requested thinking: on, off, low, medium, high; default, if nothing was sent."""
        return self.request.thinking if self.request else "default"

    @field_validator("all_judges", mode="before")
    @classmethod
    def _objects(cls, value: Any) -> Any:
        # One item that is no object must not discard the others: the field as a whole would take its default.
        return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else value


@lru_cache(maxsize=1024)  # a list of runs is read at every click; one manifest takes 80 microseconds
def read_manifest(text: str) -> RunManifest:
    """Return the manifest in a column of the record. It is shared: do not change its `recorded`. Raises ValueError for
    a text that is no JSON object."""
    return RunManifest.model_validate(json.loads(text))
