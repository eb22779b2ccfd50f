"""The Heatmaps page through app.py: every view is a link, a click opens a cell, and one comes back to the same."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from paging import button, opened, page_html
from plotly.colors import hex_to_rgb
from streamlit.runtime.context import ContextProxy, StreamlitTheme
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_profiles, add_run, make_profile, records

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.model import Attribute, Context, ResponseStatus
from cimemories.store import datasets, work
from cimemories.store.engine import Store
from cimemories.store.tables import response
from cimemories.ui import charts, shell, tables

PAGE, LEAKS = "pages/explore/heatmaps.py", "pages/explore/leaks.py"
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
REVEALS = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


def world(store: Store, name: str = "small world", **options: Any) -> tuple[int, str]:
    """The worked example of docs/metrics.md as a run; returns the dataset's and the run's id."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3, name=name)
    add_labels(store, data.id, LABELS)
    return data.id, add_run(store, data.id, 5, REVEALS, **options)


def figure_of(page: AppTest) -> dict[str, Any]:
    """The figure as the browser gets it; of its data the maps alone, without the numbers on them."""
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    return figure | {"data": [trace for trace in figure["data"] if trace["type"] == "heatmap"]}


def hatched(figure: dict[str, Any]) -> list[int]:
    """How many cells are hatched in each map, as they come in the layout."""
    images = {
        image["xref"]: base64.b64decode(image["source"].partition(",")[2]) for image in figure["layout"]["images"]
    }
    return [images.get(trace["xaxis"], b"").count(b"z") for trace in figure["data"]]


def read(page: AppTest) -> list[list[str]]:
    """What the pointer reads: of each cell, row by row, one text a map."""
    (sent,) = [json.loads(node.proto.json) for node in page.get("bidi_component") if "tooltips" in node.proto.json]
    maps = [[text for row in one["cells"] for text in row] for one in sent["tooltips"]["maps"]]
    return [list(cell) for cell in zip(*maps, strict=True)]


def box(page: AppTest, label: str) -> Any:
    return next(item for item in page.selectbox if item.label == label)


def test_a_view_is_its_address(store: Store) -> None:
    _, run_id = world(store)
    page = opened(PAGE, run=run_id, rows="attribute", columns="sphere", roworder="violation", n=1)
    figure = figure_of(page)
    assert [len(figure["data"]), figure["layout"]["yaxis"]["ticktext"]] == [2, ["fact 1", "fact 0", "fact 2"]]
    empty = [sum(share is None for row in trace["z"] for share in row) for trace in figure["data"]]
    assert empty == hatched(figure) and sum(empty) > 0
    assert figure["layout"]["xaxis2"]["ticktext"] == ["(none)", "housing"]
    # fact_1 in contexts 0 and 2, which have no sphere: revealed in 0 and 5 of 5 samples.
    assert ["50.0 % of 2 inappropriate pairs", "no necessary pairs"] in read(page)
    assert "violation@1 60.0 %" in page_html(page)
    box(page, "Rows").select("event").run()
    box(page, "Maps").select("completeness").run()
    assert page.query_params["rows"] == "event" and page.query_params["measure"] == "completeness"
    assert len(figure_of(page)["data"]) == 1 and figure_of(page)["layout"]["yaxis"]["ticktext"] == ["job loss"]
    box(page, "Rows").select("domain").run()
    assert "rows" not in page.query_params  # the usual needs no word
    assert "Recipient" in box(page, "Rows").options and "Sphere" not in box(page, "Rows").options  # stands across
    wrong = opened(PAGE, run=run_id, roworder="upside down", most="9999999", columns="domain", rows="domain")
    assert "'upside down' in the link is not a choice here" in page_html(wrong).replace("&#x27;", "'")
    assert not wrong.exception


