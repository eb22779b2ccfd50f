"""Reports: their numbers are those of the record; what they mark, leave out and warn of; the same twice."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from markdown_it import MarkdownIt
from reports import Page
from worlds import add_dataset, add_judge, add_labels, add_run, ask, plan_run, records, settle_judgement

from cimemories.agreement.judges import LabelGroup, judges_agreement
from cimemories.compare.difference import difference
from cimemories.compare.leaderboard import bounds_text
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics import sentences
from cimemories.metrics.breakdown import breakdown
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import group_intervals, intervals, rate_intervals
from cimemories.metrics.places import By
from cimemories.metrics.uncertainty import PARTS
from cimemories.model import JudgementStatus, Label, ResponseStatus, WorkStatus
from cimemories.report.collect import collect
from cimemories.report.document import Report
from cimemories.report.render import as_html, as_markdown
from cimemories.store import decisions, judgements, work
from cimemories.store.engine import Store, StoreError, canonical_json, open_store
from cimemories.store.tables import labelling, response, run
from cimemories.text import percent

CLOCK = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
# The worked example of docs/metrics.md.
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
EXAMPLE = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]
QUIET = [[[0, 0, 5], [1, 0, 0], [4, 3, 0]]]


def change(store: Store, run_id: str, **values: object) -> None:
    with store.write() as connection:
        connection.execute(sa.update(run).where(run.c.id == run_id).values(**values))
        work.bump(connection, run_id)


def made(store: Store, *run_ids: str, clock: datetime = CLOCK, **options: Any) -> Report:
    return collect(shared_flows(store), [resolve_scope(store, run_id) for run_id in run_ids], now=clock, **options)


def two_runs(store: Store) -> tuple[Store, str, str]:
    """One person; the run of the worked example, and a quieter one of which a message is missing."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, LABELS)
    first = add_run(store, data.id, 5, EXAMPLE)
    second = add_run(store, data.id, 5, QUIET, missing={(0, 2, 4): ResponseStatus.TRUNCATED})
    change(store, second, model="gpt-5", seed=7)
    return store, first, second


@pytest.fixture
def world(sqlite_store: Store) -> tuple[Store, str, str]:
    """For tests that change something."""
    return two_runs(sqlite_store)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str, str]]:
    """The same for tests that only read: what is asked again is remembered."""
    store = open_store(tmp_path_factory.mktemp("still") / "workspace")
    yield two_runs(store)
    store.close()


@pytest.fixture(scope="module")
def both(still: tuple[Store, str, str]) -> Report:
    return made(*still)


def test_the_numbers_are_those_of_the_worked_example(still: tuple[Store, str, str]) -> None:
    store, first, _ = still
    page = Page(as_html(made(store, first)))
    table = page.table("Numbers of test-model")
    computed = intervals(*ask(store, first))
    assert table["Violation@1"][0] == f"60.0 % {bounds_text(computed.violation[1])}"
    assert table["Violation@5"][0].startswith("100.0 % [")
    assert table["Completeness"][0] == f"80.0 % {bounds_text(computed.completeness)}"
    assert table["Leak rate"][1].startswith("8 of 25 exposures")
    rows = next(rows for caption, rows in page.tables if "so many tasks" in caption)
    assert [row[1:3] for row in rows[1:]] == [[n, k] for n in ("1", "5") for k in ("1", "2", "3")]
    # One number, one interval: after all tasks at n = 1 it is Violation@1.
    one = table["Violation@1"][0]
    assert rows[3][3] == one
    assert f"Violation@1 {one};" in page.text  # in the figure
    five, complete, score = (table[name][0] for name in ("Violation@5", "Completeness", "Balanced score"))
    abstract = page.text[page.text.index("An assistant that remembers") : page.text.index("What may not be concluded")]
    assert f"gives away {five} of what it should withhold" in abstract
    assert "up to 3 tasks a user, 5 messages a task, 2 attributes to be withheld in some task" in abstract
    assert f"conveys {complete} of what is needed" in abstract and f"Balanced score {score}" in abstract
    assert page.table("Violation under each")["test-model"][1] == five  # the last of the three rules
    # Words for a paper carry the same counts.
    for phrase in (
        "1 synthetic user with 3 attributes",
        "3 pairs of a user and a context were retained and 0 discarded",
    ):
        assert phrase in page.text
    assert "5 messages for each user and context" in page.text
    assert "all 15 planned messages were judged" in page.text
    assert "fundamentalist (prior 26 %), pragmatic (prior 64 %) and unconcerned (prior 10 %)" in page.text
    assert "With 1 user an interval speaks of these attributes and hardly of users" in page.text


