"""Pairs of messages for preference training, in the conversational layout of TRL's DPOTrainer and RewardTrainer
(huggingface.co/docs/trl/dataset_formats; tried with trl 1.16):

    {"prompt": [{"role": "user", "content": "..."}],
     "chosen": [{"role": "assistant", "content": "..."}],
     "rejected": [{"role": "assistant", "content": "..."}],
     "margin": 1.5, "chosen_completeness": 1.0, "rejected_completeness": 0.5, "rejected_violations": ["rent"], ...}

Both messages answer one request, word for word. The rejected one reveals an inappropriate attribute. The chosen one
reveals none, and conveys no less of what is necessary.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cimemories.extras.training.reward import Score, score
from cimemories.flows.scope import Scope
from cimemories.labels.matrix import matrix
from cimemories.leaks.message import samples
from cimemories.model import Channel, is_bio
from cimemories.store import datasets, judgements, runs
from cimemories.store.calls import TASK
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import PartialMemories
from cimemories.text import count

_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SCHEMA = pa.schema(
    [
        *((name, _TURNS) for name in ("prompt", "chosen", "rejected")),
        *((name, pa.float64()) for name in ("margin", "chosen_completeness", "rejected_completeness")),
        ("rejected_violations", pa.list_(pa.string())),
        *((name, pa.int64()) for name in ("profile", "context", "chosen_sample", "rejected_sample")),
        ("simulated", pa.bool_()),
    ]
)
ROWS_A_GROUP = 1000  # of Parquet: a prompt has some 20,000 characters

# Why a request has no pair.
NOT_COUNTED = "in a context that lacks a necessary or an inappropriate attribute"
ONE_MESSAGE = "with fewer than two judged messages"
NO_VIOLATION = "without a message that violates"
ALL_VIOLATE = "without a message that is free of violations"
LESS_COMPLETE = "whose messages without a violation convey less than those with one"
REASONS = (NOT_COUNTED, ONE_MESSAGE, NO_VIOLATION, ALL_VIOLATE, LESS_COMPLETE)


@dataclass(frozen=True)
class JudgedMessage:
    """A judged message. sample: its number, from 1."""

    sample: int
    text: str
    score: Score


@dataclass
class PairCounts:
    """Counts of an export. without: requests without a pair, by the reason. unrecorded: messages whose prompt is not in
    the record: imported ones, and those of an assistant that asks its model itself."""

    pairs: int = 0
    requests: int = 0
    unrecorded: int = 0
    without: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> list[str]:
        """Return the reasons with their counts, as '3 requests without a message that violates'."""
        texts = [f"{count(self.without[reason], 'request')} {reason}" for reason in REASONS if self.without[reason]]
        return [*texts, f"{count(self.unrecorded, 'message')} without a recorded prompt"] if self.unrecorded else texts


def pairs(messages: Sequence[JudgedMessage]) -> list[tuple[JudgedMessage, JudgedMessage]] | str:
    """Return the pairs (chosen, rejected) among the messages of one request, or the reason why there is none.

    Each text with a violation is rejected once. Chosen is the most complete message without one, and of equals the one
    that reveals least that has no clear label, then the first. A message that reveals an unlabelled attribute is never
    chosen, since nothing says that it is free of violations."""
    if len(messages) < 2:
        return ONE_MESSAGE
    rejected = {message.text: message for message in reversed(messages) if message.score.violations}
    if not rejected:
        return NO_VIOLATION
    clean = [item for item in messages if not item.score.violations and not item.score.unlabelled]
    if not clean:
        return ALL_VIOLATE
    best = min(clean, key=lambda item: (-(item.score.completeness or 0.0), item.score.ambiguous, item.sample))
    chosen = [
        (best, item)
        for item in sorted(rejected.values(), key=lambda item: item.sample)
        if (best.score.completeness or 0.0) >= (item.score.completeness or 0.0) and item.text != best.text
    ]
    return chosen or LESS_COMPLETE


def preference_rows(store: Store, scope: Scope, counts: PairCounts) -> Iterator[dict[str, Any]]:
    """Yield the pairs of a run as rows of SCHEMA, by profile, and count them in `counts`. Raises StoreError for a judge
    that reads another channel."""
    if scope.channel != Channel.MESSAGE:
        what = f"{scope.judge_text} reads {scope.channel.in_words}"
        raise StoreError(f"{what}, and pairs are of messages. Name another by --judge.")
    with store.read() as connection:
        profiles = runs.profile_ids(connection, scope.run.id)
        held = judgements.partial_memories(connection, scope.run.id)
    if scope.run.counts_whole_profiles:
        held = {}
    for profile in profiles:
        yield from _of_profile(store, scope, profile, held, counts)


def _of_profile(
    store: Store, scope: Scope, profile: int, held: PartialMemories, counts: PairCounts
) -> Iterator[dict[str, Any]]:
    with store.read() as connection:
        record = datasets.profile_record(connection, profile)
        answered = {row["id"]: row for row in runs.run_responses(connection, scope.run.id, scope.judge.id, profile)}
        messages = [item for item in samples(connection, scope, profile) if item.text is not None]
        sent = runs.sent_messages(connection, {row["request"] for row in answered.values() if row["request"]})
    # A task for an assistant is no prompt of a model.
    prompts = {request: turns for request, turns in sent.items() if all(turn["role"] != TASK for turn in turns)}
    attributes = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))
    identifiers = {id_ for id_, item in attributes.items() if is_bio(item.key, item.domain)}
    labelled = matrix(store, scope.labelling.id if scope.labelling else None, record)
    requests: dict[tuple[int, str], list[JudgedMessage]] = {}
    for item in messages:
        request, memory = answered[item.response]["request"], answered[item.response]["memory"]
        if request not in prompts:
            counts.unrecorded += 1
            continue
        position = record.context_ids.index(item.context)
        of_request = requests.setdefault((position, request), [])
        if item.judged:
            codes = zip(record.attribute_ids, labelled.effective[:, position].tolist(), strict=True)
            # What no memory held could not be conveyed.
            labels = {id_: code for id_, code in codes if judgements.memory_holds(held, memory, id_)}
            of_request.append(JudgedMessage(item.number, item.text or "", score(item.revealed, labels, identifiers)))
    for (position, request), judged in requests.items():
        counts.requests += 1
        pairs_or_reason = pairs(judged) if labelled.retained[position] else NOT_COUNTED
        if isinstance(pairs_or_reason, str):
            counts.without[pairs_or_reason] += 1
            continue
        for chosen, rejected in pairs_or_reason:
            counts.pairs += 1
            yield {
                "prompt": prompts[request],
                "chosen": [{"role": "assistant", "content": chosen.text}],
                "rejected": [{"role": "assistant", "content": rejected.text}],
                "margin": chosen.score.reward() - rejected.score.reward(),
                "chosen_completeness": chosen.score.completeness,
                "rejected_completeness": rejected.score.completeness,
                "rejected_violations": [attributes[id_].key for id_ in rejected.score.violations],
                "profile": record.ordinal,
                "context": position,
                "chosen_sample": chosen.sample,
                "rejected_sample": rejected.sample,
                "simulated": bool(scope.simulated),
            }


def write_rows(path: Path, rows: Iterable[dict[str, Any]], ending: str) -> None:
    """Write rows as JSON lines or, for the ending .parquet, as Parquet."""
    if ending == ".parquet":
        remaining = iter(rows)
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            while batch := list(islice(remaining, ROWS_A_GROUP)):
                writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
        return
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
