"""What has to be said beside the numbers of a run, or of several that are compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import sqlalchemy as sa

from cimemories import seeds
from cimemories.analysis import families
from cimemories.analysis.cube import IdentifierRule
from cimemories.analysis.flows import Flows, scope, shared_flows
from cimemories.analysis.judges_agreement import JudgePair, judges_agreement
from cimemories.analysis.scopes import Scope
from cimemories.seeds.prompts import FROM_SEEDS, levels, prompt_path
from cimemories.seeds.reading import SeedError
from cimemories.store import claims_of_judges, judgements, prompts, provenance, runs, servers
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import REASONING, JudgeRow

COVERAGE_WARNING = 0.99
KAPPA_WARNING = 0.6
UNRECORDED = "not recorded"


def run_warnings(store: Store, run_id: str) -> tuple[str, ...]:
    """What speaks against taking a run's numbers, by its first judge, at face value; empty where nothing does. Raises
    StoreError for a run that is not there."""
    with store.read() as connection:
        run = runs.named(connection, run_id)
        if not judgements.of_run(connection, run_id):
            return ("the run has no judge yet, so nothing is known of what its messages reveal",)
    asked = scope(store, run_id)
    covered = coverage_warning(run.judged, run.expected)
    mixed = _mixed(store, run_id)
    return tuple(text for text in (covered, mixed) if text) + scope_warnings(shared_flows(store), asked)


def _mixed(store: Store, run_id: str) -> str | None:
    """Said where servers that nobody says are the same wrote its messages."""
    with store.read() as connection:
        sources = provenance.origins(connection, [run_id])[run_id]
        written = [source for source in sources if source.kind in ("respond", "rewrite")]
        names = list(dict.fromkeys(source.server for source in written))
        same = servers.same(connection, names[0]).servers if names else ()
    if all(name in same for name in names[1:]):
        return None
    return f"its messages were written by {len(names)} servers: {'; '.join(source.words() for source in written)}"


def coverage_warning(judged: int, expected: int) -> str | None:
    """Said below COVERAGE_WARNING; None above it, and for a run that plans nothing."""
    if not expected or judged / expected >= COVERAGE_WARNING:
        return None
    return f"only {judged / expected:.1%} of the planned responses are judged; the rest is missing, not 0"


def scope_warnings(flows: Flows, asked: Scope) -> tuple[str, ...]:
    """The same of any way of counting, coverage aside: judges that are kin of the model under test, a judge's wording
    that is not today's, judges that disagree, and reasoning that was not shown."""
    found = [judge_kin(judge, asked.run.model) for judge in asked.judges]
    with flows.store.read() as connection:
        found += [_wording(connection, judge) for judge in asked.judges]
        found.append(_hidden(connection, asked))
        judges = len(judgements.of_run(connection, asked.run.id))
    # One judge alone agrees with nobody, and all its claims need not be read to know that.
    pairs = judges_agreement(flows, asked.run.id, grounded=asked.grounded).pairs if judges > 1 else ()
    ids = set(asked.judge_ids)
    found.append(_disagreement([pair for pair in pairs if ids & {pair.first.judge.id, pair.second.judge.id}]))
    return tuple(dict.fromkeys(text for text in found if text))


def judge_kin(judge: JudgeRow, model: str) -> str | None:
    """Why a judge may be partial to the model under test; None where nothing speaks for it. A simulated judge is kin of
    nobody: what it says means nothing anyway."""
    if judge.kind != "llm" or judge.simulated:
        return None
    try:
        shared = [name for name in families.families(judge.model) if name in families.families(model)]
    except SeedError as problem:
        return f"it cannot be told whether judge and answers come from one model family ({problem})"
    if judge.model.casefold() == model.casefold():
        return f"the judge is {judge.model}, the very model under test: it judges itself"
    if shared:
        return (
            f"the judge {judge.model} is of the same family as the model under test ({' and '.join(shared)}): it may "
            "be lenient with its kin"
        )
    return None


def _wording(connection: sa.Connection, judge: JudgeRow) -> str | None:
    if judge.prompt_hash is None or judge.kind != "llm":
        return None
    try:
        current = _current_wording(prompt_path("judge").stat().st_mtime_ns)
    except (SeedError, OSError) as problem:
        return f"it cannot be told whether the judge's prompt is still the one in seeds ({problem})"
    if judge.prompt_hash in current:
        return None
    kept = prompts.kept(connection, judge.prompt_hash)
    if kept is not None and kept.source != FROM_SEEDS:
        return f"the judge {judge.name} was asked with the wording of {kept.source}, not with the one in seeds"
    return (
        f"the judge {judge.name} was asked with a wording ({judge.prompt_hash[:8]}) that is not the one in seeds now "
        f"({', '.join(sorted(h[:8] for h in current))}): new runs are judged otherwise"
    )


