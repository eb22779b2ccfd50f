"""How often the 95 % intervals hold the truth: simulated worlds whose true numbers are known.

    python benchmarks/intervals.py [--worlds 1000] [--profiles 10 30] [--resamples 2000]

Each world draws its profiles from one population: a profile has a leaning to leak and one to convey, its attributes
differ around the first, its contexts around the second, and five samples of every flow are drawn. The truth is the
population's mean of V@1, V@5, completeness and balanced score, taken over 20,000 profiles. The interval is that of
`cimemories.metrics.bootstrap`. Three kinds of population: profiles alike, as different as the paper's spread over
profiles suggests (its Table 1), and very different.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from cimemories.flows.arrays import Floats, FlowArrays, Names
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics import completeness
from cimemories.metrics.intervals import intervals_of
from cimemories.metrics.violation import balanced, exposures

ATTRIBUTES, CONTEXTS, SAMPLES = 80, 24, 5
TRUTH_PROFILES = 20_000
LEAST, MOST = 0.93, 0.97


@dataclass(frozen=True)
class Population:
    """How much profiles (logit scale), attributes and contexts inside them, differ."""

    name: str
    profiles: float
    attributes: float
    contexts: float


POPULATIONS = (
    Population("profiles alike", 0.1, 1.2, 0.8),
    Population("as in the paper", 0.35, 1.2, 0.8),
    Population("very different", 0.8, 1.2, 0.8),
)


def arrays_of(population: Population, profiles: int, random: np.random.Generator) -> FlowArrays:
    """A run of so many profiles of this population."""
    shape = (profiles, ATTRIBUTES, CONTEXTS)
    leaning = random.normal(-3.6, population.profiles, (profiles, 1, 1))
    leak = leaning + random.normal(0, population.attributes, (profiles, ATTRIBUTES, 1))
    telling = random.normal(0, population.profiles, (profiles, 1, 1))
    told = telling + random.normal(0, population.contexts, (profiles, 1, CONTEXTS))
    kind = random.random(shape)
    labels = np.where(kind < 0.08, NECESSARY, np.where(kind < 0.4, INAPPROPRIATE, AMBIGUOUS)).astype(np.int8)
    logit = np.where(labels == INAPPROPRIATE, leak, told)
    reveals = random.binomial(SAMPLES, 1 / (1 + np.exp(-logit))).astype(np.int16)
    draws = np.full(shape, SAMPLES, np.int16)
    counted = np.ones(shape[:2], np.bool_)
    names = Names.unnamed(profiles, ATTRIBUTES)
    return FlowArrays(reveals, draws, labels, counted, tuple(range(profiles)), tuple(range(CONTEXTS)), names)


def truth(population: Population) -> Floats:
    """V@1, V@5, completeness and balanced score of the population."""
    sums, random = [], np.random.default_rng(1)
    for _ in range(TRUTH_PROFILES // 500):
        data = arrays_of(population, 500, random)
        found = exposures(data)
        complete = completeness.by_profile(data.reveals, data.draws, data.labels)
        sums.append([found.by_profile(found.violation(n)).mean() for n in (1, SAMPLES)] + [float(np.nanmean(complete))])
    one, five, complete_ = np.mean(sums, axis=0)
    return np.array([one, five, complete_, balanced(float(five), float(complete_))])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--profiles", type=int, nargs="+", default=[10, 30])
    parser.add_argument("--resamples", type=int, default=2000)
    asked = parser.parse_args()
    print(f"{asked.worlds:,} worlds each, {ATTRIBUTES} attributes, {CONTEXTS} contexts, {SAMPLES} samples")
    print(f"{'population':18}{'profiles':>9}{'V@1':>9}{'V@5':>9}{'compl.':>9}{'balanced':>10}   truth of V@5 and C")
    names, clock, inside = ("violation@1", "violation@5", "completeness", "balanced"), time.perf_counter(), []
    for population in POPULATIONS:
        wanted = truth(population)
        for profiles in asked.profiles:
            random, hits = np.random.default_rng(profiles), np.zeros(len(names))
            for world in range(asked.worlds):
                found = intervals_of(arrays_of(population, profiles, random), (1, SAMPLES), asked.resamples, seed=world)
                shown = [found.violation[1], found.violation[SAMPLES], found.completeness, found.balanced]
                hits += [item.low <= value <= item.high for item, value in zip(shown, wanted, strict=True)]
            shares = hits / asked.worlds
            inside.append(shares)
            print(
                f"{population.name:18}{profiles:9}"
                + "".join(f"{share:9.1%}" for share in shares[:3])
                + f"{shares[3]:10.1%}   {wanted[1]:.3f} and {wanted[2]:.3f}",
                flush=True,
            )
    within = np.mean([(share >= LEAST) & (share <= MOST) for shares in inside for share in shares])
    print(f"{within:.0%} of the figures between {LEAST:.0%} and {MOST:.0%}; {time.perf_counter() - clock:.0f} s")


if __name__ == "__main__":
    main()
