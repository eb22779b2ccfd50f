"""Two runs compared: paired differences as sentences, by domain, and the flows that changed.

sim-careful leaks 15.3 points less than sim-average [12.1, 18.7]; the interval does not include 0.
newly leaking     profile 3, attribute 512, context 7: 0 of 5 samples -> 2 of 5
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.compare.leaderboard import none_for_nan, same_dataset
from cimemories.flows.arrays import IdentifierRule, flow_arrays, necessary_mask
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.labels.votes import describe_pairs
from cimemories.metrics.intervals import Paired, Tallied, by_domain, changes, common, paired_arrays
from cimemories.metrics.uncertainty import Interval
from cimemories.metrics.warnings import comparison_warnings
from cimemories.store.engine import StoreError

NEWLY, STOPPED = "newly leaks", "stopped leaking"


@dataclass(frozen=True)
class Difference:
    """Second run minus first on their common flows. Negative violation: the second leaks less.

    domains: one row a domain with `violation` and `completeness` differences, their bounds (`_low`, `_high`) and what
    they rest on (`attributes`, `necessary_flows`); nan where a domain has none. flows: one row a common inappropriate
    flow that newly leaks or stopped leaking (`change`), with what it is about and the reveals and draws of either side;
    the most revealed first. warnings: in what the runs differ
    apart from their models.
    """

    first: Scope
    second: Scope
    paired: Paired
    tallied: Tallied
    necessary: int
    domains: pd.DataFrame
    flows: pd.DataFrame
    warnings: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        return bool(self.first.simulated or self.second.simulated)

    def sentences(self, first: str, second: str) -> tuple[str, str]:
        """The differences in words, with what the two runs are called: of violation, of completeness."""
        return (
            difference_text(self.paired.violation, second, first, "leaks", f"violation@{self.paired.n}"),
            difference_text(
                self.paired.completeness, second, first, "conveys", "completeness", " of what is necessary"
            ),
        )

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
            "violation": self._side(self.paired.violation, 0),
            "completeness": self._side(self.paired.completeness, 1),
            "leaking": {
                "neither": self.tallied.neither,
                "stopped": self.tallied.stopped,
                "newly": self.tallied.newly,
                "both": self.tallied.both,
            },
            "words": list(self.sentences(*names)),
            "by_domain": domains,
            "changed_flows": self.flows.drop(columns=["statement", "task", "recipient", "user"]).to_dict("records"),
            "simulated": self.simulated,
            "warnings": list(self.warnings),
        }

    def _side(self, interval: Interval, position: int) -> dict[str, object]:
        return {
            "first": none_for_nan(self.paired.first[position]),
            "second": none_for_nan(self.paired.second[position]),
            "difference": interval.as_json(),
            "includes_0": None if math.isnan(interval.value) else interval.has_zero,
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
    return replace(result, first=first, second=second, warnings=comparison_warnings(flows.store, [first, second]))


def paired_on_common(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Paired:
    """Second run minus first on their common flows, the intervals alone: what a table of many runs takes of each."""
    n = min(first.run.samples, second.run.samples)
    key = ("paired on common", first.version, second.version, rule)
    return flows.cached(
        key, lambda: paired_arrays(*common(flow_arrays(flows, first, rule), flow_arrays(flows, second, rule)), n)
    )


def _difference(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule) -> Difference:
    one, two = common(flow_arrays(flows, first, rule), flow_arrays(flows, second, rule))
    n = min(first.run.samples, second.run.samples)
    # By the labels of both: the two may be held against different ones.
    needed = necessary_mask(one.draws, one.labels) & necessary_mask(two.draws, two.labels)
    tallied, changed = changes(one, two)
    return Difference(
        first=first,
        second=second,
        paired=paired_on_common(flows, first, second, rule),
        tallied=tallied,
        necessary=int(needed.sum()),
        domains=by_domain(one, two, n),
        flows=_named(flows, first, pd.DataFrame(changed)),
        warnings=(),
    )


def difference_text(apart: Interval, who: str, whom: str, does: str, of: str, what: str = "") -> str:
    """A difference in percentage points as a sentence, which says whether the interval includes 0.

    'B leaks 4.1 points less than A [1.2, 7.0]; the interval does not include 0.' The bounds are
    of that size: 'less' by so much."""
    if math.isnan(apart.value):
        return f"{who} and {whom} have no common flow on which {of} could be compared."
    sign = -1 if apart.value < 0 else 1
    # Turned with the sign, the bounds change places.
    low, high = sorted((100 * sign * apart.low, 100 * sign * apart.high))
    size = f"{100 * abs(apart.value):.1f}"
    how = "as much" if size == "0.0" else f"{size} points {'less' if sign < 0 else 'more'}"
    than = "as" if size == "0.0" else "than"
    # Bounds that meet come of values that are all the same: no sign of certainty.
    if apart.low == apart.high and apart.value:
        ending = "all that they have in common says the same, so the interval has no width and says nothing"
    else:
        ending = (
            "the interval includes 0, so they may be alike" if apart.has_zero else "the interval does not include 0"
        )
    return f"{who} {does} {how}{what} {than} {whom} [{low:z.1f}, {high:z.1f}]; {ending}."  # z: no "-0.0"


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
