"""Published sites: every setting shows what the app says under such a rule, from files alone in a browser; hostile
texts stay texts; what is in a folder stays there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from evaluating import cli_inside, outside
from hostile_runs import AT, TAGS, build
from playwright.sync_api import Browser, Page, expect
from reports import Page as Parsed
from two_runs import world
from worlds import PERSONAS, add_call, add_dataset, add_judge, add_labels, add_run, records, settle_judgement

from cimemories.compare.leaderboard import bounds_text, leaderboard
from cimemories.compare.ranking import Measure, ranks
from cimemories.extras.site import site as library
from cimemories.extras.site.settings import Settings
from cimemories.extras.site.site import Site, check_folder, collect_site, files_of, write_site
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.labels import AMBIGUOUS, COUNTED, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.model import ResponseStatus, WorkStatus
from cimemories.store import judgements, labellings, work
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import dataset, response
from cimemories.text import count, percent

CLOCK = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
EVERY = {"index.html", "heatmaps.html", "leaks.html", "accumulation.html", "manifest.html"}


def made(store: Store, *run_ids: str, **options: Any) -> Site:
    return collect_site(shared_flows(store), [resolve_scope(store, i) for i in run_ids], now=CLOCK, **options)


@dataclass(frozen=True)
class Published:
    store: Store
    flows: Flows
    scopes: tuple[Scope, ...]
    site: Site
    folder: Path

    @property
    def settings(self) -> Settings:
        assert self.site.settings is not None
        return self.site.settings

    def rows(self, threshold: int, personas: int) -> list[list[str]]:
        """What the app says of the ranked runs under a rule of these numbers, as the cells of the table: the place,
        the name, three shares, three counts."""
        settings = self.settings
        name = f"{threshold} {personas}"
        priors = dict(zip(settings.keys, settings.personas[personas].priors, strict=True))
        with self.store.write() as connection:
            if name not in {row.name for row in labellings.all_rules(connection, self.scopes[0].run.dataset)}:
                labellings.add_rule(
                    connection,
                    self.scopes[0].run.dataset,
                    name,
                    threshold=settings.thresholds[threshold],
                    priors=priors,
                    annotator="Ada",
                )
        by_app = [
            headline(self.flows, resolve_scope(self.store, run_id, rule=name), warned=False)
            for run_id in settings.judges[0].ids
        ]
        places = ranks(np.array([item.balanced for item in by_app]), Measure.BALANCED)
        cells = [
            [
                f"{place:.0f}",
                self.site.run_names[item.scope.run.id],
                *(percent(value) for value in (item.violation[item.n], item.completeness, item.balanced)),
                *(count(number) for number in (item.attributes, item.flows, item.retained)),
            ]
            for place, item in zip(places, by_app, strict=True)
        ]
        return sorted(cells)


def add_votes(store: Store, dataset_id: int) -> None:
    """Six votes of each persona on every pair, most of them alike, so that other thresholds and personas make other
    labels."""
    chance = np.random.default_rng(11)
    people = records(store, dataset_id)
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling_id = labellings.add(
            connection,
            identity="votes",
            dataset_id=dataset_id,
            model="test-voter",
            endpoint="http://x",
            simulated=True,
            pack="test",
            draws=6,
            manifest={"personas": ids},
        )
        key = add_call(connection, "vote", "label")
        contexts = sorted({c for p in people for c in p.context_ids})
        labellings.plan(connection, labelling_id, [p.id for p in people], contexts, ids, 6)
        leaning: dict[tuple[int, int], int] = {}
        for person in people:
            for group in labellings.owed(connection, labelling_id, person.id):
                for attribute in person.attribute_ids:
                    leaning.setdefault((attribute, group.context), int(chance.integers(2)))
                for ballot in group.ballots.values():
                    votes = [
                        (a, COUNTED[leaning[a, group.context] if chance.random() < 0.9 else int(chance.integers(3))])
                        for a in person.attribute_ids
                    ]
                    labellings.settle(connection, [labellings.Settled(ballot, "ok", None, key, votes)])
        work.finish(connection, labelling_id, WorkStatus.FINISHED)
        work.bump(connection, labelling_id)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Three runs that tell more and more as a site, a simulated one among them."""
    place = tmp_path_factory.mktemp("site")
    store = open_store(place / "workspace")
    data = add_dataset(store, profiles=3, attributes=8, contexts=5)
    add_votes(store, data.id)
    chance = np.random.default_rng(2)
    rates = (0.25, 0.45, 0.6)
    ids = [
        add_run(store, data.id, 3, chance.binomial(3, rate, (3, 8, 5)), simulated=rate == rates[0]) for rate in rates
    ]
    flows, scopes = Flows(store), tuple(resolve_scope(store, run_id) for run_id in ids)
    site = collect_site(flows, scopes, now=CLOCK)
    write_site(site, place / "site")
    yield Published(store, flows, scopes, site, place / "site")
    store.close()


