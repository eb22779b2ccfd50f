"""From memory to message as a flow, and names of rows on a narrow screen."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from cimemories.charts import bars, recalled
from cimemories.metrics.recalled.split import OUTCOMES
from cimemories.model import Label


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 4).filter(any), min_size=1, max_size=30))
def test_places_that_a_flow_pools_stay_in_its_whole(rows: list[tuple[int, ...]]) -> None:
    frame = pd.DataFrame([dict(zip(OUTCOMES, row, strict=True)) for row in rows])
    frame = frame.assign(id="i", place="p", name=[f"<b> {i}" for i in range(len(rows))], flows=1)
    frame["draws"] = frame[[*OUTCOMES]].sum(axis=1)
    frame["recalled"] = frame["recalled_and_said"] + frame["recalled_not_said"]
    pooled = recalled.with_others(frame)
    assert len(pooled) <= recalled.MOST_PLACES
    whole = [*OUTCOMES, "draws", "recalled", "flows"]
    assert pooled[whole].sum().to_dict() == frame[whole].sum().to_dict()
    drawn = recalled.recalled_flow(frame, Label.NECESSARY, title="", subtitle="").data[0]
    into: Counter[int] = Counter()
    out_of: Counter[int] = Counter()
    for source, target, value in zip(drawn.link.source, drawn.link.target, drawn.link.value, strict=True):
        out_of[source], into[target] = out_of[source] + value, into[target] + value
    total = int(frame["draws"].sum())
    # What goes into a middle node comes out of it; both sides are all samples.
    assert all(into[node] == out_of[node] for node in into.keys() & out_of.keys())
    assert sum(n for node, n in out_of.items() if node not in into) == total
    assert sum(n for node, n in into.items() if node not in out_of) == total
    assert "<b>" not in "".join(drawn.node.label)


def test_names_above_marks_leave_the_figure_that_is_exported_as_it_was() -> None:
    rows = [bars.Bounded(0.1, 0.0, 0.2), bars.Bounded(-0.4, -0.6, -0.1)]
    names = ["without its neighbours 12/20", "<i>last</i> 1/20"]
    fig = bars.interval_rows(names, [bars.IntervalSeries("s", rows, "#000", "x")], xaxis={}, legend=False)
    before = fig.to_json()
    narrow = bars.names_above(fig)
    assert fig.to_json() == before
    assert [note.text for note in narrow.layout.annotations] == [names[0], "&lt;i&gt;last&lt;/i&gt; 1/20"]
    assert narrow.layout.margin.l < 20 < fig.layout.margin.l and narrow.layout.yaxis.showticklabels is False
    # A name ends above the mark of its row.
    row_height = (narrow.layout.height - narrow.layout.margin.t - narrow.layout.margin.b) / len(names)
    assert all(note.y == row - 0.5 for row, note in enumerate(narrow.layout.annotations)) and row_height / 2 > 20
