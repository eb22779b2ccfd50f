"""Memory products under test (docs/memory.md). They are no dependencies: each is available if its package is
installed."""

from cimemories.extras import Extra


def register() -> Extra:
    """Register the products as memory systems."""
    here = "cimemories.extras.memory_products"
    return Extra(
        memory={"mem0": f"{here}.mem0:Mem0", "letta": f"{here}.letta:Letta", "graphiti": f"{here}.graphiti:Graphiti"}
    )
