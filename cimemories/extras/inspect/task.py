"""The task: one sample a (profile, context), with the same request as a run of our own.

    inspect eval cimemories/cimemories --model openai/gpt-5 --model-role judge=openai/gpt-5-mini -T samples=5

A sample's input is the whole prompt, and the solver is Inspect's own `generate`, so that another one can replace it.
Each epoch is one message."""

from __future__ import annotations

from dataclasses import replace

from inspect_ai import Task, task
from inspect_ai._util.error import PrerequisiteError  # ends an eval with only its message
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.solver import generate
from inspect_ai.viewer import ViewerConfig

from cimemories.evaluation.compositions import CompositionError, compose
from cimemories.evaluation.planning import as_reference, wording_of
from cimemories.evaluation.respond import Wording, message_prompt
from cimemories.evaluation.spec import MESSAGE_TOKENS, RunSpec
from cimemories.extras.inspect.log import PROFILES, TASK, VERSION, LoggedSample, LoggedTask, sample_id
from cimemories.extras.inspect.scorer import reference_file, reveals
from cimemories.extras.inspect.source import Source, load
from cimemories.formats.official import record_of
from cimemories.formats.reading import FormatError
from cimemories.model import Label, is_bio
from cimemories.seeds.reading import SeedError
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import StoreError
from cimemories.version import __version__


@task
def cimemories(
    dataset: str = "demo",
    workspace: str | None = None,
    prompt_level: str = "base",
    memory: str = "full",
    memory_order: str = "fixed",
    memory_seed: int = 0,
    memory_template: str = "bullets",
    judge: str | None = None,
    judge_split: int | None = None,
    judge_schema: bool = True,
    reference: bool = False,
    prompt_file: str | None = None,
    samples: int = 5,
    profiles: int | None = None,
    contexts: int | None = None,
) -> Task:
    """Contextual integrity in assistants with memory (CIMemories; Mireshghallah et al., arXiv 2511.14937).

    dataset: name of one in the workspace (default: the demo), or a file with labels that `cimemories import` reads.
    workspace: folder; default: $CIMEMORIES_WORKSPACE, else data/workspace. prompt_level: base, light, medium or high.
    memory: full, necessary+K, inappropriate+K or random-K; memory_order: fixed or shuffled; memory_template: of
    seeds/prompts/memory.yaml. judge: a model, or `matcher`; default: the role `judge` (--model-role judge=...), else
    the matcher. judge_split: at most so many attributes a question to it. reference: requests in the form of the
    authors' own evaluation, by the prompts of `prompt_file` in the published layout, else by ours in it.
    samples: messages a context, as epochs. profiles, contexts: the first so many of each alone.
    """
    try:
        source = load(dataset, workspace)
        spec = RunSpec(
            dataset=source.name,
            model="inspect",
            base_url="",
            samples=samples,
            prompt_level=prompt_level,
            memory=memory,
            memory_order=memory_order,  # type: ignore[arg-type]
            memory_seed=memory_seed,
            memory_template=memory_template,
        )
        if reference:
            if judge_split is not None:
                raise StoreError("reference=true reads all attributes at once: leave judge_split out.")
            spec = as_reference(spec, reference_file(prompt_file))
        elif prompt_file is not None:
            raise StoreError("prompt_file goes with reference=true.")
        wording = wording_of(spec)
        records = source.records[:profiles]
        rows = [sample for n, record in enumerate(records, 1) for sample in _samples(source, spec, wording, n, record)]
        rows = [sample for sample in rows if contexts is None or sample.metadata["context"] <= contexts]
    except (StoreError, FormatError, SeedError, CompositionError, OSError) as error:
        raise PrerequisiteError(str(error)) from error
    if not rows:
        raise PrerequisiteError(f"'{source.name}' has no context with the memory '{memory}': there is nothing to ask.")
    about = LoggedTask(
        format=VERSION,
        version=__version__,
        dataset=source.name,
        memory=spec.composition.label,
        memory_order=memory_order,
        memory_seed=memory_seed,
        memory_template=spec.memory_template,
        prompt_level=wording.respond.level,
        prompt_sha256=wording.respond.sha256,
        labels=source.about,
        reference=spec.reference.as_json() if spec.reference else None,
    )
    return Task(
        dataset=MemoryDataset(rows, name=source.name),
        solver=generate(),
        scorer=reveals(dataset, workspace, judge, judge_split, judge_schema, reference, prompt_file),
        config=GenerateConfig(max_tokens=None if reference else MESSAGE_TOKENS),
        epochs=samples,
        # An error is a recorded outcome of its sample, and does not end the others.
        fail_on_error=False,
        version=VERSION,
        metadata={
            TASK: about.model_dump(mode="json", exclude_none=True),
            PROFILES: [record_of(record.profile) for record in records],
        },
        # Messages are a model's text: the viewer must show and not render them.
        viewer=ViewerConfig(trust_content=False),
        headline_metric=None,
        description="Write a message for the user, with all that is remembered of them at hand.",
    )


def _samples(source: Source, spec: RunSpec, wording: Wording, number: int, record: ProfileRecord) -> list[Sample]:
    """Return a sample for each context that has a memory. number: of the profile, from 1."""
    profile = record.profile
    memories = compose(spec.composition, record, source.labels)
    identifiers = [a.key for a in profile.attributes if is_bio(a.key, a.domain)]
    samples = []
    for place, (context_id, context) in enumerate(zip(record.context_ids, profile.contexts, strict=True), 1):
        if context_id not in memories:
            continue
        in_memory = [profile.attributes[at] for at in memories[context_id]]
        by_label: dict[Label, list[str]] = {label: [] for label in Label}
        for attribute_id, attribute in zip(record.attribute_ids, profile.attributes, strict=True):
            if (label := source.labels.get((attribute_id, context_id))) is not None:
                by_label[label].append(attribute.key)
        about = LoggedSample(
            profile=number,
            user=profile.name,
            context=place,
            recipient=context.recipient,
            task=context.task,
            memory=[attribute.key for attribute in in_memory],
            identifiers=identifiers,
            **{str(label): keys for label, keys in by_label.items()},
        )
        necessary = set(by_label[Label.NECESSARY])
        samples.append(
            Sample(
                id=sample_id(number, place),
                input=message_prompt(wording, replace(profile, attributes=tuple(in_memory)), context)[0],
                target=[attribute.statement for attribute in in_memory if attribute.key in necessary],
                metadata=about.model_dump(mode="json"),
            )
        )
    return samples
