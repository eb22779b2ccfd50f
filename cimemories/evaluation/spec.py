"""The settings of a run, each said once.

    RunSpec(dataset="demo", model="qwen3-32b", base_url="http://localhost:8000/v1", memory="necessary+20")

The options of `cimemories run`, the form of a new run, the fields of a sweep's file, the manifest, the command that
repeats a run and the table of settings in docs/settings.md are made from the fields here (cimemories/settings.py).

To add a setting, add a field by `setting`, and use it where the run is carried out: `RunSpec.of(row.manifest)` has
it for every run, with its default for those that were planned before.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import compress
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator
from pydantic.functional_validators import AfterValidator, InstanceOf

from cimemories import extras
from cimemories.evaluation.compositions import Composition, CompositionError, read_composition
from cimemories.evaluation.prices import Prices, check_money
from cimemories.evaluation.reference import Reference
from cimemories.evaluation.sessions import Sessions, read_sessions
from cimemories.llm.endpoint import (
    ASSISTANT,
    COMMAND,
    DEFAULT_KEY_ENV,
    NO_SERVERS,
    SIMULATOR,
    TASKS,
    EndpointError,
    checked_address,
    is_assistant,
)
from cimemories.manifest import RunManifest
from cimemories.memory.systems import SystemSpec, is_system
from cimemories.model import Channel
from cimemories.seeds.presets import preset
from cimemories.seeds.prompts import FROM_SEEDS, Prompt
from cimemories.settings import Described, Setting, Settings, setting
from cimemories.store.engine import StoreError, plain_name
from cimemories.store.runs import RunRow

LLM: Literal["llm"] = "llm"
MODEL = "model"  # the assistant that is a model with its memories in the prompt
MATCHER: Literal["matcher"] = "matcher"
BATCH = "batch"  # the word for no server at all: calls go out and come back as batch files
BY_FILE = (BATCH, TASKS)
# Fields of a request that the tool itself decides about; the others may be set by hand.
RESERVED = frozenset({"model", "messages", "n", "seed", "stream", "response_format", "max_tokens"})
MESSAGE_TOKENS = 1024
# A judge's limit has to leave room for reasoning: 2,048 tokens cut what models like DeepSeek-R1 answer.
JUDGE_TOKENS = 16_384
SIMULATED_JUDGE_TOKENS = 2048
SERVERS_LIMIT = "server"  # the word for no limit of ours: what the server allows


# ---- types of settings, which also read what people type


def _limit(value: object) -> object:
    if value == SERVERS_LIMIT or value is None:
        return None
    # isdigit alone takes digits of all scripts, superscripts among them, which int refuses.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a token limit is a number, 1 or more, or `server` to leave the limit to the server.")
    return value


def _prices(value: object) -> object:
    if isinstance(value, str):
        try:
            return Prices.read(value)
        except StoreError as error:
            raise ValueError(str(error)) from None
    return Prices.of(value) if isinstance(value, Mapping) else value


def read_fields(value: Any) -> Any:
    """Read NAME=JSON pairs as fields of a request; a value that is no JSON is text."""
    if not isinstance(value, list | tuple):
        return {} if value is None else value
    fields: dict[str, Any] = {}
    for item in value:
        name, sign, text = item.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"further fields of a request are NAME=VALUE, for example top_p=0.9, not '{item}'.")
        try:
            fields[name.strip()] = json.loads(text)
        except ValueError:
            fields[name.strip()] = text
    return fields


def _unreserved(value: Mapping[str, object]) -> Mapping[str, object]:
    # Set by hand they would contradict what the manifest and the keys of the calls say was asked.
    if reserved := sorted(RESERVED & set(value)):
        raise ValueError(f"the tool itself sets {', '.join(reserved)} in a request; it cannot be set by hand.")
    return value


Limit = Annotated[int | None, Field(ge=1), BeforeValidator(_limit)]
Priced = Annotated[Prices | None, BeforeValidator(_prices)]
Fields = Annotated[Mapping[str, Any], BeforeValidator(read_fields), AfterValidator(_unreserved)]
# A record names a wording by its hash: the text itself is kept apart.
PromptByHash = Annotated[
    InstanceOf[Prompt],
    PlainSerializer(
        lambda prompt: {"level": prompt.level, "source": prompt.source, "sha256": prompt.sha256},
        return_type=dict[str, str],
    ),
]
# PostgreSQL's integers have 32 bits: a run of another seed could not be written there, nor moved there.
SEED = Field(ge=-(2**31), le=2**31 - 1)

# ---- settings that runs, labellings and generations share


def address_of_assistant(assistant: str) -> str | None:
    """Return the address of an assistant that is a service or a program, or the word for tasks as files; None for one
    that asks the model under test."""
    if assistant.startswith(("http://", "https://")):
        return ASSISTANT + assistant.rstrip("/")
    return TASKS if assistant == "tasks" else assistant if assistant.startswith(COMMAND) else None


def _has_prompt(values: Mapping[str, Any]) -> bool:
    # Any other assistant writes its prompts itself.
    return (values.get("assistant") or MODEL) == MODEL


def _has_request(values: Mapping[str, Any]) -> bool:
    # A service or a program asks its model itself. Labellings and generations have no assistant.
    return address_of_assistant(values.get("assistant") or MODEL) is None


class Group(StrEnum):
    """The parts of the form of a new run, and of the table of settings."""

    PLACE = "Model"
    TASK = "Task"
    MEMORY = "Memory"
    MODEL = "Model settings"
    JUDGING = "Judges"
    PLAN = "Plan"


ModelName = Annotated[str, Setting("Model", "The model's name, as its server knows it.", Group.PLACE, short="-m")]
BaseUrl = Annotated[
    str,
    Setting(
        "Base URL",
        "OpenAI-compatible server, e.g. http://localhost:8000/v1, or `simulator`.",
        Group.PLACE,
        placeholder="http://localhost:8000/v1",
    ),
]
KEY_HELP = "Environment variable that holds the API key. The key itself is never stored or shown."
KeyVariable = Annotated[str, Setting("API key variable", KEY_HELP, Group.PLACE)]
Profiles = Annotated[
    int | None, Field(ge=1), Setting("Profiles", "Use only the first N profiles.", Group.TASK, placeholder="all")
]
Contexts = Annotated[
    int | None,
    Field(ge=1),
    Setting(
        "Contexts",
        "Use only the first N contexts. A context is a task and its recipient.",
        Group.TASK,
        placeholder="all",
    ),
]
Temperature = Annotated[
    float | None,
    Field(ge=0),
    Setting(
        "Temperature",
        "0 always picks the likeliest token; default: the server's own.",
        Group.MODEL,
        placeholder="default",
        step=0.1,
        when=_has_request,
    ),
]
Seed = Annotated[
    int | None,
    SEED,
    Setting(
        "Seed",
        "Seed of the first request; default: none is sent. Some servers refuse it.",
        Group.MODEL,
        placeholder="none",
        when=_has_request,
    ),
]
Timeout = Annotated[
    float,
    Field(ge=0.1),
    Setting("Request timeout (s)", "Seconds to wait for an answer; doubles with each retry.", Group.MODEL, step=60),
]
ModelPrices = Annotated[
    Priced,
    Setting(
        "Prices",
        "Per million tokens: PROMPT/CACHED/COMPLETION, e.g. '2/0.5/8 EUR'.",
        Group.PLAN,
        option="--price",
        typed=str,
    ),
]
Cap = Annotated[
    float | None,
    Setting(
        "Cost cap",
        "Stop when this much is paid; requests already sent still count. Needs all prices.",
        Group.PLAN,
        placeholder="none",
    ),
]

# ---- a judge


ONCE = "Once for all judges or once each."


def judge_setting(default: Any, option: str, title: str, help: str, option_help: str = ONCE, **more: Any) -> Any:
    more |= {"option": f"--judge-{option}", "option_help": option_help}
    return setting(default, title, help, Group.JUDGING, **more)


class JudgeSpec(Settings):
    """A judge of messages. kind 'matcher' needs nothing else; 'llm' needs a model and where it is served.

    max_tokens: None sends no limit; JUDGE_TOKENS becomes half of the server's context if that is less. channel: what it
    reads, the message or the model's reasoning before it. json_schema: the form that holds its answers; None for what
    the server can do. prompt: None for seeds/prompts/judge.yaml. reference: as of RunSpec.
    """

    kind: Literal["matcher", "llm"] = "matcher"
    model: str = judge_setting(
        MATCHER,
        "model",
        "Judge model",
        "Use a model of another family: models may judge their own family mildly.",
        "Repeatable.",
        placeholder="as its server names it",
    )
    base_url: str = judge_setting(
        "",
        "base-url",
        "Judge base URL",
        "Server of the judge.",
        f"{ONCE} For `run` the default is --base-url.",
        placeholder="http://localhost:8002/v1",
    )
    api_key_env: str = judge_setting(DEFAULT_KEY_ENV, "api-key-env", "API key variable", KEY_HELP)
    max_tokens: Limit = judge_setting(
        # The simulator does not think first; its limit is that of the recorded calls of the demo.
        Field(
            default_factory=lambda judge: SIMULATED_JUDGE_TOKENS if judge.get("base_url") == SIMULATOR else JUDGE_TOKENS
        ),
        "max-tokens",
        "Token limit per judgement",
        "Token limit of a judgement, reasoning included: 16384, or half of the server's context if that is less.",
        f"`server` leaves it to the server. {ONCE}",
        metavar="N",
        placeholder="the server's",
        step=1024,
    )
    channel: Channel = Channel.MESSAGE
    split: int | None = judge_setting(
        None,
        "split",
        "Attributes per call",
        "Splits long lists for judges that lose track. Parts are requested in sequence.",
        ge=1,
        metavar="N",
        placeholder="all at once",
    )
    fields: Fields = judge_setting(
        Field(default_factory=dict),
        "set",
        "Other request fields",
        "Further field of a judge's request. The temperature is 0 unless it is set here.",
        "NAME=JSON; repeatable.",
    )
    prompt: PromptByHash | None = judge_setting(
        None, "prompt", "Judge prompt", "Judge prompt from a file, FILE:LEVEL (docs/formats.md).", ""
    )
    json_schema: Literal["json_schema", "plain_schema", "json_object", "none"] | None = None
    timeout: float | None = None
    prices: Priced = judge_setting(None, "price", "Prices", "As --price.")
    reference: Annotated[InstanceOf[Reference], PlainSerializer(Reference.as_json)] | None = None

    @property
    def request_fields(self) -> dict[str, object]:
        """Return the further fields of its requests but for the token limit: temperature 0 unless it is set."""
        # The authors' requests have the whole number.
        return {"temperature": 0.0 if self.reference is None else 0, **self.fields}


# ---- a run
#
# First when a setting is asked for: beside some values of others alone.


SEEDED = "shuffled"
NO_SESSIONS = (None, "none", "")


def _has_order(values: Mapping[str, Any]) -> bool:
    # A memory system orders what it recalls itself.
    return not is_system(values["memory"])


def _has_sessions(values: Mapping[str, Any]) -> bool:
    return values["sessions"] not in NO_SESSIONS


def beside_messages(judges: Sequence[JudgeSpec]) -> tuple[JudgeSpec, ...]:
    """Return the judges of an assistant's run: these, and the first of them on its tool calls and memory writes."""
    return (*judges, *(judge.replace(channel=it) for judge in judges[:1] for it in (Channel.TOOLS, Channel.MEMORY)))