@pytest.fixture(scope="module")
def workspace(published: Published) -> Path:
    return published.folder


# ---- numbers


def shown(published: Published, threshold: int, personas: int) -> list[list[str]]:
    """The same cells by the table of settings that a page looks them up in."""
    table: dict[str, Any] = published.settings.shown()
    judged = table["judges"][0]
    rows = []
    for run, columns in zip(judged["runs"], judged["numbers"][personas], strict=True):
        cell = {name: values[threshold] for name, values in zip(table["columns"], columns, strict=True)}
        shares = ["–" if cell[m] is None else f"{cell[m] / 10:.1f} %" for m in map(str, Measure)]
        by_measure = dict(zip(map(str, Measure), shares, strict=True))
        rows.append(
            [
                str(cell["rank"]),
                published.site.run_names[run],
                *(by_measure[name] for name in ("violation", "completeness", "balanced")),
                *(count(cell[name]) for name in ("attributes", "flows", "retained")),
            ]
        )
    return sorted(rows)


def test_every_setting_says_what_the_app_says_under_such_a_rule(published: Published) -> None:
    settings, chance = published.settings, np.random.default_rng(3)
    assert len(settings.thresholds) == 50
    assert len(settings.personas) == 8
    assert {round(sum(item.priors), 12) for item in settings.personas} == {1.0}
    tried = [
        (settings.threshold, 0),
        (0, 2),
        (29, 2),
        *((int(chance.integers(50)), p) for p in (1, 4, 7)),
    ]
    orders = set()
    for threshold, personas in tried:
        assert shown(published, threshold, personas) == published.rows(threshold, personas), (threshold, personas)
        orders.add(tuple(name for _, name, *_ in shown(published, threshold, personas)))
    assert len(orders) > 1  # else nothing was moved


def test_the_published_setting_is_the_leaderboard(published: Published) -> None:
    board = leaderboard(published.flows, published.scopes)
    parsed = Parsed(page(published, "index"))
    rows = next(rows for caption, rows in parsed.tables if caption == "As published")[1:]
    for row, line in zip(rows, board.ranked, strict=True):
        assert row[:2] == [str(line.rank), published.site.run_names[line.run.id]]
        for cell, interval in zip(row[2:5], (line.violation, line.completeness, line.balanced), strict=True):
            assert cell.strip() == percent(interval.value)
            assert f"{percent(interval.value)} {bounds_text(interval)}" in parsed.text
    assert json.loads((published.folder / "leaderboard.json").read_text()) == json.loads(json.dumps(board.as_json()))


def page(published: Published, name: str) -> str:
    return (published.folder / f"{name}.html").read_text(encoding="utf-8")


def judged_by_another(store: Store, run_id: str) -> None:
    """A second judge of a run, which finds the first attribute of each person in every message."""
    with store.write() as connection:
        other = add_judge(connection, "strict")
        judgements.assign(connection, run_id, [judgements.of_run(connection, run_id)[0].id, other])
        first = connection.execute(sa.text("SELECT profile, min(id) FROM attribute GROUP BY profile")).fetchall()
        ids = {int(profile): int(attribute) for profile, attribute in first}
        for row in connection.execute(sa.select(response).where(response.c.run == run_id)).fetchall():
            settle_judgement(connection, row.id, other, None, [ids[row.profile]])
        work.bump(connection, run_id)


def test_a_reader_can_take_another_judge_and_learns_who_has_it(sqlite_store: Store) -> None:
    one, two = world(sqlite_store)
    judged_by_another(sqlite_store, two)
    settings = made(sqlite_store, one, two).settings
    assert settings is not None
    by_name = {judged.name: judged for judged in settings.judges}
    assert set(by_name) == {"test-judge", "strict", "any of the judges", "majority of the judges", "all of the judges"}
    strict = by_name["strict"]
    assert strict.ids == (two,)
    assert strict.outside == {one: "it has no judge strict"}
    by_app = headline(shared_flows(sqlite_store), resolve_scope(sqlite_store, two, judge_id="strict"))
    numbers = strict.numbers[0][0]
    assert numbers.mean_violation[settings.threshold] == pytest.approx(by_app.violation[by_app.n], abs=1e-12)
    assert numbers.mean_completeness[settings.threshold] == pytest.approx(by_app.completeness, abs=1e-12)


