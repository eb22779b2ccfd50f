"""Results of a run as a record of Every Eval Ever, a shared format for evaluation results (github.com/evaleval/
every_eval_ever, schema 0.3.0, MIT; field by field in its eval.schema.json and CONTRIBUTING.md).

    FOLDER/data/cimemories/<developer>/<model>/<uuid>.json

One file a run, one result a number: Violation@n, completeness, balanced score, leak rate, each with its 95 % interval
and its basis. Facts without a field in the format stand in `additional_details`, whose values are texts."""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

from cimemories.compare.ranking import memory_text
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Combine, Scope
from cimemories.formats.reading import atomic_write
from cimemories.metrics.headline import Headline, headline
from cimemories.metrics.intervals import intervals, rate_intervals
from cimemories.metrics.uncertainty import LEVEL, Interval
from cimemories.seeds.published import load_published
from cimemories.store import runs
from cimemories.store.engine import StoreError, content_hash
from cimemories.store.judgements import JudgeRow
from cimemories.text import part_names, visible_in
from cimemories.version import __version__

VERSION = "0.3.0"
BENCHMARK = "cimemories"
UNKNOWN = "unknown"
NOT_NAMED = "not named"
METHOD = "Taylor linearization over users and jackknife over contexts"
# The request parameters that the format has a field for.
ARGUMENTS = {"temperature": (int, float), "top_p": (int, float), "top_k": (int, float), "max_tokens": (int,)}
AGGREGATION = {Combine.MAJORITY: "majority_vote"}


def record(
    flows: Flows,
    scope: Scope,
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    now: datetime,
    organization: str = NOT_NAMED,
) -> dict[str, Any]:
    """Return the record of a run. now: when it is written; organization: that of the evaluator. Undefined numbers are
    left out. Raises StoreError if all are undefined."""
    numbers = headline(flows, scope, rule)
    results = _results(flows, scope, rule, numbers)
    if not results:
        raise StoreError(f"{scope.run.id} has no number yet: label its dataset, and judge its messages.")
    run = scope.run
    value = {
        "schema_version": VERSION,
        "evaluation_id": f"{BENCHMARK}/{run.model}/{now.timestamp():.0f}",
        "evaluation_timestamp": run.created,
        "retrieved_timestamp": f"{now.timestamp():.0f}",
        "source_metadata": {
            "source_name": "CIMemories Studio",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "other",
            "additional_details": _texts(run=run.id, name=run.name, simulated=part_names(scope.simulated)),
        },
        "eval_library": {
            "name": "cimemories_studio",
            "version": __version__,
            "additional_details": _texts(paper=load_published().paper.reference),
        },
        "model_info": _model(run.model, str(run.manifest.versions.get("server") or ""), scope.simulated),
        "evaluation_results": results,
    }
    # Names and prompts may hold control sequences of a terminal.
    shown: dict[str, Any] = visible_in(value)
    return shown


def path_of(record: dict[str, Any], scope: Scope) -> Path:
    """Return the path of a run's record within a store of records. The same run under the same labels and judge always
    has the same name."""
    developer, _, model = str(record["model_info"]["id"]).rpartition("/")
    digest = hashlib.sha256(content_hash([scope.run.id, scope.version]).encode()).digest()
    # Version 4, as the format asks for: the bits are those of a hash instead of chance.
    name = uuid.UUID(bytes=digest[:16], version=4)
    return Path("data", BENCHMARK, _folder(developer or UNKNOWN), _folder(model), f"{name}.json")


def write_record(record: dict[str, Any], scope: Scope, folder: Path) -> Path:
    """Write a record below a folder, which may hold others; one of the same name is replaced. Return its path. Raises
    StoreError if the system refuses."""
    path = folder / path_of(record, scope)
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def _folder(text: str) -> str:
    """Turn a name into one folder name: no separator, and neither hidden nor a way up."""
    return re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip(".-")[:100] or UNKNOWN


def _texts(**values: object) -> dict[str, str]:
    """Return the details that are given, as texts."""
    return {name: str(value) for name, value in values.items() if value not in ("", None)}


def _model(name: str, server: str, simulated: tuple[str, ...]) -> dict[str, Any]:
    developer = name.rpartition("/")[0]
    engine = re.match(r"vllm[ /]?(?P<version>[\w.+]*)", server, re.IGNORECASE)
    model: dict[str, Any] = {"name": name.rpartition("/")[2] or name, "id": name}
    if developer:
        model["developer"] = developer
    if engine:
        model["inference_engine"] = {"name": "vllm", "version": engine["version"] or UNKNOWN}
    details = {"deployment_type": "self_deployed" if engine else UNKNOWN, "model_availability": UNKNOWN}
    return model | {"additional_details": details | _texts(simulated="yes" if "responses" in simulated else "")}


