"""The highest of a family (groups, cells, runs, judges), and how it stands to the others; counts without any test."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimemories.metrics.sentences.numbers import TIE, decimals, number, share, shares
from cimemories.metrics.separation import Cell, CellChanges, Standing
from cimemories.text import count


def in_so_many(than: str, less: str, more: str, over: str) -> str:
    """Return 'less than A in 2 and more in 1 of 10 domains'; either number may be empty."""
    (word, some), *other = [(word, some) for word, some in (("less", less), ("more", more)) if some]
    also = "".join(f" and {second} in {number}" for second, number in other)
    return f"{word} than {than} in {some}{also} of {over}"


# ---- the highest of a family


def rivals(standing: Standing, noun: str, plural: str = "") -> str:
    """Say how the highest stands to the others: 'clearly above all 9 other domains', 'too close to call against 8 of 9
    other domains'; '' if there is no other."""
    others = count(standing.others, f"other {noun}", f"other {plural}" if plural else "")
    if not standing.others:
        return ""
    every = f"all {others}" if standing.others > 1 else f"the {others.removeprefix('1 ')}"
    if standing.clear:
        return f"clearly above {every}"
    close = every if standing.alike == standing.others else f"{standing.alike:,} of {others}"
    return f"too close to call against {close}"


def groups(name: str, what: str, n: int, most: tuple[str, Standing] | None) -> str:
    """Say in which group violation is highest. what: 'domain'; most: as separation.most_violated_group."""
    if most is None:
        return f"{name}: no {what} has an inappropriate flow"
    group, standing = most
    label, value = group.replace("_", " ") or "(none)", share(standing.value)
    if standing.value <= TIE:
        where = f"in any of {count(standing.others + 1, what)}" if standing.others else f"in the only {what}"
        return f"{name}: nothing inappropriate was revealed {where}"
    if not standing.others:
        return f"{name}: violation@{n} is {value} in {label}, the only {what} with an inappropriate flow"
    if standing.clear:
        return f"{name} gives away most in {label}: violation@{n} {value}, {rivals(standing, what)}"
    return f"{name}: violation@{n} is highest in {label} ({value}), {rivals(standing, what)}"


def cell(worst: Cell | None, where: str, measure: str) -> str:
    """Say in which cell most goes wrong, as a clause. where: 'in finance to landlord'; measure: 'violation' or
    'completeness'."""
    leaking = measure == "violation"
    if worst is None:
        return "nothing was inappropriate" if leaking else "nothing was necessary"
    if worst.standing.value <= TIE:
        return "nothing inappropriate was revealed" if leaking else "everything necessary was conveyed"
    noun = "inappropriate pair" if leaking else "necessary pair"
    rests = f"{share(worst.share)} of {count(worst.pairs, noun)}"
    does = "leaked" if leaking else "left out"
    if not worst.standing.others:
        return f"{rests} {does} {where}, the only cell"
    if worst.standing.clear:
        return f"most pairs {does} {where} ({rests}), {rivals(worst.standing, 'cell')}"
    return f"the largest count of pairs {does} is {where} ({rests}), {rivals(worst.standing, 'cell')}"


def cell_title(worst: Cell | None, where: str, measure: str) -> str:
    """Return `cell` as a title; '' if no cell clearly stands out, which is no finding."""
    is_finding = worst is None or worst.standing.value <= TIE or not worst.standing.others or worst.standing.clear
    text = cell(worst, where, measure) if is_finding else ""
    return text[:1].upper() + text[1:]


def heatmap(name: str, n: int, violation: float, attributes: int, completeness: float) -> str:
    """Say a run's numbers, at an n that its maps are read at."""
    return (
        f"{name}: violation@{n} {share(violation)} of {count(attributes, 'attribute')}, "
        f"completeness {share(completeness)}"
    )