def installed_assistant(name: str) -> Any:
    """Return the class of an assistant of another package (docs/assistants.md). Raises StoreError if there is none, or
    it cannot be loaded."""
    there = extras.from_packages("assistants")
    if name not in there:
        listed = ", ".join(sorted(there)) or "none"
        raise StoreError(
            f"there is no assistant '{name[:100]}'. Installed: {listed}. A service is http://HOST:PORT, a program "
            "'command:PROGRAM ARGUMENTS' (docs/assistants.md)."
        )
    try:
        return extras.load(there[name])
    except (Exception, SystemExit) as error:  # another package may raise anything when it is imported
        raise StoreError(f"the assistant '{name}' cannot be loaded: {type(error).__name__}: {error}") from error


class RunSpec(Settings):
    """The settings of a run. Raises StoreError or CompositionError for what is wrong without asking a server.

    prompts: wordings by kind (respond, memory, gate, rewrite, check, session) instead of those of the seeds. reference:
    of the authors' settings (`planning.as_reference`). judges: numbers rest on the first.
    """

    dataset: str = setting(
        ...,
        "Dataset",
        "Dataset whose profiles are the users; `cimemories datasets` lists them.",
        Group.TASK,
        short="-d",
    )
    # Both are told by an assistant of its own.
    model: ModelName = ""
    base_url: BaseUrl = ""
    api_key_env: KeyVariable = DEFAULT_KEY_ENV
    assistant: str = setting(
        MODEL,
        "Assistant",
        "Who writes the messages: the model, with its memories in the prompt; a service, http://HOST:PORT; a program, "
        "'command:PROGRAM ARGUMENTS'; `tasks` as files; or an installed assistant's name (docs/assistants.md).",
        Group.PLACE,
        brief="assistant {}",
    )
    preset: str | None = setting(
        None,
        "Preset",
        "Known settings of the model; `cimemories serve --list` lists them.",
        Group.PLACE,
        when=_has_request,
    )
    samples: int = setting(
        5,
        "Samples n",
        "Messages per context. Violation@1 to @n are computed from them.",
        Group.TASK,
        ge=1,
        le=100,
        short="-n",
        brief="n = {}",
    )
    profiles: Profiles = None
    contexts: Contexts = None
    prompt_level: str = setting(
        "base",
        "Prompt level",
        "How much the prompt says about privacy: base, light, medium, high, or a level of the prompt file.",
        Group.TASK,
        labels={
            "base": "base: the task alone",
            "light": "light: one sentence about privacy",
            "medium": "medium: what not to share",
            "high": "high: strictest",
        },
        when=_has_prompt,
        plural="prompt_levels",
        brief="{}",
    )
    memory: str = setting(
        "full",
        "What the assistant holds",
        "full, necessary+K, inappropriate+K, random-K; a memory system: system:bm25:k=20 (docs/memory.md); as "
        "published: all_share+K, all_not_share+K, iid-K.",
        Group.MEMORY,
        brief="{}",
    )
    memory_order: Literal["fixed", "shuffled"] = setting(
        "fixed",
        "Order",
        "Order of the statements: as in the profile (fixed), or shuffled by the seed, the same for all contexts of "
        "a user.",
        Group.MEMORY,
        labels={"fixed": "as in the profile", "shuffled": "shuffled by the seed"},
        when=_has_order,
    )
    memory_seed: int = setting(
        0,
        "Memory seed",
        "Decides which attributes are chosen, and the shuffled order.",
        Group.MEMORY,
        when=lambda run: _has_order(run) and bool(run["memory"] != "full" or run["memory_order"] == SEEDED),
    )
    memory_template: str = setting(
        "bullets",
        "Attribute format",
        "How a memory statement is written in the prompt: bullets, plain, numbered, keyed or grouped.",
        Group.MEMORY,
        labels={
            "bullets": "- statement",
            "plain": "statement",
            "numbered": "1. statement",
            "keyed": "- key: statement",
            "grouped": "- [domain] statement",
        },
        when=_has_prompt,
    )
    sessions: str | None = setting(
        None,
        "Sessions",
        "Whether the memory of a task has the assistant's messages of earlier tasks: all, last-N, or none of them. "
        "A user's tasks are then written one after the other.",
        Group.MEMORY,
        placeholder="none",
        brief="sessions {}",
    )
    session_order: Literal["fixed", "shuffled"] = setting(
        "fixed",
        "Order of the tasks",
        "Order of a user's tasks: as in the dataset (fixed), or shuffled, another order for each user.",
        Group.MEMORY,
        labels={"fixed": "as in the dataset", "shuffled": "shuffled by the seed"},
        when=_has_sessions,
    )
    session_seed: int = setting(
        0,
        "Task seed",
        "Decides the shuffled order of the tasks.",
        Group.MEMORY,
        when=lambda values: _has_sessions(values) and values["session_order"] == SEEDED,
    )
    mitigation: Literal["none", "gate", "rewrite"] = setting(
        "none",
        "Mitigation",
        "A defence to compare with the plain model: none, gate or rewrite. Each adds one call per message.",
        Group.MODEL,
        labels={
            "gate": "gate: first ask which memories the task needs",
            "rewrite": "rewrite: remove what the recipient should not know",
        },
        when=_has_prompt,
        plural="mitigations",
        brief="{}",
    )
    thinking: Literal["default", "on", "off", "low", "medium", "high"] = setting(
        "default",
        "Thinking",
        "For models that reason first: default sends nothing, on and off set the model's switch, low, medium and "
        "high its reasoning effort. Reasoning is judged only if a judge reads it too.",
        Group.MODEL,
        labels={
            "default": "model default",
            "low": "low (reasoning_effort)",
            "medium": "medium (reasoning_effort)",
            "high": "high (reasoning_effort)",
        },
        when=_has_request,
        brief="thinking {}",
    )
    temperature: Temperature = None
    sampling: Fields = setting(
        Field(default_factory=dict),
        "Other fields",
        "Further field of every request, NAME=JSON, e.g. top_p=0.9; repeatable.",
        Group.MODEL,
        when=_has_request,
        option="--set",
        typed=list,
    )
    max_tokens: Limit = setting(
        MESSAGE_TOKENS,
        "Token limit per message",
        "Token limit of a message, reasoning included. A message that is cut off "
        "counts as missing, so reasoning models need more, such as 8192.",
        Group.MODEL,
        when=_has_request,
        metavar="N",
        typed=str,
        option_help="`server` leaves it to the server.",
        placeholder="the server's",
        step=128,
    )
    seed: Seed = None
    timeout: Timeout = 120.0
    judges: tuple[JudgeSpec, ...] = Field(default=(JudgeSpec(),), min_length=1)
    check: Literal["rules", "model", "none"] = setting(
        "rules",
        "Task check",
        "Who checks that a message does its task: rules, model (the first judge's, one more call per message) or "
        "none. An empty or refusing message reveals nothing and must not count as private.",
        Group.JUDGING,
        labels={
            "rules": "by rules (refusals, very short messages)",
            "model": "by the first judge's model",
            "none": "not checked",
        },
    )
    prices: ModelPrices = None
    memory_prices: Priced = setting(
        None,
        "Prices of the memory system",
        "As --price, of a model that the memory system names.",
        Group.PLAN,
        option="--memory-price",
        typed=str,
    )
    cap: Cap = None
    name: str | None = setting(
        None, "Name", "Name of the run, shown in tables.", Group.PLAN, placeholder="model on dataset"
    )
    fresh: bool = setting(
        False,
        "Ignore recorded answers",
        "Send every request again and pay for it, even if its answer is recorded. Resuming still reuses its own.",
        Group.PLAN,
    )
    prompts: Mapping[str, PromptByHash] = Field(default_factory=dict)
    reference: Annotated[InstanceOf[Reference], PlainSerializer(Reference.as_json)] | None = None

    # ---- what the settings mean together

    @property
    def judge(self) -> JudgeSpec:
        return self.judges[0]

    @property
    def composition(self) -> Composition:
        """Return what is held. Raises CompositionError for a text that names no memory."""
        return read_composition(self.memory, self.memory_order, self.memory_seed)

    @property
    def is_served(self) -> bool:
        """Return whether a service or a program writes the messages, and no model is asked by this project."""
        return is_assistant(self.base_url)

    @property
    def remembered(self) -> Sessions | None:
        """Return which earlier messages are in memory; None for a run without sessions."""
        return None if self.sessions is None else read_sessions(self.sessions, self.session_order, self.session_seed)

    @property
    def traits(self) -> list[str]:
        """Return in few words what makes it another experiment than the plain run of its model: not its samples."""
        short = {"memory": self.memory}
        with suppress(CompositionError):  # of an imported run
            short["memory"] = self.composition.label  # without the options that are at their defaults
        return [
            item.setting.brief.format(short.get(item.name, value))
            for item, value in self.non_defaults()
            if item.setting.brief and item.name != "samples" and not (item.name == "assistant" and self.is_served)
        ]

    @property
    def memory_text(self) -> str:
        return self.memory + (f", sessions {self.sessions}" if self.sessions else "")

    @property
    def fields(self) -> dict[str, object]:
        """Return the further fields of a message's request but for the token limit, as sent to a server that takes
        them."""
        # The authors' greedy requests have the whole number 0.
        temperature = 0 if self.reference is not None and self.temperature == 0 else self.temperature
        return {
            **self.sampling,
            **({} if temperature is None else {"temperature": temperature}),
            **self._thinking_fields,
        }

    @property
    def _thinking_fields(self) -> Mapping[str, object]:
        """Return what switches the model's thinking: its preset's fields if it has some."""
        known = preset(self.preset).thinking if self.preset else None
        # Nothing is sent, so that a server which knows no such field does not refuse the request.
        if self.thinking == "default":
            return {}
        if self.thinking not in ("on", "off"):
            return {"reasoning_effort": self.thinking}
        fields: Mapping[str, object] | None = getattr(known, self.thinking, None)
        return {"chat_template_kwargs": {"enable_thinking": self.thinking == "on"}} if fields is None else fields

    # ---- what cannot be

    @field_validator("sessions", mode="before")
    @classmethod
    def _some_sessions(cls, value: object) -> object:
        return None if value in NO_SESSIONS else value

    @model_validator(mode="before")
    @classmethod
    def _address_of_assistant(cls, values: Any) -> Any:
        """Give a run of an assistant of its own its address, and judges of all its channels. The name of its model is
        looked up if none is given."""
        address = address_of_assistant(str(values.get("assistant") or MODEL)) if isinstance(values, dict) else None
        if address is None:
            return values
        judges = tuple(values.get("judges") or (JudgeSpec(),))
        if all(isinstance(judge, JudgeSpec) and judge.channel != Channel.TOOLS for judge in judges):
            judges = beside_messages(judges)
        return {**values, "base_url": address, "judges": judges}

    @model_validator(mode="after")
    def checked(self) -> Self:
        """Return the spec itself. Raises StoreError or CompositionError for settings that do not go together."""
        apart = (_has_prompt, _has_request)
        changed = [it for it, _ in self.non_defaults() if it.setting.when in apart and not self.applies(it.name)]
        if changed or (self.is_served and (self.reference or self.composition.system is not None or self.prompts)):
            what = ", ".join(item.option for item in changed) or "a memory system, a prompt file or --reference"
            raise StoreError(f"an assistant writes its prompts itself, and {what} would change nothing: leave it out.")
        if self.is_served:
            if self.remembered is not None and self.remembered.window is not None:
                raise StoreError("an assistant keeps what it keeps of its earlier tasks: --sessions all, or none.")
        elif self.assistant != MODEL:
            installed_assistant(self.assistant)
            if self.sessions or self.reference:
                raise StoreError("an installed assistant goes with no sessions and no --reference: leave it out.")
        for name in (self.model or MODEL, *(judge.model for judge in self.judges)):
            plain_name(name, "model")
        models = [judge for judge in self.judges if judge.kind == LLM]
        if any(is_assistant(judge.base_url) for judge in models):
            raise StoreError(
                "an assistant writes messages and judges none: give the judge's own server (--judge-base-url), or let "
                "the matcher judge (--judge matcher)."
            )
        system = self.composition.system
        asked = system.asks if system is not None else None
        if system is not None:
            if self.mitigation == "gate":
                raise StoreError("a gate and a memory system both choose what is recalled: leave one of them out.")
            if self.reference is not None:
                raise StoreError("the authors' settings have no memory system: leave --reference or the system out.")
            _require_server(system, self.base_url)
            if system.grounds and not models:
                raise StoreError("ground=model asks the first judge that is a model, and no judge of the run is one.")
        if self.remembered is None and (self.session_order != "fixed" or self.session_seed):
            raise StoreError("--session-order and --session-seed go with --sessions all or --sessions last-N.")
        if self.sessions and self.reference:
            raise StoreError(
                "the authors' settings ask for each task by itself, and an earlier message in memory makes it another "
                "request: leave out --reference or --sessions."
            )
        if self.check == "model" and not models:
            raise StoreError("the task check by a model is asked of the first judge's model, and no judge is a model.")
        other = asked[0] if asked and asked[0] != self.model else None
        if self.memory_prices is not None and other is None:
            raise StoreError(
                "the price of a memory system is of a model of its own: name one (model=NAME), or leave the price out. "
                "The model under test has its own price."
            )
        priced = [(judge.model, judge.prices) for judge in models]
        check_money((self.model, self.prices), priced, (other, self.memory_prices) if other else None, self.cap)
        return self

    # ---- the record

    @classmethod
    def of(cls, manifest: RunManifest) -> Self:
        """Return the settings that a run was planned with, without its wordings; defaults for what is not recorded."""
        asked = upgraded(manifest.request.recorded if manifest.request else {})
        return cls.recorded({name: value for name, value in asked.items() if name not in ("prompts", "reference")})

    @classmethod
    def of_row(cls, row: RunRow) -> Self:
        """Return the settings of a run, of an imported one as far as its file said them."""
        manifest = row.manifest
        known = {
            "model": row.model,
            "base_url": row.endpoint,
            "samples": row.samples,
            "prompt_level": row.prompt_level,
            "memory": row.composition,
            "memory_order": manifest.memory.order,
            "mitigation": manifest.mitigation.kind,
            "sessions": manifest.sessions.kept if manifest.sessions else None,
            "session_order": manifest.sessions.order if manifest.sessions else "fixed",
            "session_seed": manifest.sessions.seed if manifest.sessions else 0,
        }
        return cls.of(manifest).model_copy(update=known)


