"""Hypothesis strategies for vote counts, thresholds and priors."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def votes(draw: st.DrawFn) -> np.ndarray:
    """Counts [pairs, 3 personas, 3], some personas without a vote."""
    cells = st.lists(st.integers(0, 4), min_size=9, max_size=9)
    rows = draw(st.lists(cells, min_size=1, max_size=30))
    return np.array(rows).reshape(-1, 3, 3)


priors_ = st.lists(st.integers(0, 10), min_size=3, max_size=3).filter(any).map(lambda w: [x / sum(w) for x in w])
thresholds = st.floats(0.501, 1.0)
