"""Why did this leak, on the page Leaks: the plan, its start, and what came of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from evaluating import add_labelled, simulated
from paging import button, double_click, opened, page_html

from cimemories import launch
from cimemories.evaluation import planning, runs
from cimemories.extras.why import attribution
from cimemories.extras.why.why import explain
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.gallery import run_ids
from cimemories.store.engine import open_store

PAGE = "pages/explore/leaks.py"


def test_from_the_plan_to_the_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIMEMORIES_WORKSPACE", str(tmp_path))
    # In this process: what is looked at is the page, and a worker of its own is started everywhere else.
    started: list[str] = []
    monkeypatch.setattr(launch, "launch", lambda store, work_id, *_: started.append(work_id))
    store = open_store(tmp_path)
    add_labelled(store, contexts=4)
    run_id = planning.plan(store, simulated(model="sim-oversharing"))
    runs.execute(store, run_id)
    scope = resolve_scope(store, run_id)
    row = all_examples(Flows(store), [scope]).page().iloc[0]
    place = {name: int(row[name]) for name in ("profile", "context", "attribute")}

    app = opened(PAGE, "leaks.box.why", run=run_id, **place)
    assert "× 20 samples = " in page_html(app) and "As it was." in page_html(app)
    next(n for n in app.number_input if n.label == "Messages of each variant").set_value(3).run()
    next(n for n in app.multiselect if n.label == "Changes").set_value([attribution.Change.WITHOUT]).run()
    assert "2 variants × 3 samples = 6 messages" in page_html(app)
    double_click(app, button(app, "Send 6 messages"))
    assert not app.exception
    ((made, part),) = attribution.attributions(store, run_id)
    assert started == [made.id] and [v.level for v in part.variants] == ["baseline", "without"]
    waiting = opened(PAGE, "leaks.box.why", run=run_id, **place)
    assert "0 of 6 messages written" in page_html(waiting) and button(waiting, "Cancel")

    runs.execute(store, made.id)
    (again,) = attribution.attributions(store, run_id)
    why = explain(Flows(store), scope, again[0])
    done = opened(PAGE, "leaks.box.why", run=run_id, **place)
    text = page_html(done)
    for effect in why.effects:
        assert re.search(f"{effect.name.capitalize()}</td><td[^>]*>{effect.reveals}</td><td[^>]*>3</td>", text)
    assert why.effects[1].reveals == 0 and "simulated" in text
    assert len(done.get("plotly_chart")) == 1
    assert "Without this memory (0)" in str([c.options for c in done.get("button_group")])
    assert run_ids(store) == [run_id]
    store.close()
