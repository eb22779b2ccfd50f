"""Drawing an audit slice: a stratified random sample of the pairs of a labelling, and how sure it will let one be.

Strata are domain x consensus label x persona pattern (what the majority of each persona says, in their order: `NX?`).
Where there are more strata than pairs to draw, they are made coarser until every one gets a pair, so that no part of
the population is left out and what is weighted speaks for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.analysis.draws_agreement import LETTERS, majorities
from cimemories.analysis.labels import vote_counts
from cimemories.analysis.pair_groups import GroupBy, groupings
from cimemories.analysis.people import answers
from cimemories.analysis.rule import applied_rule
from cimemories.curation.consensus import LABELS, UNLABELLED
from cimemories.store import slices, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.slices import SliceItem

NORMAL_95 = 1.959964
LEVELS = ("domain x label x persona pattern", "domain x label", "label", "none")
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Population:
    """The pairs of a labelling with a consensus label (ambiguous is one), to draw from. attributes, contexts: ids
    [pairs]. strata: for each of LEVELS the names of its strata and the stratum of each pair, [pairs]."""

    dataset_id: int
    labelling_id: str
    rule: str
    attributes: Ints
    contexts: Ints
    strata: tuple[tuple[tuple[str, ...], Ints], ...]

    def __len__(self) -> int:
        return len(self.attributes)

    def level(self, size: int) -> int:
        """The finest of LEVELS that has no more strata than `size`."""
        return next(n for n, (names, _) in enumerate(self.strata) if len(names) <= size or n == len(LEVELS) - 1)


@dataclass(frozen=True)
class Plan:
    """How a slice of this size would be drawn. level: of LEVELS. sizes, drawn: pairs of each stratum in the population
    and in the slice."""

    level: str
    names: tuple[str, ...]
    sizes: Ints
    drawn: Ints

    @property
    def size(self) -> int:
        return int(self.drawn.sum())

    def half_width(self, share: float = 0.5) -> float:
        """Half the width of the 95 % interval for the share of pairs on which people agree with the consensus, if it is
        `share` in every stratum: 1.96 sqrt(sum of W^2 (1 - n / N) p (1 - p) / n), N and n the pairs of a stratum in the
        population and drawn, W its share of the population (W. G. Cochran 1977, Sampling Techniques, section 5.6).
        Drawn in proportion this is the interval of a simple sample with the correction for a finite population."""
        total = self.sizes.sum()
        if not total or (self.drawn == 0).any():
            return float("nan")
        weights = self.sizes / total
        spread = weights**2 * (1 - self.drawn / self.sizes) * share * (1 - share) / self.drawn
        return NORMAL_95 * sqrt(float(spread.sum()))


def population(store: Store, labelling_id: str) -> Population:
    """What a slice of a labelling can be drawn from, by the rule that holds. Raises StoreError for an unknown one."""
    counts = vote_counts(store, labelling_id)
    with store.read() as connection:
        dataset_id = int(work.load(connection, labelling_id)["dataset"])
        rule = applied_rule(connection, labelling_id)
        domains = groupings(connection, dataset_id, counts)[GroupBy.DOMAIN]
    labels = counts.labels(rule)
    keep = labels != UNLABELLED
    verdicts = majorities(counts.votes[keep])
    base = len(LETTERS)
    pattern = verdicts @ base ** np.arange(verdicts.shape[1])[::-1]
    label, domain = labels[keep].astype(np.int64), domains.codes[keep]

    def named(domain_code: int, label_code: int, pattern_code: int) -> str:
        letters = [LETTERS[(pattern_code // base**n) % base] for n in reversed(range(verdicts.shape[1]))]
        return f"{domains.ids[domain_code]} / {LABELS[label_code]} / {''.join(letters)}"

    width, letters = len(LABELS), base ** verdicts.shape[1]
    fine, code = np.unique((domain * width + label) * letters + pattern, return_inverse=True)
    middle, middle_code = np.unique(domain * width + label, return_inverse=True)
    coarse, coarse_code = np.unique(label, return_inverse=True)
    return Population(
        dataset_id,
        labelling_id,
        f"{rule.name}: {rule.words}",
        counts.attributes[keep],
        counts.contexts[keep],
        (
            (tuple(named(n // letters // width, n // letters % width, n % letters) for n in fine.tolist()), code),
            (tuple(f"{domains.ids[n // width]} / {LABELS[n % width]}" for n in middle.tolist()), middle_code),
            (tuple(str(LABELS[n]) for n in coarse.tolist()), coarse_code),
            (("all",), np.zeros(len(label), np.int64)),
        ),
    )


def allocation(sizes: npt.ArrayLike, size: int) -> Ints:
    """How many pairs each stratum gives: in proportion to its size, but at least 1 each where `size` allows it, whole
    numbers by largest remainders (earlier strata first where these are equal); adds up to `size`, no stratum gives more
    than it has. sizes: pairs a stratum, all above 0. Raises ValueError for a size below 1 or above all pairs.
    """
    whole = np.asarray(sizes, np.int64)
    if not 1 <= size <= whole.sum():
        raise ValueError(f"{size} pairs cannot be drawn from {int(whole.sum())}")
    drawn = np.zeros(len(whole), np.int64)
    free = np.ones(len(whole), np.bool_)
    while size >= len(whole):
        quota = (size - drawn.sum()) * whole / max(int(whole[free].sum()), 1)
        small = free & (quota < 1)
        if not small.any():
            break
        drawn[small], free[small] = 1, False
    left = size - int(drawn.sum())
    quota = np.where(free, left * whole / max(int(whole[free].sum()), 1), 0)
    floor = np.floor(quota + 1e-9).astype(np.int64)
    order = np.argsort(-(quota - floor), kind="stable")
    floor[order[: left - int(floor.sum())]] += 1
    return drawn + floor


def plan(found: Population, size: int) -> Plan:
    """How a slice would be drawn. Raises StoreError for a size below 1 or above all pairs."""
    if not 1 <= size <= len(found):
        raise StoreError(f"{size:,} pairs cannot be drawn: the labelling has {len(found):,} labelled ones.")
    level = found.level(size)
    names, code = found.strata[level]
    sizes = np.bincount(code, minlength=len(names)).astype(np.int64)
    return Plan(LEVELS[level], names, sizes, allocation(sizes, size))


def expected_interval(found: Population, size: int) -> str:
    """How wide the interval will be, in words, before any work is done. Raises StoreError as `plan` does."""
    wanted = plan(found, size)
    if wanted.size == len(found):
        return f"All {len(found):,} labelled pairs: no interval is left for the drawing, every share is exact."
    worst, usual = (f"{100 * wanted.half_width(share):.1f}" for share in (0.5, 0.8))
    return (
        f"{size:,} of {len(found):,} labelled pairs from {len(wanted.names)} strata ({wanted.level}): if people agree "
        f"with the consensus on 80 % of the pairs, the 95 % interval will be 80 % ± {usual} points; at worst (50 %) "
        f"± {worst} points."
    )


def drawn_items(found: Population, size: int, seed: int) -> list[SliceItem]:
    """The drawn pairs in random order, so that any first part of them is a sample too. The same population, size and
    seed give the same pairs in the same order. weight: the size of the pair's stratum over how many it gives.
    Raises StoreError as `plan` does."""
    wanted = plan(found, size)
    _, code = found.strata[LEVELS.index(wanted.level)]
    rng = np.random.default_rng(seed)
    # A random order of all pairs; of each stratum the first so many are drawn, and stay in that order.
    order = rng.permutation(len(found))
    rank = pd.Series(code[order]).groupby(code[order]).cumcount().to_numpy(np.int64)
    chosen = order[rank < wanted.drawn[code[order]]]
    weights = wanted.sizes / np.maximum(wanted.drawn, 1)
    return [
        SliceItem(int(a), int(c), None, wanted.names[s], float(weights[s]))
        for a, c, s in zip(found.attributes[chosen], found.contexts[chosen], code[chosen], strict=True)
    ]


def draw_slice(store: Store, labelling_id: str, *, size: int, seed: int, name: str, annotator: str) -> int:
    """Draw a slice of labels and keep it; returns its id. Raises StoreError for a size, name or annotator that will not
    do, or an unknown labelling."""
    found = population(store, labelling_id)
    wanted = plan(found, size)
    items = drawn_items(found, size, seed)
    manifest = {
        "labelling": labelling_id,
        "rule": found.rule,
        "population": len(found),
        "strata_by": wanted.level,
        "strata": [
            {"name": stratum, "size": n, "drawn": k}
            for stratum, n, k in zip(wanted.names, wanted.sizes.tolist(), wanted.drawn.tolist(), strict=True)
        ],
        "half_width_at_50": round(wanted.half_width(0.5), 6),
        "half_width_at_80": round(wanted.half_width(0.8), 6),
    }
    with store.write() as connection:
        return slices.add(connection, found.dataset_id, slices.LABELS, name, seed, manifest, annotator, items)


def progress(store: Store, dataset_id: int, items: Sequence[SliceItem]) -> dict[str, tuple[int, int]]:
    """How far each person is with the pairs of a slice: name -> (answered, of these blind). People without an answer in
    it are left out."""
    found = answers(store, dataset_id)
    wanted = {(item.attribute, item.context) for item in items}
    pairs = zip(found.attributes.tolist(), found.contexts.tolist(), strict=True)
    mine = found.at(np.array([pair in wanted for pair in pairs], np.bool_))
    counted = {
        person: (int((mine.said[n] != UNLABELLED).sum()), int((mine.blind[n] & (mine.said[n] != UNLABELLED)).sum()))
        for n, person in enumerate(mine.people)
    }
    return {person: both for person, both in counted.items() if both[0]}
