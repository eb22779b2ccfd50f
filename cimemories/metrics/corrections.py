"""Violation@n corrected by people's audits of the judge. An extra computes it (extras/attribute_audit)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cimemories import extras
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics.uncertainty import Interval


class CorrectedNumber(Protocol):
    """Violation@n of a run corrected by an audit. corrected: UNDEFINED where the audit does not determine it. lower: by
    the claims alone that people confirmed. rests_on: what the correction rests on, or why there is none; confirmed: the
    lower bound in words, '' before there is one. texts: all that the audit says."""

    @property
    def corrected(self) -> Interval: ...

    @property
    def lower(self) -> Interval: ...

    @property
    def rests_on(self) -> str: ...

    @property
    def confirmed(self) -> str: ...

    @property
    def texts(self) -> Sequence[str]: ...

    def as_json(self) -> dict[str, object]: ...


def corrections(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT
) -> Mapping[int, CorrectedNumber]:
    """Return a run's Violation@n as audits correct it, by n; empty without any audit."""
    corrected: dict[int, CorrectedNumber] = {}
    for computes in _computing():
        corrected |= computes.corrections(flows, scope, rule)
    return corrected


def corrected_difference(
    flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[int, Interval] | None:
    """Return (n, second minus first), both corrected, at the largest n that audits of both correct; None without
    one."""
    for computes in _computing():
        difference: tuple[int, Interval] | None = computes.corrected_difference(flows, first, second, rule)
        if difference is not None:
            return difference
    return None


def _computing() -> list[Any]:
    return [extras.load(place) for place in extras.registered("corrections").values()]
