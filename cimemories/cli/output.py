"""What commands print: results on standard output, notes on standard error. A terminal obeys control characters, so all
text passes through `visible` or is escaped as JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cimemories.text import CONTROL, visible

if TYPE_CHECKING:
    import pandas as pd

WIDEST = 500  # characters of a table that is shown whole

# soft_wrap: a long line is the terminal's to break, so that a copied command or address stays whole.
err = Console(stderr=True, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """One line on standard output, as it is but for control characters."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error."""
    err.print(escape(visible(text)))


def notes(texts: Iterable[str], kind: str = "note") -> None:
    """A line on standard error for each text."""
    for text in texts:
        note(f"{kind}: {text}")


def as_json_text(value: object) -> str:
    """JSON with control characters escaped: a program reads what was meant."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    # json escapes C0 controls itself; left to do are C1 and the marks of writing direction, which it writes as they
    # are.
    return re.sub(CONTROL, lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def as_json(value: object) -> None:
    """Print JSON."""
    line(as_json_text(value))


def table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = (), *, whole: bool = False
) -> None:
    """A table on standard output. right: titles of the columns of numbers; whole: wider than the terminal where its
    text is, nothing cut or broken."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        shown.add_column(title, justify="right" if title in right else "left", no_wrap=title in right)
    for row in rows:
        # escape: rich reads [bold] and [link=...] in a cell as markup, and names come from files.
        shown.add_row(*(escape(visible(str(cell))) for cell in row))
    Console(highlight=False, width=WIDEST if whole else None).print(shown)


def figure(value: float) -> str:
    """A number with two decimals, whole ones without; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def mark(simulated: object) -> str:
    """'simulated', or nothing: a cell of its own in every table."""
    return "simulated" if simulated else ""


def number(value: float) -> float | None:
    """For JSON, which has no nan."""
    return None if math.isnan(value) else float(value)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON: nan becomes null."""
    rows = frame.astype(object).to_dict("records")
    return [{str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]
