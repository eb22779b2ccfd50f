"""What a report consists of: sections of blocks, without any markup. render.py turns them into files.

Every text in a block is plain text: it is escaped where it is turned into markup, and nowhere before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from cimemories.answer import Column, Listing, Table
from cimemories.charts import svg
from cimemories.compare.leaderboard import Leaderboard, Line, leaderboard
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Labels, Scope
from cimemories.labels.survival import Survival, survival
from cimemories.leaks.table import LeakRow
from cimemories.metrics.intervals import Intervals, intervals
from cimemories.model import Persona
from cimemories.store import labellings, work
from cimemories.store.engine import StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.text import Parts, exact_percent, listed, simulated_text

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
class Shown:
    """A table of an answer. Rows of the kind published or baseline are not of these runs. simulated: whether any number
    in it rests on a simulator. folded: it stands below a figure that shows the same, or is long, and is shown on
    request."""

    table: Table
    caption: str
    simulated: Parts = False
    folded: bool = False

    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each row as its kind and the texts of its cells, of which the first names it."""
        for row, cells in zip(self.table.records(), self.table.texts(), strict=True):
            yield str(row.get("kind") or ""), cells


@dataclass(frozen=True)
class Figure:
    """A picture: `name` is its id and that of its file; title says the takeaway, subtitle the counts behind it, alt
    what can be seen."""

    name: str
    title: str
    subtitle: str
    alt: str
    fig: go.Figure
    simulated: Parts = False

    @property
    def svg(self) -> Element:
        return svg.draw(self.fig, self.name, title=self.title, alt=self.alt, simulated=self.simulated)


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


Block = Text | Points | Shown | Figure | Code | Examples | Markdown | Heading


@dataclass(frozen=True)
class Section:
    """id: of its anchor. folded: it is there to be looked up, and is shown on request."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """produced: when and by what, the one line that differs between two reports on the same record. simulated: which
    parts of the results are, '' if none is."""

    title: str
    subtitle: str
    produced: str
    simulated: str
    sections: tuple[Section, ...]

    def figures(self) -> Iterator[Figure]:
        for section in self.sections:
            yield from (block for block in section.blocks if isinstance(block, Figure))


# ---- basis: the runs, how they are read, what they are called, and how tables are made of them


SIMULATED = " (simulated)"


@dataclass(frozen=True)
class Basis:
    """scopes: the runs in the order in which they were asked for; the others are compared with the first. texts:
    whether messages, memories and names of users may be shown."""

    flows: Flows
    scopes: tuple[Scope, ...]
    rule: IdentifierRule
    board: Leaderboard
    texts: bool

    @property
    def lines(self) -> list[Line]:
        """A line a run, in the order in which they were asked for."""
        by_id = {line.run.id: line for line in self.board.lines}
        return [by_id[scope.run.id] for scope in self.scopes]

    @property
    def run_names(self) -> dict[str, str]:
        """Return the name of each run, by its id."""
        plain = self.board.names
        return {line.run.id: plain[line.run.id] for line in self.lines}

    @property
    def marked_names(self) -> dict[str, str]:
        """`run_names` that say what of a run is simulated where runs differ in it; where they do not, the banner says
        it once."""
        if len({line.simulated for line in self.lines}) == 1:
            return self.run_names
        parts = {line.run.id: line.simulated for line in self.lines}
        return {run_id: name + marked(parts[run_id]) for run_id, name in self.run_names.items()}

    @property
    def several(self) -> bool:
        return len(self.scopes) > 1

    def intervals(self, scope: Scope) -> Intervals:
        return intervals(self.flows, scope, self.rule)


def marked(parts: Sequence[str]) -> str:
    """Return the words behind the name of a run of which these parts are simulated; '' without any."""
    return f" ({simulated_text(parts)})" if parts else ""


def basis(flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule, *, texts: bool) -> Basis:
    """Raises StoreError without a run, for runs of several datasets, and for one run in it twice."""
    if not scopes:
        raise StoreError("a report is about one run or more. `cimemories runs` lists them.")
    ids = [scope.run.id for scope in scopes]
    if len(set(ids)) < len(ids):
        raise StoreError("a report has each run once. Name different runs.")
    return Basis(flows, tuple(scopes), rule, leaderboard(flows, scopes, rule), texts)


def shown(table: Table, caption: str = "", *, simulated: Parts = False, folded: bool = False) -> Shown:
    """Return a table as a report shows it. caption: in the place of its own."""
    return Shown(table, caption or table.caption, simulated, folded or table.folded)


def facts(caption: str, pairs: Mapping[str, str]) -> Shown:
    """Return names with values as a table."""
    columns = {"name": Column("text", "What"), "value": Column("wide", "Value")}
    return Shown(Listing([{"name": name, "value": value} for name, value in pairs.items()], columns), caption)


# ---- label facts


@dataclass(frozen=True)
class LabelFacts:
    """One labelling under the rule that a scope uses, counted once for the section on labels and for the words of the
    methods. missing: (status, cause, count) of ballots. before: whether decisions go before the consensus."""

    row: LabellingRow
    survival: Survival
    personas: tuple[Persona, ...]
    missing: tuple[tuple[str, str, int], ...]
    before: bool

    @property
    def ballots(self) -> int:
        """Return the number of ballots that could be counted."""
        return int(self.row.ballots.get(labellings.OK, 0))

    @property
    def voices(self) -> list[str]:
        return [f"{persona.key} (prior {self.prior(persona)})" for persona in self.personas]

    def prior(self, persona: Persona) -> str:
        return exact_percent(self.survival.rule.prior_by_key.get(persona.key, persona.prior))


def all_label_facts(flows: Flows, scopes: tuple[Scope, ...]) -> list[LabelFacts]:
    """Return the facts of every labelling that the scopes read, one entry a labelling and rule. A labelling whose votes
    do not fit into memory is left out (`uncounted_labels`)."""
    by_rule: dict[tuple[str, str], LabelFacts] = {}
    for scope in scopes:
        if scope.labelling is None or len(flows.parts(scope)) > 1:
            continue
        row = scope.labelling
        counted = survival(flows.store, row.id, scope.rule)
        with flows.store.read() as connection:
            missing = tuple(work.failures(connection, row.id))
            personas = tuple(labellings.personas(connection, row.id).values())
        facts = LabelFacts(row, counted, personas, missing, before=scope.labels == Labels.DECISIONS)
        # Two runs may read one labelling by different rules: other labels, so another entry.
        by_rule.setdefault((row.id, counted.rule.digest), facts)
    return list(by_rule.values())


def uncounted_labels(flows: Flows, scopes: tuple[Scope, ...]) -> str:
    """Return a note on labellings whose votes do not fit into memory, in place of their consensus; '' where all do."""
    large = sorted({scope.labelling.id for scope in scopes if scope.labelling and len(flows.parts(scope)) > 1})
    if not large:
        return ""
    return (
        f"Labels are those of {listed(large)}. On how many pairs its personas agree is not counted here, since "
        "its votes do not fit into memory; `cimemories metrics` says on how many flows the numbers rest."
    )
