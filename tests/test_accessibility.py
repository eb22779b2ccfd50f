"""What axe-core, the keyboard and a phone meet on every page, in its menus and folds, and in the report.

The part of a page that comes first is looked at in light on a wide screen and in dark on a phone.
EVERY_LOOK=1 in the environment tries all parts, in light and dark at three widths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import axe_playwright_python
import pytest
import serving
from playwright.sync_api import Browser, Locator, Page, expect

from cimemories import demo
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.model import Label
from cimemories.report.collect import collect
from cimemories.report.render import as_html
from cimemories.store import datasets, decisions, reviews, runs
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import open_store
from cimemories.ui.url import PAGES

pytestmark = pytest.mark.browser
WIDE, TABLET, PHONE = (1440, 900), (1024, 768), (390, 844)
Look = tuple[str, tuple[int, int]]
EVERY_LOOK = bool(os.environ.get("EVERY_LOOK"))
EVERY: tuple[Look, ...] = tuple((scheme, size) for size in (WIDE, TABLET, PHONE) for scheme in ("light", "dark"))
LOOKS: tuple[Look, ...] = EVERY if EVERY_LOOK else (("light", WIDE), ("dark", PHONE))
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What axe finds in Streamlit's own elements, and no option of it changes: (rule, elements, what it is).
STREAMLITS = (
    ("list", '[data-testid="stSidebarNavItems"]', "the navigation puts the sections' <div>s into its <ul>"),
    ("listitem", '[data-testid="stSidebarNavItems"] li', "the same, seen from the <li>s in these <div>s"),
    (
        "presentation-role-conflict",
        '[data-testid="stFileUploaderDropzone"]',
        "the zone to drop files has role=presentation and a tabindex; the button in it does the same by keyboard",
    ),
    (
        "scrollable-region-focusable",
        ".stCode pre",
        "st.code(height=...) scrolls and takes no focus; it has a copy button",
    ),
    (
        "color-contrast",
        '[data-testid="stWidgetLabel"] > [aria-hidden="true"] *',
        "the label of a disabled control is grey (WCAG 1.4.3 exempts it; axe does not see whose label it is)",
    ),
)
# Groups of buttons whose choice is another part of the page, and not another setting of the same part.
PARTS = {"Show", "View", "Role", "Part of the work", "Part of the page", "Part", "Audit", "Where is the model?"}
AUDIT = """async ([within, rules, theirs]) => {
    const found = await axe.run(within, {runOnly: {type: "tag", values: rules}, resultTypes: ["violations"],
                                        elementRef: true});
    return found.violations.flatMap(({id, help, nodes}) => nodes
        .filter(({element}) => !theirs.some(([rule, those]) => rule === id && element?.matches(those)))
        .map(({html, any, all}) => `${id} (${[...any, ...all].map((check) => check.message)[0] ?? help}): ${html}`));
}"""
SIDEWAYS = """() => [document.documentElement, document.querySelector('[data-testid="stMain"]')]
    .map((box) => box.scrollWidth - box.clientWidth)"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with decisions of two people who do not always agree, a comment, and a case that is flagged."""
    serving.require_chromium()
    folder = tmp_path_factory.mktemp("axe") / "workspace"
    store = open_store(folder)
    demo.prepare(store, lambda text: None, 3)
    with store.write() as connection:
        dataset = datasets.named(connection, demo.DATASET)
        person = datasets.profile_record(connection, datasets.profile_ids(connection, dataset.id)[0])
        pairs = [(a, c) for a in person.attribute_ids[10:16] for c in person.context_ids[:4]]
        for who, every in (("Ada", 2), ("Bruno", 3)):
            said = [
                NewDecision(a, c, Label.NECESSARY if n % every else Label.INAPPROPRIATE, uid=f"{who}{n}")
                for n, (a, c) in enumerate(pairs)
            ]
            decisions.add_all(connection, dataset.id, who, said)
        reviews.add_comment(connection, dataset.id, "Bruno", *pairs[0], "Is a landlord told this?", uid="c1")
        flag = reviews.Mark(*pairs[1], reviews.MarkKind.FLAG, "m1", "unsure")
        reviews.add_marks(connection, dataset.id, "Ada", [flag])
        run_id = next(row.id for row in runs.all_rows(connection) if row.model == demo.MODELS[-1])
    report = collect(Flows(store), [resolve_scope(store, run_id=run_id)], made=datetime.now(UTC))
    (folder.parent / "report.html").write_text(as_html(report), encoding="utf-8")
    store.close()
    return folder


@pytest.fixture(scope="module")
def browser(workspace: Path) -> Iterator[Browser]:
    with serving.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def app(workspace: Path) -> Iterator[str]:
    with serving.running_app(workspace) as (address, _):
        yield address


@pytest.fixture(scope="module")
def page(app: str, browser: Browser) -> Iterator[Page]:
    """One page for all tests, of somebody who has given a name."""
    page = serving.open_page(browser, f"{app}/review")
    page.locator(".st-key-name").get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Begin").click()
    page.locator(".bench .card").wait_for()
    yield page
    serving.leave(page)


def look(page: Page, at: Look) -> None:
    page.emulate_media(color_scheme=at[0])  # type: ignore[arg-type]
    page.set_viewport_size({"width": at[1][0], "height": at[1][1]})
    page.wait_for_timeout(150)  # the theme fades in


