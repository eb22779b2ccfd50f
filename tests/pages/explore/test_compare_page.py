"""The Compare page through app.py: every tab, what stands in its address, and what it says where there is nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pytest
import sqlalchemy as sa
from paging import opened, page_html
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, ask, plan_run, records

from cimemories.cli import cli
from cimemories.flows import catalogue
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import ResponseStatus
from cimemories.report.collect import collect
from cimemories.report.render import as_html
from cimemories.store.engine import Store
from cimemories.store.tables import run

COMPARE = "pages/explore/compare.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
LEAKY = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]
QUIET = [[[0, 0, 5], [1, 0, 0], [4, 3, 0]]]
HOSTILE = "<img src=x onerror=alert(1)>"
FOLDS = ("compare.box.settings", "compare.box.leaderboard", "compare.box.plane", "compare.box.overview")
FOLDS += ("compare.box.domains", "compare.box.sweep", "compare.box.left_out")


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def change(store: Store, run_id: str, **values: object) -> None:
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(**values))


@pytest.fixture
def world(store: Store) -> tuple[int, str, str, str]:
    """One person; a run that leaks all, one that leaks half, and one of the first's model at another prompt level of
    which a part is missing; the ids of the dataset and of the runs."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    leaky, careful = (add_run(store, data.id, 5, reveals) for reveals in (LEAKY, QUIET))
    part = add_run(store, data.id, 5, QUIET, missing={(0, 0, 4): ResponseStatus.TRUNCATED})
    change(store, leaky, model="gpt-5")
    change(store, careful, model=HOSTILE)
    change(store, part, model="gpt-5", prompt_level="high", simulated=True)
    return data.id, leaky, careful, part


def test_a_real_models_run_on_simulated_labels_is_worded_alike_everywhere(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS, simulated=True)
    run_id = add_run(store, data.id, 5, LEAKY)
    for page, query in (
        (COMPARE, {}),
        ("pages/evaluate/runs.py", {"run": run_id}),
        ("pages/explore/heatmaps.py", {"run": run_id}),
        ("pages/explore/leaks.py", {"run": run_id}),
    ):
        badges = re.findall(r'ci-simulated"[^>]*>([^<]*)<', page_html(opened(page, **query)))
        assert badges and set(badges) == {"simulated labels"}, page
    flows, scope = ask(store, run_id)
    report = collect(flows, [scope], now=datetime.now(UTC))
    assert '"chip">simulated labels<' in as_html(report) and '"chip">simulated<' not in as_html(report)
    result = CliRunner().invoke(cli, ["metrics", run_id, "--workspace", str(store.workspace)])
    assert "simulated labels;" in result.output