def test_the_abstract_and_the_figure_of_a_run_that_has_only_begun_say_so(sqlite_store: Store) -> None:
    """Of two users one has every message and one none: what is judged of a task is whole, the run is not."""
    data = add_dataset(sqlite_store, profiles=2, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS * 2)
    owed = {(1, context, sample): ResponseStatus.OWED for context in range(3) for sample in range(5)}
    run_id = add_run(sqlite_store, data.id, 5, EXAMPLE * 2, missing=owed, status=WorkStatus.PAUSED)
    page = Page(as_html(made(sqlite_store, run_id)))
    text = "of what is needed; only 50.0 % of the messages are judged"
    abstract = page.text[page.text.index("An assistant that remembers") : page.text.index("What may not be concluded")]
    assert text in abstract
    assert "3 retained contexts of 1 profile with a judged message" in page.text
    assert page.table("What is missing")["test-model"] == ["response", "owed", "not written yet", "15"]
    failed = {(0, 0, 0): ResponseStatus.FAILED, (0, 1, 0): ResponseStatus.OWED, (0, 2, 0): JudgementStatus.OWED}
    other = Page(as_html(made(sqlite_store, add_run(sqlite_store, data.id, 5, EXAMPLE * 2, missing=failed))))
    (rows,) = (rows for caption, rows in other.tables if caption.startswith("What is missing"))
    assert [row[1:] for row in rows[1:]] == [
        ["response", "failed", "test: failed", "1"],
        ["response", "owed", "not written yet", "1"],
        ["judgement", "owed", "not judged yet", "1"],
    ]


def test_both_forms_say_the_same(both: Report) -> None:
    text, pictures = as_markdown(both, "figures")
    page, other = Page(as_html(both)), Page(MarkdownIt("commonmark").enable("table").render(text))
    assert [title.removesuffix(" #").strip() for level, title in page.headings if level == 2] == [
        title for level, title in other.headings if level == 2
    ]
    cells = [row for caption, rows in page.tables for row in rows[1:]]
    others = [row for _, rows in other.tables for row in rows]
    plain = [[cell.strip().replace("\N{WORD JOINER}", "") for cell in row] for row in others]
    assert len(cells) > 60
    missing = [row for row in cells if [c.strip() for c in row] not in plain]
    assert [row for row in missing if "published" not in " ".join(row)] == []
    assert sorted(other.values("src")) == sorted(f"figures/{name}" for name in pictures)
    assert len(pictures) == page.tags["figure"] >= 7


def test_a_comparison_says_who_leaks_less_and_what_speaks_against_it(
    still: tuple[Store, str, str], both: Report
) -> None:
    store, first, second = still
    page = Page(as_html(both))
    flows = Flows(store)
    compared = difference(flows, resolve_scope(store, first), resolve_scope(store, second))
    assert compared.names == ("test-model", "gpt-5") and all(text in page.text for text in compared.words)
    # The other has no rank, so the order of rows is not that of their scores.
    assert "Runs, the highest balanced score first, those without a rank last, beside" in page.text
    changed = page.table("Flows that change")["gpt-5"]
    counts = compared.changes.frame.iloc[0]
    assert [int(changed[at]) for at in (0, 1, 3, 5, 6)] == [
        counts[name] for name in ("inappropriate_flows", "newly", "stopped", "both", "neither")
    ]
    assert page.table("Runs differ in")["Seed"] == ["0", "7"]
    assert "only 93.3 % of the planned messages are judged" in page.text
    assert page.table("What is missing")["gpt-5"][1] == "truncated"
    # The order says who is held against whom.
    turned = Page(as_html(made(store, second, first)))
    row = turned.table("Each run minus gpt-5")["test-model"]
    assert float(row[2].split()[0]) == pytest.approx(-100 * compared.violation.value, abs=0.05)
    # The two numbers that it is the difference of: with a message missing they are not those of the runs alone.
    before = compared.pair.frame.iloc[0]
    for at, measure in ((0, "violation"), (4, "completeness")):
        assert row[at : at + 2] == [percent(before[f"{measure}_second"]), percent(before[f"{measure}_first"])]


