"""Results of a run as a record of Every Eval Ever (docs/formats.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the format of `cimemories export`."""
    return Extra(exports={"every-eval-ever": "cimemories.extras.every_eval_ever.command:export"})
