"""The settings of a labelling and of a generation, each said once (cimemories/settings.py).

LabellingSpec(dataset="demo", model="gpt-oss-120b", base_url="http://localhost:8000/v1", draws=10)

The options of `cimemories label` and `generate`, fields of their forms, the manifest's `asked` and their tables in
docs/settings.md are made from the fields here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, model_validator

from cimemories.evaluation.prices import Prices, check_money
from cimemories.evaluation.spec import (
    SEED,
    BaseUrl,
    Cap,
    Contexts,
    Group,
    KeyVariable,
    Limit,
    ModelName,
    ModelPrices,
    Profiles,
    Seed,
    Temperature,
    Timeout,
)
from cimemories.llm.endpoint import DEFAULT_KEY_ENV
from cimemories.seeds import packs
from cimemories.settings import Setting, Settings, setting

AnswerLimit = Annotated[
    Limit,
    Setting(
        "Token limit",
        "Token limit of an answer, reasoning included.",
        Group.MODEL,
        metavar="N",
        typed=str,
        option_help="`server` leaves it to the server.",
        placeholder="the server's",
        step=128,
    ),
]


class CurationSpec(Settings):
    """Settings that labellings and generations share. Raises StoreError for prices and a cap that do not go
    together."""

    if TYPE_CHECKING:  # each has them among its own, in the order in which people are asked for them
        model: str
        base_url: str
        api_key_env: str
        temperature: float | None
        max_tokens: int | None
        timeout: float
        prices: Prices | None
        cap: float | None

    @property
    def fields(self) -> dict[str, object]:
        """Return the further fields of its requests, without the limit on tokens."""
        return {} if self.temperature is None else {"temperature": self.temperature}

    @model_validator(mode="after")
    def checked(self) -> Self:
        check_money((self.model, self.prices), [], None, self.cap)
        return self


class LabellingSpec(CurationSpec):
    """The settings of a labelling. profiles, contexts: limit it to the first so many. seed: None sends none to a real
    server (some refuse it, and vLLM's CPU engine dies of it) and 0 to the simulator."""

    dataset: str = setting(..., "Dataset", "Dataset; `cimemories datasets` lists them.", Group.TASK, short="-d")
    model: ModelName
    base_url: BaseUrl
    api_key_env: KeyVariable = DEFAULT_KEY_ENV
    draws: int = setting(10, "Votes per persona", "Votes of each persona on each pair.", Group.TASK, ge=1)
    profiles: Profiles = None
    contexts: Contexts = None
    personas: str = setting(
        packs.DEFAULTS["personas"], "Personas", "Pack of personas; `cimemories packs` lists them.", Group.TASK
    )
    temperature: Temperature = None
    max_tokens: AnswerLimit = 2048
    seed: Seed = None
    timeout: Timeout = 120.0
    prices: ModelPrices = None
    cap: Cap = None


class AuthoringSpec(CurationSpec):
    """The settings of a generation, which writes `per_domain` attributes for each of nine domains of each event, and
    `general` others. seed: of people and events. model_seed: as of LabellingSpec, to the simulator `seed`. timeout: of
    a request, whose answer is a whole part of a profile."""

    name: str = setting(..., "Dataset name", "Name of the new dataset.", Group.TASK, option="--dataset", short="-d")
    model: ModelName
    base_url: BaseUrl
    profiles: int = setting(10, "Profiles", "Number of profiles.", Group.TASK, ge=1)
    seed: int = setting(0, "Seed", "The same seed gives the same people and events.", Group.TASK)
    locale: str = setting(
        "en_US", "Names and addresses", "Locale of names and addresses, e.g. de_DE (docs/packs.md).", Group.TASK
    )
    contexts: Annotated[tuple[str, ...], BeforeValidator(lambda value: packs.CORE if value is None else value)] = (
        setting(
            packs.CORE,
            "Contexts",
            "Pack of contexts; `cimemories packs` lists them. Repeatable.",
            Group.TASK,
            typed=list,
        )
    )
    per_domain: int = setting(
        7,
        "Per domain",
        "Attributes in each of the nine domains, per event. The paper uses 7; the released data has 5.",
        Group.TASK,
        ge=1,
    )
    events: int = setting(3, "Life events", "Life events per profile.", Group.TASK, ge=1)
    general: int = setting(
        10,
        "General",
        "Attributes per profile that belong to no event: employer, income, marital status and the like; needs a model.",
        Group.TASK,
        ge=1,
    )
    api_key_env: KeyVariable = DEFAULT_KEY_ENV
    temperature: Temperature = None
    max_tokens: AnswerLimit = 8192
    model_seed: Annotated[int | None, SEED] = setting(
        None, "Model seed", "Seed sent to the server; default: none is sent.", Group.MODEL
    )
    timeout: Timeout = 300.0
    prices: ModelPrices = None
    cap: Cap = None
