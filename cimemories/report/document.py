"""What a report consists of: sections of blocks, without any markup. html.py and markdown.py turn them into files.

Every text in a block is plain, whoever wrote it: it is escaped where it is turned into markup, and nowhere before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from cimemories.analysis.leak_rows import LeakRow


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Points:
    """A list. warning: it says what speaks against taking the numbers at face value."""

    points: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True)
class Facts:
    """Names with values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Row:
    """One row of a table; the first cell names it. kind: '' for what was measured here, 'published', 'baseline'."""

    cells: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """columns: (title, whether it holds numbers). simulated: whether any number in it rests on a simulator. folded: so
    long that it is shown on request."""

    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[Row, ...]
    simulated: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture: `name` is its id and that of its file; title says the takeaway, subtitle the counts behind it, alt
    what can be seen. svg: drawn by drawing.py."""

    name: str
    title: str
    subtitle: str
    alt: str
    svg: Element
    simulated: bool = False


@dataclass(frozen=True)
class Code:
    """Lines to be copied as they are. title: what they are; folded: so many that they are shown on request."""

    text: str
    title: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Examples:
    """Leaked examples with their words."""

    rows: tuple[LeakRow, ...]


@dataclass(frozen=True)
class Markdown:
    """A text in Markdown whose data is escaped already: the dataset card. Its headings are one level below a
    section."""

    text: str


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


Block = Text | Points | Facts | Table | Figure | Code | Examples | Markdown | Heading


@dataclass(frozen=True)
class Section:
    """id: of its anchor."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Report:
    """made: when and by what, the one line that differs between two reports on the same record. simulated: which parts
    of the results are, '' where none is."""

    title: str
    subtitle: str
    made: str
    simulated: str
    sections: tuple[Section, ...]

    def figures(self) -> Iterator[Figure]:
        for section in self.sections:
            yield from (block for block in section.blocks if isinstance(block, Figure))