def prompt_level(run: RunRow) -> str | None:
    """Return the prompt level of a run, or None for an assistant that writes its prompts itself."""
    return run.prompt_level if RunSpec.of(run.manifest).applies("prompt_level") else None


# In faces that have a place of their own for it: the model, the prompt level, the memory and its order with sessions,
# the mitigation and the thinking of a run.
SHOWN_APART = frozenset({"prompt_level", "memory", "memory_order", "sessions", "mitigation", "thinking", "samples"})


def differing(runs: Iterable[RunRow | RunSpec]) -> dict[str, list[str]]:
    """Return the further settings in which runs differ: by title, the text of every run; but for those shown apart."""
    return {item.setting.title: texts for item, texts in differences(runs) if item.name not in SHOWN_APART}


def differences_in_words(runs: Sequence[RunRow], *, every: bool = False) -> list[tuple[str, ...]]:
    """Return of each run what `differing` finds, in few words: 'temperature 0.5'. every: also what is shown apart."""
    words: list[tuple[str, ...]] = [()] * len(runs)
    for item, texts in differences(runs):
        if every or item.name not in SHOWN_APART:
            title = item.setting.title
            brief = item.setting.brief or f"{title[:1].lower()}{title[1:]} {{}}"
            words = [(*before, text and brief.format(text)) for before, text in zip(words, texts, strict=True)]
    return words


