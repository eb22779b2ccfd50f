"""Answers: the results of questions about runs, in a form that any interface can draw.

    @dataclass(frozen=True, kw_only=True)
    class Power(Answer):
        power: float              a number, in full precision
        plans: Table              rows, with a description of their columns
                                  and of every answer: sentence, notes, simulated

A command prints an answer or writes its fields as JSON, a page and a report draw it, and the Python API returns it.
None of them names its numbers, so that a new number appears in all of them.

    Table(frame, {"domain": Column("text", "Domain"), "violation": Column("percent", "Violation@5")})

A number `x` of a frame has a 95 % interval if `x_low` and `x_high` stand beside it, and a standard deviation if `x_sd`
does; it rests on `x_items` things, and is the share `x_share` of them; under another setting it has changed by
`x_change`. As text they share a cell, '12.4 % ± 3.1 [10.1, 14.9] of 120', '3 of 120 (2.5 %)', '12.4 % (+1.2)'; a page
shows them as columns to sort by, and files have every column of the frame.

A list of items in the record is a `Listing`: a table made of rows, which a command prints without loading pandas."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard

from cimemories.text import (
    UNDEFINED,
    Parts,
    count,
    decimal,
    html_escaped,
    markdown_escaped,
    percent,
    simulated_text,
    visible,
    without_formula,
)

if TYPE_CHECKING:
    import pandas as pd

# percent: a share, 0 to 1. points: a share in percentage points; difference: the same with its sign. decimal: three
# digits, of a kappa say. wide, small: texts that take much or little room. date: a datetime, or its ISO text. flag:
# true or false, shown as the column's name. hash: its first characters.
Kind = Literal[
    "text", "wide", "small", "number", "decimal", "count", "percent", "points", "difference", "date", "flag", "hash"
]
TEXTS: tuple[Kind, ...] = ("text", "wide", "small", "date", "flag", "hash")
BESIDE = {"sd": "sd", "low": "from", "high": "to", "change": "change"}  # columns beside a number, and their titles
TIMES = ("created", "finished", "seen", "last")  # columns of lists
LONGEST_CELL = 80  # characters of a text in HTML
METADATA = b"cimemories"  # the key of a Parquet file's provenance
RESTS_ON = ("run", "model", "dataset", "labels", "labelled_by", "judge", "identifiers")  # fields of answers
MOST_ROWS = 100  # of a table in a notebook; its frame has all


class Column(NamedTuple):
    """One column of a table: its kind, its title, and what it means if the title does not say so."""

    kind: Kind
    title: str
    about: str = ""


@dataclass(frozen=True)
class Table:
    """A table of an answer. columns: the visible ones, in order; the frame may have more. caption: a description of the
    rows. folded: it is long or a detail: commands do not print it, pages show it on request. rest: reads further rows,
    page by page, for JSON and files; None if the frame has all."""

    frame: pd.DataFrame
    columns: Mapping[str, Column]
    caption: str = ""
    folded: bool = False
    rest: Callable[[], Iterator[pd.DataFrame]] | None = None

    def pages(self) -> Iterator[pd.DataFrame]:
        """Yield the frame, then the rest."""
        yield self.frame
        yield from self.rest() if self.rest else ()

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns.values()]

    @property
    def numeric(self) -> list[bool]:
        """Return for each column whether it holds numbers, which are aligned right."""
        return [column.kind not in TEXTS for column in self.columns.values()]

    def spread_out(self) -> dict[str, Column]:
        """Return the columns, those of intervals and deviations as columns of their own."""
        shown: dict[str, Column] = {}
        for name, column in self.columns.items():
            shown[name] = column
            for end, title in BESIDE.items():
                if f"{name}_{end}" in self.frame.columns:
                    kind: Kind = "difference" if end == "change" and column.kind == "percent" else column.kind
                    shown[f"{name}_{end}"] = Column(kind, f"{column.title}, {title}")
        return shown

    @property
    def empty(self) -> bool:
        return not len(self.frame)

    def records(self) -> Sequence[dict[Any, Any]]:
        """Return the rows, with every column of the frame."""
        return self.frame.to_dict("records")

    def texts(self) -> list[list[str]]:
        """Return the rows as text, a cell a column."""
        return [[cell(column.kind, name, row) for name, column in self.columns.items()] for row in self.records()]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---:" if number else "---" for number in self.numeric]
        rows = [self.titles, rule, *([markdown_escaped(text) for text in row] for row in self.texts())]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def latex(self) -> str:
        """Return the table as a LaTeX tabular for the package booktabs."""
        import pandas as pd

        rows = [[" ".join(text.split()) for text in row] for row in self.texts()]
        alignment = "".join("r" if number else "l" for number in self.numeric)
        frame = pd.DataFrame(rows, columns=self.titles)
        return in_math(frame.to_latex(index=False, escape=True, column_format=alignment))

    def _repr_html_(self) -> str:
        rows = self.texts()
        return html_table(self.titles, rows[-MOST_ROWS:], max(len(rows) - MOST_ROWS, 0))


class Listing(Table):
    """A table made of rows, mappings of the same keys. In its frame times are datetimes in UTC, a mapping or a list is
    its JSON text, and missing values are NA."""

    rows: Sequence[dict[str, Any]]

    def __init__(self, rows: Sequence[dict[str, Any]], columns: Mapping[str, Column], caption: str = "") -> None:
        vars(self).update(rows=rows, columns=columns, caption=caption)

    @property
    def empty(self) -> bool:
        return not self.rows

    def records(self) -> Sequence[dict[str, Any]]:
        return self.rows

    @cached_property
    def frame(self) -> pd.DataFrame:
        import pandas as pd

        names = list(self.rows[0] if self.rows else self.columns)
        values = ([row[name] for name in names] for row in self.rows)
        cells = [[json.dumps(item) if isinstance(item, dict | list) else item for item in row] for row in values]
        # As objects first, so that a whole number beside a missing one stays whole.
        frame = pd.DataFrame(cells, columns=names, dtype=object).convert_dtypes()
        shares = {name for name, column in self.columns.items() if column.kind in ("percent", "points", "difference")}
        # Texts alone: the times of servers are seconds.
        times = {name for name in TIMES if name in frame and frame[name].dtype.kind not in "iuf"}
        return frame.astype(dict.fromkeys(shares, "float64") | dict.fromkeys(times, "datetime64[ms, UTC]"))


def cell(kind: Kind, name: str, row: Mapping[Any, Any]) -> str:
    """Return the text of a row's value, with its deviation and interval if the row has them. An undefined share with
    bounds is shown by these: '10.1 to 31.0 %'."""
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    if not defined(value):
        if kind == "percent" and defined(low) and defined(high):
            return f"{100 * low:.1f} to {percent(high)}"
        return "" if kind in TEXTS else UNDEFINED
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {item}" for key, item in value.items() if item not in (None, ""))
    match kind:
        case "flag":
            return name.replace("_", " ") if value else ""
        case "date":
            return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)[:16].replace("T", " ")
        case "hash":
            return str(value)[:8]
        case "text" | "wide" | "small":
            return str(value)

    def written(number: float, sign: str = "") -> str:
        if kind == "count":
            return count(number)
        if kind == "number":
            digits = ",.0f" if number == int(number) else ",.2f" if abs(number) >= 0.01 else ".1g"
            return f"{number:{digits}}"
        return decimal(number, 3) if kind == "decimal" else f"{100 * number:{sign}.1f}"

    sign = "+" if kind == "difference" else ""
    parts = [percent(value) if kind == "percent" else written(value, sign)]
    if defined(deviation := row.get(f"{name}_sd")):
        parts.append(f"± {written(deviation)}")
    if defined(low) and defined(high):
        parts.append(f"[{written(low, sign)}, {written(high, sign)}]")
    if defined(items := row.get(f"{name}_items")):
        parts.append(f"of {count(items)}")
    if defined(share := row.get(f"{name}_share")):
        parts.append(f"({percent(share)})")
    if defined(change := row.get(f"{name}_change")):
        parts.append(f"({change:+,.0f})" if kind == "count" else f"({100 * change:+.1f})")
    return " ".join(parts)


def attributes(item: object, names: str) -> dict[str, Any]:
    """Return the attributes of these names, separated by spaces, as a row: members of enumerations as text."""
    values = {name: getattr(item, name) for name in names.split()}
    return {name: str(value) if isinstance(value, StrEnum) else value for name, value in values.items()}


def defined(value: Any) -> TypeGuard[Any]:
    """Return whether a number is neither None nor nan."""
    return value is not None and value == value


def in_math(text: str) -> str:
    """Return escaped LaTeX with the characters that need math mode in it."""
    return text.replace("±", r"$\pm$").replace(UNDEFINED, "--")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a question about runs. The fields of a subclass are numbers, tables (in the order in which they are
    drawn) and answers to further questions, which are drawn below. A field with repr=False is for drawing alone.

    sentence: the takeaway, a full sentence with its full stop. notes: what to know before quoting a number. simulated:
    the parts of the numbers that come from a simulator."""

    sentence: str = ""
    notes: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the fields by name, those of the subclass first."""
        names = [field.name for field in dataclasses.fields(self) if field.repr]
        first = len(dataclasses.fields(Answer))
        return {name: getattr(self, name) for name in names[first:] + names[:first]}

    @property
    def simulated_note(self) -> str:
        """Return the note that every output of a partly simulated answer carries; '' for a real one."""
        return f"{simulated_text(self.simulated)}; says nothing about any real model" if self.simulated else ""

    def tables(self) -> dict[str, Table]:
        """Return the tables by the name of their field."""
        return {name: value for name, value in self.fields().items() if isinstance(value, Table)}

    def parts(self) -> list[Answer]:
        """Return the answers to further questions."""
        values = [value if isinstance(value, tuple) else (value,) for value in self.fields().values()]
        return [item for value in values for item in value if isinstance(item, Answer)]

    def files(self, kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield all tables as files of this kind (an ending), by the name of their field, those of further answers too.
        Columns hold the provenance of the rows, from a scope among the fields or from RESTS_ON."""
        import pandas as pd

        fields = self.fields()
        named = {name: fields[name] for name in RESTS_ON if name in fields}
        about: Mapping[str, object] = next((value.about for value in fields.values() if hasattr(value, "about")), named)
        for name, value in fields.items():
            if isinstance(value, Table):
                frame = pd.concat(value.pages(), ignore_index=True)
                yield name, FILES[kind](frame, simulated=self.simulated, about=about)
            elif isinstance(value, Answer):
                yield from ((f"{name}-{below}", content) for below, content in value.files(kind))

    def to_frame(self, table: str | None = None) -> pd.DataFrame:
        """Return a copy of the frame of the table of this name, by default the first. Raises KeyError for another
        name."""
        tables = self.tables()
        return tables[next(iter(tables)) if table is None else table].frame.copy()

    def as_json(self, without: str = "") -> dict[str, Any]:
        """Return the fields as JSON (`plain`). without: the name of a field to leave out."""
        simulated = {"simulated": bool(self.simulated), "simulated_parts": self.simulated}
        return {name: plain(value) for name, value in (self.fields() | simulated).items() if name != without}

    def __repr__(self) -> str:
        return visible(f"<{type(self).__name__}: {self.sentence}>")

    def _repr_html_(self) -> str:
        blocks = [html_table([""], [[self.sentence]], longest=None)] if self.sentence else []
        blocks += [html_table(table.titles, rows) for table in self.tables().values() if (rows := table.texts())]
        blocks += [html_table(["notes"], [[note] for note in self.notes], longest=None)] if self.notes else []
        return "".join(blocks)


