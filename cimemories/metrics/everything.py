"""All numbers of a run as one object for scripts: what `cimemories metrics RUN --json` prints."""

from __future__ import annotations

import math

from cimemories.flows.arrays import IdentifierRule, flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics.bootstrap import intervals
from cimemories.metrics.breakdown import By, baselines, breakdown, dropped
from cimemories.metrics.headline import headline


def all_numbers(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> dict[str, object]:
    """The headline with its intervals, the constant baselines, every breakdown (at all samples), and under each
    identifier rule the violations and what the rule leaves out. Numbers that are undefined are null."""
    data = flow_arrays(flows, scope, rule)
    bounds = intervals(flows, scope, rule)
    most = scope.run.samples
    return headline(flows, scope, rule).as_json() | {
        "intervals": {
            "violation": {str(n): item.as_json() for n, item in bounds.violation.items()},
            "completeness": bounds.completeness.as_json(),
            "balanced": bounds.balanced.as_json(),
        },
        "baselines": [
            {
                "name": item.name,
                "violation": _number(item.violation),
                "completeness": _number(item.completeness),
                "balanced": _number(item.balanced),
            }
            for item in baselines(data)
        ],
        "by": {str(by): _records(flows, scope, by, most, rule) for by in By},
        "identifier_rules": {
            str(other): {
                "violation": {str(n): _number(value) for n, value in headline(flows, scope, other).violation.items()},
                "left_out": dropped(data, other),
            }
            for other in IdentifierRule
        },
    }


def _records(flows: Flows, scope: Scope, by: By, n: int, rule: IdentifierRule) -> list[dict[str, object]]:
    frame = breakdown(flows, scope, by, n, rule)
    return [
        {str(k): _number(v) if isinstance(v, float) else v for k, v in row.items()} for row in frame.to_dict("records")
    ]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
