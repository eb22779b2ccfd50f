"""What a run leaked: its examples, severest first (leaks/gallery.py), those that filters leave, with what the messages
say; and the same examples by what leaked and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks import conditions
from cimemories.leaks.examples import WHERE, Examples, Filters, examples, pages
from cimemories.leaks.gallery import COLUMNS, SEVERITY, Facet
from cimemories.leaks.table import EXCERPT, with_excerpts
from cimemories.metrics import sentences
from cimemories.metrics.places import COLUMN, By, contexts_of_run
from cimemories.model import Strength
from cimemories.store import datasets
from cimemories.store.engine import StoreError
from cimemories.text import count

LISTED = {
    "claimed": Column("count", "Revealed", "Judged messages that claim it with this strength"),
    "draws": Column("count", "of", "Judged messages whose memory held it"),
    "strength": Column("text", "Strength"),
    "domain": Column("text", "Domain"),
    "key": Column("text", "Attribute"),
    "statement": Column("wide", "Memory statement"),
    "recipient": Column("text", "Recipient"),
    "user": Column("text", "Profile"),
}
SHOWN = {name: LISTED[name] for name in ("claimed", "draws", "strength", "recipient")} | {
    "task": Column("text", "Task"),
    "key": LISTED["key"],
    "statement": LISTED["statement"],
    "excerpt": Column("wide", "Excerpt", "The words of one message"),
    "certainty": Column("text", "Label by"),
}
# The columns that leaks can be grouped by.
GROUPS = {
    "domain": Column("text", "Domain"),
    "phrase": Column("text", "Phrase", "copied: the memory statement in its words; part: some of them; reworded; none"),
    "recipient": Column("text", "Recipient"),
    "sphere": Column("text", "Sphere"),
    "event": Column("text", "Life event"),
    "key": Column("text", "Attribute"),
    "statement": Column("wide", "Memory statement"),
    "task": Column("text", "Task"),
    "user": Column("text", "Profile"),
    "strength": Column("text", "Strength"),
    "certainty": Column("text", "Label by"),
    "model": Column("text", "Model"),
}
BY_DEFAULT = ("domain", "phrase")
COUNTS = {
    "number": Column("count", "Leaks"),
    "share": Column("percent", "Share", "of the leaks that the filters leave"),
    "people": Column("count", "Profiles"),
    "recipients": Column("count", "Recipients"),
    "rate": Column("percent", "Of their messages", "Messages that claim it, of the judged ones whose memory held it"),
    "first_said": Column("wide", "The severest", "Memory statement"),
    "first_told": Column("text", "Told to"),
}
GROUPED_ALREADY = {"people": "user", "recipients": "recipient", "first_said": "statement", "first_told": "recipient"}
MOST_NAMED = 50  # values that an error lists


@dataclass(frozen=True, kw_only=True)
class Leaks(Answer):
    """about: what the run's numbers rest on. severity: by what the examples are ordered. examples: how many there are
    of any strength; left_by_filters: of these. leaks: the severest of those that are left (docs/api.md, Run.leaks)."""

    run: Scope
    about: Mapping[str, object]
    severity: tuple[str, ...]
    examples: int
    left_by_filters: int
    leaks: Table


@dataclass(frozen=True, kw_only=True)
class Patterns(Answer):
    """about: what the run's numbers rest on. by: the columns that leaks are grouped by; left_by_filters: the number of
    these leaks. patterns: one row a group, the largest first (docs/api.md, Run.leaks)."""

    run: Scope
    about: Mapping[str, object]
    by: tuple[str, ...]
    left_by_filters: int
    patterns: Table


def leaks(
    flows: Flows,
    scope: Scope,
    filters: Mapping[str, Sequence[str] | None],
    top: int | None = None,
    *,
    where: str | None = None,
    excerpts: bool = True,
    limit: int | None = None,
) -> Leaks:
    """List the leaked examples of a run, at most `top` of them.

    filters: by facet (gallery.Facet), the values of which an example must have one; a profile by name. where: a
    condition on the columns (leaks/conditions.py). excerpts: with what one message says, which takes a moment for each
    row. limit: rows that the frame has at most; the others are read page by page. Raises StoreError for a value that no
    leak of the run has, and for a condition that cannot be read.
    """
    every = examples(flows, [scope])
    values = _values(flows, scope, every, filters, where)
    left = every.left(values).number
    number = left if top is None else min(top, left)

    def rows(first: int, most: int) -> Iterator[pd.DataFrame]:
        for page in pages(every, values, most, first):
            rows = page[list(COLUMNS)].astype({"profile": "int64"}).reset_index(drop=True)
            yield with_excerpts(flows, {scope.run.id: scope}, rows) if excerpts else rows

    most = number if limit is None else min(limit, number)
    frames = list(rows(0, most)) or [pd.DataFrame(columns=[*COLUMNS, *(EXCERPT if excerpts else ())])]
    notes = []
    if scope.labelling is None:
        notes = ["the dataset has no labels yet, so nothing counts as a leak. Label it first."]
    elif not left:
        notes = ["no leak of this run matches"]
    elif number < left:
        notes = [f"showing the {number} severest of {left:,}; --top 0 shows all"]
    return Leaks(
        sentence=takeaway([scope], every),
        notes=tuple(notes),
        simulated=scope.simulated,
        run=scope,
        about=scope.about,
        severity=SEVERITY,
        examples=every.number,
        left_by_filters=left,
        leaks=Table(
            pd.concat(frames, ignore_index=True), SHOWN, rest=(lambda: rows(most, number)) if most < number else None
        ),
    )


def patterns(
    flows: Flows,
    scope: Scope,
    filters: Mapping[str, Sequence[str] | None],
    by: Sequence[str] = BY_DEFAULT,
    top: int | None = None,
    *,
    where: str | None = None,
) -> Patterns:
    """Group the leaked examples of a run by these columns, the largest groups first, at most `top` of them. filters,
    where: as of `leaks`. Raises StoreError also for a column that is none to group by."""
    unknown = [name for name in by if name not in GROUPS]
    if unknown:
        raise StoreError(f"leaks cannot be grouped by '{unknown[0]}'. Use some of: {', '.join(GROUPS)}.")
    every = examples(flows, [scope])
    table = grouped(every, _values(flows, scope, every, filters, where), by)
    number, groups = int(table.frame["number"].sum()), len(table.frame)
    shown = groups if top is None else min(top, groups)
    return Patterns(
        sentence=patterns_sentence(table, by),
        notes=(f"showing the {shown} largest of {groups:,}; --top 0 shows all",) if shown < groups else (),
        simulated=scope.simulated,
        run=scope,
        about=scope.about,
        by=tuple(by),
        left_by_filters=number,
        patterns=replace(table, frame=table.frame.head(shown)),
    )


def grouped(every: Examples, filters: Filters, by: Sequence[str]) -> Table:
    """Return the table of patterns: what filters leave by the values of these columns, which have to be of GROUPS."""
    by = list(dict.fromkeys(by))
    frame = every.grouped(by, filters)
    number, draws = frame["number"].astype("float64"), frame["draws"].astype("float64")
    frame = frame.assign(share=number / number.sum(), rate=frame["claimed"].astype("float64") / draws)
    counts = {name: column for name, column in COUNTS.items() if GROUPED_ALREADY.get(name) not in by}
    return Table(frame, {name: GROUPS[name] for name in by} | counts)


def patterns_sentence(table: Table, by: Sequence[str]) -> str:
    """Return one sentence on how many patterns there are, and which is the largest."""
    if table.empty:
        return "No leak matches."
    frame = table.frame
    first = " / ".join(str(frame[name].iloc[0]).replace("_", " ") or "none" for name in dict.fromkeys(by))
    return (
        f"{count(int(frame['number'].sum()), 'leak')} in {count(len(frame), 'pattern')}; the largest, {first}, has "
        f"{count(int(frame['number'].iloc[0]))}."
    )


def of_places(flows: Flows, scope: Scope, places: Mapping[By, str]) -> str:
    """Return the condition on the leaks of these places, say of a cell of a heatmap, by their ids."""
    values: dict[str, object] = {}
    for by, place in places.items():
        if by == By.CONTEXT:  # in words, since people read conditions
            context = contexts_of_run(flows, scope)[int(place)]
            values |= {"recipient": context.recipient, "task": context.task}
        else:
            values[COLUMN.get(by, str(by))] = int(place) if by == By.PROFILE else place
    return conditions.equal(values)


def takeaway(scopes: Sequence[Scope], every: Examples) -> str:
    """Return one sentence on how much these runs leaked."""
    if not scopes:
        return "No run is judged yet."
    named = scopes[0].run.name if len(scopes) == 1 else f"{len(scopes)} runs"
    if all(scope.labelling is None for scope in scopes):
        return f"{named}: without labels nothing counts as a leak."
    counts = every.by_run()
    full = counts[counts["strength"] == Strength.FULL]
    if full.empty:
        return f"{named}: no fact was told to anyone who should not know it."
    text = f"{named}: {count(int(full['number'].sum()), 'leak')} of a fact to someone who should not know it, "
    if len(scopes) == 1:
        return f"{text}{count(int(full['always'].sum()))} of them in every message."
    numbers = full.groupby("run")["number"].sum()
    by_run = [(scope.run.name, int(numbers.get(scope.run.id, 0))) for scope in scopes]
    return f"{text}{sentences.leaks_by_run(by_run)}."


def _values(
    flows: Flows, scope: Scope, every: Examples, filters: Mapping[str, Sequence[str] | None], where: str | None
) -> dict[str, list[str]]:
    """Return the filters with ids for the names of profiles, and the condition."""
    values: dict[str, list[str]] = {Facet(name): list(chosen or ()) for name, chosen in filters.items()}
    counts, ids = every.left({}).unfiltered, dict[str, list[str]]()
    if values.get(Facet.PROFILE):
        with flows.store.read() as connection:
            users = datasets.profile_names(connection, scope.run.dataset)
        for profile, number in counts[Facet.PROFILE].items():
            if number:
                ids.setdefault(users[int(profile)], []).append(profile)
        by_user = {user: sum(counts[Facet.PROFILE][i] for i in own) for user, own in sorted(ids.items())}
        counts = {**counts, Facet.PROFILE: by_user}
    for facet, chosen in values.items():
        for value in chosen:
            if every.number and value not in counts[Facet(facet)]:
                there = [f"{name or 'none'} ({number})" for name, number in counts[Facet(facet)].items()]
                more = f" and {len(there) - MOST_NAMED:,} more" if len(there) > MOST_NAMED else ""
                listed = ", ".join(there[:MOST_NAMED])
                raise StoreError(f"no leak of this run has the {facet} '{value}'. Use one of: {listed}{more}.")
    if ids:
        values[Facet.PROFILE] = [profile for user in values[Facet.PROFILE] for profile in ids[user]]
    return values | ({WHERE: [where]} if where else {})