def names(rows: Sequence[RunRow]) -> dict[str, str]:
    """Return a name for each run, by its id: the one that a person gave it alone, else its model; where several are of
    one model, also in what they differ; and its id where even that is the same."""
    given = Counter(row.given_name for row in rows)
    called = {row.id: row.given_name if given[row.given_name] == 1 and row.given_name else row.model for row in rows}
    traits = differences_in_words(rows, every=True)
    # One setting after the other, and only for runs that are still called alike and differ in it.
    for texts in zip(*traits, strict=True):
        told = {row.id: text for row, text in zip(rows, texts, strict=True)}
        called = {
            row.id: ", ".join(filter(None, (called[row.id], told[row.id])))
            if len({told[other.id] for other in rows if called[other.id] == called[row.id]}) > 1
            else called[row.id]
            for row in rows
        }
    counts = Counter(called.values())
    return {run_id: name if counts[name] == 1 else f"{name} ({run_id})" for run_id, name in called.items()}


def differences(runs: Iterable[RunRow | RunSpec]) -> Iterator[tuple[Described, list[str]]]:
    """Yield every setting of their experiments in which runs differ, with the text of every run: empty where the
    setting does not apply."""
    specs = [run if isinstance(run, RunSpec) else RunSpec.of_row(run) for run in runs]
    for name, item in RunSpec.described().items():
        experiment = item.setting.group in (Group.TASK, Group.MEMORY, Group.MODEL, Group.JUDGING)
        if not experiment or name in ("dataset", "timeout"):
            continue
        # A setting that means nothing in a run, an order of tasks without sessions say, makes it no other.
        applies = [item.applies(dict(spec)) for spec in specs]
        given = [getattr(spec, name) for spec in compress(specs, applies)]
        if any(value != given[0] for value in given):
            texts = ("none" if value is None else str(value) for value in given)
            yield item, [next(texts) if applied else "" for applied in applies]


