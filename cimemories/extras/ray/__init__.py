"""Work by the workers of a Ray cluster (docs/scale.md)."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the engine, and its fields in forms."""
    here = "cimemories.extras.ray"
    return Extra(engines={"ray": f"{here}.engine:Ray"}, panels={"engine.ray": f"{here}.page:draw"})
