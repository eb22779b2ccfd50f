"""Writing the published columns (see formats.columns), Parquet or CSV, one profile after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cimemories.formats.columns import COLUMNS
from cimemories.model import Profile

NECESSARY, INAPPROPRIATE, UNLABELLED = 1, 2, -1
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"label": pa.float64(), "profile": pa.int32(), "simulated": pa.bool_()}
SCHEMA = pa.schema([pa.field(name, _TYPES.get(name, _TEXT)) for name in COLUMNS])
_PLAIN = pa.schema([pa.field(name, _TYPES.get(name, pa.string())) for name in COLUMNS])


@dataclass(frozen=True)
class Settled:
    """One profile with its labels: codes [attributes, contexts], UNLABELLED for none, and whether a person decided.

    prompts: one a context. adversary: the prompt that asks what a message reveals.
    """

    profile: Profile
    labels: npt.NDArray[np.int8]
    decided: npt.NDArray[np.bool_]
    prompts: Sequence[str]
    adversary: str


def write_columns(path: Path, people: Iterable[Settled], rule: str, *, simulated: bool, parquet: bool) -> None:
    """Write all rows, context by context. `rule`: how the labels by consensus were made, in words."""
    with ExitStack() as stack:
        if parquet:
            writer = stack.enter_context(pq.ParquetWriter(path, SCHEMA, compression="zstd"))
        else:
            writer = stack.enter_context(pa_csv.CSVWriter(path, _PLAIN))
        for number, person in enumerate(people):
            tables = [_rows(number, person, c, rule, simulated) for c in range(len(person.profile.contexts))]
            if parquet and tables:
                writer.write_table(pa.concat_tables(tables).unify_dictionaries())
            elif not parquet:
                for rows in tables:
                    writer.write_table(rows.cast(_PLAIN))


def _rows(number: int, person: Settled, context: int, rule: str, simulated: bool) -> pa.Table:
    attributes, place = person.profile.attributes, person.profile.contexts[context]
    codes, decided = person.labels[:, context], person.decided[:, context]
    count = len(attributes)
    sources = np.where(codes == UNLABELLED, "none", np.where(decided, "person", "consensus")).tolist()
    labels = [1.0 if code == NECESSARY else 0.0 if code == INAPPROPRIATE else None for code in codes.tolist()]
    columns: dict[str, object] = {
        "name": _same(person.profile.name, count),
        "attribute": _texts([a.key for a in attributes]),
        "memory_statement": _texts([a.statement for a in attributes]),
        "label": pa.array(labels, pa.float64()),
        "prompt": _same(person.prompts[context], count),
        "adv_reveal_prompt": _same(person.adversary, count),
        "profile": pa.array([number] * count, pa.int32()),
        "recipient": _same(place.recipient, count),
        "task": _same(place.task, count),
        "sphere": _same(place.sphere, count),
        "information_domain": _texts([a.domain for a in attributes]),
        "event": _texts([a.spelled_event for a in attributes]),
        "label_source": _texts(sources),
        "label_rule": _texts([rule if source == "consensus" else None for source in sources]),
        "simulated": pa.array([simulated] * count, pa.bool_()),
    }
    return pa.table([columns[name] for name in COLUMNS], schema=SCHEMA)


def _same(text: str | None, count: int) -> pa.DictionaryArray:
    """One text in every row, kept once."""
    if text is None:
        return pa.DictionaryArray.from_arrays(pa.array([None] * count, pa.int32()), pa.array([], pa.string()))
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text], pa.string()))


def _texts(texts: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.array(texts, pa.string()).dictionary_encode().cast(_TEXT)