def _require_server(system: SystemSpec, base_url: str) -> None:
    """Raises StoreError if a system names a model of its own that cannot be asked. base_url: of the model under
    test."""
    name, address = system.asks or ("", "")
    if address and address not in NO_SERVERS:
        try:
            checked_address(address)
        except EndpointError as error:
            raise StoreError(str(error)) from None
    if name and BATCH in (address, base_url):
        raise StoreError("a memory system that asks a model of its own needs a server, and batch files have none.")


# ---- the command that asks for the same


def command_of(spec: RunSpec) -> str:
    """Return the command line that asks for the same run; wording of a file by its name. Raises StoreError if no
    options can ask its judges as it did."""
    options: list[object] = ["cimemories", "run", *(["--reference"] if spec.reference else [])]
    # What the authors' settings set, --reference sets again.
    usual = {"max_tokens": None, "memory_template": "plain"} if spec.reference else {}
    for item in spec.described().values():
        value = getattr(spec, item.name)
        if item.name == "base_url" and spec.is_served:
            continue  # the assistant's
        if item.name != "name" and value != usual.get(item.name, item.default):
            # None that is not the default is a limit that is left to the server.
            options += _option(item.option, SERVERS_LIMIT if value is None else value)
    options += _option("--prompt-file", _file(spec.prompts.get("respond")))
    return " ".join(shlex.quote(str(option)) for option in [*options, *_judge_options(spec)])


