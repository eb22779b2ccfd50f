"""How results depend on the choices behind them: rule, personas, decisions, judge, identifiers, number of profiles."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the command, and its part of the Compare page."""
    here = "cimemories.extras.sensitivity"
    return Extra(commands={"sensitivity": f"{here}.command"}, panels={"compare.sensitivity": f"{here}.page:draw"})
