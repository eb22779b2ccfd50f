"""The value of a decision on a pair: the queue that reduces the label uncertainty of a run's numbers soonest, and when
labelling may stop (docs/review.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command, the order of the queue, and the parts of the Agreement tab and of the report."""
    here = "cimemories.extras.decision_value"
    return Extra(
        commands={"review uncertainty": f"{here}.command"},
        panels={
            "review.value": f"{here}.page",
            "agreement.random_share": f"{here}.page:random_share",
            "report.labels": f"{here}.report:blocks",
        },
    )
