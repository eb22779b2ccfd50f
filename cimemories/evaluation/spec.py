"""What a run is to be: the model, its memory, sampling and mitigation, and who judges it.

RunSpec(dataset="demo", model="qwen3-32b", base_url="http://localhost:8000/v1", memory=Memory("necessary+20"))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cimemories.evaluation.compositions import Composition, composition
from cimemories.evaluation.judging import LLM, MATCHER
from cimemories.evaluation.mitigations import Mitigation
from cimemories.evaluation.prices import Prices
from cimemories.llm.client import DEFAULT_KEY_ENV
from cimemories.seeds import Prompt
from cimemories.store.engine import StoreError, plain_name
from cimemories.store.judgements import MESSAGE

THINKING = ("default", "on", "off", "low", "medium", "high")
CHECKS = ("rules", "model", "none")
# Fields of a request that the tool itself decides about; the others may be set by hand.
RESERVED = frozenset({"model", "messages", "n", "seed", "stream", "response_format", "max_tokens"})
MESSAGE_TOKENS = 1024
# A judge's limit has to leave room for reasoning: 2,048 tokens cut what models like DeepSeek-R1 answer.
JUDGE_TOKENS = 16_384
SIMULATED_JUDGE_TOKENS = 2048  # the simulator does not think first; as in the recorded calls of the demo
SERVERS_LIMIT = "server"  # the word for no limit of ours: what the server allows
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


@dataclass(frozen=True)
class JudgeSpec:
    """A judge that is asked for. kind 'matcher' needs nothing else; 'llm' needs a model and where it is served.

    max_tokens: limit of one answer; None sends none, so that the server's own holds; JUDGE_TOKENS becomes half of the
    server's context where that is less. channel: message, or reasoning (what a reasoning model thought before it).
    split: at most so many attributes a call.
    fields: further fields of the request body. schema: how its answers are held to their form (json_schema,
    json_object, none); None: as the server can. prompt: another wording than that of seeds/prompts/judge.yaml. prices:
    of its tokens; None: not known.
    """

    kind: str = MATCHER
    model: str = MATCHER
    base_url: str = ""
    api_key_env: str = DEFAULT_KEY_ENV
    max_tokens: int | None = JUDGE_TOKENS
    channel: str = MESSAGE
    split: int | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    prompt: Prompt | None = None
    schema: str | None = None
    timeout: float | None = None
    prices: Prices | None = None


@dataclass(frozen=True)
class Memory:
    """What is held of a user, and how it is written into the prompt. template: of seeds/prompts/memory.yaml, where the
    run brings no wording of its own."""

    composition: str = "full"
    order: str = "fixed"
    seed: int = 0
    template: str = "bullets"

    def read(self) -> Composition:
        return composition(self.composition, self.order, self.seed)


@dataclass(frozen=True)
class RunSpec:
    """What a run is to be. `profiles` and `contexts` limit it to the first so many; None means all.

    base_url: an OpenAI-compatible server, or the word `simulator`. sampling: fields of the request as sent; empty: the
    model's defaults, and recorded as that choice. temperature stands for the field of that name. Seed None sends none
    to a real server (some refuse it, and vLLM's CPU engine dies of it) and 0 to the simulator. thinking: default sends
    nothing; on and off set the chat template's switch; low, medium, high the reasoning effort.
    check: whether a message does its task, by rules, by the first judge's model, or not at all. prompts: wording by
    kind (respond, memory, gate, rewrite, check) that goes before that of the seeds. prices: of the model's tokens;
    None: not known. max_tokens: limit of one message; None sends none. cap: what the
    run may cost, in the unit of the prices, which then have to be known.
    """

    dataset: str
    model: str
    base_url: str
    samples: int = 5
    profiles: int | None = None
    contexts: int | None = None
    judge: JudgeSpec = JudgeSpec()
    more_judges: tuple[JudgeSpec, ...] = ()
    api_key_env: str = DEFAULT_KEY_ENV
    temperature: float | None = None
    sampling: Mapping[str, object] = field(default_factory=dict)
    max_tokens: int | None = MESSAGE_TOKENS
    seed: int | None = None
    prompt_level: str = "base"
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    memory: Memory = Memory()
    thinking: str = "default"
    mitigation: str = Mitigation.NONE
    check: str = "rules"
    preset: str | None = None
    timeout: float = 120.0
    name: str | None = None
    prices: Prices | None = None
    cap: float | None = None
    fresh: bool = False

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        return (self.judge, *self.more_judges)

    def checked(self) -> RunSpec:
        """The spec itself. Raises StoreError or CompositionError for what can be seen to be wrong without a server."""
        if self.samples < 1:
            raise StoreError("a run needs at least one sample for each context: --samples 1 or more.")
        for name in (self.model, *(judge.model for judge in self.judges)):
            plain_name(name, "model")
        self.memory.read()
        _one_of("thinking", self.thinking, THINKING)
        _one_of("mitigation", self.mitigation, tuple(Mitigation))
        _one_of("check", self.check, CHECKS)
        for settings in (self.sampling, *(judge.fields for judge in self.judges)):
            reserved = sorted(RESERVED & set(settings))
            if reserved:
                raise StoreError(f"the tool itself sets {', '.join(reserved)} in a request; it cannot be set by hand.")
        for judge in self.judges:
            if judge.kind not in (LLM, MATCHER):
                raise StoreError(f"there is no judge of the kind '{judge.kind}': {LLM} or {MATCHER}.")
            if judge.schema is not None:
                _one_of("judge-schema", judge.schema, ("json_schema", "json_object", "none"))
            if judge.split is not None and judge.split < 1:
                raise StoreError("a judge needs at least one attribute a call: --judge-split 1 or more.")
        if self.check == "model" and not any(judge.kind == LLM for judge in self.judges):
            raise StoreError("the task check by a model is asked of the first judge's model, and no judge is a model.")
        self._check_money()
        return self

    def _check_money(self) -> None:
        models = [judge for judge in self.judges if judge.kind == LLM]
        priced = [item for item in (self.prices, *(judge.prices for judge in models)) if item is not None]
        currencies = sorted({item.currency for item in priced})
        if len(currencies) > 1:
            raise StoreError(
                f"prices of one run are in one unit of money, and these are in {' and '.join(currencies)}."
            )
        by_model: dict[str, Prices] = {}
        for judge in models:
            if judge.prices is not None and by_model.setdefault(judge.model, judge.prices) != judge.prices:
                raise StoreError(
                    f"the judge {judge.model} has two prices: give the same one, its calls are counted by model."
                )
        if self.cap is None:
            return
        if not self.cap > 0:
            raise StoreError(f"a cap on cost is more than 0: --cap {self.cap:g} would not let anything start.")
        unpriced = [self.model] * (self.prices is None) + [j.model for j in models if j.model not in by_model]
        if unpriced:
            raise StoreError(
                f"a cap needs the prices of all that costs, and those of {', '.join(unpriced)} are not given. Give "
                "them, 0 for what is free (on the command line: --price for the model, --judge-price for a judge)."
            )

    def parameters(self, limit_field: str, preset_thinking: Mapping[str, Any] | None = None) -> dict[str, object]:
        """The further fields of each request, as sent. limit_field: what the server calls the token limit."""
        limit = {} if self.max_tokens is None else {limit_field: self.max_tokens}
        sent: dict[str, object] = {**limit, **self.sampling}
        if self.temperature is not None:
            sent["temperature"] = self.temperature
        return {**sent, **thinking_fields(self.thinking, preset_thinking)}

    def asked(self) -> dict[str, object]:
        """What was asked for, as the manifest keeps it; prompts by hash, since their wording is kept apart."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def thinking_fields(thinking: str, preset: Mapping[str, Any] | None = None) -> dict[str, object]:
    """Body fields that switch a model's thinking; a preset's own way where it has one."""
    if thinking == "default":
        return {}
    if preset and thinking in preset:
        return dict(preset[thinking])
    if thinking in ("on", "off"):
        return {"chat_template_kwargs": {"enable_thinking": thinking == "on"}}
    return {"reasoning_effort": thinking}


def _plain(value: object) -> object:
    if isinstance(value, Prompt):
        return {"level": value.level, "source": value.source, "sha256": value.sha256}
    if isinstance(value, JudgeSpec):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Memory | Prices):
        return asdict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise StoreError(f"--{name} is one of {', '.join(known)}, not '{value}'.")
