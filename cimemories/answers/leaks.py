"""What a run leaked: its examples, severest first (leaks/gallery.py), those that filters leave, with what the messages
say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks.examples import Examples, examples, pages
from cimemories.leaks.gallery import COLUMNS, SEVERITY, Facet
from cimemories.leaks.table import EXCERPT, with_excerpts
from cimemories.metrics import sentences
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


def leaks(
    flows: Flows,
    scope: Scope,
    filters: Mapping[str, Sequence[str] | None],
    top: int | None = None,
    *,
    excerpts: bool = True,
    held: int | None = None,
) -> Leaks:
    """List the leaked examples of a run, at most `top` of them.

    filters: by facet (gallery.Facet), the values of which an example must have one; a profile by name. excerpts: with
    what one message says, which takes a moment for each row. held: rows that the frame has at most; the others are read
    page by page. Raises StoreError for a value that no leak of the run has.
    """
    every = examples(flows, [scope])
    values = _values(flows, scope, every, filters)
    left = every.left(values).number
    number = left if top is None else min(top, left)

    def rows(first: int, most: int) -> Iterator[pd.DataFrame]:
        for page in pages(every, values, most, first):
            rows = page[list(COLUMNS)].astype({"profile": "int64"}).reset_index(drop=True)
            yield with_excerpts(flows, {scope.run.id: scope}, rows) if excerpts else rows

    most = number if held is None else min(held, number)
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
        return f"{named}: no inappropriate flow was revealed."
    text = f"{named}: {count(int(full['number'].sum()))} inappropriate flows were revealed at least once, "
    if len(scopes) == 1:
        return f"{text}{count(int(full['always'].sum()))} of them in every sample."
    numbers = full.groupby("run")["number"].sum()
    by_run = [(scope.run.name, int(numbers.get(scope.run.id, 0))) for scope in scopes]
    return f"{text}{sentences.leaks_by_run(by_run)}."


def _values(
    flows: Flows, scope: Scope, every: Examples, filters: Mapping[str, Sequence[str] | None]
) -> dict[Facet, list[str]]:
    """Return the filters with ids for the names of profiles."""
    values = {Facet(name): list(chosen or ()) for name, chosen in filters.items()}
    counts, ids = every.left({}).whole, dict[str, list[str]]()
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
            if every.number and value not in counts[facet]:
                there = [f"{name or 'none'} ({number})" for name, number in counts[facet].items()]
                more = f" and {len(there) - MOST_NAMED:,} more" if len(there) > MOST_NAMED else ""
                listed = ", ".join(there[:MOST_NAMED])
                raise StoreError(f"no leak of this run has the {facet} '{value}'. Use one of: {listed}{more}.")
    if ids:
        values[Facet.PROFILE] = [profile for user in values[Facet.PROFILE] for profile in ids[user]]
    return values
