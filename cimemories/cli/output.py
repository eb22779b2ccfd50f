"""What commands print: results on standard output, notes on standard error. A terminal obeys control characters, so all
text passes through `visible` or is escaped as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import indent

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from cimemories import files
from cimemories.answer import Answer, Table, plain
from cimemories.answer import attributes as attributes
from cimemories.text import CONTROL, UNDEFINED, Parts, simulated_text, visible

WIDEST = 500  # characters of a table that is shown whole
LONGEST, LEAST = 250, 140  # of a line that is not broken inside its cells, and of one that is

# soft_wrap: a long line is the terminal's to break, so that a copied command or address stays whole.
err = Console(stderr=True, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """Print one line on standard output, as it is but for control characters."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print one line on standard error."""
    err.print(escape(visible(text)))


def notes(texts: Iterable[str | None], kind: str = "note") -> None:
    """A line on standard error for each text that is not empty."""
    for text in filter(None, texts):
        note(f"{kind}: {text}")


def as_json_text(value: object) -> str:
    """Return JSON (`answer.plain`) with control characters escaped: a program reads what was meant."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False)
    # json escapes C0 controls itself; left to do are C1 and the marks of writing direction, which it writes as they
    # are.
    return re.sub(CONTROL, lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def as_json(value: object) -> None:
    """Print JSON."""
    line(as_json_text(value))


def as_json_with(head: Mapping[str, object], name: str, items: Iterable[object]) -> None:
    """Print the JSON of an object with a list at its end, item by item: the list need not fit into memory."""
    begin, last = as_json_text({**head, name: []}).removesuffix("[]\n}"), None
    for item in items:
        line(f"{begin}[" if last is None else f"{last},")
        last = indent(as_json_text(item), "    ")
    line(f"{begin}[]\n}}" if last is None else f"{last}\n  ]\n}}")


def answer(result: Answer, as_json_too: bool = False, out: Path | None = None, workspace: Path = Path()) -> None:
    """Print an answer: its sentence, tables, parts and notes; or all of it as JSON. out: a file to write its tables to
    (options.Out), further ones beside it; then notes alone are printed."""
    if out is not None:
        _write(result, out, workspace)
    if as_json_too:
        long = next((name for name, shown in result.tables().items() if shown.rest), None)
        if long is None:
            as_json(result)
        else:
            rows = (row for page in result.tables()[long].pages() for row in plain(page))
            as_json_with(result.as_json(without=long), long, rows)
        return
    if out is None:
        _print(result)
    answer_notes(result)


def answer_notes(result: Answer) -> None:
    """Print what a reader has to know before quoting an answer."""
    every = dict.fromkeys([*result.notes, *(note for part in result.parts() for note in part.notes)])
    notes(every)
    if not any(text.startswith(simulated_text(result.simulated)) for text in every):
        notes([result.simulated_note])


def _write(result: Answer, out: Path, workspace: Path) -> None:
    for number, (name, content) in enumerate(result.files(out.suffix.removeprefix("."))):
        path = out.with_stem(f"{out.stem}-{name}") if number else out
        place(path, content, workspace)
        note(f"wrote {path}")


def place(path: Path, content: bytes, workspace: Path) -> None:
    """Write a file that the user asked for, whole or not at all. Raises StoreError where the system refuses."""
    from cimemories.formats.reading import atomic_write

    with files.with_users_umask(path, workspace), atomic_write(path) as draft:
        draft.write_bytes(content)


def _print(result: Answer) -> None:
    if result.sentence:
        line(result.sentence)
    for shown in result.tables().values():
        if not shown.folded and not shown.empty:
            answer_table(shown)
    for part in result.parts():
        line("")
        _print(part)


def answer_table(shown: Table) -> None:
    """Print a table of an answer under its caption."""
    line(f"\n{shown.caption}" if shown.caption else "")
    listing(shown)


def listing(shown: Table, as_json_too: bool = False, empty: str = "") -> None:
    """Print a list of what the record holds, as JSON where that is asked for. empty: a note in place of no rows."""
    if as_json_too:
        as_json(shown)
    elif shown.empty and empty:
        note(empty)
    else:
        titles = [f">{title}" if number else title for title, number in zip(shown.titles, shown.numeric, strict=True)]
        rows = shown.texts()
        long = sum(max(map(len, column)) for column in zip(*rows, strict=True)) > LONGEST
        table(titles, rows, unbroken=not long, least=LEAST if long else 0)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, unbroken: bool = False, least: int = 0) -> None:
    """A table on standard output. A title `>pairs` aligns its column right, as in a format spec. Cells: '3,412' for
    3412, a dash for None. unbroken: wider than the terminal where its text is, nothing cut or broken. least: characters
    that a line may have also where the terminal is narrower."""
    shown = Grid(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        right = title.startswith(">")
        shown.add_column(title.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    for row in rows:
        texts = [f"{cell:,}" if isinstance(cell, int) else UNDEFINED if cell is None else str(cell) for cell in row]
        # escape: rich reads [bold] and [link=...] in a cell as markup, and names come from files.
        shown.add_row(*(escape(visible(text)) for text in texts))
    width = WIDEST if unbroken else max(Console().width, least)
    Console(highlight=False, width=width).print(shown)


def right(titles: Iterable[object]) -> list[str]:
    """Titles of right-aligned columns."""
    return [f">{title}" for title in titles]


def mark(simulated: Parts) -> str:
    """Return the cell of a table that says what is simulated; '' for nothing."""
    return simulated_text(simulated)