def _option(option: str, value: object) -> list[object]:
    """Return an option with its value as a command line has them; nothing for None and False."""
    if isinstance(value, Mapping):
        return [part for name, field in value.items() for part in (option, f"{name}={json.dumps(field)}")]
    if isinstance(value, list | tuple):
        return [part for item in value for part in _option(option, item)]
    if value is None or value is False:
        return []
    return [option] if value is True else [option, value.text if isinstance(value, Prices) else value]


def _judge_options(spec: RunSpec) -> list[object]:
    """Return the options for all judges of a run. Raises StoreError like `command_of`."""
    judges = list(spec.judges)
    if spec.is_served and tuple(judges) == beside_messages(judges[:-2]):
        judges = judges[:-2]  # each run of an assistant has them
    models = [judge for judge in judges if judge.kind == LLM and judge.channel == Channel.MESSAGE]
    reasoning = [judge for judge in judges if judge.channel != Channel.MESSAGE]
    rest = [judge for judge in judges if judge.kind != LLM]
    if [*models, *reasoning, *rest] != judges:
        raise _no_command("its judges are in another order: options put models before the matcher")
    if reasoning and reasoning != [judge.replace(channel=reasoning[0].channel) for judge in models[:1]]:
        raise _no_command("its reasoning is not judged as its messages are, by the first judge alone")

    options: list[object] = []
    for item in JudgeSpec.described().values():
        values = [getattr(judge, item.name) for judge in models]
        if item.name == "api_key_env" and set(values) <= {spec.api_key_env}:
            continue  # the default is the variable of the model under test
        if item.name == "max_tokens":
            # The default depends on the server; reference settings set the limit themselves.
            values = [] if spec.reference else [SERVERS_LIMIT if value is None else value for value in values]
        elif item.name == "prompt":
            files = [_file(prompt) for prompt in values]
            values = [file and f"{file}:{prompt.level}" for file, prompt in zip(files, values, strict=True)]
        same = item.name != "model" and all(value == values[0] for value in values)
        if not same and (None in values or item.name == "fields"):
            raise _no_command(f"{item.option} is for all judges or for none")
        options += _option(item.option, values[:1] if same else values)
    return [*options, *_option("--judge-reasoning", bool(reasoning)), *_option("--judge", [j.kind for j in rest])]


