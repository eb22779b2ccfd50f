"""What the steps of a new run were filled in with, as the run that is asked for."""

from __future__ import annotations

from dataclasses import replace

from cimemories.evaluation.prices import Prices
from cimemories.evaluation.spec import MESSAGE_TOKENS, JudgeSpec, Memory, RunSpec
from cimemories.seeds import Prompt
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import StoreError
from cimemories.ui.draft import Draft
from pages.evaluate import run_judges, run_new_model
from pages.evaluate.run_new_experiment import (
    DEFAULTS,
    FULL,
    MAKERS,
    OWN,
    RANDOM,
    VALUES,
    prompt_file,
    recommended,
)

PRICES = ("prompt", "cached", "completion")


def spec_of(draft: Draft, data: list[DatasetRow]) -> RunSpec:
    """The run as filled in. Raises StoreError, SeedError or CompositionError for what is missing or cannot be."""
    model = run_new_model.chosen(draft)
    names = [row.name for row in data]
    name = draft.get("dataset")
    if name not in names:
        raise StoreError(f"the dataset '{name}' is not here any more: go back and choose another.")
    row = data[names.index(name)]
    judges = _judges(draft, model)
    profiles, contexts = (draft.get(f"{what}.{row.id}") for what in ("profiles", "contexts"))
    wording, level = _wording(draft)
    preset = run_new_model.preset_of(draft)
    sampling, temperature = _sampling(draft)
    limit = draft.get("max_tokens", MESSAGE_TOKENS)
    return RunSpec(
        dataset=str(name),
        model=model.model,
        base_url=model.base_url,
        samples=int(draft.get("samples", 5)),
        profiles=None if profiles in (None, row.profiles) else int(profiles),
        contexts=None if contexts in (None, row.contexts) else int(contexts),
        judge=judges[0],
        more_judges=tuple(judges[1:]),
        api_key_env=model.key_env,
        temperature=temperature,
        sampling=sampling,
        max_tokens=None if limit is None else int(limit),
        seed=None if draft.get("seed") is None else int(draft.get("seed")),
        prompt_level=level,
        prompts=wording,
        memory=_memory(draft),
        thinking=draft.get("thinking", "default"),
        mitigation=draft.get("mitigation", "none"),
        check=draft.get("check", "rules"),
        preset=preset.key if preset else None,
        timeout=float(draft.get("timeout", 120)),
        name=str(draft.get("name") or "").strip() or None,
        prices=prices(draft, "model"),
        cap=draft.get("cap") or None,
        fresh=bool(draft.get("fresh")),
    )


def composition_of(draft: Draft) -> str:
    """The label of the memory that was chosen."""
    kind = draft.get("memory", FULL)
    if kind == FULL:
        return FULL
    number = int(draft.get("k", 0))
    return f"{kind}-{number}" if kind == RANDOM else f"{kind}+{number}"


def prices(draft: Draft, field: str) -> Prices | None:
    """The prices of one model as entered; None where none was. A cached price that is left out is that of others."""
    given = {name: draft.get(f"price.{field}.{name}") for name in PRICES}
    if all(value is None for value in given.values()):
        return None
    prompt, completion = float(given["prompt"] or 0), float(given["completion"] or 0)
    cached = prompt if given["cached"] is None else float(given["cached"])
    words = f"{prompt}/{cached}/{completion} {str(draft.get('currency') or '').strip()}"
    return Prices.read(words)


def _judges(draft: Draft, model: run_new_model.Chosen) -> list[JudgeSpec]:
    found = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    wording = _judge_wording(draft)
    judged = []
    for judge in found:
        if judge.kind == "llm":
            own = prices(draft, f"judge.{judge.model}")
            judge = replace(judge, prompt=wording, prices=own)
        judged.append(judge)
    return judged


def _judge_wording(draft: Draft) -> Prompt | None:
    file = prompt_file(draft) if draft.get("level") == OWN and draft.get("own_judge") else None
    return file.prompt("judge", file.levels("judge")[0]) if file and file.levels("judge") else None


def _wording(draft: Draft) -> tuple[dict[str, Prompt], str]:
    """Wording that the run brings along, and the level of its prompt."""
    level = str(draft.get("level") or "base")
    if level != OWN:
        return {}, level
    file = prompt_file(draft)
    if file is None:
        raise StoreError("there is no prompt file: go back and choose one, or a level.")
    own = str(draft.get("own_level") or file.levels("respond")[0])
    found = {"respond": file.prompt("respond", own)}
    template = str(draft.get("template") or "bullets")
    if template in file.levels("memory"):
        found["memory"] = file.prompt("memory", template)
    return found, own


def _sampling(draft: Draft) -> tuple[dict[str, object], float | None]:
    how = draft.get("sampling", DEFAULTS)
    if how == MAKERS:
        advice = recommended(draft)
        return (dict(advice[0].values) if advice else {}), None
    if how != VALUES:
        return {}, None
    fields = run_judges.fields_of(draft.get("fields"))
    if draft.get("top_p") is not None:
        fields = {**fields, "top_p": float(draft.get("top_p"))}
    temperature = draft.get("temperature")
    return fields, None if temperature is None else float(temperature)


def _memory(draft: Draft) -> Memory:
    plain = draft.get("memory", FULL) == FULL and draft.get("order", "fixed") == "fixed"
    seed = 0 if plain else int(draft.get("memory_seed", 0))
    return Memory(composition_of(draft), draft.get("order", "fixed"), seed, draft.get("template", "bullets"))