def test_the_flows_of_a_cell_are_sent_a_page_at_a_time(store: Store) -> None:
    people = 60  # one flow each in the cell
    data = add_dataset(store, profiles=people, attributes=2, contexts=1)
    add_labels(store, data.id, [[[N], [X]]] * people)
    run_id = add_run(store, data.id, 2, [[[1], [1]]] * people)
    person = records(store, data.id)[0].profile
    cell = {"domain": person.attributes[1].domain, "recipient": person.contexts[0].recipient}
    page = opened(PAGE, run=run_id, columns="recipient", **cell)
    first = set(listed(page).index)
    assert len(first) == 50 and "Listed are flows 1 to 50, the most revealed first." in page_html(page)
    assert button(page, "Previous 50").disabled
    button(page, "Next 50").click().run()
    assert len(listed(page)) == people - 50 and first.isdisjoint(listed(page).index)
    assert "Listed are flows 51 to 60" in page_html(page) and button(page, "Next 50").disabled
    button(page, "Previous 50").click().run()
    assert set(listed(page).index) == first


def listed(page: AppTest) -> Any:
    """The flows of the chosen cell that are sent."""
    return next(item.value for item in page.dataframe if "statement" in item.value)


def test_maps_are_read_where_every_flow_is_and_say_so(store: Store) -> None:
    dataset, whole = world(store)
    part = add_run(store, dataset, 5, REVEALS, missing={(0, 1, s): ResponseStatus.FAILED for s in (3, 4)})
    limit = "read at n = 3, the largest n that every judged flow supports"
    for query in ({"run": part}, {"run": part, "n": 5}, {"run": whole, "against": part}):
        page = opened(PAGE, **query)
        title = json.dumps(figure_of(page)["layout"]["title"]).replace("<br>", " ")
        assert limit in title, query
        assert page.slider(key="heatmaps.n").max == 3
        assert page.slider(key="heatmaps.n").value == 3
    assert f"The maps are {limit}" in page_html(opened(PAGE, run=part, n=5))
    page = opened(PAGE, run=part, n=2)
    assert page.slider(key="heatmaps.n").value == 2
    assert limit not in json.dumps(figure_of(page)["layout"]["title"]).replace("<br>", " ")
    assert page.slider(key="heatmaps.n").max == 3
    assert opened(PAGE, run=whole).slider(key="heatmaps.n").max == 5
    # To a run with other bounds in the same session, as by the list of runs.
    page.run()
    page.query_params["run"] = whole
    page.run()
    assert (page.slider(key="heatmaps.n").value, page.slider(key="heatmaps.n").max) == (2, 5)


