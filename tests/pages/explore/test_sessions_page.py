"""Runs with sessions on the pages: the chart by task on Accumulation, and the way from a leak to where it was said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from evaluating import add, simulated, small_profiles
from paging import nodes, opened, page_html
from worlds import ask

from cimemories.curation import execution, labelling
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation import planning, runs
from cimemories.leaks.message import leak_view
from cimemories.metrics import sentences
from cimemories.metrics.recalled.sessions import session_numbers
from cimemories.store.engine import Store
from cimemories.store.tables import response

HOSTILE = "<img src=http://evil.test/x> ![x](http://evil.test/y.png) **Landlord**"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def ran(store: Store, **changes: Any) -> str:
    (person,) = small_profiles(1, 6)
    first = replace(person.contexts[0], recipient=HOSTILE)
    add(store, [replace(person, contexts=(first, *person.contexts[1:]))])
    votes = LabellingSpec(dataset="small", model="sim-labeler", base_url="simulator", draws=2)
    execution.execute(store, labelling.plan(store, votes))
    spec = simulated(model="sim-oversharing", samples=2, judges=(planning.JudgeSpec(),), **changes)
    run_id = planning.plan(store, spec)
    runs.execute(store, run_id)
    return run_id


def links(app: Any) -> list[Any]:
    protos = [getattr(node, "proto", None) for node in nodes(app.main)]
    return [item for item in protos if type(item).__name__ == "PageLink" and "said before to" in item.label]


def test_the_pages_show_which_leaks_travelled(store: Store) -> None:
    run_id = ran(store, sessions="all")
    flows, scope = ask(store, run_id)
    numbers = session_numbers(flows, scope)
    assert numbers is not None and numbers.travelled
    page = opened("pages/explore/accumulation.py", "accumulation.sessions.positions.box", run=run_id)
    assert "Tasks in order: all earlier messages in memory." in page_html(page)
    assert sentences.said_before_text(numbers) in page_html(page)
    table = next(d.value for d in page.dataframe if "travelled" in d.value)
    assert (table["fresh"] + table["travelled"]).sum() == numbers.leaks
    assert table["travelled"].sum() == numbers.travelled and table["travelled"].iloc[0] == 0

    with store.read() as connection:
        rows = list(connection.execute(sa.select(response).where(response.c.run == run_id)).mappings())
    profile, contexts = rows[0]["profile"], sorted({row["context"] for row in rows})
    total, named, hostile = 0, 0, False
    for context in contexts:
        view = leak_view(flows, scope, profile, context)
        assert view is not None and view.earlier is not None
        for sample in view.samples:
            before = view.earlier[sample.number]
            travelled = [a for a in sample.leaked(view.memories) if a in before]
            total += len(travelled)
            for attribute in travelled:
                for earlier in before[attribute]:
                    there = leak_view(flows, scope, profile, earlier)
                    assert there is not None and attribute in there.samples[sample.number - 1].revealed
            if travelled and (context == contexts[-1] or (contexts[0] in before[travelled[0]] and not hostile)):
                app = opened(
                    "pages/explore/leaks.py", run=run_id, profile=profile, context=context, sample=sample.number,
                    attribute=travelled[0],
                )  # fmt: skip
                shown, own = page_html(app), links(app)
                assert f"{len(travelled)} of {len(sample.leaked(view.memories))} leak" in shown
                assert "<img src=http" not in shown
                assert len(own) == min(len(travelled), 8)
                first = view.earlier[sample.number][travelled[0]][0]
                assert f"context={first}" in own[0].query_string and f"sample={sample.number}" in own[0].query_string
                assert not any("![x](" in item.label and "\\" not in item.label for item in own)
                named, hostile = named + 1, hostile or contexts[0] in before[travelled[0]]
    assert total == numbers.travelled and named and hostile


def test_a_run_without_sessions_says_nothing_of_them(store: Store) -> None:
    run_id = ran(store)
    page = opened("pages/explore/accumulation.py", run=run_id)
    assert "Tasks in order" not in page_html(page)
    flows, scope = ask(store, run_id)
    with store.read() as connection:
        row = connection.execute(sa.select(response).where(response.c.run == run_id)).mappings().first()
    assert row is not None
    view = leak_view(flows, scope, row["profile"], row["context"])
    assert view is not None and view.earlier is None
    leaks = page_html(opened("pages/explore/leaks.py", run=run_id, profile=row["profile"], context=row["context"]))
    assert "Said before" not in leaks and "repeat what a message" not in leaks
