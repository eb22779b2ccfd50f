"""A report as Markdown: the same blocks, tables with pipes, figures as SVG files beside it. Everything is escaped."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import quote

from cimemories.analysis.card import escaped
from cimemories.analysis.leak_table import as_markdown as leak_table
from cimemories.report import drawing
from cimemories.report.document import (
    Block,
    Code,
    Examples,
    Facts,
    Figure,
    Heading,
    Markdown,
    Points,
    Report,
    Table,
    Text,
)


def as_markdown(report: Report, folder: str) -> tuple[str, dict[str, str]]:
    """The text, and its figures by file name; the text looks for them in `folder`, beside itself. The same report gives
    the same texts."""
    lines = [f"# {escaped(report.title)}", ""]
    if report.simulated:
        lines += [f"> **Simulated.** {escaped(report.simulated)}", ""]
    lines += [escaped(report.subtitle), "", escaped(report.made), ""]
    lines += [f"{i}. {escaped(section.title)}" for i, section in enumerate(report.sections, 1)]
    for section in report.sections:
        lines += ["", f"## {escaped(section.title)}"]
        for block in section.blocks:
            lines += ["", _block(block, folder)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
    return drawing.printable(text), {f"{figure.name}.svg": drawing.as_file(figure.svg) for figure in report.figures()}


def _block(block: Block, folder: str) -> str:
    match block:
        case Text(text):
            return escaped(text)
        case Heading(text):
            return f"### {escaped(text)}"
        case Points(points, warning):
            mark = "**!** " if warning else ""
            return "\n".join(f"- {mark}{escaped(item)}" for item in points)
        case Facts(pairs):
            return "\n".join(["| | |", "|---|---|", *(f"| {escaped(k)} | {escaped(v)} |" for k, v in pairs)])
        case Table():
            return _table(block)
        case Figure():
            return _figure(block, folder)
        case Code(text, title):
            longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
            fence = "`" * max(3, longest + 1)
            head = f"**{escaped(title)}**\n\n" if title else ""
            return f"{head}{fence}\n{text}\n{fence}"
        case Examples(rows):
            return leak_table(rows)
        case Markdown(text):
            return text


def _table(block: Table) -> str:
    titles = [escaped(title) for title, _ in block.columns]
    lines = [f"**{escaped(block.caption)}**{' (**simulated**)' if block.simulated else ''}", ""]
    lines += [_row(titles), _row(["---:" if numbers else "---" for _, numbers in block.columns])]
    for row in block.rows:
        cells = [escaped(cell) for cell in row.cells]
        if row.kind == "published":
            cells[0] += " (*published*)"
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(block: Figure, folder: str) -> str:
    place = quote(str(PurePosixPath(folder) / f"{block.name}.svg"))
    simulated = " (**simulated**)" if block.simulated else ""
    return f"![{escaped(block.alt)}]({place})\n\n**{escaped(block.title)}**{simulated} {escaped(block.subtitle)}"
