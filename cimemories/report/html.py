"""A report as one HTML file: no script, nothing fetched, light and dark, for screen and paper.

Whatever a model, a file or a person wrote is escaped by Jinja's autoescape or stands in a text node of an SVG; a policy
in the file forbids the browser to load or run anything, should something slip through all the same.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from cimemories.analysis.leak_table import rests_on
from cimemories.report import drawing
from cimemories.report.document import Figure, Report
from cimemories.texts import visible

TEMPLATES = Path(__file__).parent / "templates"


def as_html(report: Report) -> str:
    """The whole file. The same report gives the same text."""
    style = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8") + drawing.STYLE)
    text = _environment().get_template("report.html.jinja").render(report=report, style=style)
    return drawing.printable(visible(text))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters.update(svg=_svg, markdown=_markdown, rests_on=rests_on, kind=lambda block: type(block).__name__)
    return environment


def _svg(figure: Figure) -> Markup:
    return Markup(drawing.as_markup(figure.svg))


def _markdown(text: str) -> Markup:
    """Markdown as HTML with headings, lists and tables alone: no links, no images, and no HTML of its own."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.disable(["link", "image", "autolink", "reference", "html_inline", "html_block"])
    tokens = reader.parse(text)
    empty = False
    for place, token in enumerate(tokens):
        if token.type == "th_open":
            token.attrSet("scope", "col")
        if token.type == "thead_open":
            end = next(i for i in range(place, len(tokens)) if tokens[i].type == "thead_close")
            empty = not any(inside.content for inside in tokens[place:end] if inside.type == "inline")
        token.hidden = token.hidden or empty
        if empty and token.type == "inline":
            token.children = []
        empty = empty and token.type != "thead_close"
    return Markup(reader.renderer.render(tokens, reader.options, {}))
