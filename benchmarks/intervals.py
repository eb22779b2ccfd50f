"""How often the 95 % intervals hold the truth, and how often equal runs are said to differ: worlds with known numbers.

    python benchmarks/intervals.py [--worlds 1000] [--profiles 5 10 20] [--only "shared tasks"] [--families 1000]

Each world draws a run (60 attributes, 24 tasks, 5 samples) from one population; the truth is the population's mean,
over 20,000 profiles and, where tasks are shared, 2,000 draws of the tasks. The intervals are those of
cimemories.metrics.intervals, labels taken as given. The table in docs/intervals.md is this program's output.

A run that lost messages is read at the n that all its flows support, mostly 1; Violation@5 is shown as bounds alone, so
what is counted is how often they hold it. The skewed population is also counted with other intervals of its profiles'
numbers: Student's t, the same with the skewness taken out, and two of resampled profiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from cimemories.flows.arrays import Bools, Floats, FlowArrays, Ints, Names
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics import completeness
from cimemories.metrics.intervals import Intervals, common, domain_frame, domain_terms, intervals_of, paired_arrays
from cimemories.metrics.uncertainty import Interval, holm
from cimemories.metrics.violation import balanced, exposures, missing
from cimemories.model import DOMAINS

ATTRIBUTES, TASKS, SAMPLES = 60, 24, 5
NS = tuple(range(1, SAMPLES + 1))
TRUTH_PROFILES, TRUTH_TASKS = 20_000, 2_000
RUNS = 8  # of a family of equal runs, compared with one more
LEAST, MOST = 0.93, 0.97
DRAWS = 999  # of the intervals from resampled profiles


@dataclass(frozen=True)
class Population:
    """Profiles differ by `profiles` on the logit scale, their attributes around that by 1.2, their contexts by 0.8.

    heavy: the share of users who leak far more than the others. tasks: how much tasks differ, alike for all users; they
    are drawn anew in each world. lost: the chance of a message to go missing, where it leaks nothing and where it does.
    """

    name: str
    profiles: float
    heavy: float = 0.0
    tasks: float = 0.0
    lost: tuple[float, float] = (0.0, 0.0)


POPULATIONS = (
    Population("profiles alike", 0.1),
    Population("as in the paper", 0.35),
    Population("very different", 0.8),
    Population("strong heterogeneity", 1.0),
    Population("one user in ten leaks heavily", 0.2, heavy=0.1),
    Population("shared tasks, redrawn", 0.35, tasks=1.2),
    Population("30 % missing at random", 0.35, lost=(0.3, 0.3)),
    Population("leaky messages missing more", 0.35, lost=(0.15, 0.45)),
)
SKEWED = POPULATIONS[4]


def chances(of: Population, profiles: int, random: np.random.Generator) -> tuple[Ints, Floats]:
    """Labels, and how likely a message reveals each attribute: [profile, attribute, task] both."""
    shape = (profiles, ATTRIBUTES, TASKS)
    leaning = random.normal(-3.6, of.profiles, (profiles, 1, 1))
    if of.heavy:
        leaning += np.where(random.random((profiles, 1, 1)) < of.heavy, 2.8, -0.6)
    leak = leaning + random.normal(0, 1.2, (profiles, ATTRIBUTES, 1)) + random.normal(0, of.tasks, (1, 1, TASKS))
    telling = random.normal(0, of.profiles, (profiles, 1, 1)) + random.normal(0, of.tasks, (1, 1, TASKS))
    necessary = telling + random.normal(0, 0.8, (profiles, 1, TASKS))
    kind = random.random(shape)
    labels = np.where(kind < 0.08, NECESSARY, np.where(kind < 0.4, INAPPROPRIATE, AMBIGUOUS)).astype(np.int8)
    return labels, 1 / (1 + np.exp(-np.where(labels == INAPPROPRIATE, leak, necessary)))


@cache
def names(profiles: int) -> Names:
    domains = np.broadcast_to(np.array(DOMAINS, object)[np.arange(ATTRIBUTES) % len(DOMAINS)], (profiles, ATTRIBUTES))
    return replace(Names.unnamed(profiles, ATTRIBUTES), domain=domains)


def run_of(labels: Ints, chance: Floats, random: np.random.Generator, lost: tuple[float, float] = (0, 0)) -> FlowArrays:
    """A run of five samples a task, of which some are lost."""
    profiles = len(labels)
    draws = np.full(labels.shape, SAMPLES, np.int16)
    planned = None
    if any(lost):
        revealed = random.random((*labels.shape, SAMPLES)) < chance[..., None]
        leaks: Bools = (revealed & (labels == INAPPROPRIATE)[..., None]).any(axis=1, keepdims=True)
        kept = random.random(leaks.shape) >= np.where(leaks, lost[1], lost[0])
        reveals, planned = (revealed & kept).sum(axis=3).astype(np.int16), draws
        draws = np.broadcast_to(kept.sum(axis=3), labels.shape).astype(np.int16)
    else:
        reveals = random.binomial(SAMPLES, chance).astype(np.int16)
    counted = np.ones(labels.shape[:2], np.bool_)
    ids = tuple(range(profiles)), tuple(range(TASKS))
    return FlowArrays(reveals, draws, labels, counted, *ids, names(profiles), planned=planned)


@dataclass(frozen=True)
class Truth:
    """The population's numbers, nothing missing. violation: by n."""

    violation: dict[int, float]
    completeness: float

    def balanced(self, n: int) -> float:
        return balanced(self.violation[n], self.completeness)


