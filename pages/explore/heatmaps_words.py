"""Part of the Heatmaps page: what the maps show, in sentences."""

from __future__ import annotations

from cimemories.analysis.flows import Scope
from cimemories.analysis.headline import Headline
from cimemories.analysis.heatmap import By, Grid, WorstCell
from cimemories.analysis.heatmap_difference import Change, Difference
from cimemories.ui import tables

PHRASE = {
    By.DOMAIN: "in {}",
    By.EVENT: "about {}",
    By.ATTRIBUTE: "of {}",
    By.PROFILE: "of {}",
    By.CONTEXT: "to {}",
    By.RECIPIENT: "to {}",
    By.SPHERE: "in the sphere {}",
}
PLURAL = {
    By.DOMAIN: "information domains",
    By.EVENT: "life events",
    By.ATTRIBUTE: "attribute keys",
    By.PROFILE: "profiles",
    By.CONTEXT: "contexts",
    By.RECIPIENT: "recipients",
    By.SPHERE: "spheres",
}


def where(found: Grid, row: str, column: str) -> str:
    """'in finance to landlord'."""
    return f"{PHRASE[found.rows.by].format(row)} {PHRASE[found.columns.by].format(column)}"


def takeaway(asked: Scope, found: Grid, most: WorstCell | None, numbers: Headline) -> str:
    """The sentence of the head."""
    if asked.labelling is None or most is None:
        return f"{asked.run.name}: nothing can be measured yet."
    share, complete = tables.percent(numbers.violation[found.n]), tables.percent(numbers.completeness)
    leaked = "nothing inappropriate was revealed"
    if most.share:
        leaked = (
            f"most leaked pairs {where(found, most.row, most.column)} "
            f"({tables.percent(most.share)} of {tables.count(most.pairs)} inappropriate pairs)"
        )
    text = (
        f"{asked.run.name}: violation@{found.n} {share} of {tables.count(numbers.attributes)} attributes, "
        f"completeness {complete}; {leaked}."
    )
    if numbers.coverage < 0.99:
        text += f" Only {tables.percent(numbers.coverage)} of the responses are judged."
    return text


def maps_title(found: Grid, most: WorstCell | None) -> str:
    """The title of the maps of one run."""
    if most is None or not most.share:
        return f"Violation@{found.n}: nothing inappropriate was revealed"
    return f"Violation@{found.n}: most leaked pairs {where(found, most.row, most.column)}"


def completeness_title(found: Grid, least: WorstCell | None) -> str:
    """The same where completeness alone is shown."""
    if least is None:
        return "Completeness: nothing was necessary"
    place = where(found, least.row, least.column)
    return (
        f"Completeness: most is left out {place} ({tables.percent(least.share)} of {tables.count(least.pairs)} pairs)"
    )


def subtitle(found: Grid) -> str:
    """What the maps rest on."""
    wrong, needed = found.violation_pairs.sum(), found.completeness_pairs.sum()
    return (
        f"{tables.count(wrong)} inappropriate and {tables.count(needed)} necessary pairs, {_sides(found)}; "
        "hatched: no such pair"
    )


def changed(found: Difference, first: str, second: str, measure: str) -> str:
    """'B leaks more than A in 34 of 120 cells, less in 12; most in finance to landlord (+40.0 points)'."""
    change: Change = found.change(measure)
    told = "leaks" if measure == "violation" else "conveys"
    if not change.cells:
        return f"{second} and {first} have no cell in common"
    text = (
        f"{second} {told} more than {first} in {tables.count(change.higher)} of {tables.count(change.cells)} cells, "
        f"less in {tables.count(change.lower)}"
    )
    if change.points:
        text += f"; most {where(found.first, change.row, change.column)} ({change.points:+.1f} points)"
    return text


def pairs_of_both(found: Difference, second: str) -> str:
    """What the colours of a difference mean, and what it rests on."""
    numbers = [
        f"{tables.count(part.violation_pairs.sum())} inappropriate and "
        f"{tables.count(part.completeness_pairs.sum())} necessary pairs"
        for part in (found.first, found.second)
    ]
    counted = f"{numbers[0]} in each" if found.same_pairs else f"{numbers[0]} before, {numbers[1]} after"
    return (
        f"orange (+): {second} higher, blue (-): lower; {counted}, {_sides(found.first)}; "
        "hatched: no such pair in one run"
    )


def _sides(found: Grid) -> str:
    return (
        f"{tables.count(len(found.rows))} {PLURAL[found.rows.by]} by "
        f"{tables.count(len(found.columns))} {PLURAL[found.columns.by]}"
    )