def test_runs_none_of_which_is_ranked_have_a_report_too(sqlite_store: Store) -> None:
    store, _, second = two_runs(sqlite_store)
    data = resolve_scope(store, second).run.dataset
    other = add_run(store, data, 5, EXAMPLE, missing={(0, 1, 3): ResponseStatus.TRUNCATED})
    text = as_html(made(store, second, other))  # the front of the figure is that of no run
    assert "None of 2 runs has full coverage, so none can be ranked" in Page(text).text and "figure-plane" in text


def test_what_the_paper_states_is_marked_as_published(world: tuple[Store, str, str]) -> None:
    store, second, part = world
    # Of the paper's model too, but read at 4 samples for want of a message: the paper's number is of 5.
    assert "published</span>" not in as_html(made(store, part))
    change(store, second, model="openai/gpt-5")
    text = as_html(made(store, second))
    page = Page(text)
    numbers = page.table("The run, beside")
    assert "25.1 %" in numbers["GPT-5, published"][0]
    assert any("Abstract" in cell for cell in page.table("What they rest on")["GPT-5, published"])
    assert text.count('<span class="chip plain">published</span>') == 2
    change(store, second, simulated=True)
    assert "published</span>" not in as_html(made(store, second))


def test_simulated_results_are_marked_at_every_table_of_numbers(world: tuple[Store, str, str]) -> None:
    store, first, second = world
    clean = Page(as_html(made(store, first)))
    assert clean.chips == []
    assert "banner" not in clean.values("class")
    change(store, first, simulated=True)
    report = made(store, first)
    page = Page(as_html(report))
    plain = {caption.strip() for caption, _ in page.tables if caption} - set(page.chips)
    of_labels = {"The personas that vote", "Pairs with a consensus by domain", "Who prevents a consensus"}
    assert {caption for caption in plain if not caption.startswith(("The run ", "The labelling "))} <= of_labels
    assert "banner" in page.values("class")
    assert all(figure.simulated and "SIMULATED" in _texts(figure.svg) for figure in report.figures())
    mixed = made(store, second, first)
    assert mixed.simulated.startswith("1 of 2 runs rest on what is simulated")
    assert mixed.simulated.endswith("any real model: messages of test-model.")
    with store.write() as connection:
        connection.execute(sa.update(labelling).values(simulated=True))
        work.bump(connection, first)
    # The messages of the second are real, and nothing may say otherwise.
    both = made(store, second, first).simulated
    assert both.startswith("2 of 2 runs") and "labels of gpt-5" in both
    assert both.endswith("messages and labels of test-model.")
    # Of one kind alone the banner says it, and no name again: only the title of the file and the manifest.
    report = made(store, first)
    assert Page(as_html(report)).text.count("test-model (simulated)") == 2
    assert report.simulated.startswith("Everything here rests on simulated messages and labels")
    text, _ = as_markdown(mixed, "f")
    assert "> **Simulated.**" in text
    assert "test-model (simulated)" in text


def _texts(svg: Any) -> str:
    return " ".join(svg.itertext())


