"""Pages of the app without a browser: opened through app.py, read as what is sent to one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from streamlit import config
from streamlit.testing.v1 import AppTest, app_test, local_script_runner

from cimemories.ui import once, server, streamlit_patches
from cimemories.ui.url import PAGES

streamlit_patches.look_for_no_components()  # every AppTest does
# Every run of a page compiles it, and makes a stand-in for the server; both are the same for all.
app_test.ScriptCache = cache(app_test.ScriptCache)
app_test.MagicMock = cache(app_test.MagicMock)


def _ended(runner: Any, timeout: float, look: Callable[[Any, float], None]) -> None:
    runner._script_thread.join(timeout)
    if runner._script_thread.is_alive():
        look(runner, 0)  # which stops it, and says so


# It looks every millisecond whether a run has ended, which takes a tenth of the time of the run.
local_script_runner.require_widgets_deltas = partial(_ended, look=local_script_runner.require_widgets_deltas)

once.SHORT_SECONDS = 60.0  # AppTest does not look every half second whether work has ended, as a browser does
config.set_option("runner.postScriptGC", False)
spare_libraries = server.spare_libraries
server.spare_libraries = lambda: None  # which collects garbage so that the collection above is shorter

HOME = PAGES["home"]
ROOT = Path(__file__).resolve().parent.parent
# The keys of all expanders whose inside is made only when they are open.
PAGE_FILES = [*ROOT.glob("pages/*/*.py"), *ROOT.glob("cimemories/extras/*/page*.py")]
FOLDS = sorted({key for page in PAGE_FILES for key in re.findall(r'"(\w+\.box\.\w+)"', page.read_text())})


def opened(page: str, *folds: str, **query: object) -> AppTest:
    """The app on one of its pages, as a link with these parameters opens it, the expanders of these keys opened.

    The page is run once and no other before it, so its file must be named as its address is.
    """
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    if page != HOME:
        app.switch_page(page)
    for name, value in query.items():
        app.query_params[name] = str(value)
    for key in folds:
        app.session_state[key] = True
    app.run()
    assert not app.exception
    return app


def page_html(app: AppTest) -> str:
    """All markup of the page but its style, as one text."""
    bodies = (e.proto.body for e in app.get("html") if not e.proto.body.startswith("<style>"))
    return "\n".join(bodies).replace("&nbsp;%", " %")


def nodes(node: Any) -> Iterator[Any]:
    """Everything that is sent to the browser: elements, and blocks (columns, forms, expanders) with what they say."""
    yield node
    for child in getattr(node, "children", {}).values():
        yield from nodes(child)


def double_click(app: AppTest, item: Any) -> None:
    """Click a button twice as it is drawn now: the second click does not wait for what the first one changes."""
    item.click()
    states = app._tree.get_widget_states()
    app._run(states)
    app._run(states)


def goes_on(app: AppTest, step: str) -> bool:
    """Press the button that leads to a form's next step, and return whether it did."""
    button(app, step).click().run()
    return step not in labels(app)


def labels(app: AppTest) -> list[str]:
    """The labels of all widgets, from the top of the page to its end."""
    return [str(node.label) for node in nodes(app._tree) if getattr(node, "label", None)]


def button(app: AppTest, label: str) -> Any:
    return next(item for item in app.button if item.label == label)