def violations(page: Page, within: str) -> list[str]:
    """What axe finds below `within`, without what is Streamlit's own."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    return list(page.evaluate(AUDIT, [within, RULES, [[rule, those] for rule, those, _ in STREAMLITS]]))


def next_part(page: Page, done: set[tuple[str, str]]) -> tuple[str, str] | None:
    """Go to a part of the page that is not among `done`; its group and name, None where there is none left."""
    groups = page.locator("[data-testid='stMain'] [role='radiogroup']").all()
    for group in reversed(groups):  # the inner ones first: they go with a choice in the outer ones
        title = group.get_attribute("aria-label") or ""
        for radio in group.get_by_role("radio").all() if title in PARTS else ():
            name = radio.inner_text()
            if radio.get_attribute("aria-checked") == "true":
                done.add((title, name))
            elif (title, name) not in done:
                radio.click()
                expect(group.locator("[aria-checked='true']")).to_have_text(name)
                done.add((title, name))
                return title, name
    return None


def menus(page: Page) -> list[Locator]:
    """The buttons in the page that open something over it."""
    shown = page.locator("[data-testid='stMain'] [data-testid='stPopoverButton']:enabled:visible")
    return shown.all()


def unfold(page: Page) -> None:
    """Open what is folded."""
    closed = page.locator("[data-testid='stMain'] details:not([open]) > summary:visible")
    for _ in range(4):  # of many alike, some
        if not closed.count():
            break
        closed.first.click()
        page.wait_for_timeout(200)
    serving.settled(page)


def faults_here(page: Page, where: str, seen: set[str]) -> list[str]:
    """Of the part of the page that is shown: what axe finds, and whether the page moves sideways on a phone."""
    unfold(page)
    faults = []
    for number, at in enumerate(LOOKS):
        look(page, at)
        name = f"{where}, {at[0]}, {at[1][0]} px"
        faults += [f"{name}: {text}" for text in violations(page, "body")]
        if any(sideways := page.evaluate(SIDEWAYS)):
            faults.append(f"{name}: the page moves sideways, by {max(sideways)} px")
        for button in menus(page):
            text = button.inner_text().replace("\n", " ")
            if (already := f"{text} {number}") in seen:
                continue
            seen.add(already)
            button.click()
            body = page.locator("[data-testid='stPopoverBody']")
            body.wait_for()
            faults += [f"{name}, {text}: {v}" for v in violations(page, "[data-testid='stPopoverBody']")]
            for _ in range(5):  # a first press has been without effect on a busy machine
                page.keyboard.press("Escape")
                page.wait_for_timeout(300)
                if not body.count():
                    break
            body.wait_for(state="detached", timeout=5000)
            if not button.evaluate("element => element === document.activeElement"):
                faults.append(f"{name}: closed by Esc, '{text}' does not have the focus again")
    look(page, LOOKS[0])
    return faults


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_of_ours_on_a_page(page: Page, app: str, name: str) -> None:
    look(page, LOOKS[0])
    page.goto(f"{app}/{name if name != 'home' else ''}")
    page.locator(".ci-head").wait_for()
    serving.settled(page)
    seen: set[str] = set()
    done: set[tuple[str, str]] = set()
    faults = faults_here(page, name, seen)
    while EVERY_LOOK and (part := next_part(page, done)):
        serving.settled(page)
        faults += faults_here(page, f"{name}, {part[1]}", seen)
    assert not faults, "\n".join(faults)


def test_axe_finds_nothing_in_the_report(workspace: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((workspace.parent / "report.html").as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach((fold) => fold.open = true)")
    faults = []
    for at in LOOKS:
        look(page, at)
        faults += [f"{at}: {text}" for text in violations(page, "body")]
        assert page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert not faults, "\n".join(faults)
    page.close()


# The elements of our own components and markup that a press of Tab comes to, and where it is now, into shadow roots.
OWN = "button:enabled, a[href], input:enabled, textarea:enabled, summary, [tabindex='0']"
DEEP = """const deep = (root) => [...root.querySelectorAll("*")]
    .flatMap((element) => [element, ...(element.shadowRoot ? deep(element.shadowRoot) : [])]);
const drawn = (element) => element.checkVisibility({visibilityProperty: true}) && element.getClientRects().length;
"""
EXPECTED = f"""(those) => {{ {DEEP}
    window.reached = new Set();
    window.own = deep(document.querySelector('[data-testid="stMain"]')).filter((element) => element.matches(those)
        && drawn(element) && (element.getRootNode() !== document || element.closest(".stHtml")));
    document.activeElement?.blur();
    window.getSelection().setBaseAndExtent(document.body, 0, document.body, 0);
    return window.own.length;
}}"""
STEP = """() => {
    let at = document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    if (!at || at === document.body || window.reached.has(at)) return null;
    window.reached.add(at);
    const style = getComputedStyle(at);
    const marked = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
    return {own: window.own.includes(at), marked, html: at.outerHTML.slice(0, 160)};
}"""
MISSED = "() => window.own.filter((element) => !window.reached.has(element)).map((e) => e.outerHTML.slice(0, 160))"


@pytest.mark.parametrize("name", PAGES)
def test_tab_comes_to_every_control_of_ours_and_shows_where_it_is(page: Page, app: str, name: str) -> None:
    look(page, LOOKS[0])
    page.goto(f"{app}/{name if name != 'home' else ''}")
    page.locator(".ci-head").wait_for()
    serving.settled(page)
    page.evaluate(EXPECTED, OWN)
    unmarked = []
    for _ in range(400):
        page.keyboard.press("Tab")
        if (stop := page.evaluate(STEP)) is None:
            break
        if stop["own"] and not stop["marked"]:
            unmarked.append(stop["html"])
    assert not page.evaluate(MISSED)
    assert not unmarked
