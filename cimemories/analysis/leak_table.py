"""Leaked examples as a table for a paper: Markdown, or LaTeX with booktabs (paper, Table 3).

The words stand in templates/leaks.*.jinja. Everything that a model, a file or a person wrote is escaped, so that no
message makes a command, a link or a column of itself. What every row rests on stands below the table, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import jinja2

from cimemories import __version__
from cimemories.analysis import latex
from cimemories.analysis.card import escaped as markdown
from cimemories.analysis.leak_rows import LeakRow, Piece

_TEMPLATES = Path(__file__).parent / "templates"
_COLOUR = "D55E00"  # of what is inappropriate, on every screen of the app
_MISSING = "people found it, and the judge claims nothing"
_ELSEWHERE = "quoted by the judge, not found in the message"


def as_markdown(rows: Sequence[LeakRow]) -> str:
    """The table in Markdown, what leaks in bold, and a numbered list of what each row rests on."""
    return _filled("leaks.md.jinja", rows)


def as_latex(rows: Sequence[LeakRow]) -> str:
    """The table in LaTeX, in printable ASCII; a comment on top says which packages it takes."""
    return _filled("leaks.tex.jinja", rows)


def _filled(template: str, rows: Sequence[LeakRow]) -> str:
    # Delimiters that neither a row of a table nor a command of LaTeX has.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown and LaTeX, no HTML: the filters md and tex escape
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters.update(
        md=markdown,
        tex=latex.escaped,
        attribute=lambda row: f"{row.key.replace('_', ' ')}: {row.statement}",
        rests_on=rests_on,
        marked_md=lambda pieces: _marked(pieces, markdown, "<b>{}</b>"),
        marked_tex=lambda pieces: _marked(pieces, latex.escaped, r"\cileaked{{{}}}"),
    )
    examples = f"{len(rows)} leaked example" + "s" * (len(rows) != 1)
    return environment.get_template(template).render(
        rows=rows,
        summary=f"{examples}, exported by CIMemories Studio {__version__}.",
        other=latex.OTHER,
        colour=_COLOUR,
        caption=_caption(rows),
        missing=_MISSING,
        elsewhere=_ELSEWHERE,
    )


def _caption(rows: Sequence[LeakRow]) -> str:
    said = (
        "Examples of leaks on CIMemories tasks: attributes of a user's memory that a message reveals although they are "
        "inappropriate for its recipient. What gives the attribute away is in bold."
    )
    count = sum(bool(row.simulated) for row in rows)
    if not count:
        return said
    which = "All rows rest" if count == len(rows) else f"{count} of {len(rows)} rows, marked so, rest"
    return f"{said} {which} on simulated parts and say nothing about any real model."


def rests_on(row: LeakRow) -> str:
    """What stands behind a row, in one line: run, message, judge, label, simulated parts, and the person's note."""
    message = f", sample {row.sample}" if row.sample is not None else ""
    together = {"all": ", by all judges in one message", "some": ", not by all judges"}.get(row.agreement, "")
    parts = [
        f"{row.profile}; run {row.run} ({row.run_name}){message}",
        f"claimed ({row.strength}) in {row.claimed} of {row.draws} judged messages by {row.judge}{together}",
        f"label inappropriate: {row.origin}",
        f"simulated: {' and '.join(row.simulated)}" if row.simulated else "",
        f"note: {row.note}" if row.note else "",
    ]
    return "; ".join(part for part in parts if part) + "."


def _marked(pieces: Sequence[Piece], escape: Callable[[object], str], leaked: str) -> str:
    """The pieces in a row, spaces at their ends kept outside of what is marked."""
    found = []
    for piece in pieces:
        inside = escape(piece.text)
        before, after = piece.text[:1].isspace(), piece.text[-1:].isspace()
        if not inside:
            found.append(" ")
            continue
        words = leaked.format(inside) if piece.leaked else inside
        found.append(f"{' ' * before}{words}{' ' * after}")
    return "".join(found)
