"""One row a pair of an attribute and a context, in the authors' columns and ours (formats.huggingface)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cimemories import seeds
from cimemories.evaluation.respond import memory_lines
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY, UNLABELLED, rule_of
from cimemories.formats.huggingface import COLUMNS
from cimemories.labels.matrix import matrix
from cimemories.llm.replies import numbered
from cimemories.model import Profile
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"label": pa.float64(), "profile": pa.int32(), "simulated": pa.bool_()}
_SCHEMA = pa.schema([pa.field(name, _TYPES.get(name, _TEXT)) for name in COLUMNS])
_PLAIN = pa.schema([pa.field(name, _TYPES.get(name, pa.string())) for name in COLUMNS])


def write_columns(
    path: Path,
    store: Store,
    chosen: LabellingRow,
    records: Iterable[ProfileRecord],
    *,
    parquet: bool,
    plain: bool = False,
) -> list[str]:
    """Write all rows, context by context; return what they lack. plain: Parquet whose texts, still stored once, are
    declared as plain ones, for readers without support of dictionaries (Hugging Face's `datasets`)."""
    rule = rule_of(store, chosen.id)
    text = f"{rule.name}: {rule.text}"
    with ExitStack() as stack:
        if parquet:
            writer = stack.enter_context(pq.ParquetWriter(path, _SCHEMA, compression="zstd", store_schema=not plain))
        else:
            writer = stack.enter_context(pa_csv.CSVWriter(path, _PLAIN))
        for number, record in enumerate(records):
            labels = matrix(store, chosen.id, record)
            # In the columns of this layout a pair with too few votes has no label, like one without votes.
            codes, decided = np.maximum(labels.effective, np.int8(UNLABELLED)), labels.decided.astype(bool)
            tables = _tables(number, record.profile, codes, decided, text, simulated=chosen.simulated)
            if parquet and tables:
                writer.write_table(pa.concat_tables(tables).unify_dictionaries())
            elif not parquet:
                for table in tables:
                    writer.write_table(table.cast(_PLAIN))
    notes = [f"labels by consensus follow {text}"]
    return notes if plain else [*notes, "values and biographies are not in this format"]


def _tables(
    number: int, profile: Profile, labels: np.ndarray, by_people: np.ndarray, rule: str, *, simulated: bool
) -> list[pa.Table]:
    """Return the rows of one profile, a table a context. labels: codes [attributes, contexts]."""
    attributes = profile.attributes
    respond, judge = seeds.load_prompt("respond"), seeds.load_prompt("judge")
    memories = memory_lines(seeds.load_prompt("memory", "bullets"), attributes)
    adversary = judge.render(attributes=numbered([a.statement for a in attributes]), message="{message}")
    of_profile = {
        "name": _same(profile.name, len(attributes)),
        "attribute": _texts([a.key for a in attributes]),
        "memory_statement": _texts([a.statement for a in attributes]),
        "adv_reveal_prompt": _same(adversary, len(attributes)),
        "profile": pa.array([number] * len(attributes), pa.int32()),
        "information_domain": _texts([a.domain for a in attributes]),
        "event": _texts([a.spelled_event for a in attributes]),
        "simulated": pa.array([simulated] * len(attributes), pa.bool_()),
    }
    tables = []
    for context, codes, decided in zip(profile.contexts, labels.T, by_people.T, strict=True):
        prompt = respond.render(memories=memories, recipient=context.recipient, task=context.task)
        sources = np.where(codes == UNLABELLED, "none", np.where(decided, "person", "consensus")).tolist()
        values = [1.0 if code == NECESSARY else 0.0 if code == INAPPROPRIATE else None for code in codes.tolist()]
        columns = of_profile | {
            "label": pa.array(values, pa.float64()),
            "prompt": _same(prompt, len(attributes)),
            "recipient": _same(context.recipient, len(attributes)),
            "task": _same(context.task, len(attributes)),
            "sphere": _same(context.sphere, len(attributes)),
            "label_source": _texts(sources),
            "label_rule": _texts([rule if source == "consensus" else None for source in sources]),
        }
        tables.append(pa.table([columns[name] for name in COLUMNS], schema=_SCHEMA))
    return tables


def _same(text: str | None, count: int) -> pa.DictionaryArray:
    """Return one text in every row, kept once."""
    if text is None:
        return pa.nulls(count, _TEXT)
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text], pa.string()))


def _texts(texts: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.array(texts, pa.string()).dictionary_encode().cast(_TEXT)