@lru_cache(maxsize=2)
def _current_wording(_changed: int) -> frozenset[str]:
    """Hashes of the judge's prompts in seeds; asked for with the time that their file was last changed."""
    return frozenset(seeds.load_prompt("judge", level).sha256 for level in levels("judge"))


def _disagreement(pairs: Sequence[JudgePair]) -> str | None:
    """All pairs of judges that disagree much, in one sentence."""
    found = [
        f"{pair.first.title} and {pair.second.title} {round(pair.kappa.value, 2) + 0.0:.2f} on {pair.places:,} places "
        f"of {pair.messages:,} messages"
        for pair in pairs
        if pair.kappa.value is not None and pair.kappa.value < KAPPA_WARNING
    ]
    if not found:
        return None
    return (
        f"judges disagree much (Cohen's kappa, their agreement beyond chance, is under {KAPPA_WARNING}): "
        f"{'; '.join(found)}"
    )


def _hidden(connection: sa.Connection, asked: Scope) -> str | None:
    """Where reasoning was asked for, or is judged, and messages came without any."""
    wanted = asked.run.manifest.get("asked")
    thinking = wanted.get("thinking") if isinstance(wanted, Mapping) else None
    reads = any(judge.channel == REASONING for judge in asked.judges)
    if not reads and thinking not in ("on", "low", "medium", "high"):
        return None
    answered, hidden = claims_of_judges.reasoning_counts(connection, asked.run.id)
    if not hidden:
        return None
    end = "; they have no part in the numbers of the reasoning" if reads else ""
    return (
        f"{hidden:,} of {answered:,} messages came without a reasoning text: the server hides it, or the model did not "
        f"think{end}"
    )


def comparison_warnings(
    store: Store, compared: Sequence[str | Scope], rules: Sequence[IdentifierRule] = ()
) -> tuple[str, ...]:
    """In what two or more runs differ apart from their models, each in words with every value and whose it is.

    compared: ids of runs (taken by their first judge), or scopes. rules: the identifier rule of each, where they may
    differ. Empty where they can be compared as they stand. Raises StoreError for a run that is not there.
    """
    scopes = [scope(store, item) if isinstance(item, str) else item for item in compared]
    if rules and len(rules) != len(scopes):
        raise StoreError(f"{len(rules)} identifier rules for {len(scopes)} runs: give one for each, or none.")
    facts = [_facts(item) for item in scopes]
    for number, rule in enumerate(rules):
        facts[number]["the identifier rule"] = str(rule)
    names = [item.run.id for item in scopes]
    keys = dict.fromkeys(key for own in facts for key in own)
    found = []
    for key in keys:
        by_value: dict[str, list[str]] = {}
        for name, own in zip(names, facts, strict=True):
            by_value.setdefault(own.get(key, _absent(key)), []).append(name)
        if len(by_value) > 1:
            said = "; ".join(f"{value} ({', '.join(whose)})" for value, whose in by_value.items())
            found.append(f"the runs differ in {key}: {said}")
    return tuple(found)


def _absent(key: str) -> str:
    return "not sent" if key.startswith("parameter ") else UNRECORDED


def _facts(asked: Scope) -> dict[str, str]:
    """Everything about a run that its numbers depend on, apart from its model: words by name."""
    run, manifest = asked.run, asked.run.manifest
    prompt, memory = _part(manifest, "prompt"), _part(manifest, "memory")
    mitigation, sent = _part(manifest, "mitigation"), _part(manifest, "parameters")
    template = _part(memory, "template")
    labels = asked.labelling
    facts = {
        "what answers": "the simulator" if run.simulated else "a real model",
        "the dataset": f"{asked.dataset_name} {run.dataset_hash[:8]}",
        "the labels": f"{labels.id} by {labels.model}" if labels else "none",
        "the prompt": f"level {run.prompt_level}, {str(prompt.get('sha256', UNRECORDED))[:12]}",
        "the memory": f"{run.composition}, order {memory.get('order', 'fixed')}",
        "the mitigation": str(mitigation.get("kind", "none")),
        "the number of samples": str(run.samples),
        "the seed": "none" if run.seed is None else str(run.seed),
        "the judge": asked.judge_words,
        "the judge's prompt": ", ".join(sorted((j.prompt_hash or "none")[:8] for j in asked.judges)),
        "which claims count": "grounded ones" if asked.grounded else "all full ones",
        "whose verdicts count": str(asked.verdicts),
    }
    if template:
        facts["the wording of memories"] = f"{template.get('level')}, {str(template.get('sha256', ''))[:8]}"
    if run.composition != "full" or memory.get("order", "fixed") != "fixed":
        facts["the memory"] += f", seed {memory.get('seed', 0)}"
    facts.update({f"parameter {name}": json.dumps(value) for name, value in sent.items()})
    return facts


def _part(manifest: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = manifest.get(name)
    return part if isinstance(part, Mapping) else {}