def truth(of: Population) -> Truth:
    sums, random = [], np.random.default_rng(1)
    size, worlds = (20, TRUTH_TASKS) if of.tasks else (500, TRUTH_PROFILES // 500)
    for _ in range(worlds):
        data = run_of(*chances(of, size, random), random)
        leaks = exposures(data)
        complete = completeness.by_profile(data.reveals, data.draws, data.labels)
        sums.append([leaks.by_profile(leaks.violation(n)).mean() for n in NS] + [float(np.nanmean(complete))])
    *violation, complete_mean = np.mean(sums, axis=0).tolist()
    return Truth(dict(zip(NS, violation, strict=True)), complete_mean)


def holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def hits(data: FlowArrays, estimated: Intervals, true: Truth) -> list[bool]:
    """Whether V@1, V@5, completeness, balanced score, and the bounds of V@5 hold the truth. Of a run that lost messages
    the second and the balanced score are read at the n that it supports."""
    low, high = estimated.bounds[SAMPLES]
    n = SAMPLES if data.whole else missing(data).supported_n(SAMPLES) or 1
    return [
        holds(estimated.violation[1], true.violation[1]),
        holds(estimated.violation[n], true.violation[n]),
        holds(estimated.completeness, true.completeness),
        holds(estimated.balanced_at[n], true.balanced(n)),
        low <= true.violation[SAMPLES] <= high,
    ]


def student_t(own: Floats) -> Floats:
    reach = float(student.ppf(0.975, len(own) - 1)) * own.std(ddof=1) / np.sqrt(len(own))
    ends: Floats = own.mean() + np.array([-reach, reach])
    return ends


def hall(own: Floats) -> Floats:
    """Student's t with Hall's transformation, which takes the skewness out (1992, JRSS B 54, 221-228)."""
    size, error = len(own), own.std(ddof=1) / np.sqrt(len(own))
    shape = size / ((size - 1) * (size - 2)) * (((own - own.mean()) / own.std(ddof=1)) ** 3).sum() / np.sqrt(size)
    points = student.ppf([0.975, 0.025], size - 1)
    if abs(shape) > 1e-6:
        points = 3 / shape * (np.cbrt(1 + shape * (points - shape / 6)) - 1)
    ends: Floats = own.mean() - error * points
    return ends


def bootstrap_t(own: Floats) -> Floats:
    resampled = np.random.default_rng(1).choice(own, (DRAWS, len(own)))
    error = resampled.std(axis=1, ddof=1)
    spread = error > 1e-12
    points = (resampled.mean(axis=1) - own.mean())[spread] / error[spread]
    ends: Floats = own.mean() - own.std(ddof=1) * np.quantile(points, [0.975, 0.025])
    return ends


def bca(own: Floats) -> Floats:
    """Bias-corrected and accelerated (Efron 1987, JASA 82, 171-185)."""
    means = np.random.default_rng(1).choice(own, (DRAWS, len(own))).mean(axis=1)
    apart = own - own.mean()
    bias = norm.ppf(np.clip((means < own.mean()).mean(), 1 / DRAWS, 1 - 1 / DRAWS))
    faster = (apart**3).sum() / (6 * (apart**2).sum() ** 1.5)
    points = bias + norm.ppf([0.025, 0.975])
    ends: Floats = np.quantile(means, norm.cdf(bias + points / (1 - faster * points)))
    return ends


OTHERS: dict[str, Callable[[Floats], Floats]] = {
    "Student's t": student_t,
    "Hall's t": hall,
    "bootstrap-t": bootstrap_t,
    "BCa": bca,
}


def coverage(of: Population, profiles: int, worlds: int, true: Truth) -> tuple[Floats, dict[str, Floats]]:
    """Shares of worlds whose intervals hold the truth; those of V@1 and V@5 by each other interval."""
    random, counts = np.random.default_rng(profiles), np.zeros(5)
    others = {name: np.zeros(2) for name in OTHERS}
    for _ in range(worlds):
        data = run_of(*chances(of, profiles, random), random, of.lost)
        ns = (1, SAMPLES) if data.whole else NS
        estimated = intervals_of(data, ns)
        counts += hits(data, estimated, true)
        if of is SKEWED:
            leaks = exposures(data)
            for k, n in enumerate((1, SAMPLES)):
                own = leaks.by_profile(leaks.violation(n))
                for name, interval in OTHERS.items():
                    low, high = interval(own)
                    others[name][k] += low <= true.violation[n] <= high
    return counts / worlds, {name: count / worlds for name, count in others.items()}


def false_claims(of: Population, profiles: int, worlds: int) -> dict[str, float]:
    """How often equal runs are said to differ: any of a family, by Holm's p and by intervals that leave 0 out."""
    random, counts = np.random.default_rng(profiles), np.zeros(6)
    for _ in range(worlds):
        labels, chance = chances(of, profiles, random)
        first, *rest = (run_of(labels, chance, random) for _ in range(RUNS + 1))
        pairs = [paired_arrays(*common(first, other), SAMPLES) for other in rest]
        differences = [pair.violation for pair in pairs]
        domains = domain_frame([domain_terms(first, rest[0], SAMPLES)], SAMPLES)
        apart = (domains["violation_low"] > 0) | (domains["violation_high"] < 0)
        counts += np.array(
            [
                not differences[0].has_zero,
                not all(item.has_zero for item in differences),
                min(holm([item.p for item in differences])) < 0.05,
                min(holm([pair.completeness.p for pair in pairs])) < 0.05,
                apart.any(),
                (domains["violation_p"] < 0.05).any(),
            ],
            np.bool_,
        )
    titles = ("one pair", "eight, intervals", "eight, Holm", "eight, Holm (C)", "domains, intervals", "domains, Holm")
    return dict(zip(titles, (counts / worlds).tolist(), strict=True))


def print_coverage(populations: list[Population], sizes: list[int], worlds: int) -> None:
    inside = []
    print(f"coverage, {worlds:,} worlds a row")
    heads = ("V@1", "V@5", "compl.", "balanced", "bounds")
    print(f"{'population':30}{'profiles':>9}" + "".join(f"{head:>10}" for head in heads) + "   truth")
    for of in populations:
        true = truth(of)
        for profiles in sizes:
            shares, others = coverage(of, profiles, worlds, true)
            inside.append(shares[:4])
            cells = "".join(f"{share:10.1%}" for share in shares)
            numbers = f"{true.violation[1]:.3f} {true.violation[SAMPLES]:.3f} {true.completeness:.3f}"
            print(f"{of.name:30}{profiles:9}{cells}   {numbers}", flush=True)
            if of is SKEWED:
                for name, each in others.items():
                    print(f"  {name:28}{'':9}" + "".join(f"{share:10.1%}" for share in each))
    within = np.mean([(share >= LEAST) & (share <= MOST) for shares in inside for share in shares]) if inside else 0
    print(f"{within:.0%} of the figures between {LEAST:.0%} and {MOST:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", type=int, default=1000, help="worlds of the coverage; 0: none")
    parser.add_argument("--profiles", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--only", default="", help="populations with this in their name")
    parser.add_argument("--families", type=int, default=1000, help="worlds of the families of equal runs; 0: none")
    options = parser.parse_args()
    clock = time.perf_counter()
    chosen = [of for of in POPULATIONS if options.only in of.name]
    print(f"{ATTRIBUTES} attributes, {TASKS} tasks, {SAMPLES} samples")
    if options.worlds:
        print_coverage(chosen, options.profiles, options.worlds)
        print(f"{time.perf_counter() - clock:.0f} s")
    if options.families:
        print(f"\nequal runs said to differ, {options.families:,} worlds a row")
        for of in (of for of in chosen if of in POPULATIONS[1:6]):
            for profiles in options.profiles:
                rates = false_claims(of, profiles, options.families)
                print(f"{of.name:30}{profiles:9}  " + ", ".join(f"{k} {v:.1%}" for k, v in rates.items()), flush=True)
        print(f"{time.perf_counter() - clock:.0f} s")


if __name__ == "__main__":
    main()
