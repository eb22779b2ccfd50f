"""What the command line prints."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cimemories.text import CONTROL, visible

if TYPE_CHECKING:
    import pandas as pd


WIDEST = 500  # characters of a table that is shown whole


err = Console(stderr=True, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """One line on standard output, as it is but for control characters: a terminal would obey them."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error, for people."""
    err.print(escape(visible(text)))


def as_json_text(value: object) -> str:
    """JSON for scripts, control characters escaped: a program reads what was meant, a terminal obeys nothing."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return re.sub(CONTROL, lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]], *, whole: bool = False) -> None:
    """A table on standard output; columns are (title, numbers), text is shown as it is. whole: nothing is cut or broken
    to fit the terminal."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title, numbers in columns:
        shown.add_column(title, justify="right" if numbers else "left", no_wrap=numbers)
    for row in rows:
        shown.add_row(*(escape(visible(str(cell))) for cell in row))
    Console(highlight=False, width=WIDEST if whole else None).print(shown)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON: nan becomes null."""
    rows = frame.astype(object).to_dict("records")
    return [{str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


def number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def figure(value: float) -> str:
    """A number with two decimals, whole ones without; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.0f}" if value == int(value) else f"{value:.2f}"
