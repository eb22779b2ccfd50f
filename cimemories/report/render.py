"""A report as one file: HTML with its figures inside, or Markdown with a folder of figures beside it.

Neither has a script or fetches anything; the file is written whole or not at all.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote
from xml.etree import ElementTree

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from cimemories.charts import export, svg
from cimemories.formats.reading import atomic_write
from cimemories.leaks.table import as_markdown as leak_table
from cimemories.leaks.table import rests_on
from cimemories.report.document import Block, Code, Examples, Figure, Heading, Markdown, Points, Report, Shown, Text
from cimemories.store.engine import StoreError
from cimemories.text import Parts, isolated, markdown_escaped, simulated_text, visible

# ---- html
#
# A report as one HTML file: no script, nothing fetched, light and dark, for screen and paper.
#
# Whatever a model, a file or a person wrote is escaped by Jinja's autoescape or stands in a text node of an SVG; a
# policy in the file forbids the browser to load or run anything, should something slip through all the same.


TEMPLATES = Path(__file__).parent / "templates"


def as_html(report: Report) -> str:
    """Return the whole file. The same report gives the same text."""
    style = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8") + svg.STYLE)
    text = environment().get_template("report.html.jinja").render(report=report, style=style)
    return svg.printable(visible(text))


@cache
def environment(folder: Path = TEMPLATES) -> jinja2.Environment:
    """Return the environment of the templates in a folder and those of reports, which escapes what is filled in,
    unless it is Markup."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES]),
        # A name that the template misspells raises; Jinja's default writes nothing in its place.
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: isolated(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    made.filters.update(
        svg=lambda figure: Markup(ElementTree.tostring(figure.svg, encoding="unicode")),
        simulated=simulated_text,
        markdown=_markdown,
        rests_on=rests_on,
        kind=lambda block: type(block).__name__,
    )
    return made


def _markdown(text: str) -> Markup:
    """Markdown as HTML with headings, lists and tables alone: no links, no images, and no HTML of its own."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.disable(["link", "image", "autolink", "reference", "html_inline", "html_block"])
    tokens = reader.parse(text)
    empty = False
    for position, token in enumerate(tokens):
        if token.type == "th_open" and tokens[position + 1].content:
            token.attrSet("scope", "col")
        elif token.type == "th_open":  # an empty header names nothing
            token.tag = tokens[position + 2].tag = "td"
        # A Markdown table must have a head; an empty one (a table of facts) is left out, since HTML needs none.
        if token.type == "thead_open":
            end = next(i for i in range(position, len(tokens)) if tokens[i].type == "thead_close")
            empty = not any(inside.content for inside in tokens[position:end] if inside.type == "inline")
        token.hidden = token.hidden or empty
        if empty and token.type == "inline":
            token.children = []
        empty = empty and token.type != "thead_close"
    return Markup(reader.renderer.render(tokens, reader.options, {}))


# ---- markdown
#
# A report as Markdown: the same blocks, tables with pipes, figures as files beside it. Everything is escaped.


def as_markdown(report: Report, folder: str) -> tuple[str, dict[str, str]]:
    """Return the text, and its figures by file name; the text looks for them in `folder`, beside itself. The same
    report gives the same texts."""
    text = _text(report, folder, "svg")
    return text, {f"{figure.name}.svg": svg.as_file(figure.svg) for figure in report.figures()}


def markdown_files(
    report: Report, folder: str, progress: Callable[[float], object] = lambda share: None
) -> tuple[str, dict[str, bytes]]:
    """Return the Markdown text, and its figures as PNG, which every reader of Markdown shows. The browser that draws
    exports draws them (some 0.5 s each, and 3 to 6 s to start it), with white paper around. Without a browser they stay
    SVG."""
    figures = list(report.figures())
    try:
        pictures = {}
        for i, figure in enumerate(figures):
            pictures[f"{figure.name}.png"] = export.as_png(figure.fig, simulated=figure.simulated)
            progress((i + 1) / len(figures))
    except export.ImageError:
        text, svgs = as_markdown(report, folder)
        return text, {name: picture.encode() for name, picture in svgs.items()}
    return _text(report, folder, "png"), pictures


def _text(report: Report, folder: str, form: str) -> str:
    lines = [f"# {markdown_escaped(report.title)}", ""]
    if report.simulated:
        lines += [f"> **Simulated.** {markdown_escaped(report.simulated)}", ""]
    lines += [markdown_escaped(report.subtitle), "", markdown_escaped(report.produced), ""]
    lines += [f"{i}. {markdown_escaped(section.title)}" for i, section in enumerate(report.sections, 1)]
    for section in report.sections:
        lines += ["", f"## {markdown_escaped(section.title)}"]
        for block in section.blocks:
            lines += ["", _block(block, folder, form)]
    return svg.printable(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n")


def _block(block: Block, folder: str, form: str) -> str:
    match block:
        case Text(text):
            return markdown_escaped(text)
        case Heading(text):
            return f"### {markdown_escaped(text)}"
        case Points(points, warning):
            mark = "**!** " if warning else ""
            return "\n".join(f"- {mark}{markdown_escaped(item)}" for item in points)
        case Shown():
            return _table(block)
        case Figure():
            return _figure(block, folder, form)
        case Code(text, title):
            # A fence longer than any run of backticks inside, so that no text can end its own block.
            longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
            fence = "`" * max(3, longest + 1)
            head = f"**{markdown_escaped(title)}**\n\n" if title else ""
            return f"{head}{fence}\n{text}\n{fence}"
        case Examples(rows):
            return leak_table(rows)
        case Markdown(text):
            return text


def _table(block: Shown) -> str:
    caption = f"**{markdown_escaped(block.caption)}**{_mark(block.simulated)}"
    # Blank lines inside, so that what stands between the tags is read as Markdown, escaped as everywhere.
    if block.folded:
        return f"<details>\n<summary>\n\n{caption}\n\n</summary>\n\n{block.table.markdown()}\n\n</details>"
    return f"{caption}\n\n{block.table.markdown()}"


def _mark(parts: Parts) -> str:
    return f" (**{simulated_text(parts)}**)" if parts else ""


def _figure(block: Figure, folder: str, form: str) -> str:
    path = quote(str(PurePosixPath(folder) / f"{block.name}.{form}"))
    caption = f"**{markdown_escaped(block.title)}**{_mark(block.simulated)} {markdown_escaped(block.subtitle)}"
    return f"![{markdown_escaped(block.alt)}]({path})\n\n{caption}"


# ---- writing
#
# A report written to a file, whole or not at all: HTML by the name .html, Markdown with a folder of figures by .md.


HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


def figures_folder(path: Path) -> Path:
    """Return the folder for the figures of a Markdown report: 'report-figures' beside 'report.md'."""
    return path.with_name(f"{path.stem}-figures")


def check_report(path: Path, *, force: bool) -> None:
    """Before any work is done: raises StoreError for a name of neither form, a folder that is not there, and a file
    that is, unless `force`."""
    if path.suffix.casefold() not in (*HTML, *MARKDOWN):
        raise StoreError(f"{path} is neither .html nor .md. Name the file by the form that it is to have.")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}. Make it first, or name another file.")
    if path.is_dir():
        raise StoreError(f"{path} is a folder. Name a file.")
    folder = figures_folder(path)
    beside = [folder] if path.suffix.casefold() in MARKDOWN else []
    for there in (path, *beside):
        if there.exists() and not force:
            raise StoreError(f"{there} is there already and stays as it is. Name another file, or add --force.")
    if beside and folder.exists() and not _only_figures(folder):
        raise StoreError(f"{folder} holds other things than figures of a report. Name another file.")


def write_report(
    report: Report, path: Path, *, force: bool = False, progress: Callable[[float], object] = lambda share: None
) -> list[Path]:
    """Write the report, file and folder each whole or not at all; return what was written, the report first. Raises
    StoreError as `check_report` does, and where the system refuses."""
    # Again, though a caller has checked before: making a report takes a while, and a file may be there by now.
    check_report(path, force=force)
    if path.suffix.casefold() in HTML:
        with atomic_write(path) as draft:
            draft.write_text(as_html(report), encoding="utf-8")
        return [path]
    folder = figures_folder(path)
    text, pictures = markdown_files(report, folder.name, progress)
    if pictures:
        # Figures first: a text that is there never names one that is not.
        with atomic_write(folder) as draft:
            draft.mkdir()
            for name, picture in pictures.items():
                (draft / name).write_bytes(picture)
            shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists():
        shutil.rmtree(folder)
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return [path, *(folder / name for name in pictures)]


def _only_figures(folder: Path) -> bool:
    return folder.is_dir() and all(item.is_file() and item.suffix in (".svg", ".png") for item in folder.iterdir())