def test_a_click_opens_the_flows_of_a_cell_and_back_is_the_same_cell(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run_id = world(store)
    person = records(store, data)[0]
    page = opened(PAGE, run=run_id, rows="attribute")
    assert "Click a cell" in page_html(page)
    with monkeypatch.context() as browser:
        browser.setattr(charts, "clicked_cell", lambda *_: (1, 2))
        page.run()
    assert (page.query_params["key"], page.query_params["context"]) == ("fact_1", str(person.context_ids[2]))
    assert "Pairs leaked in 5 samples: 100.0 % of 1 inappropriate pair" in page_html(page)
    flows = next(d.value for d in page.dataframe if "revealed" in d.value)
    assert flows[["key", "revealed"]].to_numpy().tolist() == [["fact_1", "5 of 5"]]
    address = dict(page.query_params)
    button(page, "Close").click().run()
    assert "Click a cell" in page_html(page) and "key" not in page.query_params and "context" not in page.query_params
    page.query_params.update(address)
    page.run()
    page.switch_page(LEAKS).run()
    page.switch_page(PAGE)
    # The browser's Back brings the address of the page that was left: it names the context, not the key.
    page.query_params.clear()
    for name, value in (("run", run_id), ("profile", person.id), ("context", person.context_ids[2])):
        page.query_params[name] = str(value)
    page.run()
    assert {name: page.query_params[name] for name in address} == address
    with monkeypatch.context() as browser:
        browser.setattr(tables, "_row", lambda event: 0)
        page.run()
    # On Leaks, filtered to the cell.
    assert page.query_params["where"] == "key = 'fact_1' and recipient = 'Recipient 2' and task = 'Task 2'"
    assert "<b>1 of 1</b>" in page_html(page)
    page.switch_page(PAGE)
    # An address that speaks of another context is not about the cell that was left.
    page.query_params.clear()
    for name, value in (("run", run_id), ("context", person.context_ids[0])):
        page.query_params[name] = str(value)
    page.run()
    assert "Click a cell" in page_html(page)


@pytest.mark.parametrize("sent", [None, "x", [1], [1, 2, 3], [-1, 0], ["0", "0"], [9, 0], [0, 9], {"a": 1}])
def test_a_click_that_is_none_changes_nothing(monkeypatch: pytest.MonkeyPatch, sent: object) -> None:
    monkeypatch.setattr(charts.st, "session_state", {"maps": {"cell": sent}})
    assert charts.clicked_cell("maps", 9, 9) is None
    monkeypatch.setattr(charts.st, "session_state", {"maps": {"cell": [8, 0]}})
    assert charts.clicked_cell("maps", 9, 9) == (8, 0)


def test_two_runs_as_a_difference(store: Store) -> None:
    data, run_id = world(store)
    without_reveals = add_run(store, data, 5, [[[0, 0, 0]] * 3], simulated=True)
    person = records(store, data)[0]
    assert "ci-simulated" not in page_html(opened(PAGE, run=run_id))
    where = {"domain": "relationships", "context": person.context_ids[1]}
    page = opened(PAGE, run=run_id, against=without_reveals, **where)
    title = figure_of(page)["layout"]["title"]["text"]
    assert title.startswith("In none of 5 cells does a test tell")
    # The page's first sentence has the numbers of both, and not the title again.
    assert page_html(page).count("violation@5") == 2 and "violation@5 0.0 % of 2 attributes" in page_html(page), (
        page_html(page)
    )
    # In the order of before and after: this run, and the one that the difference is to.
    assert page_html(page).index("violation@5 100.0 %") < page_html(page).index("violation@5 0.0 %")
    assert [box.label for box in page.selectbox].count("Difference to") == 1
    assert title not in page_html(page)
    assert "ci-simulated" in page_html(page)  # one of the two is enough
    assert "100.0 % to 0.0 % (-100.0 points) of 1 and 1 inappropriate pairs" in [cell[0] for cell in read(page)]
    flows = next(d.value for d in page.dataframe if "revealed_other" in d.value)
    assert flows[["revealed", "revealed_other"]].to_numpy().tolist() == [["2 of 5", "0 of 5"]]
    elsewhere = opened(PAGE, run=run_id, against="run-00000000")
    assert "in the link is not a choice here" in page_html(elsewhere)


def test_of_two_runs_each_says_how_much_is_judged_and_a_simulated_part_is_named_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS, simulated=True)
    lost = {(0, 0, sample): ResponseStatus.TRUNCATED for sample in (2, 3, 4)}
    first, second = add_run(store, data.id, 5, REVEALS), add_run(store, data.id, 5, [[[0, 0, 0]] * 3], missing=lost)
    marks: list[object] = []
    monkeypatch.setattr("cimemories.ui.exports.buttons", lambda *_, simulated, **__: marks.append(simulated))
    name = resolve_scope(store, second).run.name
    assert f"Only 80.0 % of the messages of {name} are judged." in page_html(opened(PAGE, run=first, against=second))
    assert "Only 80.0 % of the messages are judged." in page_html(opened(PAGE, run=second))
    assert marks == [("labels",)] * 2


