"""Exports of a chart and its table: PNG, SVG, CSV and Parquet, each made when it is clicked.

What a result rests on is part of the file: an image says under its title that it is simulated and where it comes from,
a table has a column `simulated` and one for each entry of `about`, and a Parquet file has them as metadata too.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import streamlit as st

from cimemories.charts import export
from cimemories.text import Parts, without_formula

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

METADATA = b"cimemories"


# A fragment: opening the popover starts a run of this alone.
@st.fragment
def buttons(
    name: str,
    frame: pd.DataFrame,
    *,
    fig: go.Figure | None,
    key: str,
    simulated: Parts,
    about: Mapping[str, object],
) -> None:
    """A popover with the exports of one chart. name: of the files, without an ending. frame: the chart as a table.
    fig: the chart; None for a table alone. about: what it rests on (run, labels, judge, n, rule)."""
    # Names hold data, such as a model's maker/name: no part of one becomes a path or a hidden file.
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "export"

    def download(label: str, content: Callable[[], bytes], ending: str, mime: str) -> None:
        # With on_click="ignore" a click starts no run of the page: charts would be drawn anew under a closing popover.
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
        # The browser takes seconds to start: it does so while the menu is read.
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
        download("CSV table", lambda: as_csv(frame, simulated=simulated, about=about), "csv", "text/csv")
        download(
            "Parquet table",
            lambda: as_parquet(frame, simulated=simulated, about=about),
            "parquet",
            "application/vnd.apache.parquet",
        )


def as_csv(frame: pd.DataFrame, *, simulated: Parts, about: Mapping[str, object]) -> bytes:
    """The table as CSV, in UTF-8. Cells that a spreadsheet would run as a formula are quoted."""
    marked = _marked(frame, simulated, about).map(without_formula)
    # "replace": half of a surrogate pair, which UTF-8 cannot hold, does not end the export.
    return marked.to_csv(index=False).encode("utf-8", "replace")


def as_parquet(frame: pd.DataFrame, *, simulated: Parts, about: Mapping[str, object]) -> bytes:
    """The table as Parquet, with `about` as JSON under the metadata key `cimemories`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(_marked(frame, simulated, about), preserve_index=False)
    facts = {**{k: _scalar(v) for k, v in about.items()}, "simulated": bool(simulated)}
    metadata = json.dumps(facts, ensure_ascii=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA: metadata.encode()})
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    return content.getvalue()


def _marked(frame: pd.DataFrame, simulated: Parts, about: Mapping[str, object]) -> pd.DataFrame:
    """The frame with a column `simulated` and one an entry of `about`; columns that it has already stay as they are."""
    extra = {"simulated": bool(simulated), **{name: _scalar(value) for name, value in about.items()}}
    return frame.assign(**{name: value for name, value in extra.items() if name not in frame.columns})


def _scalar(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else "" if value is None else str(value)
