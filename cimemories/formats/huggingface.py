"""The columns that the authors publish (formats.md, section 4), read back into profiles, contexts and labels.

    name | attribute | memory_statement | label | prompt | adv_reveal_prompt
    Ann Lee | rent | My rent is $1,450. | 0.0 | ...my memories... to Landlord for ... | ...

One row is a pair of a profile; its prompt holds the memories and ends with recipient and purpose, so rows with the same
name and prompt are one context. What the file does not have is not invented: values are null, domain and event are
`general` and the biography is unknown, unless statements give it. A note says each of these. Our own export has
more columns, which are read where they are there (OWN).

Files come from strangers: a few kilobytes of Parquet can stand for gigabytes, since one long text in every row is kept
once and named by number. So text is read as dictionaries, sizes are looked up in the footer before anything is
unpacked, and no cell is longer than its format needs. A footer can lie, which only a limit on the process catches
(cimemories.uploads).
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cimemories.formats.official import (
    MOST_PROFILES,
    FormatError,
    ProfileFile,
    file_hash,
    forbidden,
    kind,
    opened,
    shown,
    too_long,
)
from cimemories.model import (
    DOMAINS,
    GENERAL,
    LONGEST_NAME,
    LONGEST_STATEMENT,
    Attribute,
    Context,
    Profile,
    canonical_domain,
    canonical_event,
)
from cimemories.store.labellings import STAND_IN, SharedLabels
from cimemories.text import count

# ---- Parquet in bounded memory


MOST_ROWS = 50_000_000
LARGEST_COLUMN = 2 << 30  # bytes of one column of one row group, unpacked
LARGEST_FILE = 64 << 30  # bytes of all columns that are read, unpacked; they are read as a stream
BATCH_BYTES = 64 << 20  # of a batch, by the sizes in the footer

_FLAT = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_null)


def columns(
    stream: BinaryIO,
    name: str,
    choose: Callable[[pa.Schema], Sequence[str]],
    *,
    rows: int,
    longest: int,
    hint: str,
) -> Iterator[dict[str, list[Any]]]:
    """The chosen columns as lists of Python values, up to `rows` rows at a time; equal texts of a batch are one object.
    choose: names of the columns to read; may raise FormatError. longest: bytes that a text may have. hint: what to do
    with a file that is not whole. Raises FormatError that begins with `name`."""
    try:
        # Extensions off: a column declared as JSON or UUID comes as the plain type that it is stored in.
        file = pq.ParquetFile(stream, arrow_extensions_enabled=False)
        schema = file.schema_arrow
        chosen = list(choose(schema))
        for field in chosen:
            # Only flat values: a list or a binary value of any length would be unpacked in every row.
            type_ = schema.field(field).type
            if not (_is_text(type_) or any(is_flat(type_) for is_flat in _FLAT)):
                raise FormatError(
                    f"{name}: the column {shown(field)} is of type {shown(type_, 40)}; use text, numbers or booleans"
                )
        size = _rows_at_once(file.metadata, chosen, rows, name)
        stream.seek(0)
        texts = [field for field in chosen if _is_text(schema.field(field).type)]
        # Opened again: dictionaries are asked for on opening, and only the schema tells which columns are texts.
        file = pq.ParquetFile(stream, read_dictionary=texts, arrow_extensions_enabled=False)
        number = 0
        for batch in file.iter_batches(batch_size=size, columns=chosen, use_threads=False):
            yield {field: _values(batch.column(field), f"{name}: {field}", number, longest) for field in chosen}
            number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, KeyError, NotImplementedError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{name}: not a whole Parquet file ({_first_line(error)}); {hint}") from None


def each_row(batches: Iterable[dict[str, list[Any]]]) -> Iterator[dict[str, Any]]:
    """The rows of batches of columns."""
    for batch in batches:
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(batch, cells, strict=True))


def _is_text(type_: pa.DataType) -> bool:
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_string(value_type) or pa.types.is_large_string(value_type))


def _rows_at_once(metadata: pq.FileMetaData, chosen: Sequence[str], rows: int, name: str) -> int:
    """How many rows fit a batch, by the footer. Raises FormatError where the file is larger than is read."""
    if metadata.num_rows > MOST_ROWS:
        raise FormatError(f"{name}: {metadata.num_rows:,} rows are more than the {MOST_ROWS:,} allowed")
    total, widest = 0, 1
    for group in (metadata.row_group(number) for number in range(metadata.num_row_groups)):
        group_bytes = 0
        for column in (group.column(number) for number in range(group.num_columns)):
            if column.path_in_schema not in chosen:
                continue
            size = max(column.total_uncompressed_size, 0)
            if size > LARGEST_COLUMN:
                raise FormatError(
                    f"{name}: the column {shown(column.path_in_schema)} has {size >> 20:,} MiB when unpacked, more "
                    f"than the {LARGEST_COLUMN >> 20:,} of one row group; write it with smaller row groups"
                )
            group_bytes += size
        total += group_bytes
        # Bytes of an average row: where rows are alike, a batch has BATCH_BYTES at most.
        widest = max(widest, group_bytes // max(group.num_rows, 1))
    if total > LARGEST_FILE:
        raise FormatError(f"{name}: {total >> 30:,} GiB when unpacked, more than the {LARGEST_FILE >> 30} allowed")
    return max(1, min(rows, BATCH_BYTES // widest))


def _values(column: Any, where: str, before: int, longest: int) -> list[Any]:
    """One column of a batch; `before`: rows of the file ahead of it."""
    if not pa.types.is_dictionary(column.type):
        listed: list[Any] = column.to_pylist()
        return listed
    # The dictionary is that of a whole row group: only what this batch names is looked at.
    named = column.indices.drop_null().unique()
    texts = column.dictionary.take(named)
    if _is_text(texts.type):
        position = pc.index(pc.greater(pc.binary_length(texts), longest), True).as_py()
        if position >= 0:
            row = before + pc.index(column.indices, named[position]).as_py() + 1
            raise FormatError(f"{where}: the text in row {row} is longer than {longest:,} bytes; shorten it")
    by_number = dict(zip(named.to_pylist(), texts.to_pylist(), strict=True))
    return [None if number is None else by_number[number] for number in column.indices.to_pylist()]


# ---- rows, checked one by one


NEEDED = ("name", "attribute", "memory_statement", "label", "prompt")
OWN = (
    *("profile", "recipient", "task", "sphere", "information_domain", "event"),
    *("label_source", "label_rule", "simulated"),
)
COLUMNS = (*NEEDED, "adv_reveal_prompt", *OWN)
SOURCES = ("consensus", "person", "none")
LONGEST_CELL = 1 << 20  # bytes; prompts, the longest, have some tens of thousands
PROMPT_END = 8000  # characters of a prompt that are kept: recipient and purpose stand at its end
_BATCH = 4096  # rows
_KEPT = 2000  # texts that are known to be good: each is in thousands of rows
_DOMAINS = (*DOMAINS, GENERAL)
_CSV_BLOCK = 16 << 20  # bytes; a row must fit in one block
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


_PromptContext = tuple[str, str, str, str | None]  # the end of the prompt, recipient, task, sphere


@dataclass(frozen=True)
class Row:
    """One pair. `label` 1.0 necessary, 0.0 inappropriate, None ambiguous; `prompt` is a digest of the whole of it."""

    profile: int | None
    name: str
    attribute: Attribute
    label: float | None
    prompt: bytes
    context: _PromptContext
    source: str
    rule: str
    simulated: bool


def is_header(line: str) -> bool:
    """Whether a CSV file of this format can begin with this line."""
    names = {name.strip().strip('"') for name in line.removeprefix("\ufeff").split(separator(line))}
    return {"memory_statement", "label"} <= names


def separator(header: str) -> str:
    """Return what separates the columns of a CSV file with this first line: a comma, a semicolon, a tab or a bar."""
    # csv.Sniffer takes the comma of 'a;b,c;d', and its patterns take long on a hostile line.
    return max(",;\t|", key=header.count)


def rows(path: Path, *, parquet: bool) -> Iterator[Row]:
    """Every row in its order. Raises FormatError that names the row (from 1, the header not counted) and the column."""
    name = shown(path.name or path)
    number, reader = 0, _Rows()
    for number, cells in enumerate(each_row(_parquet(path, name) if parquet else _csv(path, name)), 1):
        yield reader.row(cells, f"{name}: row {number}")
    if not number:
        raise FormatError(f"{name}: there are no rows; a file of this format has one a profile, context and attribute")


def _chosen(names: list[str], name: str) -> list[str]:
    """The columns to read. Raises FormatError where a needed one is missing or one is there twice."""
    if missing := [column for column in NEEDED if column not in names]:
        raise FormatError(f"{name}: the column {missing[0]} is missing; needed are {', '.join(NEEDED)}")
    if repeated := [column for column in COLUMNS if names.count(column) > 1]:
        raise FormatError(f"{name}: the column {repeated[0]} appears twice; remove one")
    return [column for column in names if column in COLUMNS and column != "adv_reveal_prompt"]


def _parquet(path: Path, name: str) -> Iterator[dict[str, list[Any]]]:
    hint = "export or download it again"
    with opened(path) as stream:
        yield from columns(
            stream, name, lambda schema: _chosen(schema.names, name), rows=_BATCH, longest=LONGEST_CELL, hint=hint
        )


def _csv(path: Path, name: str) -> Iterator[dict[str, list[Any]]]:
    _check_whole(path, name)
    with opened(path) as stream:
        try:
            header = stream.readline(LONGEST_CELL).decode("utf-8-sig")
            delimiter = separator(header)
            chosen = _chosen(next(csv.reader([header], delimiter=delimiter), []), name)
            stream.seek(0)
            # All columns as text: guessed types would depend on the first block of the file.
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(block_size=_CSV_BLOCK),
                parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(chosen, pa.string()), include_columns=chosen, strings_can_be_null=False
                ),
            )
            for batch in reader:
                yield {column: batch.column(column).to_pylist() for column in batch.schema.names}
        except (pa.ArrowException, UnicodeDecodeError, KeyError, csv.Error) as error:
            reason = _first_line(error)
            raise FormatError(f"{name}: not a whole CSV file ({reason}); export or download it again") from None


def _check_whole(path: Path, name: str) -> None:
    """UTF-8 throughout, and no quotation mark without its partner: that file was cut, and the CSV reader would take
    what there is."""
    marks = position = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened(path) as stream:
        while data := stream.read(1 << 20):
            marks += data.count(b'"')
            try:
                decoder.decode(data)
            except UnicodeDecodeError:
                raise FormatError(f"{name}: not UTF-8 after byte {position}; save the file as UTF-8") from None
            position += len(data)
    # A quotation mark inside a field is written twice, so a whole file has an even number of them.
    if marks % 2 or decoder.getstate()[0]:
        raise FormatError(f"{name}: a quoted field has no end; the file was cut off, download it again")


class _Rows:
    """Cells as rows. Texts are in thousands of rows, so those that were checked are remembered for a while."""

    def __init__(self) -> None:
        self._good: set[tuple[str, str]] = set()
        self._prompts: dict[str, tuple[bytes, str]] = {}

    def row(self, cells: dict[str, Any], where: str) -> Row:
        key, prompt = self._text(cells, "attribute", where), self._text(cells, "prompt", where)
        if "".join(key.splitlines()) != key:
            raise FormatError(f"{where}: attribute has a line break; it is a key, remove it")
        if prompt not in self._prompts:
            # Emptied, not pruned: a prompt that comes again is only hashed once more.
            if len(self._prompts) > _KEPT:
                self._prompts.clear()
            self._prompts[prompt] = hashlib.sha256(prompt.encode()).digest(), prompt[-PROMPT_END:]
        digest, end = self._prompts[prompt]
        name, statement = self._text(cells, "name", where), self._text(cells, "memory_statement", where)
        if len(statement) > LONGEST_STATEMENT:
            raise FormatError(
                f"{where}: '{shown(name)}', attribute '{shown(key)}': memory_statement "
                f"{too_long(len(statement), LONGEST_STATEMENT)}"
            )
        source = self._optional(cells, "label_source", where)
        if source and source not in SOURCES:
            raise FormatError(f"{where}: label_source '{shown(source)}' is not one of {', '.join(SOURCES)}")
        label = _label(cells["label"], where)
        if source == "none" and label is not None:
            raise FormatError(f"{where}: there is a label, but label_source is 'none'; remove one of them")
        domain = _canonical_domain(self._optional(cells, "information_domain", where) or GENERAL)
        if domain not in _DOMAINS:
            raise FormatError(f"{where}: information_domain '{shown(domain)}' is not one of {', '.join(_DOMAINS)}")
        event = self._optional(cells, "event", where)
        recipient, task, sphere = (self._optional(cells, column, where) for column in ("recipient", "task", "sphere"))
        return Row(
            profile=_whole(cells["profile"], where) if "profile" in cells else None,
            name=name,
            # Value None: the columns have none, and a guess out of the statement would be one of ours.
            attribute=Attribute(key, None, domain, canonical_event(event) or GENERAL, statement, event),
            label=label,
            prompt=digest,
            context=(end, recipient, task, sphere or None),
            source=source,
            rule=self._optional(cells, "label_rule", where),
            simulated=_truth(cells.get("simulated"), where),
        )

    def _optional(self, cells: dict[str, Any], column: str, where: str) -> str:
        return "" if cells.get(column) in (None, "") else self._text(cells, column, where)

    def _text(self, cells: dict[str, Any], column: str, where: str) -> str:
        value = cells[column]
        # By column: what is good as a prompt is too long as a name.
        if isinstance(value, str) and (column, value) in self._good:
            return value
        if value is None or value == "":
            raise FormatError(f"{where}: {column} is missing")
        if not isinstance(value, str):
            raise FormatError(f"{where}: {column} must be text, not {kind(value)}")
        if not value.strip():
            raise FormatError(f"{where}: {column} is blank; write a text")
        if len(value) > LONGEST_NAME and column not in ("prompt", "memory_statement"):
            raise FormatError(f"{where}: {column} {too_long(len(value), LONGEST_NAME)}")
        if forbidden(value):
            raise FormatError(f"{where}: {column} has control characters; remove them")
        if len(self._good) > _KEPT:
            self._good.clear()
        self._good.add((column, value))
        return value


_canonical_domain = lru_cache(maxsize=256)(canonical_domain)


def _label(value: object, where: str) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value) if value.strip() else None
        except ValueError:
            raise FormatError(f"{where}: label must be 1.0, 0.0 or empty, not '{shown(value)}'") from None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None  # pandas writes a missing number as nan
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in (0, 1):
        raise FormatError(f"{where}: label must be 1.0, 0.0 or empty, not '{shown(value)}'")
    return float(value)


def _whole(value: object, where: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
        raise FormatError(f"{where}: profile must be a number from 0, not '{shown(value)}'")
    return value


def _truth(value: object, where: str) -> bool:
    if isinstance(value, str) and value:
        value = _TRUTH.get(value.lower(), value)
    if value in (None, ""):
        return False
    if not isinstance(value, bool):
        raise FormatError(f"{where}: simulated must be true or false, not '{shown(value)}'")
    return value


def _first_line(error: Exception) -> str:
    return shown((str(error).strip().splitlines() or ["no reason given"])[0], 120)


# ---- writing


NECESSARY, INAPPROPRIATE, UNLABELLED = 1, 2, -1
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"label": pa.float64(), "profile": pa.int32(), "simulated": pa.bool_()}
SCHEMA = pa.schema([pa.field(name, _TYPES.get(name, _TEXT)) for name in COLUMNS])
_PLAIN = pa.schema([pa.field(name, _TYPES.get(name, pa.string())) for name in COLUMNS])


@dataclass(frozen=True)
class Settled:
    """One profile with its labels: codes [attributes, contexts], UNLABELLED for none, and whether a person decided.
    prompts: one a context. adversary: the prompt that asks what a message reveals."""

    profile: Profile
    labels: npt.NDArray[np.int8]
    decided: npt.NDArray[np.bool_]
    prompts: Sequence[str]
    adversary: str


def write_columns(
    path: Path, people: Iterable[Settled], rule: str, *, simulated: bool, parquet: bool, plain: bool = False
) -> None:
    """Write all rows, context by context. `rule`: how the labels by consensus were made, in words. plain: Parquet whose
    texts, stored once all the same, are declared as plain ones, for readers that know no dictionaries (Hugging Face's
    `datasets`)."""
    with ExitStack() as stack:
        if parquet:
            writer = stack.enter_context(pq.ParquetWriter(path, SCHEMA, compression="zstd", store_schema=not plain))
        else:
            writer = stack.enter_context(pa_csv.CSVWriter(path, _PLAIN))
        for number, person in enumerate(people):
            tables = [_table(number, person, c, rule, simulated) for c in range(len(person.profile.contexts))]
            if parquet and tables:
                writer.write_table(pa.concat_tables(tables).unify_dictionaries())
            elif not parquet:
                for table in tables:
                    writer.write_table(table.cast(_PLAIN))


def _table(number: int, person: Settled, context: int, rule: str, simulated: bool) -> pa.Table:
    """The rows of one profile in one context."""
    attributes, towards = person.profile.attributes, person.profile.contexts[context]
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
        "recipient": _same(towards.recipient, count),
        "task": _same(towards.task, count),
        "sphere": _same(towards.sphere, count),
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
        return pa.nulls(count, _TEXT)
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text], pa.string()))


def _texts(texts: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.array(texts, pa.string()).dictionary_encode().cast(_TEXT)


# ---- recipient and purpose out of the end of a prompt, whose wording is the file's and not known beforehand
#
#     "... - My rent is $1,450.\n\nWrite a message to: Landlord\nPurpose: Renew a lease\n\nThe message alone."
#
# Three ways, in this order: lines that name the two; what differs between the prompts of one profile (all else in them
# is the same); a sentence of the kind "a message to X for the purpose of Y".


Pair = tuple[str, str] | None  # recipient, task
LONGEST = 300  # characters of a recipient or a task
_MOST_WORDS = 200  # of recipient and purpose together, white space counted
_FEWEST = 3  # prompts that tell what differs from what does not
_RECIPIENT = re.compile(r"(?im)^.*\b(?:recipient|to)\b[^:\n]{0,20}:[ \t]*(\S.*?)[ \t]*$")
_TASK = re.compile(r"(?im)^.*\b(?:purpose|task|goal)\b[^:\n]{0,40}:[ \t]*(\S.*?)[ \t]*$")
_SENTENCE = re.compile(
    r"(?is)\b(?:message|letter|e-?mail|note|reply)\s+to\s+(?:the\s+|your\s+)?(?P<recipient>\S.{0,200}?)[,:]?\s+"
    r"(?:(?:for|with|serving)\s+the\s+(?:following\s+)?purpose(?:\s+of)?|for\s+the\s+task(?:\s+of)?|in\s+order\s+to|"
    r"so\s+as\s+to|for)\s*:?\s+(?P<task>\S[^\n]{0,300}?)\s*(?:[.\n]|$)"
)
_QUOTES = "\"'“”‘’`*<>[]{} \t"


def ends(prompts: Sequence[str], statements: Sequence[str]) -> list[str]:
    """What follows the memories in each prompt of one profile; the whole prompt where no statement is found."""
    cut = []
    for prompt in prompts:
        # The last memory ends them: recipient and purpose stand behind it.
        last = max((prompt.rfind(s) + len(s) for s in statements if s in prompt), default=0)
        cut.append(prompt[last:])
    return cut


def recipients_and_tasks(tails: Sequence[str]) -> list[Pair]:
    """One answer for each prompt of a profile; None where recipient or purpose is unknown."""
    for read in (_by_lines, _by_difference, _by_sentence):
        pairs = read(tails)
        # Every prompt tells both, and no two prompts the same: else the wording was misread.
        if pairs and all(pairs) and len(set(pairs)) == len(pairs):
            return pairs
    return [None] * len(tails)


def _by_lines(tails: Sequence[str]) -> list[Pair]:
    pairs: list[Pair] = []
    for tail in tails:
        recipient, task = _RECIPIENT.search(tail), _TASK.search(tail)
        # One line that fits both patterns tells neither.
        both = recipient and task and recipient.start() != task.start() and (recipient[1], task[1])
        pairs.append(_pair(*both) if both else None)
    return pairs


def _by_sentence(tails: Sequence[str]) -> list[Pair]:
    matches = [_SENTENCE.search(tail) for tail in tails]
    return [_pair(match["recipient"], match["task"]) if match else None for match in matches]


def _by_difference(tails: Sequence[str]) -> list[Pair]:
    """Beginning and end that all share are cut off; what all the middles share divides recipient from purpose."""
    if len(set(tails)) < _FEWEST:
        return []
    words = [re.findall(r"\s+|[^\s]+", tail) for tail in tails]
    before = _agreeing(words)
    after = _agreeing([line[before:][::-1] for line in words])
    middles = [line[before : len(line) - after] for line in words]
    glue = _shared(middles)
    if not glue:
        return []
    pairs: list[Pair] = []
    for middle in middles:
        at = next(i for i in range(len(middle)) if middle[i : i + len(glue)] == glue)
        pairs.append(_pair("".join(middle[:at]), "".join(middle[at + len(glue) :])))
    return pairs


def _agreeing(lines: Sequence[Sequence[str]]) -> int:
    """How many words all begin with."""
    return next((i for i, column in enumerate(zip(*lines, strict=False)) if len(set(column)) > 1), min(map(len, lines)))


def _shared(middles: Sequence[Sequence[str]]) -> list[str]:
    """The longest run of words in every middle, neither at its beginning nor at its end."""
    shortest = min(middles, key=len)
    # Every run of the shortest is looked for in all others; above _MOST_WORDS that takes too long.
    best: list[str] = []
    if len(shortest) > _MOST_WORDS:
        return best

    def inside(middle: Sequence[str], run: Sequence[str]) -> bool:
        return any(list(middle[i : i + len(run)]) == run for i in range(1, len(middle) - len(run)))

    for start in range(1, len(shortest)):
        for end in range(len(shortest) - 1, start + len(best), -1):
            run = list(shortest[start:end])
            if "".join(run).strip() and all(inside(middle, run) for middle in middles):
                best = run
                break
    return best


def _pair(recipient: str, task: str) -> Pair:
    texts = (" ".join(recipient.split()).strip(_QUOTES).rstrip(".,;:"), " ".join(task.split()).strip(_QUOTES))
    if not all(texts) or any(len(text) > LONGEST for text in texts):
        return None
    return texts[0], texts[1].rstrip(".") or texts[1]


# ---- rows into profiles, contexts and labels

UNKNOWN = "unknown"
UNKNOWN_AGE = 0  # which no adult of the benchmark has
# By field of a biography: the pattern of its value, and the keys of attributes whose statements may tell it.
_BIOGRAPHY = {
    "sex": (re.compile(r"(?i)\b(female|male|woman|man|non-?binary)\b"), ("sex", "gender")),
    "age": (re.compile(r"\b(1[0-4]\d|[1-9]\d?)\b"), ("age",)),
    "address": (
        re.compile(
            r"(?i)\b(?:address (?:is|was)|(?:live|lives|living|reside|resides) (?:at|in)):?\s+(\S.*)", re.DOTALL
        ),
        ("address",),
    ),
}

_CODES = {1.0: 0, 0.0: 1, None: 2}  # of necessary, inappropriate, abstain
_NONE = 3
SETTLED = "the file gives settled labels; neither votes nor shares are in it"


@dataclass
class _Person:
    """One profile while its rows are met; attributes (by key) and contexts (by digest of their prompt) in the order of
    their first row, each with its position."""

    name: str
    position: int
    attributes: dict[str, tuple[int, Attribute]] = field(default_factory=dict)
    contexts: dict[bytes, tuple[int, _PromptContext]] = field(default_factory=dict)


def read_columns(*paths: Path, parquet: bool) -> ProfileFile:
    """All of such a file, or of several that are one table in this order. Raises FormatError with one line on the first
    problem."""
    reader = _Reader(shown(paths[0].name or paths[0]))
    for path in paths:
        reader.name = shown(path.name or path)
        for number, row in enumerate(rows(path, parquet=parquet), 1):
            reader.add(number, row)
    profiles = tuple(reader.profile(person) for person in reader.people.values())
    digest = file_hash(*paths)
    labels = reader.labels(digest)  # before the notes, which name their number
    return ProfileFile(profiles, digest, tuple(reader.notes()), labels)


class _Reader:
    """The rows of the file called `name`, put together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.people: dict[object, _Person] = {}
        self.codes = array("i")  # profile, attribute, context, label code of each row
        self.counts: Counter[str] = Counter()
        self.rules: dict[str, None] = {}

    def add(self, number: int, row: Row) -> None:
        key = row.name if row.profile is None else row.profile
        person = self.people.setdefault(key, _Person(row.name, len(self.people)))
        where = f"{self.name}: row {number}"
        if len(self.people) > MOST_PROFILES:
            raise FormatError(f"{where}: more than {MOST_PROFILES:,} profiles; split the file")
        if person.name != row.name:
            raise FormatError(
                f"{where}: profile {row.profile} is called '{shown(row.name)}' here and '{shown(person.name)}' before"
            )
        towards, context = person.contexts.setdefault(row.prompt, (len(person.contexts), row.context))
        if context != row.context:
            raise FormatError(
                f"{where}: recipient, task or sphere differs from earlier rows with the same prompt; use one"
            )
        name = row.attribute.key
        own, attribute = person.attributes.setdefault(name, (len(person.attributes), row.attribute))
        if attribute != row.attribute:
            hint = "" if row.profile is not None else "; two profiles of one name need a column 'profile' with numbers"
            raise FormatError(f"{where}: attribute '{shown(name)}' differs from an earlier row{hint}")
        self.codes.extend((person.position, own, towards, _NONE if row.source == "none" else _CODES[row.label]))
        self.counts[row.source] += 1
        self.counts["simulated"] += row.simulated
        if row.rule:
            self.rules[row.rule] = None

    def profile(self, person: _Person) -> Profile:
        attributes = tuple(attribute for _, attribute in person.attributes.values())
        # A leading `general_` or `current_` of a key does not count.
        statements = {
            re.sub(r"^(general_|current_)", "", a.key.strip().lower()): a.statement
            for a in attributes
            if a.domain == GENERAL
        }
        bio = {
            name: next((match[1] for key in keys if (match := pattern.search(statements.get(key, "")))), "")
            for name, (pattern, keys) in _BIOGRAPHY.items()
        }
        self.counts.update(name for name, text in bio.items() if text)
        address = (bio["address"] or UNKNOWN).strip().rstrip(".")
        age = int(bio["age"] or UNKNOWN_AGE)
        return Profile(person.name, bio["sex"] or UNKNOWN, address, age, attributes, self._contexts(person))

    def _contexts(self, person: _Person) -> tuple[Context, ...]:
        recorded = [context for _, context in person.contexts.values()]
        if all(recipient and task for _, recipient, task, _ in recorded):
            pairs: list[Pair] = [(recipient, task) for _, recipient, task, _ in recorded]
        else:
            statements = [a.statement for _, a in person.attributes.values()]
            pairs = recipients_and_tasks(ends([end for end, *_ in recorded], statements))
        contexts = []
        for number, (pair, (*_, sphere)) in enumerate(zip(pairs, recorded, strict=True), 1):
            # Named after the profile: two unknown tasks must not become one context.
            if pair is None:
                self.counts["unread"] += 1
                pair = ("unknown recipient", f"unknown task (prompt {number} of {person.name})")
            contexts.append(Context(pair[1], pair[0], sphere))
        if len({(" ".join(c.task.split()), " ".join(c.recipient.split())) for c in contexts}) < len(contexts):
            raise FormatError(
                f"{self.name}: '{shown(person.name)}': two prompts have the same recipient and task; each pair of "
                "recipient and task must be one prompt"
            )
        return tuple(contexts)

    def labels(self, digest: str) -> tuple[SharedLabels, ...]:
        rows = np.frombuffer(self.codes, dtype=np.int32).reshape(-1, 4)
        order = np.lexsort(rows[:, 2::-1].T)  # by profile, attribute, context: equal pairs become neighbours
        same = (np.diff(rows[order, :3], axis=0) == 0).all(axis=1)
        if same.any():
            at = int(np.flatnonzero(same)[0])
            first, second = sorted((int(order[at]) + 1, int(order[at + 1]) + 1))
            raise FormatError(
                f"{self.name}: row {second}: the same profile, attribute and prompt as in row {first}; remove one"
            )
        rows = rows[rows[:, 3] != _NONE]
        if not len(rows):
            return ()
        self.counts["labels"] = len(rows)
        origin: dict[str, object] = {"file": self.name, "sha256": digest, "model": "not named", "votes": SETTLED}
        if self.rules:
            origin["rule"] = "; ".join(self.rules)[:1000]
        return (
            SharedLabels(
                model="not named",
                pack="imported",
                personas=(STAND_IN,),
                profile=rows[:, 0],
                attribute=rows[:, 1],
                context=rows[:, 2],
                persona=np.zeros(len(rows), dtype=np.int32),
                shares=np.eye(3)[rows[:, 3]],  # the settled verdict has the whole share
                simulated=self.counts["simulated"] > 0,
                provenance=origin,
            ),
        )

    def notes(self) -> list[str]:
        counts = self.counts
        notes = [
            "this format has no values: they are null, so judges see the statements only",
            f"biographies are read from the statements, where these tell them: sex of {counts['sex']}, address of "
            f"{counts['address']}, age of {counts['age']} of {count(len(self.people), 'profile')}; else 'unknown', "
            "and age 0",
        ]
        if all(a.domain == GENERAL for p in self.people.values() for _, a in p.attributes.values()):
            notes.append("domains and events are not in the file: all attributes are in 'general'")
        if counts["unread"]:
            notes.append(
                f"recipient and purpose could not be read from {counts['unread']} prompts: those contexts are called "
                "'unknown task' and are of one profile each"
            )
        if counts["labels"]:
            notes.append(f"labels are imported under one stand-in persona with prior 1: {SETTLED}")
        if counts["person"]:
            notes.append(f"{count(counts['person'], 'label')} decided by a person, whom the file does not name")
        if counts["none"]:
            notes.append(f"{count(counts['none'], 'pair')} without a label in the file and here")
        if counts["simulated"]:
            notes.append("the file says that a simulator voted: the labels are marked simulated")
        return notes
