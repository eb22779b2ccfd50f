"""The app in a real browser, as it is served: deep links, clicks on the heatmap, a decision, a run, hostile text."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
import serving
import worlds
from playwright.sync_api import Browser, WebSocketRoute, expect

from cimemories import demo
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.model import Attribute, Context, Profile
from cimemories.store import datasets, decisions, runs
from cimemories.store.engine import Store, open_store

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def workspace(small_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(small_demo, tmp_path_factory.mktemp("app") / "workspace")


@pytest.fixture
def record(workspace: Path) -> Iterator[Store]:
    store = open_store(workspace)
    yield store
    store.close()


def demo_run(store: Store) -> str:
    with store.read() as connection:
        return next(row.id for row in runs.all_rows(connection) if row.model == demo.MODELS[-1])


def test_from_a_deep_link_over_a_cell_of_the_heatmap_to_the_leaked_sentence_and_back(
    app: str, browser: Browser, record: Store
) -> None:
    page = serving.open_page(browser, f"{app}/heatmaps?run={demo_run(record)}&n=2", size=(1440, 900))
    expect(page.locator(".ci-head h2")).to_have_text("Heatmaps")
    expect(page.get_by_test_id("stSidebarNav")).to_contain_text("Leaks")
    expect(page.locator(".ci-head p")).to_contain_text("violation@2")
    chart = page.locator(".js-plotly-plot[data-linked]").first
    chart.wait_for()
    serving.settled(page)
    expect(page.get_by_role("dialog")).to_have_count(0)
    # 49 columns are named by their spheres.
    expect(chart.locator(".xtick text").first).to_have_text("housing")
    expect(chart.locator(".xtick text")).to_have_count(10)
    named = chart.locator(".ytick text").first.evaluate("element => getComputedStyle(element).fill")
    assert named == page.locator(".ci-head h2").evaluate("element => getComputedStyle(element).color")
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    # Employment to the disability services office, where most leaks.
    at = (box["x"] + box["width"] * 30.5 / 49, box["y"] + box["height"] * 0.25)
    page.mouse.move(*at)
    expect(page.locator(".ci-cell-tooltip").first).to_contain_text("pairs")
    page.mouse.click(*at)
    page.wait_for_url(re.compile(r"domain="))
    query = parse_qs(urlparse(page.url).query)
    domain, context = query["domain"][0], int(query["context"][0])
    with record.read() as connection:
        demo_row = datasets.by_name(connection, demo.DATASET)
        recipient = next(
            row.context.recipient for row in datasets.contexts(connection, demo_row.id) if row.id == context
        )
    drawer = page.locator(".st-key-drawer")
    expect(drawer.locator(".ci-heading")).to_contain_text(domain.replace("_", " "))
    expect(drawer.locator(".ci-heading")).to_contain_text(recipient)
    serving.settled(page)
    expect(drawer.locator(".ci-heading")).to_be_in_viewport(ratio=1)
    expect(drawer.get_by_test_id("stDataFrame")).to_be_in_viewport(ratio=1)
    assert page.locator("[data-testid=stMain]").evaluate("element => element.scrollTop") == 0
    # The maps stay in sight above it, for the next click.
    expect(chart.locator(".ytick text").first).to_be_in_viewport()
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).to_have_count(0)
    assert "domain" not in parse_qs(urlparse(page.url).query)
    # Back opens it again, and once more leads to the view before the click, without it.
    page.go_back()
    expect(drawer).to_have_count(1)
    page.go_back()
    expect(drawer).to_have_count(0)
    serving.settled(page)
    expect(drawer).to_have_count(0)
    assert "domain" not in parse_qs(urlparse(page.url).query)

    page.mouse.click(*at)
    table = drawer.get_by_test_id("stDataFrame")
    table.wait_for()
    serving.settled(page)
    cell = table.bounding_box()
    assert cell is not None
    page.mouse.click(cell["x"] + 120, cell["y"] + 55)
    page.wait_for_url(re.compile(r"/leaks\?"))
    # The chosen leak is marked in the message that is shown: a number or name of its statement stands in a mark.
    marks = page.locator(".ci-message mark.ci-leaked")
    expect(marks.first).to_be_visible()
    expect(page.locator(".ci-head .ci-simulated")).to_be_visible()
    statement = page.locator(".ci-facts dd").nth(1).inner_text()
    words = {word.strip(".,") for word in statement.split() if len(word.strip(".,")) > 4}
    marked = " ".join(marks.all_inner_texts())
    assert any(word in marked for word in words)
    page.go_back()
    page.wait_for_url(re.compile(r"/heatmaps"))
    expect(page.locator(".ci-head h2")).to_have_text("Heatmaps")
    # The same cell, framed in both maps.
    expect(page.locator(".ci-heading").first).to_contain_text(recipient)
    expect(page.locator("[data-linked] > div[aria-hidden] > div:not(.ci-cell-tooltip)")).to_have_count(2)
    assert parse_qs(urlparse(page.url).query)["domain"] == [domain]
    page.go_back()  # one step to the view without it
    expect(drawer).to_have_count(0)
    serving.leave(page)


def test_each_back_is_one_page_with_its_own_address_and_title(app: str, browser: Browser) -> None:
    page = serving.open_page(browser, app)
    serving.settled(page)
    visited: list[tuple[str, str]] = [("Home", page.url)]
    for name in ("Profiles", "Runs", "Leaks"):
        page.get_by_test_id("stSidebarNav").get_by_text(name, exact=True).click()
        expect(page.locator(".ci-head h2")).to_have_text(name)
        serving.settled(page)
        if name != "Runs":  # every other page has defaults, which the shell writes once it is drawn
            page.wait_for_function("() => location.search")
        visited.append((name, page.url))
    for name, address in visited[-2::-1]:
        page.go_back()
        expect(page).to_have_title("CIMemories Studio" if name == "Home" else re.compile(f"^{name} · "))
        serving.settled(page)
        # The list of runs names the one that it shows only once it is drawn.
        assert page.url == address or (name == "Runs" and urlparse(page.url).path == "/runs")
    # A link to another view of its own page is a step too, and stays where it led.
    page.goto(f"{app}/review?tab=overlap")
    page.get_by_role("link", name="See agreement").click()
    page.wait_for_url(re.compile("tab=agreement"))
    page.get_by_text("Sample a slice of another size").click()
    expect(page.get_by_label("Pairs to sample")).to_be_visible()
    assert "tab=agreement" in page.url
    page.go_back()
    expect(page.get_by_label("Share of pairs for several people, in %")).to_be_visible()
    assert "tab=overlap" in page.url
    serving.leave(page)


@pytest.mark.long
def test_a_run_that_ends_after_back_leaves_its_address_alone(app: str, browser: Browser) -> None:
    page = serving.open_page(browser, app)
    sockets: list[WebSocketRoute] = []
    late: list[str | bytes] = []  # what the server sent from the end of the run on
    asked: list[str | bytes] = []  # what the page sent after Back
    holding = {"late": False, "asked": False}

    def connected(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        sockets.extend([socket, server])

        def from_server(message: str | bytes) -> None:
            # The shell is the last thing that a run draws; "steps" is in its data alone.
            if holding["late"] and (late or (isinstance(message, bytes) and b'"steps"' in message)):
                late.append(message)
            else:
                socket.send(message)

        def from_page(message: str | bytes) -> None:
            if holding["asked"]:
                asked.append(message)
            else:
                server.send(message)

        server.on_message(from_server)
        socket.on_message(from_page)

    page.route_web_socket(re.compile("_stcore/stream"), connected)
    page.goto(f"{app}/review?tab=overlap")
    serving.settled(page)
    address = page.url
    holding["late"] = True
    page.get_by_role("link", name="See agreement").click()
    page.wait_for_url(re.compile("tab=agreement"))
    while not late:
        page.wait_for_timeout(50)
    holding["asked"] = True
    page.evaluate("() => history.back()")
    page.wait_for_url(re.compile("tab=overlap"))
    holding["late"] = False
    socket, server = sockets[-2:]
    for message in late:
        socket.send(message)
    page.wait_for_timeout(1_000)  # drawn by then; there is nothing to see of it
    assert page.url == address
    holding["asked"] = False
    for message in asked:
        server.send(message)
    serving.settled(page)
    expect(page.get_by_label("Share of pairs for several people, in %")).to_be_visible()
    assert page.url == address
    serving.leave(page)


# The scripts of components wait until they are let go, as on a slow machine that loads the app for the first time.
SLOW_SCRIPTS = """
window.loaded = new Promise((go) => (window.load = go));
const address = URL.createObjectURL;
URL.createObjectURL = (script) => address(new Blob(["await window.loaded;", script], { type: script.type }));
"""


@pytest.mark.long
def test_defaults_of_a_page_that_was_left_stay_out_of_the_next_address(app: str, browser: Browser) -> None:
    page = serving.open_page(browser, f"{app}/accumulation", script=SLOW_SCRIPTS)
    expect(page.locator(".stApp[data-test-script-state='notRunning'] .st-key-shell")).to_be_attached()
    page.get_by_test_id("stSidebarNav").get_by_text("Profiles", exact=True).click()
    expect(page.locator(".ci-head h2")).to_have_text("Profiles")
    page.evaluate("() => window.load()")
    page.wait_for_function("() => location.search")
    serving.settled(page)
    assert set(parse_qs(urlparse(page.url).query)) == {"dataset", "profile"}
    serving.leave(page)


@pytest.mark.long
def test_a_finger_on_a_link_leads_on_from_a_field_that_was_typed_into(app: str, browser: Browser) -> None:
    # Busy: what the finger brings about is there before any timer that began with it.
    busy = """addEventListener("pointerdown", ({timeStamp}) => { while (performance.now() < timeStamp + 700); })"""
    page = serving.open_page(browser, f"{app}/runs?tab=new", size=(1180, 820), script=busy)
    page.get_by_text("Endpoint", exact=True).click()
    page.get_by_role("textbox", name="Base URL").fill("http://localhost:9999/v1")
    place = page.get_by_test_id("stSidebarNav").get_by_text("Home", exact=True).bounding_box()
    assert place is not None
    # With a finger the focus leaves the field at the click itself.
    serving.Finger(page).tap(place["x"] + 10, place["y"] + 8)
    expect(page).to_have_title("CIMemories Studio")
    serving.settled(page)
    assert urlparse(page.url).path == "/"
    page.get_by_test_id("stSidebarNav").get_by_text("Runs", exact=True).click()
    page.get_by_text("New run").click()
    expect(page.get_by_role("textbox", name="Base URL")).to_have_value("http://localhost:9999/v1")
    serving.leave(page)


class _Canary:
    """A server that nothing may ever ask."""

    def __init__(self) -> None:
        paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                paths.append(self.path)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.paths = paths
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


def hostile(canary: str, where: str) -> str:
    """Every way to make a page fetch something that we know of, in one text."""
    at = f"{canary}/{where}"
    return (
        f"![a]({at}.png) <img src='{at}i.png' onerror='fetch(\"{at}x\")'> [b]({at}) <script src={at}.js></script> "
        f"<style>@import url({at}.css)</style> <iframe src={at}></iframe> :material/home: $x^2$ <b>{where}</b>"
    )


def test_nothing_that_a_text_names_is_ever_fetched(app: str, browser: Browser, record: Store) -> None:
    canary = _Canary()
    attributes = tuple(
        Attribute(f"key{i} {hostile(canary.address, f'key{i}')}", hostile(canary.address, f"value{i}"), "finance",
                  f"event {hostile(canary.address, 'event')}", hostile(canary.address, f"statement{i}"))
        for i in range(3)
    )  # fmt: skip
    contexts = (Context(hostile(canary.address, "task"), hostile(canary.address, "recipient")),)
    person = Profile(hostile(canary.address, "name"), "F", hostile(canary.address, "address"), 40, attributes, contexts)
    data = worlds.add_profiles(record, [person], hostile(canary.address, "dataset"))
    worlds.add_labels(record, data.id, [[[INAPPROPRIATE], [NECESSARY], [INAPPROPRIATE]]])
    run_id = worlds.add_run(record, data.id, 2, [[[2], [1], [0]]])
    text = {where: hostile(canary.address, where) for where in ("message", "run", "m")}
    with record.write() as connection:
        from cimemories.store.tables import response, run

        connection.execute(response.update().where(response.c.run == run_id).values(text=text["message"]))
        connection.execute(run.update().where(run.c.id == run_id).values(name=text["run"], model=text["m"]))
        profile = datasets.profile_record(connection, datasets.profile_ids(connection, data.id)[0])
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=profile.attribute_ids[0],
            context=profile.context_ids[0],
            annotator=hostile(canary.address, "annotator"),
            label=None,
            reason=hostile(canary.address, "reason"),
        )
    pair = f"profile={profile.id}&context={profile.context_ids[0]}&attribute={profile.attribute_ids[0]}"
    page = serving.open_page(browser, app)
    for path, sees in [
        ("/", "dataset"),
        (f"/profiles?dataset={data.id}&{pair}", "statement0"),
        (f"/labels?dataset={data.id}&{pair}", "statement0"),
        (f"/runs?run={run_id}", "run"),
        (f"/heatmaps?run={run_id}&domain=finance&{pair}", "recipient"),
        (f"/leaks?run={run_id}&{pair}", "message"),
    ]:
        page.goto(app + path)
        page.wait_for_selector(".ci-head")
        serving.settled(page)
        page.wait_for_timeout(1000)
        assert page.get_by_test_id("stException").count() == 0, path
        assert page.locator("script[src*='127.0.0.1'], iframe[src*='127.0.0.1'], img[src*='127.0.0.1']").count() == 0
        if path.startswith("/profiles"):
            strip = page.locator(".ci-strip.ci-raw").first
            strip.hover()
            expect(strip).to_have_attribute("title", f"inappropriate: {hostile(canary.address, 'recipient')}")
            expect(strip).to_have_css("background-image", re.compile(r"^linear-gradient\(.*240, 138, 69"))
        if sees in ("dataset", "message", "statement0", "recipient"):
            assert f"<b>{sees}</b>" in page.locator("[data-testid='stMain']").inner_text(), path
    serving.leave(page)
    assert canary.paths == []
