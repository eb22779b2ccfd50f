"""Audits of a judge by whole attributes, and Violation@n corrected by them (docs/metrics.md, Judge audit)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command, the part of the Judge audit page, and the correction."""
    here = "cimemories.extras.attribute_audit"
    return Extra(
        commands={"review audit": f"{here}.command"},
        corrections={"attributes": f"{here}.violation"},
        panels={"judge_audit.attributes": f"{here}.page"},
    )