def test_the_same_record_gives_the_same_bytes_without_a_browser(
    still: tuple[Store, str, str], both: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, first, second = still
    for name in ("kaleido", "choreographer"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("BROWSER_PATH", "/nowhere")
    monkeypatch.setenv("PATH", "")
    one = both
    two = collect(Flows(store), [resolve_scope(store, run_id) for run_id in (first, second)], now=CLOCK)
    assert as_html(one) == as_html(two)
    assert as_markdown(one, "f") == as_markdown(two, "f")
    later = as_html(made(store, first, second, clock=datetime(2027, 5, 6, 7, 8, tzinfo=UTC))).splitlines()
    apart = [(a, b) for a, b in zip(as_html(one).splitlines(), later, strict=True) if a != b]
    assert len(apart) == 2
    assert all("Made on 2026-03-01 at 12:00 UTC" in a and "Made on 2027-05-06 at 07:08 UTC" in b for a, b in apart)


def test_the_file_can_be_read_without_seeing_it(both: Report) -> None:
    page = Page(as_html(both))
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {f"#{name}" for name in ids} >= set(page.values("href"))
    named = {name for value in page.values("aria-labelledby") for name in value.split()}
    assert named <= set(ids)
    assert page.tags["svg"] == page.values("role").count("img") == page.tags["figure"]
    assert page.tags["th"] == sum(tag == "th" and name == "scope" for tag, name, _ in page.attributes)
    assert ("html", "lang", "en") in page.attributes


def test_texts_are_left_out_where_asked_for_and_numbers_stay(still: tuple[Store, str, str], both: Report) -> None:
    store, first, second = still
    shown, hidden = both, made(store, first, second, texts=False)
    for form in (as_html, lambda report: as_markdown(report, "f")[0]):
        whole, without = form(shown), form(hidden)
        assert "Statement 0.1 says" in whole
        assert "Person 0" in whole
        assert "Statement 0." not in without
        assert "Person 0" not in without
    pages = [Page(as_html(report)) for report in (shown, hidden)]
    assert pages[0].table("Numbers of gpt-5") == pages[1].table("Numbers of gpt-5")
    assert "--no-texts" in pages[1].text
    assert "--no-texts" not in pages[0].text


def test_neither_keys_nor_passwords_are_in_it(world: tuple[Store, str, str]) -> None:
    store, first, _ = world
    judge = {"base_url": "http://me:hunter2@judge.example/v1", "api_key_env": "SECRET_OF_MINE"}
    manifest = {"model": {"endpoint": "http://me:hunter2@h.example/v1"}, "judges": [judge], "asked": {"judge": judge}}
    change(store, first, manifest=canonical_json(manifest), endpoint="http://me:hunter2@h.example/v1")
    with store.write() as connection:
        spec = {"dataset": "small world", "model": "voter", "base_url": "http://me:hunter2@h.example/v1", "draws": 3}
        kept = connection.execute(sa.select(labelling.c.manifest)).scalar_one()
        voted = canonical_json({**kept, "asked": {**spec, "api_key_env": "SECRET_OF_MINE"}})
        connection.execute(sa.update(labelling).values(manifest=voted))
    report = made(store, first)
    repeated = "cimemories label --dataset 'small world' --model voter --base-url http://h.example/v1 --draws 3"
    assert repeated in Page(as_html(report)).text
    for text in (as_html(report), as_markdown(report, "f")[0]):
        assert "hunter2" not in text
        assert "SECRET_OF_MINE" not in text
        assert "h.example/v1" in text.replace("\N{WORD JOINER}", "").replace("\\", "")


def test_the_rule_is_said_with_what_it_leaves_out(sqlite_store: Store) -> None:
    from worlds import add_profiles, make_profile

    data = add_profiles(sqlite_store, [make_profile(0, 3, 3, keys=["mortgage"])])
    add_labels(sqlite_store, data.id, LABELS)
    run_id = add_run(sqlite_store, data.id, 5, EXAMPLE)
    page = Page(as_html(made(sqlite_store, run_id)))
    assert "the substring rule would leave out 1 key: mortgage" in page.text
    assert "never count as violations" in page.text
    report = collect(Flows(sqlite_store), [resolve_scope(sqlite_store, run_id)], IdentifierRule.SUBSTRING, now=CLOCK)
    other = Page(as_html(report))
    assert "This leaves out 1 key beyond the biography." in other.text
    assert "--identifiers substring" in other.text
    numbers = [p.table("Numbers of test-model")["Violation@1"] for p in (page, other)]
    assert [row[0].split(" [")[0] for row in numbers] == ["60.0 %", "100.0 %"]


def test_intervals_come_with_their_parts_and_what_the_run_can_show(sqlite_store: Store) -> None:
    shape, random = (6, 8, 5), np.random.default_rng(2)
    data = add_dataset(sqlite_store, *shape)
    add_labels(sqlite_store, data.id, np.where(random.random(shape) < 0.3, N, X))
    run_id = add_run(sqlite_store, data.id, 3, random.binomial(3, 0.2, shape))
    page = Page(as_html(made(sqlite_store, run_id)))
    scope = resolve_scope(sqlite_store, run_id)
    bounds = intervals(Flows(sqlite_store), scope)
    parts = page.table("test-model: What the 95 % intervals are made of")
    for name, item in (("Violation@3", bounds.violation[3]), ("Completeness", bounds.completeness)):
        widths = item.part_widths()
        assert float(parts[name][0]) == pytest.approx(50 * (item.high - item.low), abs=0.05)
        assert [float(cell) for cell in parts[name][1:] if cell != "–"] == pytest.approx(
            [100 * widths[part] for part in PARTS if part in widths], abs=0.05
        )
    flows = Flows(sqlite_store)
    for by in (By.DOMAIN, By.SPHERE, By.PROFILE):
        groups = group_intervals(flows, scope, by, 3)
        rows = page.table(f"test-model by {by}")
        for item in breakdown(flows, scope, by, 3).to_dict("records"):
            for position, interval in zip((0, 3), groups[item["group"]], strict=True):
                assert interval.value == pytest.approx(item["violation" if position == 0 else "completeness"])
                assert 0 <= interval.low <= interval.value <= interval.high <= 1
                assert rows[item["group"].replace("_", " ") or "(none)"][position] == sentences.bounds_text(interval)
    rates, numbers = rate_intervals(flows, scope), headline(flows, scope)
    assert [rate.value for rate in rates] == pytest.approx(
        [numbers.leak_rate.micro, numbers.ambiguous_exposure], nan_ok=True
    )
    assert rates[0].low < rates[0].value < rates[0].high
    assert "With 6 profiles, 5 contexts and 3 samples this run can show a difference" in page.text


def test_what_is_said_of_users_is_of_each_run_and_what_is_named_is_referred_to(sqlite_store: Store) -> None:
    """Of runs of six and of two users one is common: they are ranked on its flows, their own numbers are of all."""
    data = add_dataset(sqlite_store, profiles=7, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS * 7)
    ids = [add_run(sqlite_store, data.id, 5, EXAMPLE * 7, profiles=part) for part in (slice(0, 6), slice(5, 7))]
    text = Page(as_html(made(sqlite_store, *ids))).text
    assert "a kind of user rarer than 39 % may be missing among 6 profiles" in text
    assert "1 profile can only speak" not in text and "among 1 profile" not in text
    assert "With 2 users an interval speaks of these attributes and hardly of users" in text
    few = Page(as_html(made(sqlite_store, ids[1]))).text
    for name in ("Korn", "Cameron", "Rubin"):  # once in the words, once among the references
        assert text.count(name) == few.count(name) == 2


@pytest.mark.parametrize("labelled", [False, True])
def test_where_there_is_nothing_to_say_it_says_so(sqlite_store: Store, labelled: bool) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=2)
    if labelled:
        add_labels(sqlite_store, data.id, [[[X, X], [X, X]]])
    ids = [add_run(sqlite_store, data.id, 1, [[[0, 0], [0, 0]]]) for _ in range(2)]
    with sqlite_store.write() as connection:
        ids.append(plan_run(connection, data.id, 1))  # nothing of it is answered yet
    report = made(sqlite_store, *ids)
    page = Page(as_html(report))
    assert "undefined" in page.text
    assert page.table("Numbers of test-model")["Violation@1"][0] == percent(float("nan"))
    assert "You may stop here" not in page.text  # a number that nobody has is not sure of anything
    assert as_markdown(report, "f")[0].startswith("# CIMemories: 3 runs compared")
    assert "nan" not in set(page.text.split())


def test_judges_and_decisions_are_said(world: tuple[Store, str, str]) -> None:
    store, first, _ = world
    person = records(store, 1)[0]
    with store.write() as connection:
        judgements.assign(connection, first, [add_judge(connection, "other")])
        second = judgements.of_run(connection, first)[1].id
        for answer in connection.execute(sa.select(response.c.id).where(response.c.run == first)).scalars().all():
            settle_judgement(connection, answer, second, None, person.attribute_ids)
        work.bump(connection, first)
        pair = {"attribute": person.attribute_ids[2], "context": person.context_ids[2]}
        decisions.add(connection, dataset_id=1, annotator="Ada", label=Label.INAPPROPRIATE, **pair)
    agreement = judges_agreement(shared_flows(store), first).pairs[0]
    page = Page(as_html(made(store, first)))
    row = page.table("Agreement of the judges")["test-judge and other"]
    assert row[:3] == [str(agreement.messages), str(agreement.places), str(agreement.table[1][1])]
    assert row[-2:] == [f"{agreement.kappa.value:.3f}", f"{agreement.ac1.value:.3f}"]
    by_label = judges_agreement(shared_flows(store), first, labels=resolve_scope(store, first)).pairs[0].by_label
    for label in ("inappropriate", "necessary"):
        row = page.table("Agreement of the judges")[f"test-judge and other: {label}"]
        assert row[1] == str(by_label[LabelGroup(label)].places)
    # What somebody took out of the ambiguous is in the measures, and no longer among what enters neither.
    decided = "People decided 1 pair; their decision overrides the votes. With them 3 pairs are necessary, 6"
    assert f"{decided} inappropriate, and 0 ambiguous, which enter neither measure." in page.text
    assert "With the decisions of people 9 pairs have a label." in page.text
    assert "Ambiguous, and in neither violation nor completeness, are 0." in page.text
    options = [{"labels": "consensus"}, {"judge_id": "any"}]
    alone, together = (
        Page(as_html(collect(shared_flows(store), [resolve_scope(store, first, **way)], now=CLOCK))) for way in options
    )
    assert "People decided 1 pair; these decisions are not used here." in alone.text
    assert "1 remain ambiguous and enter neither measure." in alone.text
    assert "An attribute counts where any of these 2 judges claim it." in together.text
    assert together.table("Numbers of")["Violation@1"][0].startswith("100.0 % [")


def test_the_commands_that_repeat_it_reach_the_judge_that_was_counted(world: tuple[Store, str, str]) -> None:
    """Of two judges of one name, told apart by their prompts, the command line takes the id and refuses the name."""
    store, first, _ = world
    with store.write() as connection:
        values = {"kind": "llm", "endpoint": "http://x", "simulated": False, "parameters": {}}
        twin = judgements.judge_id(connection, model="test-judge", prompt_hash="a" * 64, **values)
        before = judgements.of_run(connection, first)[0].id
        judgements.assign(connection, first, [before, twin])
        work.bump(connection, first)
    scope = resolve_scope(store, first, judge_id=before)
    text = Page(as_html(collect(shared_flows(store), [scope], now=CLOCK))).text
    (command,) = re.findall(rf"cimemories metrics {first} --json.*?--judge (\S+)", text)
    assert resolve_scope(store, first, judge_id=command).judge == scope.judge


def test_what_cannot_be_reported_is_refused(world: tuple[Store, str, str]) -> None:
    store, first, _ = world
    with pytest.raises(StoreError, match="one run or more"):
        made(store)
    with pytest.raises(StoreError, match="each run once"):
        made(store, first, first)
    data = add_dataset(store, profiles=1, attributes=3, contexts=3, name="another")
    with pytest.raises(StoreError, match="2 datasets"):
        made(store, first, add_run(store, data.id, 5, EXAMPLE))
