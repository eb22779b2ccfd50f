"""The drawing of answers on a page, whatever their numbers are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal

from cimemories.answer import Answer, Table
from cimemories.text import Parts, sentence
from cimemories.ui import exports, page, safe, tables

if TYPE_CHECKING:
    import plotly.graph_objects as go


def show(answer: Answer, key: str, about: Mapping[str, object], without: Collection[str] = ()) -> None:
    """Draw an answer: its badge, sentence, tables, the answers below it, and its notes. about: the basis of its
    numbers. without: the tables that the page draws itself."""
    page.badge_simulated(answer.simulated)
    if answer.sentence:
        safe.inline(answer.sentence, strong=True)
    for name, table in answer.tables().items():
        if table.empty or name in without:
            continue
        if table.folded:
            folded(table, f"{key}.{name}", f"{key}.{name}.box", table.caption or name)
            continue
        if table.caption:
            safe.inline(table.caption, muted=True)
        tables.grid(table, table.caption or name)
        export(table, f"{key}.{name}", about, answer.simulated)
    for number, part in enumerate(answer.parts()):
        show(part, f"{key}.{number}", about)
    safe.show(safe.lines(map(sentence, answer.notes), "ci-point ci-muted"))


def export(table: Table, key: str, about: Mapping[str, object], simulated: Parts, fig: go.Figure | None = None) -> None:
    """Draw the exports of a table, and of its figure."""
    exports.buttons(key.replace(".", "-"), table.frame, fig=fig, key=key, simulated=simulated, about=about)


def folded(table: Table, key: str, box: str, title: str = "The same as a table", *, alt: str = "") -> None:
    """Draw a sortable table in a fold. box: the key of the fold."""
    page.fold(title, ":material/table:", box, lambda: twin(table, f"{key}.table", alt=alt))


def twin(
    table: Table,
    key: str,
    *,
    on_select: Literal["row"] | None = None,
    selected: int | None = None,
    height: int | Literal["auto", "content"] = "auto",
    alt: str = "",
) -> int | None:
    """Draw a sortable table, with intervals and deviations as columns. Returns what `tables.table` does; rows are told
    apart by their `id` if they have one."""
    frame = table.frame
    return tables.table(
        frame.set_index("id", drop=False) if "id" in frame.columns else frame,
        key=key,
        columns=table.spread_out(),
        on_select=on_select,
        selected=selected,
        height=height,
        alt=alt or table.caption,
    )