def test_columns_too_narrow_for_names_stand_by_sphere(store: Store) -> None:
    spheres = ["legal", "housing", "finance"]
    contexts = tuple(Context("t", f"recipient {i}", spheres[i % 3]) for i in range(39))
    data = add_profiles(store, [replace(make_profile(0, 2, 39), contexts=contexts)], name="wide")
    add_labels(store, data.id, [[[X] * 39, [N] * 39]])
    run_id = add_run(store, data.id, 2, [[[int(i == 7) for i in range(39)], [1] * 39]])
    figure = figure_of(opened(PAGE, run=run_id))
    assert figure["layout"]["xaxis"]["ticktext"] == spheres and len(figure["layout"]["shapes"]) == 2 * 2
    assert figure["data"][0]["z"][0].index(1.0) == 13 + 2  # recipient 7 is the third of housing
    # In any other order a sphere stands where its first column does.
    figure = figure_of(opened(PAGE, run=run_id, columnorder="violation"))
    assert figure["layout"]["xaxis"]["ticktext"][0] == "housing" and figure["data"][0]["z"][0][0] == 1.0
    # One map has room for each name.
    assert len(figure_of(opened(PAGE, run=run_id, measure="violation"))["layout"]["xaxis"]["ticktext"]) == 39


def test_where_no_context_has_a_sphere_every_second_narrow_column_has_its_name(store: Store) -> None:
    contexts = tuple(Context("t", f"recipient {i}", "") for i in range(39))
    data = add_profiles(store, [replace(make_profile(0, 2, 39), contexts=contexts)], name="wide")
    add_labels(store, data.id, [[[X] * 39, [N] * 39]])
    run_id = add_run(store, data.id, 2, [[[0] * 39, [1] * 39]])
    names = [f"recipient {i}" if i % 2 == 0 else "" for i in range(39)]
    assert figure_of(opened(PAGE, run=run_id))["layout"]["xaxis"]["ticktext"] == names


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_harm_and_benefit_differ_in_hue_and_say_the_same_in_grey(
    store: Store, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    _, run_id = world(store)
    monkeypatch.setattr(ContextProxy, "theme", property(lambda _: StreamlitTheme({"type": theme})))
    harm, benefit = (
        [hex_to_rgb(colour) for _, colour in trace["colorscale"]]
        for trace in figure_of(opened(PAGE, run=run_id))["data"]
    )
    assert all(red > green > blue for red, green, blue in harm[1:])
    assert all(green > red and green > blue for red, green, blue in benefit)
    for scale in (harm, benefit):
        grey = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in scale]
        assert grey == sorted(grey, reverse=theme == "light")  # 0 is like the page
        assert (grey[0] > 215) if theme == "light" else (grey[0] < 40)


def test_too_many_rows_are_counted_not_dropped_in_silence(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=40, contexts=3)
    add_labels(store, data.id, [[[X, N, X]] * 20 + [[N, X, N]] * 20])
    run_id = add_run(store, data.id, 2, [[[i % 3, 1, 0] for i in range(40)]])
    page = opened(PAGE, "heatmaps.box.table", run=run_id, rows="attribute")
    assert "30 of 40 rows shown" in page_html(page)
    assert len(figure_of(page)["layout"]["yaxis"]["ticktext"]) == 30
    assert len(page.dataframe[-1].value) == 40 * 3
    fewer = opened(PAGE, run=run_id, rows="attribute", most=15)
    assert "15 of 40 rows shown" in page_html(fewer) and len(figure_of(fewer)["layout"]["yaxis"]["ticktext"]) == 15


def test_hostile_words_reach_the_chart_escaped(store: Store) -> None:
    text = "<img src=http://evil.test/x onerror=alert(1)> ![x](http://evil.test/y.png) :material/bug:"
    person = replace(
        make_profile(0, 2, 2),
        name=text,
        attributes=tuple(Attribute(f"{text} {i}", "v", "finance", text, text) for i in range(2)),
        contexts=(Context(text, text, text), Context("t", "r", None)),
    )
    data = add_profiles(store, [person], name="hostile")
    add_labels(store, data.id, [[[X, N], [N, X]]])
    run_id = add_run(store, data.id, 2, [[[1, 1], [1, 1]]])
    for sides in ({"rows": "attribute", "columns": "recipient"}, {"rows": "event", "columns": "sphere"}):
        page = opened(PAGE, run=run_id, **sides, key=f"{text} 0", recipient=text, event=text, sphere=text)
        assert "<img" not in page_html(page)
        assert "&lt;img" in page_html(page)  # the chosen cell's heading
        assert "<img" not in json.dumps(figure_of(page))


