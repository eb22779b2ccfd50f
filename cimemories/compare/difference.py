"""Two runs compared: paired differences as sentences, by domain, and the flows that changed.

sim-careful leaks less than sim-average: -15.3 points, 95 % CI -18.7 to -12.1 (p < 0.001).
newly leaking     profile 3, attribute 512, context 7: 0 of 5 samples -> 2 of 5
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.compare.common_flows import compared_runs, paired_runs
from cimemories.compare.leaderboard import Leaderboard, Line, names, none_for_nan, same_dataset
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.labels.votes import describe_pairs
from cimemories.metrics import sentences
from cimemories.metrics.intervals import Paired, Tallied
from cimemories.metrics.judge_uncertainty import audited_difference
from cimemories.metrics.power import Noise
from cimemories.metrics.sentences import Ranked, Ranking, Tested, alone, family
from cimemories.metrics.separation import standing
from cimemories.metrics.uncertainty import UNDEFINED, Interval
from cimemories.metrics.warnings import comparison_warnings
from cimemories.store.engine import StoreError
from cimemories.text import count, sentence

NEWLY, STOPPED = "newly leaks", "stopped leaking"


@dataclass(frozen=True)
class Difference:
    """Second run minus first on their common flows. Negative violation: the second leaks less.

    domains: one row a domain with `violation` and `completeness` differences, their bounds (`_low`, `_high`) and what
    they rest on (`attributes`, `necessary_flows`); nan where a domain has none. flows: one row a common inappropriate
    flow that newly leaks or stopped leaking (`change`), with what it is about and the reveals and draws of either side;
    the most revealed first, of runs too large for memory at most common_flows.MOST_CHANGED of each kind. noise: how far
    apart two runs of models that are alike would lie on these flows. warnings: in what the runs differ apart from their
    models. adjusted: as in `tests`; None where this is the only comparison (`together`). corrected: (n, the difference
    of Violation@n corrected for the judges' errors), where people audited attributes of both runs.
    """

    first: Scope
    second: Scope
    paired: Paired
    tallied: Tallied
    necessary: int
    domains: pd.DataFrame
    flows: pd.DataFrame
    noise: Noise
    warnings: tuple[str, ...]
    adjusted: tuple[Tested, Tested] | None = None
    corrected: tuple[int, Interval] | None = None

    @property
    def simulated(self) -> tuple[str, ...]:
        return parts_of([self.first.simulated, self.second.simulated])

    @property
    def tests(self) -> tuple[Tested, Tested]:
        """Violation and completeness with their p, adjusted for all comparisons that are read together."""
        return self.adjusted or (alone(self.paired.violation), alone(self.paired.completeness))

    def sentences(self, first: str, second: str) -> tuple[str, str]:
        """The differences in words, with what the two runs are called: of violation, of completeness."""
        violation, completeness = self.tests
        return (
            sentences.difference(violation, second, first, "leaks", f"violation@{self.paired.n}"),
            sentences.difference(completeness, second, first, "conveys", "completeness", " of what is necessary"),
        )

    def corrected_sentence(self, first: str, second: str) -> str:
        """The corrected difference in words; empty without one."""
        if self.corrected is None:
            return ""
        n, apart = self.corrected
        text = sentences.difference(alone(apart), second, first, "leaks", f"violation@{n}")
        return f"Corrected for the judges' errors, at {count(n, 'sample')}: {text}"

    def as_json(self) -> dict[str, object]:
        """One object for scripts; undefined numbers are null. Flows by their ids in the record."""
        domains = [{k: none_for_nan(v) for k, v in row.items()} for row in self.domains.to_dict("records")]
        names = self.first.run.id, self.second.run.id
        return {
            "first": names[0],
            "second": names[1],
            "n": self.paired.n,
            "common_profiles": self.paired.profiles,
            "common_inappropriate_flows": self.tallied.flows,
            "common_necessary_flows": self.necessary,
            "violation": self._side(0),
            "completeness": self._side(1),
            "violation_corrected": {"n": self.corrected[0]} | self.corrected[1].as_json() if self.corrected else None,
            "leaking": {
                "neither": self.tallied.neither,
                "stopped": self.tallied.stopped,
                "newly": self.tallied.newly,
                "both": self.tallied.both,
                "newly_by_chance": none_for_nan(self.tallied.newly_by_chance),
                "stopped_by_chance": none_for_nan(self.tallied.stopped_by_chance),
            },
            "noise_floor": self.noise.as_json(),
            "words": list(self.sentences(*names)),
            "by_domain": domains,
            "changed_flows": self.flows.drop(columns=["statement", "task", "recipient", "user"]).to_dict("records"),
            "simulated": bool(self.simulated),
            "simulated_parts": list(self.simulated),
            "warnings": list(self.warnings),
        }

    def _side(self, position: int) -> dict[str, object]:
        tested = self.tests[position]
        return {
            "first": none_for_nan(self.paired.first[position]),
            "second": none_for_nan(self.paired.second[position]),
            "difference": tested.apart.as_json(),
            "includes_0": None if math.isnan(tested.apart.value) else tested.apart.has_zero,
            "p": none_for_nan(tested.apart.p),
            "p_holm": none_for_nan(tested.p),
            "comparisons": tested.family,
        }


def difference(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Difference:
    """The second run minus the first. Violation is read at the smaller number of samples of the two. Cached until
    something behind it changes. Raises StoreError for runs of two datasets, and for one run read twice in one way."""
    same_dataset([first, second])
    # By version, not by run: one run by two judges is two ways of reading it.
    if first.version == second.version:
        raise StoreError(f"{first.run.id} cannot be compared with itself. Choose another run.")
    key = ("difference", first.version, second.version, rule)
    result = flows.cached(key, lambda: _difference(flows, first, second, rule))
    # A name or status moves without any number moving.
    warnings = comparison_warnings(flows.store, [first, second])
    corrected = audited_difference(flows, first, second, rule)
    return replace(result, first=first, second=second, warnings=warnings, corrected=corrected)


def together(differences: Sequence[Difference]) -> list[Difference]:
    """Differences that are read together, such as every run against the first: p adjusted over all of them (Holm),
    violation and completeness each for itself."""
    violation = family([item.paired.violation for item in differences])
    completeness = family([item.paired.completeness for item in differences])
    return [
        replace(item, adjusted=both)
        for item, both in zip(differences, zip(violation, completeness, strict=True), strict=True)
    ]


def paired_on_common(
    flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT, n: int | None = None
) -> Paired:
    """Second run minus first on their common flows, the intervals alone: what a table of many runs takes of each. n:
    samples that violation is read at; None: as many as both have."""
    fewest = min(first.run.samples, second.run.samples)
    at = min(n or fewest, fewest)
    key = ("paired on common", first.version, second.version, rule, at)
    return flows.cached(key, lambda: paired_runs(flows, first, second, rule, at))


def ranking(flows: Flows, board: Leaderboard) -> Ranking | None:
    """Tests of the runs that a table ranks, each pair on its common flows: what the table's sentence may say of their
    order. None with fewer than two that have a balanced score."""
    lines = _with_score(board.ranked)
    if len(lines) < 2:
        return None

    def apart(one: Line, other: Line) -> Paired:
        return paired_on_common(flows, other.scope, one.scope, board.rule, min(one.n, other.n))

    scores = [line.balanced.value for line in lines]
    of_first = [apart(lines[0], line).balanced for line in lines[1:]]
    # On their common flows another one may be higher.
    p = [math.nan, *(item.p if item.value > 0 else 1.0 for item in of_first)]
    best = standing(scores, p, 0)
    low = min(lines, key=lambda line: line.violation.value)
    high = max(lines, key=lambda line: line.violation.value)
    ends = apart(high, low).violation if low.run.id != high.run.id else UNDEFINED
    pairs = len(lines) * (len(lines) - 1) / 2
    return Ranking(best, min(1.0, ends.p * pairs) if ends.value > 0 else 1.0) if best is not None else None


def _with_score(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if not math.isnan(line.balanced.value)]


def takeaway(flows: Flows, board: Leaderboard, run_names: Mapping[str, str] | None = None) -> str:
    """What a table of runs says, in one sentence. What rests on a part of its responses, or on another judge or memory,
    is not held up as best or worst. run_names: what each is called, by its id; None: as in the table."""
    run_names = run_names or names(board.lines)
    defined, ranked = _with_score(board.lines), _with_score(board.ranked)
    if not ranked and len(defined) > 1:
        return sentences.unranked(len(defined))
    rows = [Ranked(run_names[i.run.id], i.violation, i.completeness, i.balanced) for i in (ranked or defined)]
    if len(rows) != 1:
        text = sentences.leaderboard(board.violation_name, rows, ranking(flows, board))
        # A range is of the ranked runs alone: others may leak more and less.
        return f"{sentences.some_ranked(len(rows), len(board.lines))}{text}" if ranked else text
    (only,) = ranked or defined
    text = sentences.leaderboard(f"Violation@{only.n}", rows, None)
    if only.outside:
        return f"{sentence(only.numbers.coverage_text)} {text}"
    return f"{sentences.some_ranked(1, len(board.lines))}{text}"


def _difference(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule) -> Difference:
    n = min(first.run.samples, second.run.samples)
    found = compared_runs(flows, first, second, rule, n)
    return Difference(
        first=first,
        second=second,
        paired=found.paired,
        tallied=found.tallied,
        necessary=found.necessary,
        domains=found.domains,
        flows=_named(flows, first, found.changed),
        noise=found.noise,
        warnings=(),
    )


def _named(flows: Flows, scope: Scope, changed: pd.DataFrame) -> pd.DataFrame:
    """The changed flows with the words that a person reads."""
    with flows.store.read() as connection:
        named = describe_pairs(connection, scope.run.dataset, changed.drop(columns="profile"))
    # The larger share of the two sides: how much the flow leaks where it leaks.
    most = np.maximum(named["first_reveals"] / named["first_draws"], named["second_reveals"] / named["second_draws"])
    named = named.assign(change=np.where(named["newly"] == 1, NEWLY, STOPPED), most=most)
    order = ["change", "most", "profile", "context", "attribute"]
    ordered = named.sort_values(order, ascending=[True, False, True, True, True], ignore_index=True)
    what = ["change", "profile", "attribute", "context", "user", "key", "domain", "statement", "recipient", "task"]
    return ordered[[*what, "first_reveals", "first_draws", "second_reveals", "second_draws"]]