def test_where_there_is_nothing_to_compare_it_says_so(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    assert "Nothing to compare yet" in page_html(opened(COMPARE))
    with store.write() as connection:
        plan_run(connection, data.id, 2)
    assert "No run is judged yet" in page_html(opened(COMPARE))
    add_run(store, data.id, 5, LEAKY)
    assert "No run has both a violation and a completeness yet" in page_html(opened(COMPARE))
    assert "No run has both numbers" in page_html(opened(COMPARE, tab="plane"))
    assert "One run alone" in page_html(opened(COMPARE, tab="difference"))
    assert "Nothing to draw along model size" in page_html(opened(COMPARE, tab="sweeps"))


def test_the_leaderboard_marks_what_must_be_marked(world: tuple[int, str, str, str]) -> None:
    app = opened(COMPARE, *FOLDS)
    text = page_html(app)
    assert "Violation@5 lies between 50.0 %" in text
    assert "25.1 %" in text
    assert "GPT-5" in text
    assert "not ranked: only 93.3 % of the planned messages are judged" in text
    rows = next(d.value for d in app.dataframe if "remarks" in d.value)
    assert "ci-simulated" in text and sum(str(cell).startswith("simulated") for cell in rows["remarks"]) == 1
    assert "share everything" in text
    assert HOSTILE not in text
    assert "&lt;img" in text
    # Folded above the table: one row a setting, runs that are alike in one column.
    assert "<th>2 runs</th>" in text
    assert text.index(">Prompt</td>") < text.index("share everything")
    table = app.dataframe[0].value
    assert sorted(table["run"]) == sorted(world[1:])
    assert "Violation@1 lies between" in page_html(opened(COMPARE, n=1))


def test_a_small_run_is_below_until_it_is_ranked_by_choice(world: tuple[int, str, str, str], store: Store) -> None:
    add_run(store, world[0], 1, np.minimum(LEAKY, 1), contexts=slice(0, 1))
    app = opened(COMPARE)
    assert "not ranked: covers 1 of 3 contexts" in page_html(app)
    assert "of at least 3 contexts and 5 samples" in page_html(app)
    app.segmented_control(key="compare.ranked").set_value("all").run()
    assert app.query_params["ranked"] == "all"
    assert "covers 1 of 3 contexts" not in page_html(app)


def test_the_address_says_which_runs(world: tuple[int, str, str, str]) -> None:
    _, leaky, careful, part = world
    app = opened(COMPARE, *FOLDS, runs=f"{leaky}.{careful}")
    assert part not in page_html(app)
    app = opened(COMPARE, runs=f"{leaky}.run-00000000")
    assert "Some runs of the link are not here" in page_html(app)
    assert careful not in page_html(app)
    app.multiselect[0].set_value([careful, part]).run()
    assert app.query_params["runs"] == f"{careful}.{part}"
    assert leaky not in page_html(app)


def test_the_choice_of_runs_is_narrowed_to_a_tag(store: Store, world: tuple[int, str, str, str]) -> None:
    _, leaky, careful, part = world
    for run_id in (leaky, part):
        catalogue.describe_run(store, run_id, ["pilot"])
    app = opened(COMPARE, runs=f"{leaky}.{careful}")
    app.selectbox(key="compare.tag").set_value("#pilot").run()
    assert app.query_params["tag"] == "#pilot" and "runs" not in app.query_params
    assert "onerror" not in page_html(app), "the name of the third's model"
    assert len(app.multiselect(key="compare.runs").options) == 2


def test_what_is_covered_is_told_of_ranked_runs_alone(world: tuple[int, str, str, str]) -> None:
    _, leaky, careful, part = world
    app = opened(COMPARE, "compare.box.spoken", tab="sensitivity", by="domain", run=part)
    offered = next(item for item in app.selectbox if item.label == "Flows of")
    assert len(offered.options) == 2 and app.query_params["run"] in (leaky, careful)
    assert any("speaks" in item.value for item in app.dataframe)


def test_exports_of_a_difference_name_its_two_runs(
    world: tuple[int, str, str, str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, leaky, careful, _ = world
    add_run(store, world[0], 5, QUIET, judge="another judge")  # is beside the others, and not compared
    given: dict[str, dict[str, object]] = {}
    monkeypatch.setattr("cimemories.ui.exports.buttons", lambda name, _, *, about, **__: given.update({name: about}))
    opened(COMPARE, *FOLDS, tab="difference", against=leaky, run=careful)
    for name in ("compare-domains", "changed-flows"):
        assert (given[name]["first"], given[name]["second"]) == (leaky, careful)
        assert (given[name]["n"], given[name]["judge"]) == (5, "test-judge")
    assert given["compare-domains"]["difference"] == "second minus first"


def test_a_difference_is_said_in_words_and_leads_to_the_messages(
    world: tuple[int, str, str, str], store: Store
) -> None:
    data, leaky, careful, _ = world
    app = opened(COMPARE, *FOLDS, tab="difference", against=leaky, run=careful)
    text = page_html(app)
    assert text.count(": -50.0 points, 95 % CI") == 1
    assert "the interval describes attributes, not users" in text
    assert "1 flow newly leaks, 3 stopped leaking; a repetition with equal leak probabilities would show about" in text
    assert "Noise floor: with equal leak probabilities, two such runs would lie up to about" in text
    assert HOSTILE not in text
    flows = next(d.value for d in app.dataframe if "before" in d.value)
    assert flows[["before", "after"]].to_numpy().tolist() == [["0 of 5", "1 of 5"]]
    person = records(store, data)[0]
    assert flows["attribute"].tolist() == [person.attribute_ids[1]]
    assert flows["context"].tolist() == [person.context_ids[0]]
    overview = next(d.value for d in app.dataframe if "leaks" in d.value)
    assert len(overview) == 2
    other = opened(COMPARE, tab="difference", against=leaky, run=leaky)
    assert "cannot be compared with itself" not in page_html(other)


def test_which_flows_are_listed_is_in_the_address(world: tuple[int, str, str, str]) -> None:
    _, leaky, careful, _ = world
    link = {"tab": "difference", "against": leaky, "run": careful}
    app = opened(COMPARE, *FOLDS, **link)
    next(item for item in app.segmented_control if item.label == "Flows").set_value("stopped leaking").run()
    assert app.query_params["change"] == "stopped leaking"
    copied = opened(COMPARE, *FOLDS, **link, change="stopped leaking")
    for page in (app, copied):
        flows = next(d.value for d in page.dataframe if "before" in d.value)
        assert sorted(flows["change"]) == ["stopped leaking"] * 3


def test_plane_and_sweep_are_drawn_with_their_tables(world: tuple[int, str, str, str]) -> None:
    page = opened(COMPARE, *FOLDS, tab="plane")
    assert len(page.get("plotly_chart")) == 1
    # The run of which a part is missing is read at 4 samples: it has no place at 5, and is named beneath.
    assert sorted(page.dataframe[0].value["run"]) == sorted(world[1:3])
    nothing = opened(COMPARE, *FOLDS, tab="sweeps", axis="prompt")
    assert "Nothing to draw along prompt level" in page_html(nothing)  # one of the two is simulated
    assert "published" in page_html(nothing)


def test_a_sweep_of_prompts_is_drawn(world: tuple[int, str, str, str], store: Store) -> None:
    change(store, world[3], simulated=False)
    partial = opened(COMPARE, *FOLDS, tab="sweeps", axis="prompt")
    assert "coverage 93.3 %, under 99 %" in page_html(partial)
    assert not partial.get("plotly_chart")
    whole = add_run(store, world[0], 5, QUIET)
    change(store, whole, model="gpt-5", prompt_level="high")
    app = opened(COMPARE, *FOLDS, tab="sweeps", axis="prompt")
    assert "From base to high no test shows that violation@5" in page_html(app)
    assert len(app.get("plotly_chart")) == 1
    assert "stricter prompts" in page_html(app)


def test_back_from_the_messages_leads_to_the_same_view(world: tuple[int, str, str, str]) -> None:
    _, leaky, careful, part = world
    app = opened(COMPARE, tab="difference", against=leaky, run=part, runs=f"{leaky}.{careful}.{part}")
    before, view = dict(app.query_params), page_html(app)
    for name in ("tab", "against", "runs"):
        del app.query_params[name]
    app.query_params["run"] = leaky
    app.query_params["profile"] = "1"
    app.run()
    assert {name: app.query_params[name] for name in before} == before
    assert page_html(app) == view
    app.query_params["tab"] = "plane"  # an address of the page itself is taken as it is
    del app.query_params["runs"]
    app.run()
    assert not app.multiselect[0].value