def test_runs_are_read_on_the_flows_that_the_leaderboard_ranks_them_on(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=2, attributes=4, contexts=60)
    chance = np.random.default_rng(1)
    shape = (2, 4, 60)
    add_labels(sqlite_store, data.id, chance.choice([X, N, A], shape))
    lost = {(0, 3, 0): ResponseStatus.FAILED}  # under 1 %: the run is ranked
    ids = [add_run(sqlite_store, data.id, 1, chance.integers(0, 2, shape), missing=m) for m in (lost, None)]
    flows, scopes = shared_flows(sqlite_store), [resolve_scope(sqlite_store, i) for i in ids]
    board = leaderboard(flows, scopes)
    assert board.cut
    settings = made(sqlite_store, *ids).settings
    assert settings is not None
    (judged,) = settings.judges
    for run_id, numbers in zip(judged.ids, judged.numbers[0], strict=True):
        line = next(line for line in board.lines if line.run.id == run_id)
        assert numbers.mean_violation[settings.threshold] == pytest.approx(line.violation.value, abs=1e-12)
        assert numbers.mean_completeness[settings.threshold] == pytest.approx(line.completeness.value, abs=1e-12)


def test_a_run_without_a_rank_that_stands_alone_is_shown_with_the_reason(sqlite_store: Store) -> None:
    """The script writes table and reason anew, so both have to be in what it looks up as well as in the page."""
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    lost = {(0, context, 0): ResponseStatus.FAILED for context in range(3)}
    run_id = add_run(sqlite_store, data.id, 2, [[[1, 0, 1], [0, 1, 1], [1, 1, 0]]], missing=lost)
    site = made(sqlite_store, run_id)
    (place,) = site.places
    assert place.rank is None and place.intervals[0].startswith("[")
    assert site.settings is not None
    (judged,) = site.settings.judges
    assert judged.ids == (run_id,) and judged.outside == {run_id: "coverage 50.0 %, under 99 %"}
    assert "Not ranked here: test-model (coverage 50.0 %, under 99 %)." in files_of(site)["index.html"].decode()


def test_without_labels_the_site_says_why_nothing_can_be_moved(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store)
    run_id = add_run(sqlite_store, data.id, 1, np.zeros((2, 6, 4), int))
    site = made(sqlite_store, run_id)
    assert site.settings is None
    written = files_of(site)
    assert b"Label the dataset" in written["index.html"]
    assert b"<script" not in written["index.html"]
    assert "settings.json" not in written


# ---- in a browser, from files alone


