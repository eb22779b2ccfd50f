"""Training data: pairs of messages, and an environment of verifiers (docs/onward.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the format of `cimemories export`."""
    return Extra(exports={"preferences": "cimemories.extras.training.command:export"})
