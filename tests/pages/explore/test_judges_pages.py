"""Whose claims count, on the Explore pages, the Judge audit page and the command line: the same numbers everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from judging_worlds import JudgedWorld, judged_world
from paging import opened, page_html
from typer.testing import CliRunner
from worlds import add_run

import cimemories
from cimemories.agreement.judges import LabelGroup, judges_agreement
from cimemories.answer import plain
from cimemories.cli import cli
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.headline import headline
from cimemories.store.engine import Store
from cimemories.store.tables import run
from cimemories.text import percent

HEATMAPS, LEAKS, AUDIT = "pages/explore/heatmaps.py", "pages/explore/leaks.py", "pages/evaluate/judge_audit.py"


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def world(store: Store) -> JudgedWorld:
    return judged_world(store, seed=5)


def test_the_pages_count_as_their_address_says(store: Store, world: JudgedWorld) -> None:
    seen = set()
    for query in ({}, {"judge": world.judges[1]}, {"judge": "majority"}, {"judge": "majority", "grounded": 1}):
        page = opened(HEATMAPS, run=world.run_id, n=2, **query)
        scope = resolve_scope(store, world.run_id, judge_id=query.get("judge"), grounded="grounded" in query)
        numbers = headline(Flows(store), scope)
        # Where answers are missing the page reads at the n that every flow supports.
        share = f"violation@{numbers.n} {percent(numbers.violation[numbers.n])}"
        assert share in page_html(page)
        seen.add(share)
        assert ("judges (judge 0, judge 1, judge 2)" in page_html(page)) == (query.get("judge") == "majority")
        assert ("are left out" in page_html(page)) == ("grounded" in query)
    assert len(seen) > 2
    leaks = opened(LEAKS, run=world.run_id, judge="all")
    judge = next(box for box in leaks.selectbox if box.label == "Judge")
    assert judge.options[-3:] == ["any of 3 judges", "more than half of 3 judges", "all 3 judges"]
    toggled = next(item for item in leaks.toggle if item.label == "Grounded claims only").set_value(True).run()
    assert "are left out" in page_html(toggled)
    assert toggled.query_params["grounded"] == "1"
    assert "from the link does not exist" in page_html(opened(LEAKS, run=world.run_id, judge="nobody"))
    alone = opened(HEATMAPS, run=add_run(store, scope.run.dataset, 2, {}), judge="any")
    assert "in the link is not one of this run" in page_html(alone)  # one judge cannot be combined


def test_the_audit_page_sets_judges_beside_each_other(store: Store, world: JudgedWorld) -> None:
    page = page_html(opened(AUDIT, run=world.run_id))
    assert "Judges against judges: kappas from" in page
    assert "judge 0 and judge 2" in page.replace("</b>", "")
    flows, scope = Flows(store), resolve_scope(store, world.run_id)
    for pair in judges_agreement(flows, world.run_id, labels=scope).pairs:
        named = f"{pair.first.title} and {pair.second.title}"
        for label in ("inappropriate", "necessary"):
            places = f'<td class="ci-number">{pair.by_label[LabelGroup(label)].places}</td>'
            assert f'{named}: {label}</td><td class="ci-number">{pair.messages}</td>{places}' in page
    assert 'class="ci-wide" role="region" aria-label="Judges against judges"' in page, "on a phone it scrolls"


def test_agreement_on_simulated_messages_is_marked_whoever_judged_them(
    store: Store, world: JudgedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: dict[str, Any] = {}
    monkeypatch.setattr(
        "cimemories.ui.exports.buttons", lambda name, frame, **given: files.update({name: (frame, given["simulated"])})
    )
    for simulated in (False, True):
        with store.write() as connection:
            values = {"simulated": simulated, "revision": run.c.revision + 1}
            connection.execute(sa.update(run).where(run.c.id == world.run_id).values(values))
        opened(AUDIT, run=world.run_id)
        frame, marked = files[f"judge_audit-agreement-{world.run_id}"]
        assert set(frame["simulated"]) == {simulated} and bool(marked) == simulated
        said = CliRunner().invoke(cli, ["judges", world.run_id])
        assert ("note: simulated; says nothing about any real model" in said.output) == simulated
        as_json = CliRunner().invoke(cli, ["judges", world.run_id, "--json"])
        assert json.loads(as_json.stdout)["simulated"] == simulated


def test_the_command_line_asks_the_same(store: Store, world: JudgedWorld) -> None:
    def out(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, "--workspace", str(store.workspace)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    printed = json.loads(out("metrics", world.run_id, "--judge", "all", "--grounded", "--json"))
    numbers = headline(Flows(store), resolve_scope(store, world.run_id, judge_id="all", grounded=True))
    assert printed["violation"] == plain(numbers.violation) and printed["completeness"] == numbers.completeness
    assert (printed["combine"], printed["grounded"], len(printed["judges"])) == ("all", True, 3)
    pairs = json.loads(out("judges", world.run_id, "--json"))["pairs"]
    pooled = [pair for pair in pairs if pair["label"] == "all"]
    assert len(pooled) == 3
    for pair in pooled:
        assert pair["neither"] + pair["both"] + pair["first_alone"] + pair["second_alone"] == pair["places"]
        same = {name: pair[name] for name in ("first", "second")}
        parts = [part for part in pairs if part is not pair and same.items() <= part.items()]
        for cell in ("places", "neither", "both", "first_alone", "second_alone"):
            assert sum(part[cell] for part in parts) == pair[cell]
        assert {"necessary", "inappropriate"} <= {part["label"] for part in parts}
    printed_text = out("judges", world.run_id)
    assert "Cohen's kappa" in printed_text and "inappropriate" in printed_text
    frame = cimemories.open(store.workspace).runs[world.run_id].judges()
    assert len(frame) == len(pairs)
    inappropriate = frame[frame["label"] == "inappropriate"]["kappa"].tolist()
    assert inappropriate == [pair["kappa"] for pair in pairs if pair["label"] == "inappropriate"]
    other = add_run(store, numbers.scope.run.dataset, 2, {})
    both = json.loads(out("compare", world.run_id, other, "--json"))
    assert [item["run"] for item in both["runs"]] == [world.run_id, other]
    assert any("the number of samples" in text for text in both["notes"])
    with pytest.raises(Exception, match="two different runs"):
        out("compare", other, other)