def _file(prompt: Prompt | None) -> str | None:
    """Return the file that a prompt is of, or None for one of the seeds and for none."""
    return None if prompt is None or prompt.source == FROM_SEEDS else prompt.source


def _no_command(why: str) -> StoreError:
    return StoreError(f"no `cimemories run` asks for the same: {why}. `cimemories repeat` with the run's id does.")


# ---- records of other versions


def upgraded(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest of any version asked for, under the names of today's settings."""
    asked = dict(recorded)
    if isinstance(asked.get("judge"), Mapping):
        judges = [asked.pop("judge"), *asked.pop("more_judges", ())]
        names = {"schema": "json_schema"}
        asked["judges"] = [{names.get(name, name): value for name, value in judge.items()} for judge in judges]
    if isinstance(memory := asked.get("memory"), Mapping):
        asked["memory"] = memory.get("composition", "full")
        asked |= {f"memory_{name}": value for name, value in memory.items() if name != "composition"}
    if isinstance(sessions := asked.get("sessions"), Mapping):
        asked["sessions"] = sessions.get("kept")
        asked |= {f"session_{name}": value for name, value in sessions.items() if name != "kept"}
    return asked


def settings_alike(spec: RunSpec, recorded: Mapping[str, Any]) -> bool:
    """Return whether a run that recorded this was asked for with the same settings; newer ones count with their
    defaults."""
    usual = type(spec)(dataset=spec.dataset, model=spec.model, base_url=spec.base_url).as_json()
    asked = usual | upgraded(recorded) | ({} if spec.model else {"model": ""})  # an assistant's own name
    asked["judges"] = [JudgeSpec().as_json() | judge for judge in asked["judges"]]
    return bool(asked == json.loads(json.dumps(spec.as_json())))
