"""Writing the authors' results (see formats.results), one profile after the other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cimemories.formats.labelled_writer import Labelled, add_labels
from cimemories.formats.official import record_of
from cimemories.formats.results_records import FULL, NECESSARY_AND, RUN, Result, RunTold
from cimemories.model import JudgementStatus, Persona, Profile, ResponseStatus


@dataclass(frozen=True)
class Written:
    """A response as it is to stand in the file. not_to_share: which attributes of its memory the layout lists apart;
    prompt: what was sent, '' where that is not known."""

    result: Result
    not_to_share: frozenset[int]
    prompt: str


@dataclass(frozen=True)
class Line:
    """One profile with its responses; labels: its shares of votes, None where there are none."""

    profile: Profile
    labels: Labelled | None
    responses: Sequence[Written]


@dataclass(frozen=True)
class LabelsTold:
    """Whose labels a file holds: model, personas, and what the field "labelling" says of them."""

    model: str
    personas: Sequence[Persona]
    told: dict[str, Any]


def write_results(path: Path, lines: Iterable[Line], run: RunTold, labels: LabelsTold | None) -> None:
    """Write the file; one profile at a time is in memory."""
    with path.open("w", encoding="ascii", newline="\n") as stream:
        for line in lines:
            record = record_of(line.profile)
            if labels is not None and line.labels is not None:
                record["labelling"] = labels.told
                add_labels(record, line.labels, labels.model, labels.personas)
            record[RUN] = run.model_dump()
            for item in line.responses:
                key, entry = _entry(line.profile, item)
                record["contexts"][item.result.context][key] = entry
            stream.write(json.dumps(record, allow_nan=False) + "\n")


def _entry(profile: Profile, item: Written) -> tuple[str, dict[str, Any]]:
    result, keys = item.result, [attribute.key for attribute in profile.attributes]
    to_share = [keys[at] for at in result.memory if at not in item.not_to_share]
    not_to_share = [keys[at] for at in result.memory if at in item.not_to_share]
    judged = result.status is ResponseStatus.OK and result.judgement is JudgementStatus.OK
    sentences = dict(result.reveals)
    entry: dict[str, Any] = {
        "prompt": item.prompt,
        "to_share_attributes": to_share,
        "not_to_share_attributes": not_to_share,
        "num_to_share_attributes": len(to_share),
        "num_not_to_share_attributes": len(not_to_share),
        "total_num_attributes": len(keys),
        "trial_idx": result.trial,
        "model_solution": {
            "response_solution": result.text if result.status is ResponseStatus.OK else "",
            # What is not judged has no zeros: they would say that nothing is revealed.
            "revealed_attributes": {keys[at]: int(at in sentences) for at in result.memory} if judged else {},
            "revealed_attributes_explanation": {keys[at]: text for at, text in sentences.items()} if judged else {},
        },
    }
    own = _own(result, keys, not_to_share, [*to_share, *not_to_share])
    if own:
        entry[RUN] = own
    key = f"combination_num_to_share={len(to_share)}_num_not_to_share={len(not_to_share)}_trial={result.trial}"
    return key, entry


def _own(result: Result, keys: Sequence[str], not_to_share: Sequence[str], listed: Sequence[str]) -> dict[str, Any]:
    """What the layout has no field for; empty where it says all."""
    own: dict[str, Any] = {}
    derived = FULL if len(listed) == len(keys) and not not_to_share else f"{NECESSARY_AND}{len(not_to_share)}"
    if result.level != derived:
        own["composition"] = result.level
    memory = [keys[at] for at in result.memory]
    if memory != listed:
        own["memory"] = memory
    if result.status is not ResponseStatus.OK:
        own |= {"status": str(result.status), "cause": result.cause}
    elif result.judgement is not JudgementStatus.OK:
        own |= {"judgement": str(result.judgement), "judgement_cause": result.judgement_cause}
    return own
