"""What a planned run can show beside another one, estimated from a pilot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.metrics import sentences
from cimemories.metrics.power import CORRELATION, POWER, Size, around, pilot
from cimemories.text import listed

COLUMNS = {
    "plan": Column("text", "Plan"),
    "profiles": Column("count", "Profiles"),
    "contexts": Column("count", "Contexts"),
    "samples": Column("count", "Samples"),
    "messages": Column("count", "Messages"),
    "violation": Column(
        "points", "Violation@n", "The smallest difference that is shown; in brackets what the pilot leaves open"
    ),
    "completeness": Column("points", "Completeness", "The same of completeness"),
    "violation_floor": Column(
        "points", "Noise V@n", "Two runs of one model lie at most so far apart in 95 % of repetitions, by their samples"
    ),
    "completeness_floor": Column("points", "Noise C", "The same of completeness"),
}


@dataclass(frozen=True, kw_only=True)
class Power(Answer):
    """The differences that plans of several sizes can show. They are shares, shown in percentage points.

    pilot: the size of the pilot. correlation: assumed between two models with one pilot, None with two. power: how
    often a difference that is there is shown, by a two-sided test at `significance`. plans: the plan, and larger ones.
    profiles_needed: by number, the profiles that show `difference`; None where no number of them does.
    """

    pilots: tuple[Scope, ...]
    pilot: Size
    correlation: float | None
    significance: float
    power: float
    plans: Table
    difference: float | None
    profiles_needed: dict[str, int | None]


def power(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    profiles: int | None = None,
    contexts: int | None = None,
    samples: int | None = None,
    chance: float = POWER,
    difference: float | None = None,
    correlation: float = CORRELATION,
    memory: str = "",
) -> Power:
    """Estimate what a plan can show from one pilot run, or from the difference of two.

    profiles, contexts, samples: of the plan; default: those of the pilot. chance: the power asked for. difference: a
    share. correlation: assumed with one pilot. memory: of the plan, where it is known. Raises StoreError for runs that
    cannot be pilots (metrics.power.pilot).
    """
    source = pilot(flows, scopes[0], scopes[1] if len(scopes) > 1 else None, rule, correlation=correlation)
    size = Size(profiles or source.size.profiles, contexts or source.size.contexts, samples or source.size.samples)
    plans = {name: source.row(item, chance) for name, item in around(size).items()}
    rows = [
        {"plan": name, **vars(plan.size), "messages": plan.size.messages}
        | {
            f"{side}{end}": getattr(getattr(plan, side), field)
            for side in ("violation", "completeness")
            for end, field in (("", "value"), ("_low", "low"), ("_high", "high"), ("_floor", "floor"))
        }
        for name, plan in plans.items()
    ]
    names = listed(list(dict.fromkeys(scope.run.name for scope in scopes)))
    texts = [sentences.plan(plans["this plan"], chance, names).rstrip(".")]
    needed = {} if difference is None else source.profiles_needed(difference, size, chance)
    for number, least in needed.items():
        measure = f"violation@{size.samples}" if number == "violation" else number
        texts.append(sentences.profiles_needed(least, 100 * (difference or 0.0), measure, size))
    notes = sentences.plan_notes(source, [plan.size for plan in plans.values()], chance)
    return Power(
        sentence=f"{'. '.join(texts)}.",
        notes=(
            f"pilot: {listed([scope.run.id for scope in scopes])}, {sentences.size(source.size)}",
            "noise: two runs of one model lie at most so far apart in 95 % of repetitions, by their samples alone",
            *notes,
            *(note for scope in scopes for note in sentences.pilot_notes(scope.run, memory)),
        ),
        simulated=parts_of(scope.simulated for scope in scopes),
        pilots=tuple(scopes),
        pilot=source.size,
        correlation=source.correlation,
        significance=0.05,
        power=chance,
        plans=Table(pd.DataFrame(rows), COLUMNS, "Smallest difference that is shown, in percentage points"),
        difference=difference,
        profiles_needed=needed,
    )
