"""What every page has: the same head, the scope, and plain words where there is nothing or something went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from cimemories.texts import without_credentials
from cimemories.ui import safe, url

T = TypeVar("T")
Option = TypeVar("Option", int, str)
# What a choice makes meaningless: the attribute of one profile is none of the next one's.
DEPENDENTS = {
    "dataset": ("labelling", "run", "judge", "profile", "context", "attribute", "sample", "slice"),
    "run": ("judge", "sample", "slice"),
    "profile": ("attribute", "sample"),
    "context": ("sample",),
}
_ASSETS = Path(__file__).parent / "assets"
# Streamlit takes a text without a line break for a path, so the last one stays.
_html, _css, _js = ((_ASSETS / f"link.{form}").read_text(encoding="utf-8") for form in ("html", "css", "js"))
_link = st.components.v2.component("cimemories_link", html=_html, css=_css, js=_js)
SIMULATED = safe.tag("span", "simulated", cls="ci-chip ci-simulated", title="answered by the simulator, not by a model")


def head(title: str, takeaway: str, *, simulated: bool = False) -> None:
    """Title, what the view says in one sentence, the simulated badge, and the link that reproduces the view.

    The takeaway mostly depends on the scope, which stands below it: make `top = st.container()` first, draw the scope,
    then call this `with top:`.
    """
    words, link = st.columns([9, 1], vertical_alignment="top")
    with words:
        line = safe.join([safe.tag("h2", title), SIMULATED if simulated else ""])
        safe.show(safe.tag("div", line, safe.tag("p", takeaway), cls="ci-head"))
    with (
        link,
        st.popover(
            "Link", icon=":material/link:", width="stretch", type="tertiary", help="The address of this very view"
        ),
    ):
        _link(key="page.link")


def session_check() -> Callable[[], bool]:
    """What tells, from now on and without drawing anything, whether this script's browser window is still there."""
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return lambda: True
    app, session = runtime.get_instance(), context.session_id
    return lambda: bool(app.is_active_session(session))


def badge_simulated() -> None:
    """The violet badge alone, beside a name or number that comes from the simulator."""
    safe.show(SIMULATED)


def notice(text: str) -> None:
    """Something to know, not an error: what was asked for is not there and what is shown instead."""
    safe.show(safe.tag("div", text, cls="ci-notice"))


def error(what: str, where: str = "", next: str = "") -> None:
    """What went wrong, where, and what to do next. All three may carry data."""
    details = " ".join(part for part in (where, next) if part)
    what, details = without_credentials(what), without_credentials(details)
    safe.show(safe.tag("div", safe.tag("b", what), details, cls="ci-error"))


def empty(title: str, text: str, action: Callable[[], object] | None = None) -> None:
    """A place with nothing in it yet: what belongs here, and `action` draws the control that fills it."""
    safe.show(safe.tag("div", safe.tag("b", title), text, cls="ci-empty"))
    if action is not None:
        action()


def no_datasets(title: str, said: str, why: str) -> None:
    """A page that needs a dataset where there is none: its head, why it needs one, and the way to get one."""
    head(title, said)
    empty("No datasets yet", why, lambda: url.page_link("profiles", "Import a file", icon=":material/upload_file:"))


def no_runs(title: str, nothing: str, why: str) -> None:
    """The same of a page that needs a run."""
    head(title, "No run yet.")
    empty(nothing, why, lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"))


def fold(label: str, icon: str, key: str, draw: Callable[[], T], *, expanded: bool = False) -> T | None:
    """An expander whose inside is made only while it is open: what nobody looks at costs no time to draw.

    Returns what `draw` returns, None while closed. Whether it is open is `st.session_state` under
    `key`. Where `expanded` changes between runs, it opens or closes anew.
    """
    # The state of a key would outlive the default that it began with.
    own = f"{key}.expanded" if expanded else key
    box = st.expander(safe.plain_label(label), icon=icon, key=own, expanded=expanded, on_change="rerun")
    if not box.open:
        return None
    with box:
        return draw()


def select(
    label: str,
    options: Sequence[Option],
    format: Callable[[Option], str],
    key: str,
    param: str,
    *,
    help: str | None = None,
) -> Option | None:
    """A selectbox bound to a URL parameter and shared by all pages that ask for the same parameter.

    Chosen is what the URL says, else what the session last chose, else the first option. An id that is not among the
    options gives a notice and falls back. None where there are no options. A change drops the parameters that depend
    on this one (DEPENDENTS). `label` and `help` must be literals.
    """

    def changed() -> None:
        # An option whose wording has changed since it was drawn (a status) comes back as its old wording.
        if st.session_state[key] in options:
            url.put(**{param: st.session_state[key], **dict.fromkeys(DEPENDENTS.get(param, ()))})

    if not options:
        return None
    by_text = {str(item): item for item in options}
    asked = url.get(param)
    if asked is not None and asked not in by_text:
        notice(f"{label} '{safe.option(asked, 40)}' of the link is not here (any more). Shown instead is what follows.")
        asked = None
    chosen = asked or url.remembered(param)
    value = by_text.get(chosen or "", options[0])
    url.put(**{param: value})
    st.session_state[key] = value
    st.selectbox(
        label,
        options,
        format_func=lambda item: safe.option(format(item)),
        key=key,
        on_change=changed,
        help=help,
    )
    return value
