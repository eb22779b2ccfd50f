"""What a report is made of: the runs, how they are read, what they are called, and how its tables are made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cimemories.analysis.cube import IdentifierRule
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.intervals import Interval, Intervals, intervals
from cimemories.analysis.leaderboard import Leaderboard, Line, leaderboard, names
from cimemories.analysis.leaderboard_text import bounds, percent
from cimemories.report.document import Row, Table
from cimemories.store.engine import StoreError

SIMULATED = " (simulated)"


@dataclass(frozen=True)
class Basis:
    """scopes: the runs in the order in which they were asked for; the first is what others are held against. texts:
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
        return [by_id[asked.run.id] for asked in self.scopes]

    @property
    def called(self) -> dict[str, str]:
        """What each run is called, by its id; a simulated one says so wherever it is named."""
        plain = names(self.board.lines)
        return {line.run.id: plain[line.run.id] + marked(line.scope.simulated) for line in self.lines}

    @property
    def several(self) -> bool:
        return len(self.scopes) > 1

    def intervals(self, asked: Scope) -> Intervals:
        return intervals(self.flows, asked, self.rule)


def marked(parts: Sequence[str]) -> str:
    """What is put behind the name of a run of which these parts are simulated: where its messages are, just that."""
    if not parts:
        return ""
    return SIMULATED if "responses" in parts else f" (simulated {listed(list(parts))})"


def basis(flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule, *, texts: bool) -> Basis:
    """Raises StoreError without a run, for runs of several datasets, and for one run in it twice."""
    if not scopes:
        raise StoreError("a report is about one run or more. `cimemories runs` lists them.")
    ids = [asked.run.id for asked in scopes]
    if len(set(ids)) < len(ids):
        raise StoreError("a report has each run once. Name different runs.")
    return Basis(flows, tuple(scopes), rule, leaderboard(flows, scopes, rule), texts)


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str] | Row],
    *,
    simulated: bool = False,
    folded: bool = False,
    words: Sequence[int] = (0,),
) -> Table:
    """A table; words: positions of the columns that hold words, all others hold numbers."""
    made = tuple(row if isinstance(row, Row) else Row(tuple(row)) for row in rows)
    titles = tuple((title, place not in words) for place, title in enumerate(columns))
    return Table(caption, titles, made, simulated, folded)


def measured(found: Interval) -> str:
    """'12.4 % [10.1, 14.9]'; a dash where it is undefined."""
    return f"{percent(found.value)} {bounds(found)}".strip()


def points(value: float) -> str:
    """A share as percentage points of a spread: '3.1'; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}"


def several(count: int, what: str) -> str:
    """'1 profile', '1,200 profiles'."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def sentence(text: str) -> str:
    """A remark as a sentence begins and ends."""
    said = text.strip()
    return f"{said[:1].upper()}{said[1:]}" + ("" if said.endswith((".", "!", "?")) else ".") if said else ""