@dataclass(frozen=True, kw_only=True)
class Rows(Answer):
    """An answer that is one table."""

    rows: Table


def html_table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0, longest: int | None = LONGEST_CELL
) -> str:
    """Return a table as HTML in which every text is escaped. more: rows that are left out, as a last line. longest:
    characters of a cell; None for sentences, whose end matters as much."""
    head = "".join(f"<th>{html_escaped(title)}</th>" for title in titles)
    lines = ("".join(f"<td>{html_escaped('' if cell is None else cell, longest)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    end = f"<p>{more:,} more; to_frame() has all.</p>" if more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}"


def plain(value: Any) -> Any:
    """Convert a value for JSON: nan to null, times to ISO format, tables and frames to lists of rows, dataclasses to
    objects of their fields, and objects with `as_json` to its result."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if type(value).__name__ == "NAType":  # a missing whole number of pandas
        return None
    if isinstance(value, datetime):
        return value.isoformat() if defined(value) else None  # pandas has its own nan for times
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Table):
        return plain(value.records()) + [row for page in (value.rest() if value.rest else ()) for row in plain(page)]
    if hasattr(value, "as_json"):
        return plain(value.as_json())
    # By their methods: most commands never import pandas and numpy.
    if hasattr(value, "tolist"):  # an array, a number of numpy's, or a column
        return plain(value.tolist())
    if hasattr(value, "to_dict"):  # a frame
        return plain(value.to_dict("records"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value) if isinstance(value, Path) else value


def as_csv(frame: pd.DataFrame, *, simulated: Parts, about: Mapping[str, object]) -> bytes:
    """Return a table as CSV in UTF-8, with a column `simulated` and one for each entry of `about`. Cells that a
    spreadsheet would run as a formula are quoted."""
    marked = _marked(frame, simulated, about).map(without_formula)
    # "replace": half of a surrogate pair, which UTF-8 cannot hold, does not end the export.
    return marked.to_csv(index=False).encode("utf-8", "replace")


def as_parquet(frame: pd.DataFrame, *, simulated: Parts, about: Mapping[str, object]) -> bytes:
    """Return a table as Parquet, with the columns of `as_csv`, and `about` as JSON under the metadata key METADATA."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(_marked(frame, simulated, about), preserve_index=False)
    facts = {**{k: _scalar(v) for k, v in about.items()}, "simulated": bool(simulated)}
    metadata = json.dumps(facts, ensure_ascii=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA: metadata.encode()})
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    return content.getvalue()


FILES = {"csv": as_csv, "parquet": as_parquet}


def _marked(frame: pd.DataFrame, simulated: Parts, about: Mapping[str, object]) -> pd.DataFrame:
    extra = {"simulated": bool(simulated), **{name: _scalar(value) for name, value in about.items()}}
    # A column that the frame has stays as it is.
    return frame.assign(**{name: value for name, value in extra.items() if name not in frame.columns})


def _scalar(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else "" if value is None else str(value)
