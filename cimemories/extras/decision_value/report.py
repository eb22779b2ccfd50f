"""Part of the report: whether labelling may stop, with the evidence."""

from __future__ import annotations

import math

from cimemories.extras.decision_value.effects import WIDTH, decisions_needed, label_effects
from cimemories.extras.decision_value.random_share import share_agreement
from cimemories.extras.decision_value.sentences import label_width
from cimemories.extras.decision_value.value import Aim, Target, candidates, valued
from cimemories.flows.scope import Labels
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.report.document import Basis, Block, Heading, Points
from cimemories.review.index import pair_index


def blocks(basis: Basis) -> list[Block]:
    """Return the label uncertainty of each run's numbers and of the order of the runs, with its evidence."""
    store, seen = basis.flows.store, set()
    points: list[str] = []
    for line in basis.lines:
        scope, name = line.scope, basis.run_names[line.run.id]
        if scope.labelling is None:
            continue
        violation, needed = label_effects(basis.flows, scope, line.n, basis.rule)
        for what, effect, value in (
            (f"Violation@{line.n}", violation, line.numbers.violation[line.n]),
            ("completeness", needed, line.numbers.completeness),
        ):
            half_width, more = NORMAL_95 * math.sqrt(effect.variance), decisions_needed(effect, WIDTH)
            points.append(label_width(what, name, half_width, WIDTH, more, defined=not math.isnan(value)))
        seen.add((scope.run.dataset, scope.labelling.id))
    # The figures of the queue use the default labels and judges.
    usual = all(line.scope.labels == Labels.DECISIONS and line.scope.rule is None for line in basis.lines)
    for dataset, labelling in sorted(seen):
        index = pair_index(store, dataset, labelling)
        known = {row.id for row in candidates(store, dataset)}
        compared = tuple(line.run.id for line in basis.lines if line.run.id in known)
        order = valued(store, index, Aim(Target.ORDER, compared), batch=1) if usual and len(compared) > 1 else None
        points += [order.sentence()] if order else []
        points.append(share_agreement(store, index).sentence)
    return [Heading("Whether labelling may stop"), Points(tuple(points))] if points else []
