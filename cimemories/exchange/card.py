"""The dataset card: what a dataset is, where it comes from and what it may be used for, as Markdown.

The words stand in templates/dataset_card.md.jinja; this module gathers the facts. Every text of a file, a model or a
person goes through `escaped`, so that no name becomes a heading, a link or an image."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from cimemories.exchange.freezing import frozen as freeze_of
from cimemories.flows.labels import default_labelling, rule_of
from cimemories.formats.importing import KIND_TITLES, ORIGINS
from cimemories.labels.survival import survival
from cimemories.labels.votes import GroupBy
from cimemories.seeds.published import load_published
from cimemories.store import archive, datasets, decisions, generations, labellings, runs, versions
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import exact_percent, listed, markdown_escaped, percent, sentence

_TEMPLATES = Path(__file__).parent / "templates"
_CHANGES_SHOWN = 30
OFFICIAL_LICENCE = (
    "The profiles were imported from a file in the layout of the authors of CIMemories. The data that they published "
    "is under CC BY-NC (attribution, no commercial use). If this file is theirs or made from it, that licence holds "
    "here too; if it is your own, say so with a licence of your own."
)
OWN_LICENCE = "Not chosen yet. The publisher of this dataset has to choose one."
_ORIGINS = {
    "offline": "Written offline from the project's templates, without a language model; people by Faker.",
    "generated": "Written event by event, each in answer to a prompt; people by Faker.",
    "demo": "The demo that ships with CIMemories Studio: written from templates, without a language model.",
}
IMPORTED = {origin: KIND_TITLES[kind] for kind, origin in ORIGINS.items()}


def dataset_card(store: Store, name: str, *, licence: str = "", labelling_id: str | None = None) -> str:
    """Return the card of a dataset. Labels are those of the labelling it is frozen with, else of `labelling_id`, else
    of the default one. `licence`: the card's text on it, in place of our own. The same record gives the same card.
    Raises StoreError for an unknown name."""
    with store.read() as connection:
        row = datasets.by_name(connection, name)
    text = _template().render(_facts(store, row, licence, labelling_id))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def licence_of(row: DatasetRow) -> str:
    """Return what is known of the licence of a dataset, by its origin."""
    return OWN_LICENCE if row.origin in _ORIGINS else OFFICIAL_LICENCE


@cache  # compiling takes a tenth of the time of a report
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        # A fact that is missing is an error, and not an empty place in the card.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown and no HTML: the filter md escapes
    )
    environment.filters["md"] = markdown_escaped
    return environment.get_template("dataset_card.md.jinja")


def _facts(store: Store, row: DatasetRow, licence: str, labelling_id: str | None) -> dict[str, Any]:
    frozen = freeze_of(store, row.id)
    with store.read() as connection:
        labelled = labellings.all_rows(connection, row.id)
        members = versions.family(connection, row.id)
        changes = versions.history(connection, row.id)
        wording = datasets.dataset_hash(connection, row.id)
        line = versions.lineage(connection, row.id)
        written = [item for item in generations.all_rows(connection) if item.dataset in line]
        domains = datasets.domains_of(connection, row.id)
        events = Counter(e for p in datasets.profile_summaries(connection, row.id) for e in p.events)
        ran = runs.all_rows(connection, row.id)
        history = decisions.history(connection, row.id)
    by_id = {item.id: item for item in labelled}
    default = default_labelling(store, row.id)
    # The frozen labelling goes first: the card of a frozen dataset describes the content of its hash.
    chosen_id = (frozen.row.labelling if frozen else None) or labelling_id or (default.id if default else None)
    chosen = by_id.get(chosen_id or "")
    if labelling_id is not None and labelling_id not in by_id:
        raise StoreError(f"the labelling '{labelling_id}' is none of '{row.name}'. `cimemories labellings` lists them.")
    names = {item.dataset: item.name for item in members}
    parts = {
        "its profiles were written": any(item.simulated for item in written),
        "its votes were given": any(item.simulated for item in labelled),
        "runs listed here were answered": any(item.simulated for item in ran),
    }
    simulated = listed([part for part, there in parts.items() if there])
    simulated = simulated or ("its profiles were written" if row.simulated else "")
    standing = decisions.standing(history)
    current, content = ("the frozen", frozen.row.counts["content"]) if frozen else ("this", wording)
    otherwise = "not the frozen" if frozen else "an earlier"
    return {
        "name": row.name,
        "simulated": sentence(f"{simulated} by a simulator, not by a model") if simulated else "",
        "counts": {key: f"{getattr(row, key):,}" for key in ("profiles", "attributes", "contexts")},
        # -1 is no dataset's id: a first version has no parent.
        "version": {"number": row.version, "parent": names.get(row.parent or -1, "")},
        "versions": [{**vars(item), "parent": names.get(item.parent or -1, "")} for item in members],
        "created": row.created[:10],
        "content": wording,
        "frozen": frozen.row if frozen else None,
        "since": frozen.since if frozen else (),
        "changes": changes,
        "shown": changes[-_CHANGES_SHOWN:],
        "left_out": max(0, len(changes) - _CHANGES_SHOWN),
        "origin": _ORIGINS.get(row.origin) or f"Imported: {markdown_escaped(IMPORTED.get(row.origin, row.origin))}.",
        "source_name": None if row.origin in ("generated", "offline") else row.source_name,  # those come from no file
        "made_from": row.source_name if row.origin == "offline" else None,
        "source_hash": row.source_hash,
        "generations": [_generation(item) for item in written],
        "domains": sorted(domains.items()),
        "events": sorted(events.items()),
        "labellings": [_labelling(store, item) for item in labelled],
        **_consensus(store, chosen),
        "decisions": {
            "undone": sum(item.source != decisions.UNDO for item in history),
            "pairs": len(standing),
            "labels": sorted(Counter(str(d.label) for d in standing.values()).items()),
            "people": sorted(Counter(d.annotator for d in decisions.standing_of_each(history)).items()),
        },
        "runs": [
            {
                **{name: getattr(item, name) for name in ("name", "model", "simulated")},
                "hash": item.dataset_hash,
                "same": f"{current if item.dataset_hash == content else otherwise} content",
            }
            for item in ran
        ],
        "bibtex": load_published().paper.bibtex,
        "licence": " ".join(licence.split()) or licence_of(row),
    }


def _generation(item: generations.GenerationRow) -> dict[str, object]:
    request, prompts = item.manifest.get("asked"), item.manifest.get("prompts")
    request = request if isinstance(request, Mapping) else {}
    fields = ("seed", "locale", "profiles", "per_domain", "events", "general", "temperature")
    facts = [(name.replace("_", " "), request[name]) for name in fields if request.get(name) is not None]
    return {
        "model": item.model,
        "simulated": item.simulated,
        "facts": facts or [("on", item.created[:10])],
        "prompts": sorted(prompts.items()) if isinstance(prompts, Mapping) else [],
    }


def _labelling(store: Store, item: LabellingRow) -> dict[str, object]:
    with store.read() as connection:
        personas = labellings.personas(connection, item.id)
    prompt = archive.shown_manifest(item.manifest).get("prompt")
    missing = sum(count for status, count in item.ballots.items() if status != labellings.OK)
    return {
        "model": item.model,
        "simulated": item.simulated,
        "personas": ", ".join(p.key for p in personas.values()),
        "draws": "from a file, shares without votes" if item.imported else item.draws,
        "ballots": f"{item.expected:,}",
        "missing": f"{missing:,}",
        "prompt": str(prompt["sha256"]) if isinstance(prompt, Mapping) and "sha256" in prompt else "",
        "status": str(item.status),
    }


def _consensus(store: Store, item: LabellingRow | None) -> dict[str, object]:
    """Return the voters with the priors that the rule gives them, and how many pairs have a consensus."""
    if item is None:
        return {"survival": None, "personas": []}
    priors, result = rule_of(store, item.id).prior_by_key, survival(store, item.id)
    with store.read() as connection:
        personas = labellings.personas(connection, item.id).values()
    # By way of JSON, which turns numpy's numbers into Python's, and nan into None.
    rows: list[dict[str, Any]] = json.loads(result.by[GroupBy.DOMAIN].to_json(orient="records"))
    return {
        "personas": [
            {"name": p.name, "prior": exact_percent(priors.get(p.key, p.prior)), "description": p.description}
            for p in personas
        ],
        "survival": {
            "model": item.model,
            "simulated": item.simulated,
            "rule": f"{result.rule.name} ({result.rule.text})",
            "threshold": result.rule.threshold,
            **{name: getattr(result, name) for name in ("pairs", "necessary", "inappropriate", "ambiguous")},
            "too_few": result.too_few_text,
            "share": percent(result.share),
            "domains": [{**row, "share": percent(row["survival"])} for row in rows],
        },
    }
