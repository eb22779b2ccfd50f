"""Exports of a chart and its table: PNG, SVG, CSV and Parquet, each made when it is clicked.

The basis of a result is part of the file: an image says under its title that it is simulated and where it comes from, a
table has a column `simulated` and one for each entry of `about`, and a Parquet file has them as metadata too."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from cimemories.answer import as_csv, as_parquet
from cimemories.charts import export
from cimemories.text import Parts
from cimemories.ui import page, safe

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


TABLES = (
    ("CSV table", as_csv, "csv", "text/csv"),
    ("Parquet table", as_parquet, "parquet", "application/vnd.apache.parquet"),
)


# A fragment: opening the popover runs only this.
@st.fragment
def buttons(
    name: str,
    frame: pd.DataFrame | Callable[[], pd.DataFrame],
    *,
    fig: go.Figure | None,
    key: str,
    simulated: Parts,
    about: Mapping[str, object],
) -> None:
    """Draw a popover with the exports of one chart. name: of the files, without an ending. frame: the chart as a table,
    or a function that reads it. fig: the chart; None for a table alone. about: the basis (run, labels, judge, n,
    rule)."""
    # Names hold data, such as a model's maker/name: no part of one becomes a path or a hidden file.
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "export"

    def download(label: str, content: Callable[[], bytes], ending: str, mime: str) -> None:
        # With on_click="ignore" a click starts no run of the page: charts would be drawn again under a closing popover.
        st.download_button(
            label,
            data=content,
            file_name=f"{stem}.{ending}",
            mime=mime,
            on_click="ignore",
            key=f"{key}.{ending}",
            type="tertiary",
            width="stretch",
        )

    def opened() -> None:
        # The browser takes seconds to start: it starts while the user reads the menu.
        if fig is not None:
            export.warm()

    with st.popover("Export", icon=":material/download:", type="tertiary", key=f"{key}.export", on_change=opened):
        if fig is not None and export.browser() is None:
            st.caption(
                "PNG and SVG need Chromium or Chrome, and none was found. Install one (Debian and Ubuntu: "
                "`apt-get install chromium`; anywhere: `kaleido_get_chrome`), or set `BROWSER_PATH` to it."
            )
        elif fig is not None:
            chart, source = fig, export.source_line(about)
            download("PNG image", lambda: export.as_png(chart, simulated=simulated, source=source), "png", "image/png")
            download(
                "SVG image", lambda: export.as_svg(chart, simulated=simulated, source=source), "svg", "image/svg+xml"
            )
        for label, write, ending, mime in TABLES:

            def content(write: Callable[..., bytes] = write) -> bytes:
                return write(frame() if callable(frame) else frame, simulated=simulated, about=about)

            download(label, content, ending, mime)


# ---- files that take a while to write


MIME = {
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".parquet": "application/vnd.apache.parquet",
    ".zip": "application/zip",
}


@dataclass(frozen=True)
class _Ready:
    request: tuple[object, ...]
    path: Path
    simulated: bool
    notes: tuple[str, ...]


def path_for(slot: str, name: str) -> Path:
    """Return a path to write a file that is offered later. It is deleted with the next file of this slot, or with the
    session."""
    st.session_state.pop(slot, None)
    if (old := st.session_state.get(f"{slot}.folder")) is not None:
        old.cleanup()
    # Deletes itself when nothing refers to it any more, and when the process ends.
    folder = tempfile.TemporaryDirectory(prefix="cimemories-export-", ignore_cleanup_errors=True)
    st.session_state[f"{slot}.folder"] = folder
    return Path(folder.name) / name


def prepared(
    slot: str, request: tuple[object, ...], path: Path, *, simulated: bool = False, notes: Sequence[str] = ()
) -> None:
    """Keep a file that was written for a request, which holds everything whose change would make it another file."""
    st.session_state[slot] = _Ready(request, path, simulated, tuple(notes))


def offer(slot: str, request: tuple[object, ...]) -> None:
    """Draw the download of the file that was written for this request."""
    ready = st.session_state.get(slot)
    if not isinstance(ready, _Ready) or not ready.path.is_file():
        return
    if ready.request != request:
        safe.inline("The options or the workspace have changed since the file was made. Make it again.", muted=True)
        return
    st.download_button(
        "Download",
        # Read at the click: the session holds only the path, however large the file is.
        data=lambda: ready.path.read_bytes(),
        file_name=ready.path.name,
        mime=MIME[ready.path.suffix],
        type="primary",
        icon=":material/download:",
        key=f"{slot}.download",
        on_click="ignore",
    )
    safe.inline(f"{ready.path.name}, {ready.path.stat().st_size / 1e6:,.2f} MB")
    if ready.simulated:
        page.badge_simulated()
    page.notices(ready.notes)