def recalling(store: Store) -> str:
    """The run of `world`, the prompts of which held all but the second attribute; returns its id."""
    data, run_id = world(store)
    with store.write("admin") as connection:
        (person,) = records(store, data)
        shown = datasets.keep_memories(connection, person.id, [person.attribute_ids[0], person.attribute_ids[2]])
        connection.execute(sa.update(response).where(response.c.run == run_id).values(shown=shown))
        work.bump(connection, run_id)
    return run_id


def shares_of(bars: dict[str, Any]) -> dict[str, list[float]]:
    """The shares of a figure of bars by the name of the part."""
    return {part["name"]: [round(share, 3) for share in part["x"]] for part in bars["data"]}


def test_a_run_that_recalls_shows_from_memory_to_message_and_leads_to_the_leaks_of_a_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = recalling(store)
    page = opened(PAGE, "heatmaps.recalled.box", run=run_id, measure="recalled")
    # Inappropriate: of `a` all 10 samples recalled it and 1 says it; of `b` none of 15, and 7 say it all the same.
    maps, bars = (json.loads(chart.proto.spec) for chart in page.get("plotly_chart")[:2])
    assert "recalled in 40.0 % of the samples, said in 32.0 %, 28.0 % without recall" in maps["layout"]["title"][
        "text"
    ].replace("<br>", " ")
    assert [cell[0] for cell in read(page) if cell[0][0] != "n"] == ["100.0 % of 1 inappropriate pairs"] * 2 + [
        "0.0 % of 1 inappropriate pairs"
    ] * 3
    # A bar a domain: `a`, then `b`.
    expected = {
        "recalled and said": [0.1, 0],
        "said, not recalled": [0, 0.467],
        "recalled, not said": [0.9, 0],
        "not recalled": [0, 0.533],
    }
    assert shares_of(bars) == expected
    table = next(d.value for d in page.dataframe if "exposure" in d.value)
    assert table["exposure"].tolist() == [100, 0]
    monkeypatch.setattr(tables, "_row", lambda event: 1)
    page.run()
    assert page.query_params["run"] == run_id
    assert page.query_params["where"] == f"domain = '{table['id'].iloc[1]}'"
    assert "3 leaks of a fact to someone who should not know it" in page_html(page)  # on Leaks


def test_a_leak_says_whether_and_where_it_was_recalled(store: Store) -> None:
    run_id = recalling(store)
    (person,) = records(store, resolve_scope(store, run_id).run.dataset)

    def leak(attribute: int, context: int) -> str:
        ids = {"profile": person.id, "attribute": person.attribute_ids[attribute]}
        return page_html(opened(LEAKS, run=run_id, context=person.context_ids[context], **ids))

    of_all = "of 5 messages"
    assert f"not in this message&#x27;s prompt, which held 2; in those of 0 {of_all}" in leak(1, 2)
    assert f"in this message&#x27;s prompt, place 1 of 2; in those of 5 {of_all}" in leak(0, 0)
    line = datasets.RecalledLine("Statement", (person.attribute_ids[0],), 7.25)
    with store.write("admin") as connection:
        named = datasets.keep_recall(connection, datasets.RecallRecord(person.id, "bm25", (line,)))
        first = sa.select(sa.func.min(response.c.id)).where(response.c.run == run_id).scalar_subquery()
        connection.execute(sa.update(response).where(response.c.id == first).values(recall=named))
        work.bump(connection, run_id)
    assert f"place 1 of 2, score 7.25; in those of 5 {of_all}" in leak(0, 0)
    with store.write("admin") as connection:
        lines = line, datasets.RecalledLine("Nobody knows what this repeats")
        named = datasets.keep_recall(connection, datasets.RecallRecord(person.id, "summary", lines))
        connection.execute(sa.update(response).where(response.c.run == run_id).values(recall=named))
        work.bump(connection, run_id)
    unknown = "not known to be in this message&#x27;s prompt, which held 2 and 1 line that may carry it; in those of 0"
    assert f"{unknown} {of_all}" in leak(1, 2)
    told = "In 15 of 15 messages the prompt held recalled lines of which no attribute is known (15 lines, ungrounded)"
    assert told in page_html(opened(PAGE, run=run_id))
    _, plain = world(store, name="plain")
    assert "Recalled" not in page_html(opened(LEAKS, run=plain))


