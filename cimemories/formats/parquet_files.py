"""Rows of a Parquet file that somebody else may have written, in memory that its cells allow.

A few kilobytes of Parquet can stand for gigabytes: one long text in every row is kept once and named by number. So text
is read as dictionaries, sizes are looked up in the footer before anything is unpacked, and no cell is longer than its
format needs. A footer can lie, which only a limit on the process catches (cimemories.uploads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cimemories.formats.errors import FormatError
from cimemories.formats.official_records import shown

MOST_ROWS = 50_000_000
LARGEST_COLUMN = 2 << 30  # bytes of one column of one row group, unpacked
LARGEST_FILE = 64 << 30  # bytes of all columns that are read, unpacked; they are read as a stream
BATCH_BYTES = 64 << 20  # of a batch, by the sizes in the footer

_Choose = Callable[[pa.Schema], Sequence[str]]


def columns(
    stream: BinaryIO, name: str, choose: _Choose, *, rows: int, longest: int, hint: str
) -> Iterator[dict[str, list[Any]]]:
    """The chosen columns as lists of Python values, up to `rows` rows at a time; equal texts of a batch are one object.

    choose: names of the columns to read; may raise FormatError. longest: bytes that a text may have. hint: what to do
    with a file that is not whole. Raises FormatError that begins with `name`.
    """
    try:
        file = pq.ParquetFile(stream, arrow_extensions_enabled=False)
        wanted = list(choose(file.schema_arrow))
        texts = [field for field in wanted if _is_text(file.schema_arrow.field(field).type)]
        for field in wanted:
            _refuse_type(file.schema_arrow.field(field), name)
        size = _rows_at_once(file.metadata, wanted, rows, name)
        stream.seek(0)
        file = pq.ParquetFile(stream, read_dictionary=texts, arrow_extensions_enabled=False)
        number = 0
        for batch in file.iter_batches(batch_size=size, columns=wanted, use_threads=False):
            yield {field: _values(batch.column(field), f"{name}: {field}", number, longest) for field in wanted}
            number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError, NotImplementedError) as error:
        if isinstance(error, FormatError):
            raise
        first = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise FormatError(f"{name}: not a whole Parquet file ({shown(first, 120)}); {hint}") from None


def _is_text(type_: pa.DataType) -> bool:
    held = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_string(held) or pa.types.is_large_string(held))


def _refuse_type(field: pa.Field, name: str) -> None:
    """Only flat values: a list or a binary value of any length would be unpacked in every row."""
    plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
    if not (_is_text(field.type) or any(is_plain(field.type) for is_plain in plain)):
        raise FormatError(
            f"{name}: the column {shown(field.name)} is of type {shown(field.type, 40)}; text, numbers, true and false "
            "are read"
        )


def _rows_at_once(metadata: pq.FileMetaData, wanted: Sequence[str], rows: int, name: str) -> int:
    """How many rows fit a batch, by the footer. Raises FormatError where it tells of more than is read."""
    if metadata.num_rows > MOST_ROWS:
        raise FormatError(f"{name}: {metadata.num_rows:,} rows are more than the {MOST_ROWS:,} allowed")
    total, widest = 0, 1
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        held = 0
        for column in (group.column(number) for number in range(group.num_columns)):
            if column.path_in_schema not in wanted:
                continue
            size = max(column.total_uncompressed_size, 0)
            if size > LARGEST_COLUMN:
                raise FormatError(
                    f"{name}: the column {shown(column.path_in_schema)} has {size >> 20:,} MiB when unpacked, more "
                    f"than the {LARGEST_COLUMN >> 20:,} of one row group; write it with smaller row groups"
                )
            held += size
        total += held
        widest = max(widest, held // max(group.num_rows, 1))
    if total > LARGEST_FILE:
        raise FormatError(f"{name}: {total >> 30:,} GiB when unpacked, more than the {LARGEST_FILE >> 30} allowed")
    return max(1, min(rows, BATCH_BYTES // widest))


def _values(column: Any, place: str, before: int, longest: int) -> list[Any]:
    """One column of a batch; `before`: rows of the file ahead of it."""
    if not pa.types.is_dictionary(column.type):
        listed: list[Any] = column.to_pylist()
        return listed
    # The dictionary is that of a whole row group: only what this batch names is looked at.
    named = column.indices.drop_null().unique()
    texts = column.dictionary.take(named)
    if _is_text(texts.type):
        too_long = pc.index(pc.greater(pc.binary_length(texts), longest), True).as_py()
        if too_long >= 0:
            row = before + pc.index(column.indices, named[too_long]).as_py() + 1
            raise FormatError(f"{place}: the text in row {row} is longer than {longest:,} bytes; shorten it")
    by_number = dict(zip(named.to_pylist(), texts.to_pylist(), strict=True))
    return [None if number is None else by_number[number] for number in column.indices.to_pylist()]
