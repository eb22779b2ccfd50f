"""The Consensus page through app.py: its numbers are the analysis layer's, and sliders alone change no label."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from paging import FOLDS, ROOT, button, double_click, labels, opened, page_html
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, PAPER_NAME, UNLABELLED, rule_of
from cimemories.labels.survival import survival
from cimemories.labels.whatif import what_if
from cimemories.store import labellings
from cimemories.store.engine import Store
from cimemories.store.tables import labelling as labelling_table

PAGE, HEATMAPS, RUNS = "pages/curate/consensus.py", "pages/explore/heatmaps.py", "pages/evaluate/runs.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
TEXTS = (
    "<img src=http://evil.test/x onerror=alert(1)>",
    "![x](http://evil.test/y.png) **bold** :material/bug: <script>",
    "$x$ [link](http://evil.test) `code` </div>",
)
LABELS = [[[X, X, N], [X, A, X], [N, N, A]], [[X, A, A], [A, X, X], [A, N, A]]]


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def world(store: Store) -> tuple[int, str]:
    data = add_dataset(store, profiles=2, attributes=3, contexts=3)
    return data.id, add_labels(store, data.id, LABELS)


def test_without_data_or_labels_the_page_says_what_to_do(store: Store) -> None:
    assert "No datasets yet" in page_html(opened(PAGE))
    add_dataset(store)
    assert "Nothing is labelled yet" in page_html(opened(PAGE))


def test_the_numbers_are_the_analysis_layers(store: Store) -> None:
    _, labelling = world(store)
    result = survival(store, labelling)
    page = opened(PAGE, "consensus.box.shares")
    assert f"{100 * result.share:.1f} % of 18 labelled pairs have a consensus" in page_html(page)
    assert PAPER_NAME in page_html(page).replace("&#x27;", "'")
    table = next(d.value for d in page.dataframe if "survival" in d.value)
    assert table["pairs"].sum() == 18 and table["ambiguous"].sum() == result.ambiguous
    by_profile = opened(PAGE, "consensus.box.shares", by="profile")
    table = next(d.value for d in by_profile.dataframe if "survival" in d.value)
    assert dict(zip(table["name"], table["survival"], strict=True)) == pytest.approx(
        {"Person 0": 100 * 7 / 9, "Person 1": 100 * 4 / 9}
    )


def test_contexts_say_why_they_are_discarded(store: Store) -> None:
    world(store)
    page = opened(PAGE, part="contexts")
    assert "5 of 6 contexts of profiles are retained" not in page_html(page)
    retained = "4 of 6 contexts of profiles are retained; 2 are discarded, 2 with no necessary attribute."
    assert retained in page_html(page)
    assert "no label" not in page_html(page)
    table = next(d.value for d in page.dataframe if "reason" in d.value)
    assert table[["user", "reason"]].to_numpy().tolist() == [["Person 1", "no necessary attribute"]] * 2
    page.segmented_control(key="consensus.contexts.show").set_value("all").run()
    again = opened(PAGE, part="contexts", show=page.query_params["show"])
    assert [len(next(d.value for d in p.dataframe if "reason" in d.value)) for p in (page, again)] == [6, 6]
    assert ">10</td>" in page_html(page) and ">about 147</td>" in page_html(page)


def test_contexts_without_a_label_are_not_passed_over(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=3, contexts=3)
    add_labels(store, data.id, [LABELS[0], [[UNLABELLED] * 3] * 3])
    page = opened(PAGE, part="contexts")
    text = page_html(page)
    assert (
        "3 of 3 labelled contexts of profiles are retained; none is discarded. 3 more contexts of profiles have" in text
    )
    assert "Every labelled context is retained" in page.get("plotly_chart")[0].proto.spec
    assert "3 more contexts of profiles have no label: not counted as retained here." in text


def test_a_slider_changes_nothing_until_a_rule_is_saved_and_used(store: Store) -> None:
    data, labelling = world(store)
    page = opened(PAGE, part="whatif")
    assert "No label of 18 pairs would change" in page_html(page)
    page.slider(key="consensus.threshold").set_value(60).run()
    page.slider(key="consensus.weight.2").set_value(100).run()
    page.slider(key="consensus.weight.1").set_value(10).run()
    assert (page.query_params["threshold"], page.query_params["priors"]) == ("60", "26-10-100")
    priors = {"fundamentalist": 26 / 136, "pragmatic": 10 / 136, "unconcerned": 100 / 136}
    tried = what_if(store, labelling, 0.6, priors)
    assert tried.changed == 7
    assert "7 of 18 pairs would change their label" in page_html(page)
    assert rule_of(store, labelling).is_paper

    # The field goes when it is left for the button, which must stay under the pointer.
    assert labels(page).index("Your name") > labels(page).index("Save this rule")
    button(page, "Save this rule").click().run()
    assert "A rule needs a name" in page_html(page)
    page.text_input(key="consensus.name").set_value("loud")
    page.text_input(key="annotator.field").set_value("Ada")
    double_click(page, button(page, "Save this rule"))
    assert "The rule was not saved." not in page_html(page)
    assert rule_of(store, labelling).is_paper
    page.selectbox(key=f"consensus.rule.{data}.paper").set_value("loud").run()
    button(page, "Make it current").click().run()
    held = rule_of(store, labelling)
    assert (held.name, held.threshold, held.prior_by_key) == ("loud", 0.6, pytest.approx(priors))
    assert "Labels rest on &#x27;loud&#x27; now." in page_html(page)
    assert "No label of 18 pairs would change" in page_html(page)  # what was tried is what holds


def test_a_link_to_a_what_if_shows_it_and_one_that_is_none_is_left_out(store: Store) -> None:
    _, labelling = world(store)
    tried = what_if(store, labelling, 0.7, {"fundamentalist": 0.1, "pragmatic": 0.1, "unconcerned": 0.8})
    shown = page_html(opened(PAGE, part="whatif", threshold=70, priors="10-10-80"))
    assert f"{tried.changed} of 18 pairs would change" in shown
    for wrong in ({"threshold": 12}, {"priors": "1-2"}, {"priors": "0-0-0"}, {"threshold": "x", "priors": "a-b-c"}):
        page = opened(PAGE, part="whatif", **wrong)
        assert "No label of 18 pairs would change" in page_html(page)


def test_an_older_link_to_survival_leads_to_the_same_view_of_consensus(store: Store) -> None:
    world(store)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app._page_hash = calc_hash("survival")
    app.query_params.update(part="whatif", threshold="80")
    app.run()
    assert not app.exception
    assert "<h2>Consensus</h2>" in page_html(app)
    assert (app.query_params["part"], app.query_params["threshold"]) == ("whatif", "80")
    assert app.slider(key="consensus.threshold").value == 80


def test_two_labellings_side_by_side_lead_to_the_labels_page(store: Store) -> None:
    data, first = world(store)
    assert "There is only one labelling" in page_html(opened(PAGE, part="agreement"))
    second = add_labels(store, data, [[[N, X, N], *LABELS[0][1:]], LABELS[1]], name="two")
    page = opened(PAGE, part="agreement", labelling=first, second=second)
    assert "give the same label to 94.4 % of 18 pairs" in page_html(page)
    assert "1 pair gets opposite labels" in page_html(page)
    table = next(d.value for d in page.dataframe if "opposite" in d.value)
    assert table[["first", "second", "key"]].to_numpy().tolist() == [["inappropriate", "necessary", "fact_0"]]


def test_kin_are_warned_of_on_every_page_that_shows_the_numbers(store: Store) -> None:
    data, _ = world(store)
    run = add_run(store, data, 2, [[[1] * 3] * 3] * 2)
    assert "same family" not in page_html(opened(HEATMAPS, run=run))
    with store.write() as connection:
        connection.execute(sa.update(labelling_table).values(model="test-model"))
    for page in (opened(PAGE), opened(PAGE, part="models"), opened(HEATMAPS, run=run), opened(RUNS, run=run)):
        texts = page_html(page) + " ".join(str(list(d.value.get("warning", []))) for d in page.dataframe)
        assert "the model under test itself" in texts


def test_the_slider_of_the_heatmaps_moves(store: Store) -> None:
    data, _ = world(store)
    run = add_run(store, data, 3, [[[1] * 3] * 3] * 2)
    page = opened(HEATMAPS, run=run)
    page.slider[0].set_value(1).run()
    assert page.slider[0].value == 1 and "violation@1" in page_html(page)


def test_hostile_names_stay_text(store: Store) -> None:
    people = [replace(make_profile(n, 3, 2), name=f"{text} {n}") for n, text in enumerate(TEXTS[:3])]
    data = add_profiles(store, people, name=TEXTS[0][:60])
    labelling = add_labels(store, data.id, [[[X, N], [A, X], [N, A]]] * 3)
    add_labels(store, data.id, [[[N, N], [A, X], [N, A]]] * 3, name="two")
    with store.write() as connection:
        connection.execute(sa.update(labelling_table).values(model=TEXTS[1][:60]))
        priors = rule_of(store, labelling).prior_by_key
        labellings.add_rule(
            connection, data.id, TEXTS[2][:60], threshold=1.0, priors=priors, annotator=TEXTS[0][:60], use=True
        )
    for part in ("shares", "whatif", "contexts", "agreement", "models"):
        markup = page_html(opened(PAGE, *FOLDS, part=part, by="profile"))
        assert "<img" not in markup and "<script" not in markup
    assert len(records(store, data.id)) == 3