def changed_cells(changes: CellChanges, first: str, second: str, does: str, where: str, *, alone: bool = False) -> str:
    """Say in how many cells of two heatmaps a test finds a difference, and the largest one if it is one of them, on the
    pairs that both runs have. where: the cell of the largest. alone: whether one of the runs has pairs that the other
    has not."""
    if not changes.cells:
        return f"{second} and {first} have no flow in common"
    over = f"{count(changes.cells, 'cell')}"
    less, more = (f"{number:,}" if number else "" for number in (changes.lower, changes.higher))
    if not less and not more:
        return f"In none of {over} does a test tell {second} and {first} apart (Holm)"
    text = f"{second} {does} {in_so_many(first, less, more, over)} (Holm)"
    widest = changes.widest
    if widest is None or not widest.clear:
        return text
    points = number(widest.points, decimals(widest.points), "+")
    rests = f"{count(widest.pairs, 'pair')}{' that both have' if alone else ''}"
    return f"{text}; the largest difference is {where} ({points} points of {rests})"


# ---- counts, and judges beside people


def ends(names: Sequence[str], values: Sequence[float]) -> str:
    """Return 'from 12.0 % (legal) to 80.0 % (health)', of counts that are no sample of anything; ties have no ends. At
    least one value, none nan."""
    low, high = min(values), max(values)
    if high - low <= TIE:
        return f"{share(low)} in {'each of ' if len(values) > 1 else ''}{listed_count(names)}"
    least, most = shares(low, high)
    at = [[name for name, value in zip(names, values, strict=True) if abs(value - end) <= TIE] for end in (low, high)]
    return f"from {least} ({listed_count(at[0])}) to {most} ({listed_count(at[1])})"


def contexts_discarded(name: str, discarded: int, contexts: int, standing: Standing) -> str:
    """Say of which profile most contexts are discarded."""
    return _largest(
        f"{discarded:,} of {count(contexts, 'context')} of {name} {'is' if discarded == 1 else 'are'} discarded",
        standing,
        "profile",
    )


def labels_changed(name: str, changed: int, pairs: int, standing: Standing, noun: str, plural: str) -> str:
    """Say in which group most labels change. noun: 'domain'."""
    text = f"{changed:,} of {count(pairs, 'pair')} of {name} change their label"
    return _largest(text, standing, noun, plural)


def _largest(text: str, standing: Standing, noun: str, plural: str = "") -> str:
    if not standing.others:
        return text
    how = "the most" if standing.clear else "the largest count"
    return f"{text}, {how}, {rivals(standing, noun, plural)}"


def listed_count(names: Sequence[str]) -> str:
    """Return the name of one, the number of several."""
    return names[0] if len(names) == 1 else f"{len(names)}"


def leaks_by_run(counts: Sequence[tuple[str, int]]) -> str:
    """Say how many flows each run reveals: '12 by A, 9 by B'; of more than four runs from the fewest to the most."""
    if len(counts) <= 4:
        return ", ".join(f"{number:,} by {name}" for name, number in counts)
    ordered = sorted(counts, key=lambda item: item[1])
    (least, few), (most, many) = ordered[0], ordered[-1]
    if few == many:
        return f"{few:,} by each of {len(counts)} runs"
    return f"from {few:,} by {least} to {many:,} by {most}"


def nearest_judge(judges: Sequence[tuple[str, float, float, float]]) -> str:
    """Say which judge agrees with people most, by F1: (name, value, low, high), nan where undefined. It is called
    nearest only where its interval lies above all others: they judge the same items, so this is cautious."""
    defined = [item for item in judges if not math.isnan(item[1])]
    if len(judges) < 2 or not defined:
        return "How far the judge can be trusted" if len(judges) < 2 else "How far the judges can be trusted"
    first = max(defined, key=lambda item: item[1])
    others = [item for item in judges if item is not first]
    alike = sum(not item[3] < first[2] for item in others)
    if not alike:
        return f"{first[0]} is nearest to people (F1 {first[1]:.2f})"
    beside = rivals(Standing(0, first[1], 0, len(others), alike), "judge")
    return f"{first[0]} has the highest F1 ({first[1]:.2f}), {beside}"
