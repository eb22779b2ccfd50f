"""Hypothesis strategies for vote counts, thresholds and priors, and ballots as a model writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from hypothesis import strategies as st

from cimemories.curation.labelling import LISTS
from cimemories.model import Verdict


@st.composite
def votes(draw: st.DrawFn) -> np.ndarray:
    """Counts [pairs, 3 personas, 3], some personas without a vote."""
    cells = st.lists(st.integers(0, 4), min_size=9, max_size=9)
    rows = draw(st.lists(cells, min_size=1, max_size=30))
    return np.array(rows).reshape(-1, 3, 3)


priors_ = st.lists(st.integers(0, 10), min_size=3, max_size=3).filter(any).map(lambda w: [x / sum(w) for x in w])
thresholds = st.floats(0.501, 1.0)


def write_ballot(verdicts: Sequence[Verdict]) -> str:
    """The answer that says these verdicts: three numbers in a row or more are a range, a conflict is in both lists."""
    lists = {}
    for verdict in LISTS:
        numbers = (n for n, item in enumerate(verdicts, start=1) if item in (verdict, Verdict.CONFLICT))
        rows = ([n for _, n in group] for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]))
        lists[str(verdict)] = [n for row in rows for n in (row if len(row) < 3 else [f"{row[0]}-{row[-1]}"])]
    return json.dumps(lists)
