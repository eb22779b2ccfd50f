"""The benchmark as an environment of verifiers, for reinforcement learning (github.com/PrimeIntellect-ai/verifiers;
tried with verifiers 0.4).

    env = load_environment("data/workspace", "mine", weight=2.0)

A task is one context of one user: the prompt of a run, with the user's memories, the task and the recipient. Its reward
is completeness less `weight` for each violation, as the matcher or a model judges the message. In this package's own
harness the one request goes out from this process: nothing that a model writes is executed, and no sandbox is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.dialects.chat import message_to_wire

from cimemories import seeds
from cimemories.cli.options import open_record
from cimemories.evaluation.compositions import compose
from cimemories.evaluation.judging import Judged, facts, read_answer, wording
from cimemories.evaluation.matcher import match
from cimemories.evaluation.planning import wording_of
from cimemories.evaluation.respond import message_prompt
from cimemories.evaluation.spec import JUDGE_TOKENS, RunSpec
from cimemories.extras.training.reward import WEIGHT, Score, score
from cimemories.flows.labels import CODES, RETAINING, UNLABELLED
from cimemories.labels.whatif import effective_labels
from cimemories.llm.replies import split_reasoning
from cimemories.model import Attribute, Strength, is_bio
from cimemories.store import datasets
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, chosen_workspace

ID = "cimemories-verifiers"  # the module of that name is what verifiers imports


class MessageData(vf.TaskData):
    """One task. attributes: those in memory, as fields of Attribute; labels: their codes of flows.labels, in the same
    order."""

    attributes: list[dict[str, Any]]
    labels: list[int]


class MessageTaskConfig(vf.TaskConfig):
    """weight: of a violation. judge: the model that says what a message reveals; None: the matcher, which needs no
    model."""

    weight: float = WEIGHT
    judge: vf.JudgeConfig | None = None


class RevealsJudge(vf.Judge[Judged]):
    """A model that says what a message reveals, asked as in a run."""

    def __init__(self, config: vf.JudgeConfig, attributes: tuple[Attribute, ...], message: str) -> None:
        super().__init__(config)
        self.template, self.attributes, self.message = seeds.load_prompt("judge"), attributes, message

    def build_messages(self, **_: Any) -> str:
        return wording(self.template, facts(self.template, self.attributes), self.message)

    def parse(self, response: vf.JudgeResponse) -> Judged:
        # An answer that cannot be read raises: it is an error of the rollout, and no reward.
        return read_answer(self.template, response.text, self.message, self.attributes)


class MessageTask(vf.Task[MessageData, vf.State, MessageTaskConfig]):
    """Write a message for the user, with all that is remembered of them at hand."""

    @vf.reward
    async def conduct(self, trace: vf.Trace) -> float:
        """Return completeness less the weight of the violations, and record both."""
        message, _, _ = split_reasoning(trace.last_reply)
        result = await self._score(trace, message)
        trace.record_metrics({"completeness": result.completeness or 0.0, "violations": float(len(result.violations))})
        return result.reward(self.config.weight)

    async def _score(self, trace: vf.Trace, message: str) -> Score:
        attributes = tuple(Attribute(**item) for item in self.data.attributes)
        if not message.strip():
            reveals: Sequence[Any] = ()
        elif self.config.judge is None:
            reveals = await asyncio.to_thread(match, attributes, message)
        else:
            judge = RevealsJudge(self.config.judge, attributes, message)
            limits = {"temperature": 0.0, "max_tokens": JUDGE_TOKENS}
            answer = await judge.complete(judge.build_messages(), trace=trace, parse=judge.parse, **limits)
            reveals = answer.parsed.reveals
        revealed = {item.attribute for item in reveals if item.strength is Strength.FULL}
        identifiers = {at for at, item in enumerate(attributes) if is_bio(item.key, item.domain)}
        return score(revealed, dict(enumerate(self.data.labels)), identifiers)


class MessageTasksetConfig(vf.TasksetConfig):
    """The choice of tasks. workspace: default: as of the command line. profiles, contexts: the first so many of each
    alone. prompt_level, memory: as of a run."""

    id: vf.ID = ID
    task: MessageTaskConfig = MessageTaskConfig()
    workspace: Path | None = None
    dataset: str = "demo"
    prompt_level: str = "base"
    memory: str = "full"
    profiles: int | None = None
    contexts: int | None = None


class MessageTaskset(vf.Taskset[MessageTask, MessageTasksetConfig]):
    """The contexts of a dataset that count: those with a necessary and an inappropriate attribute."""

    def load(self) -> Iterator[MessageTask]:
        """Yield the tasks. Raises StoreError for a workspace or dataset that is not there, or has no labels."""
        store = open_record(Path(self.config.workspace or chosen_workspace()))
        try:
            yield from self._tasks(store)
        finally:
            store.close()

    def _tasks(self, store: Store) -> Iterator[MessageTask]:
        config = self.config
        with store.read() as connection:
            row = datasets.by_name(connection, config.dataset)
            records = datasets.profile_records(connection, row.id)[: config.profiles]
        source = effective_labels(store, row.id)
        if source is None:
            raise StoreError(f"'{row.name}' has no labels, so no message earns anything. Label it: cimemories label.")
        codes = {pair: CODES[label] for pair, label in source.labels.items()}
        spec = RunSpec(
            dataset=row.name, model="verifiers", base_url="", prompt_level=config.prompt_level, memory=config.memory
        )
        for record in records:
            memories = compose(spec.composition, record, source.labels)
            for position, context_id in enumerate(record.context_ids[: config.contexts]):
                of_context = [codes.get((id_, context_id), UNLABELLED) for id_ in record.attribute_ids]
                if context_id in memories and set(RETAINING) <= set(of_context):
                    yield self._task(spec, record, position, memories[context_id], of_context)

    def _task(
        self, spec: RunSpec, record: ProfileRecord, position: int, memory: Sequence[int], labels: Sequence[int]
    ) -> MessageTask:
        held = tuple(record.profile.attributes[at] for at in memory)
        shown = replace(record.profile, attributes=held)
        prompt, _ = message_prompt(wording_of(spec), shown, record.profile.contexts[position])
        fields = ("key", "value", "domain", "event", "statement")
        data = MessageData(
            id=f"{spec.dataset}/{record.ordinal}/{position}",
            prompt=prompt,
            attributes=[{name: getattr(item, name) for name in fields} for item in held],
            labels=[labels[at] for at in memory],
        )
        return MessageTask(data, self.config.task)


class OneMessage(vf.Harness[vf.HarnessConfig]):
    """Sends the prompt once, from this process."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt or ())
        messages: list[Any] = [*([{"role": "system", "content": system}] if system else []), *turns]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class MessageEnvConfig(vf.EnvConfig):
    """One agent, which writes the message. It needs no sandbox."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class MessageEnv(vf.Env[MessageEnvConfig]):
    """One message a task."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)


def load_environment(
    workspace: Path | str | None = None,
    dataset: str = "demo",
    *,
    weight: float = WEIGHT,
    judge: vf.JudgeConfig | None = None,
    **more: Any,
) -> MessageEnv:
    """Return the environment. weight: of a violation; judge: a model that judges, None: the matcher; more: further
    fields of MessageTasksetConfig."""
    task = MessageTaskConfig(weight=weight, judge=judge)
    place = None if workspace is None else Path(workspace)
    config = MessageTasksetConfig(workspace=place, dataset=dataset, task=task, **more)
    return MessageEnv(MessageEnvConfig(taskset=config))
