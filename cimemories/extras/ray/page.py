"""The fields of a Ray cluster in the forms of work."""

from __future__ import annotations

import streamlit as st

from cimemories.extras.ray.engine import Ray
from cimemories.ui import login, safe
from cimemories.ui.annotator import Draft

MOST_WORKERS = 1000


def draw(draft: Draft, usual: Ray) -> Ray:
    """Draw the inputs of the address and the workers, and return the engine. usual: the default. Raises EngineError for
    an invalid address."""
    address, least, most = st.columns([3, 2, 2])
    with address:
        text = usual.address
        # A cluster gets the database's address and the servers' keys, so a user may not name one.
        if login.configured():
            safe.inline(f"Cluster: {text}, as set where the app is started", muted=True)
        else:
            help = "auto (the cluster of this machine), local (one on this machine alone) or HOST:PORT"
            text = draft.text("Cluster address", "engine.address", text, help=help)
    with least:
        help = "Each takes one processor core, and sends its own requests"
        fewest = draft.integer("Workers, at least", "engine.least", usual.bounds[0], 1, MOST_WORKERS, help=help)
    with most:
        help = "Added while all are busy and the cluster has room"
        usual_most = max(fewest, usual.bounds[1])
        upper = draft.integer("Workers, at most", "engine.most", usual_most, fewest, MOST_WORKERS, help=help)
    return Ray(text.strip(), f"{fewest}:{upper}")