def test_the_flows_of_a_cell_say_in_how_many_prompts_they_were(store: Store) -> None:
    run_id = recalling(store)
    (person,) = records(store, resolve_scope(store, run_id).run.dataset)
    cells = []
    for key in ("fact_0", "fact_1"):
        page = opened(PAGE, run=run_id, rows="attribute", key=key, context=person.context_ids[0])
        cells += (
            next(d.value for d in page.dataframe if "revealed" in d.value)[["revealed", "recalled"]].to_numpy().tolist()
        )
    assert cells == [["1 of 5", "5 of 5"], ["0 of 5", "0 of 5"]]


def test_a_click_on_a_bar_leads_to_the_leaks_of_its_context(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = recalling(store)
    monkeypatch.setattr(charts, "clicked_row", lambda event, rows: rows - 1)
    page = opened(PAGE, run=run_id, by="context")
    assert "3 leaks of a fact to someone who should not know it" in page_html(page)  # on Leaks
    assert page.query_params["where"] == "recipient = 'Recipient 2' and task = 'Task 2'"


@pytest.mark.parametrize("point", [None, {}, {"y": -1}, {"y": 3}, {"y": 1.0}, {"y": "1"}, {"y": True}, [1]])
def test_a_click_on_no_bar_leads_nowhere(point: object) -> None:
    assert charts.clicked_row({"selection": {"points": [point]}}, 3) is None
    assert charts.clicked_row({"selection": {"points": point}}, 3) is None
    assert charts.clicked_row({"selection": {"points": [{"y": 2}, point]}}, 3) == 2


def test_what_is_needed_by_context_and_a_run_that_recalls_all(store: Store) -> None:
    run_id = recalling(store)
    page = opened(PAGE, run=run_id, measure="recalled-needed", label="necessary", by="context")
    bars = json.loads(page.get("plotly_chart")[1].proto.spec)
    assert shares_of(bars) == {"recalled and said": [1, 0.6, 0.8], "recalled, not said": [0, 0.4, 0.2]}
    _, plain = world(store, name="plain")
    page = opened(PAGE, run=plain, measure="recalled")
    assert "From memory to message" not in page_html(page) and "is not a choice here" in page_html(page)


def test_the_flow_is_as_wide_as_its_counts_and_kept_in_the_address(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = recalling(store)
    page = opened(PAGE, run=run_id, figure="flow")
    (trace,) = json.loads(page.get("plotly_chart")[1].proto.spec)["data"]
    labels, link = trace["node"]["label"], trace["link"]
    ends = [(labels[s], labels[t], n) for s, t, n in zip(link["source"], link["target"], link["value"], strict=True)]
    # Of `a` all 10 samples recalled it and 1 says it; of `b` none of 15, and 7 say it all the same.
    recalled, silent = "recalled 10 (40.0 %)", "not said 17 (68.0 %)"
    missed, said = "not recalled 15 (60.0 %)", "said 8 (32.0 %)"
    assert ends[2:] == [(recalled, said, 1), (missed, said, 7), (recalled, silent, 9), (missed, silent, 8)]
    assert [end[1:] for end in ends[:2]] == [(recalled, 10), (missed, 15)]
    assert "samples" in json.dumps(trace["link"]["customdata"])
    monkeypatch.setattr(shell, "screen", lambda: shell.PHONE)
    page = opened(PAGE, run=run_id, figure="flow")
    assert "recalled and said" in shares_of(json.loads(page.get("plotly_chart")[-1].proto.spec))
    assert "needs a wider screen" in page_html(page)
