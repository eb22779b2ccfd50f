"""The state of a view is in the URL: every view can be linked to, and the address bar alone says what it shows.

A parameter means the same on every page, so that no page misreads what Back or a pasted link brings it. The choices of
a session are also kept in its state, because Streamlit's navigation clears the query at a click.
"""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

PARAMETERS = frozenset(
    {
        *("dataset", "labelling", "run", "judge", "profile", "context", "attribute", "domain", "n", "sample"),
        *("other", "search", "domains", "events", "view", "part", "by", "second", "threshold", "priors", "votes"),
        *("show", "event", "sphere", "label", "differs", "tab", "order", "seed", "dissenter", "undecided"),
        *("others", "revealed", "flagged", "slice", "unit", "blind", "verdicts", "grounded", "labels", "answers"),
        *("who", "cell", "beside", "sweep", "among", "runs", "spheres", "recipients", "profiles", "strength"),
        *("quote", "agreement", "certainty", "kind", "basket", "against", "axis", "user", "sequence", "ns"),
        *("clock", "present", "rows", "columns", "roworder", "columnorder", "most", "measure", "recipient"),
        *("key", "ranking", "identifiers", "subset", "target", "width", "share"),
    }
)
PAGES = {
    "home": "pages/start/home.py",
    "profiles": "pages/curate/profiles.py",
    "labels": "pages/curate/labels.py",
    "survival": "pages/curate/survival.py",
    "review": "pages/curate/review.py",
    "runs": "pages/evaluate/runs.py",
    "judge_audit": "pages/evaluate/judge_audit.py",
    "heatmaps": "pages/explore/heatmaps.py",
    "leaks": "pages/explore/leaks.py",
    "accumulation": "pages/explore/accumulation.py",
    "compare": "pages/explore/compare.py",
}
Value = str | int | None
_REMEMBERED = "scope."


def _known(name: str) -> str:
    if name not in PARAMETERS:
        raise KeyError(f"'{name}' is not a parameter of the URL; url.PARAMETERS lists them")
    return name


def get(name: str) -> str | None:
    """The parameter as the URL has it; None where it is missing or empty."""
    return st.query_params.get(_known(name)) or None


def get_int(name: str) -> int | None:
    """The parameter as a number; None where it is missing or no number."""
    value = get(name)
    # isascii too: isdigit alone takes '²', for which int() raises.
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 16 else None


def put(**values: Value) -> None:
    """Set parameters of the URL, remove those that are None, and keep both in the session.

    The address changes once, however many there are: each assignment to `st.query_params` would be an entry of the
    browser's history of its own, and Back would come to half of one view and half of another.
    """
    for name, value in values.items():
        st.session_state[_REMEMBERED + _known(name)] = None if value is None else str(value)
    before = st.query_params.to_dict()
    after = {name: value for name, value in before.items() if name not in values}
    after |= {name: str(value) for name, value in values.items() if value is not None}
    if after != before:  # writing the same again would be one more step for Back
        st.query_params.from_dict(after)


def remembered(name: str) -> str | None:
    """The last value of a parameter in this session, on whatever page."""
    value = st.session_state.get(_REMEMBERED + _known(name))
    return value if isinstance(value, str) else None


def link(page: str, **params: Value) -> str:
    """The address of a page with these parameters, relative to the app: '/labels?dataset=1'."""
    PAGES[page]  # KeyError for a page that there is not
    query = urlencode({_known(name): str(value) for name, value in params.items() if value is not None})
    path = "/" if page == "home" else f"/{page}"
    return f"{path}?{query}" if query else path


def go(page: str, **params: Value) -> None:
    """Open another page; ends this script run."""
    for name, value in params.items():
        st.session_state[_REMEMBERED + _known(name)] = None if value is None else str(value)
    query = {name: str(value) for name, value in params.items() if value is not None}
    # st.switch_page drops the query of the old page, so the new one gets its own here.
    st.switch_page(PAGES[page], query_params=query)


def page_link(page: str, label: str, *, icon: str | None = None, **params: Value) -> None:
    """A link to another page of the app. The label must be a literal, or come from safe.plain_label."""
    query = {_known(name): str(value) for name, value in params.items() if value is not None}
    st.page_link(PAGES[page], label=label, icon=icon, query_params=query)