def _results(flows: Flows, scope: Scope, rule: IdentifierRule, numbers: Headline) -> list[dict[str, Any]]:
    """Return the record of each number; undefined ones, and those known by bounds alone, are left out."""
    bounds, run, simulated = intervals(flows, scope, rule), scope.run, part_names(scope.simulated)
    source = {
        "dataset_name": scope.dataset_name,
        "source_type": "other",
        "additional_details": _texts(
            content=run.dataset_hash,
            profiles=numbers.profiles,
            labels=scope.labelling.id if scope.labelling else "",
            labels_by=scope.labelling.model if scope.labelling else "",
            labels_rule=scope.labels_text,
            identifier_rule=rule,
        ),
    }
    generation = {
        "generation_args": {
            key: value
            for key, kinds in ARGUMENTS.items()
            if isinstance(value := run.manifest.parameters.get(key), kinds) and not isinstance(value, bool)
        },
        "additional_details": _texts(
            samples=run.samples,
            seed=run.seed,
            prompt_level=run.prompt_level,
            prompt_sha256=run.manifest.prompt.sha256,
            memory=memory_text(run),
            mitigation=run.manifest.mitigation.kind,
            thinking=run.manifest.thinking,
            parameters=json.dumps(run.manifest.parameters, sort_keys=True),
        ),
    }
    judged, results = _judged(flows, scope), list[dict[str, Any]]()

    def add(metric: str, name: str, item: Interval, counted: str, description: str, n: int | None = None) -> None:
        if math.isnan(item.value):
            return
        uncertainty: dict[str, Any] = {"num_samples": numbers.judged}
        if not math.isnan(item.error):
            uncertainty["standard_error"] = {"value": item.error, "method": METHOD}
        if not math.isnan(item.low):
            ends = {"lower": item.low, "upper": item.high, "confidence_level": LEVEL, "method": METHOD}
            uncertainty["confidence_interval"] = ends
        result = {
            "evaluation_result_id": f"{run.id}/{metric}",
            "evaluation_name": f"CIMemories{' (simulated ' + simulated + ')' if simulated else ''}",
            "evaluation_timestamp": run.created,
            "source_data": source,
            "metric_config": {
                "evaluation_description": description,
                "metric_id": f"{BENCHMARK}.{metric}",
                "metric_name": name,
                "metric_kind": re.sub(r"_at_\d+$", "", metric),
                "metric_unit": "proportion",
                "metric_parameters": {} if n is None else {"n": n},
                "lower_is_better": metric.startswith(("violation", "leak")),
                "score_type": "continuous",
                "min_score": 0.0,
                "max_score": 1.0,
                **judged,
            },
            "score_details": {
                "score": item.value,
                "details": _texts(counted_over=counted, coverage=f"{numbers.coverage:.6g}", simulated=simulated),
                "uncertainty": uncertainty,
            },
            "generation_config": generation,
        }
        results.append(result)

    attributes = f"{numbers.attributes} attributes, {numbers.flows} inappropriate flows"
    description = "Share of the attributes that are ever revealed where they are inappropriate, in n messages a context"
    for n, item in bounds.violation.items():
        if numbers.reads(n):
            add(f"violation_at_{n}", f"Violation@{n}", item, attributes, description, n)
    description = "Mean share of the necessary attributes that a message conveys"
    contexts = f"{numbers.conveying} pairs of a user and a context"
    add("completeness", "Completeness", bounds.completeness, contexts, description)
    description = "Harmonic mean of completeness and 1 - Violation@n"
    add("balanced", "Balanced score", bounds.balanced_at[numbers.n], attributes, description, numbers.n)
    description = "Share of the exposures, a message and an attribute that is inappropriate there, that reveal it"
    leak, _ = rate_intervals(flows, scope, rule)
    add("leak_rate", "Leak rate", leak, f"{numbers.leak_rate.draws} exposures", description)
    return results


def _judged(flows: Flows, scope: Scope) -> dict[str, Any]:
    """Return the models that judge, with the prompt of the first; a rule-based judge is a detail."""
    models = [judge for judge in scope.judges if judge.kind == "llm"]
    details = {"additional_details": _texts(judge=scope.judge_text, grounded_only="yes" if scope.grounded else "")}
    if not models:
        return details
    first = models[0].prompt_hash or ""
    with flows.store.read() as connection:
        kept = runs.recorded_prompts(connection, first)
    scoring: dict[str, Any] = {
        "judges": [_judge(judge) for judge in models],
        "input_prompt": kept.template if kept else f"not recorded; SHA-256 {first or UNKNOWN}",
    }
    if scope.combine in AGGREGATION:
        scoring["aggregation_method"] = AGGREGATION[scope.combine]
    return details | {"llm_scoring": scoring}


def _judge(judge: JudgeRow) -> dict[str, Any]:
    described: dict[str, Any] = {"model_info": _model(judge.model, "", ("responses",) if judge.simulated else ())}
    temperature = judge.parameters.get("temperature")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool):
        described["temperature"] = temperature
    return described | {"additional_details": _texts(prompt_sha256=judge.prompt_hash)}
