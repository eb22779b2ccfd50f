"""Part of the Compare page: a drawing with its title, its badge, its exports and its table twin."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from cimemories.analysis.compare_figures import Drawing
from cimemories.ui import charts, exports, page, tables
from cimemories.ui.tables import Column
from pages.explore.compare_scope import Compared

HEAD, LINE = 10, 22  # pixels above the title, and of each further line of it
TITLE = 110  # characters in one line
Columns = Mapping[str, Column | tuple[Column, str]]


def show(
    drawing: Drawing,
    name: str,
    box: str,
    compared: Compared,
    columns: Columns,
    *,
    simulated: bool | None = None,
) -> None:
    """Draw it. name: of its files and widgets. box: key of the folded table, whose columns these are. simulated: None
    for that of all runs."""
    marked = compared.board.simulated if simulated is None else simulated
    margin = drawing.fig.layout.margin.to_plotly_json()
    drawing.fig.update_layout(charts.layout(title=drawing.title, subtitle=drawing.subtitle))
    lines = textwrap.wrap(drawing.title, TITLE) or [""]
    more = LINE * (len(lines) - 1)
    height = drawing.fig.layout.height + more
    head = {
        "text": "<br>".join(charts.escaped(line) for line in lines),
        "y": 1 - HEAD / height,
        "yref": "container",
        "yanchor": "top",
    }
    drawing.fig.update_layout(margin={**margin, "t": margin["t"] + more}, height=height, title=head, dragmode=False)
    if marked:
        page.badge_simulated()
    charts.show(drawing.fig, key=f"compare.chart.{name}", alt=drawing.alt)
    exports.buttons(
        f"compare-{name}",
        drawing.frame,
        fig=drawing.fig,
        key=f"compare.chart.{name}",
        simulated=marked,
        about=compared.about(),
    )

    def twin() -> None:
        tables.table(drawing.frame, key=f"compare.{name}.table", columns=columns, alt=drawing.alt)

    page.fold("The same as a table", ":material/table:", box, twin)