@pytest.fixture(scope="module")
def tab(published: Published, browser: Browser) -> tuple[Page, list[str], list[str]]:
    """A page with what it asked for, and what went wrong in it."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    requests, wrong = list[str](), list[str]()
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text))
    return opened, requests, wrong


BOARD = """() => [...document.querySelectorAll("#board tbody tr")].map((row) => [...row.cells].map((cell) =>
    [...cell.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim()))"""


@pytest.mark.browser
def test_the_table_follows_the_controls(published: Published, tab: tuple[Page, list[str], list[str]]) -> None:
    shown_page, requests, wrong = tab
    shown_page.goto((published.folder / "index.html").as_uri())
    settings = published.settings
    assert sorted(row[:8] for row in shown_page.evaluate(BOARD)) == published.rows(settings.threshold, 0)
    before = [row[1] for row in shown_page.evaluate(BOARD)]
    shown_page.select_option("#personas", label="fundamentalist alone")
    shown_page.locator("#threshold").focus()
    for _ in range(20):
        shown_page.keyboard.press("ArrowLeft")
    at = settings.threshold - 20
    rows = shown_page.evaluate(BOARD)
    assert sorted(row[:8] for row in rows) == published.rows(at, 2)
    assert [row[1] for row in rows] != before
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert [row[8] for row in rows] == [str(1 + before.index(row[1])) for row in rows]
    sentence = shown_page.locator("#status").inner_text()
    assert sentence.startswith("80 % of the votes, fundamentalist alone")
    assert "passes" in sentence
    # The chart and its twin show the same number.
    balanced = {row[1]: row[4] for row in rows}
    assert set(shown_page.locator("#legend li").all_inner_texts()) == {f"{k} {v}" for k, v in balanced.items()}
    shown_page.locator("#twin summary").click()
    # The table is made once its fold is open.
    expect(shown_page.locator("#twin-table tbody tr").nth(at).locator("td")).to_have_text(list(balanced.values()))
    # The address holds the setting: opened anew it is the same, and Back to the published one is a press away.
    shown_page.reload()
    assert shown_page.evaluate(BOARD) == rows
    shown_page.get_by_role("button", name="As published").click()
    assert [row[1] for row in shown_page.evaluate(BOARD)] == before
    assert shown_page.locator("#status").inner_text() == ""
    shown_page.goto((published.folder / "index.html").as_uri() + "#threshold=99&personas=-1&judge=x")
    assert [row[1] for row in shown_page.evaluate(BOARD)] == before
    assert {url.split(":")[0] for url in requests} == {"file"}
    assert not wrong


@pytest.mark.browser
def test_leaks_are_narrowed_by_run_domain_and_words(
    published: Published, tab: tuple[Page, list[str], list[str]]
) -> None:
    shown_page, _, wrong = tab
    shown_page.goto((published.folder / "leaks.html").as_uri())
    leaks = published.site.leaks
    run, domain = leaks[-1].run, leaks[-1].domain
    shown_page.select_option("#only-run", run)
    shown_page.select_option("#only-domain", domain)
    kept = [leak for leak in leaks if leak.run == run and leak.domain == domain]
    assert shown_page.locator("#list > li:visible").count() == len(kept)
    assert shown_page.locator("#shown").inner_text() == f"{len(kept)} of {len(leaks)} examples"
    shown_page.fill("#search", "no message has these words")
    assert shown_page.locator("#list > li:visible").count() == 0
    assert not wrong


# ---- hostile texts, simulated results, licences


def test_no_text_becomes_markup(sqlite_store: Store) -> None:
    written = files_of(made(sqlite_store, *build(sqlite_store)))
    tags = TAGS | {"form", "label", "output", "input", "select", "option", "button", "noscript", "script"}
    for name in EVERY:
        text = written[name].decode()
        parsed = Parsed(text)
        assert set(parsed.tags) <= tags
        for address in parsed.values("href"):
            assert re.fullmatch(r"#[\w-]+|[a-z]+\.(html|json)", address), address
        names = {key for _, key, _ in parsed.attributes}
        assert not {key for key in names if key.startswith("on")} | names & {"src", "srcset", "action", "style"}
        assert "\x07" not in text
        policy = next(value for value in parsed.values("content") if "default-src" in value)
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert text.count("<style>") == text.count("</style>") == 1
    assert AT in Parsed(written["leaks.html"].decode()).text
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', written["index.html"].decode())
    assert AT in json.loads(data)["judges"][0]["name"]


@pytest.mark.browser
def test_hostile_texts_do_nothing_in_a_browser(
    sqlite_store: Store, tmp_path: Path, tab: tuple[Page, list[str], list[str]]
) -> None:
    shown_page, requests, wrong = tab
    site = made(sqlite_store, *build(sqlite_store))
    write_site(site, tmp_path / "site")
    requests.clear()
    for name in ("index.html", "leaks.html"):
        shown_page.goto((tmp_path / "site" / name).as_uri())
    shown_page.goto((tmp_path / "site" / "index.html").as_uri())
    shown_page.select_option("#personas", "1")
    assert "evil.example" in shown_page.locator("#board").inner_text()
    assert shown_page.locator("#board a, #board img, #board b").count() == 0
    assert {url.split(":")[0] for url in requests} == {"file"}
    assert not wrong
    # Were there a script of somebody else's in the page, the policy would not run it.
    shown_page.evaluate(
        """() => { const made = document.createElement("script"); made.textContent = "window.ran = true";
                   document.body.append(made); }"""
    )
    assert not shown_page.evaluate("() => Boolean(window.ran)")
    assert any("Content Security Policy" in text for text in wrong)
    wrong.clear()


def test_what_is_simulated_says_so_on_every_page(published: Published) -> None:
    for name in EVERY:
        text = (published.folder / name).read_text(encoding="utf-8")
        assert "(simulated)</title>" in text
        assert "<b>Simulated.</b>" in text
    first, *others = published.site.run_names.values()
    assert "(simulated)" in first
    assert all("(simulated labels)" in name for name in others)
    assert json.loads((published.folder / "site.json").read_text())["simulated"]


def test_profiles_from_elsewhere_are_warned_of_and_texts_can_stay_at_home(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run_id = add_run(sqlite_store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    with sqlite_store.write() as connection:
        connection.execute(sa.update(dataset).values(origin="official"))
    site = made(sqlite_store, run_id)
    assert "CC BY-NC 4.0" in site.warning
    assert "2 memory statements about 1 user" in site.warning
    assert all(b"CC BY-NC 4.0" in files_of(site)[name] for name in EVERY)
    bare = files_of(made(sqlite_store, run_id, texts=False))
    assert b"Statement 0." in files_of(site)["leaks.html"]
    assert not [name for name, content in bare.items() if b"Statement 0." in content or b"All of it" in content]


# ---- folders


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Site:
    store = open_store(tmp_path_factory.mktemp("small") / "workspace")
    site = made(store, *world(store))
    store.close()
    return site


def contents(folder: Path) -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_same_site_is_the_same_bytes_and_is_replaced_only_when_asked(small: Site, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()  # empty: fine
    assert write_site(small, folder) == sum(map(len, contents(folder).values()))
    first = contents(folder)
    assert first.keys() >= EVERY | {"leaderboard.json", "settings.json", "manifest.json", "site.json"}
    with pytest.raises(StoreError, match="holds a site already"):
        write_site(small, folder)
    write_site(small, folder, force=True)
    assert contents(folder) == first
    write_site(replace(small, produced="another day"), folder, force=True)
    assert contents(folder) != first
    assert [item.name for item in tmp_path.iterdir()] == ["site"]


def test_what_is_not_ours_stays_as_it_is(small: Site, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_site(small, folder)
    (folder / "CNAME").write_text("example.org")
    before = contents(folder)
    foreign, forged, link = tmp_path / "photos", tmp_path / "forged", tmp_path / "link"
    foreign.mkdir()
    (foreign / "index.html").write_text("mine")
    forged.mkdir()
    (forged / "site.json").write_text('{"files": ["../photos/index.html", "site.json"]}')
    (forged / "thesis.txt").write_text("mine")
    link.symlink_to(foreign)
    for there, text in (
        (folder, "CNAME"),
        (foreign, r"index\.html"),
        (forged, r"thesis\.txt"),
        (link, "is no folder"),
        (foreign / "index.html", "is no folder"),
        (tmp_path / "none" / "site", "there is no folder"),
    ):
        with pytest.raises(StoreError, match=text):
            check_folder(there, force=True)
        with pytest.raises(StoreError, match=text):
            write_site(small, there, force=True)
    assert contents(folder) == before
    assert (foreign / "index.html").read_text() == (forged / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("there", [False, True])
def test_a_site_that_cannot_be_written_leaves_everything_as_it_was(
    small: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    folder = tmp_path / "site"
    if there:
        write_site(small, folder)
    before = contents(folder) if there else {}
    whole, calls = Path.write_bytes, list[Path]()

    def failing(self: Path, content: bytes) -> int:
        calls.append(self)
        if len(calls) == 3:
            raise OSError("no room")
        return whole(self, content)

    monkeypatch.setattr(library.Path, "write_bytes", failing)
    with pytest.raises(StoreError, match="no room"):
        write_site(small, folder, force=True)
    assert [item.name for item in tmp_path.iterdir()] == ["site"] * there
    assert not there or contents(folder) == before


def test_the_command_writes_the_site_and_refuses_before_it_computes(sqlite_store: Store, tmp_path: Path) -> None:
    ids = world(sqlite_store)
    options: Sequence[object] = ("--to", tmp_path / "site", "-w", sqlite_store.workspace)
    done = cli_inside(outside(), "publish", *ids, *options)
    assert done.returncode == 0, done.stderr
    assert "index.html" in done.stdout
    assert "warning: The profiles come from elsewhere" in done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    again = cli_inside(outside(), "publish", "no-such-run", *options)
    assert again.returncode == 1
    assert "--force" in again.stderr
    wrong = cli_inside(outside(), "publish", "no-such-run", "--to", tmp_path / "other", *options[2:])
    assert wrong.returncode == 1
    assert not (tmp_path / "other").exists()
