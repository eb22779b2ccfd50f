"""The state of a view is in the URL: every view can be linked to, and the address bar alone determines the view.

A parameter means the same on every page, so that no page misreads Back or a pasted link. The choices of a session are
also kept in its state, because Streamlit's navigation clears the query at a click.

A second click interrupts the first one's callback when it next touches `st.session_state` or `st.query_params`
(Streamlit 1.67), and the callback is not repeated. So changes of the view at a click, and any other callback that
touches these, go through `durable`:

    st.button("Clear", on_click=durable(lambda: put(domain=None)))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext
from streamlit.runtime.state import get_session_state

from cimemories.ui.streamlit_patches import is_shown

PARAMETERS = frozenset(
    {
        *("dataset", "labelling", "run", "judge", "profile", "context", "attribute", "domain", "n", "sample"),
        *("other", "search", "domains", "events", "view", "part", "by", "second", "threshold", "priors", "votes"),
        *("show", "event", "sphere", "label", "differs", "tab", "order", "seed", "dissenter", "undecided"),
        *("others", "revealed", "flagged", "slice", "unit", "blind", "verdicts", "grounded", "labels", "answers"),
        *("who", "cell", "beside", "sweep", "among", "runs", "spheres", "recipients", "profiles", "strength"),
        *("quote", "agreement", "certainty", "kind", "basket", "against", "axis", "user", "sequence", "ns"),
        *("clock", "present", "messages", "rows", "columns", "roworder", "columnorder", "most", "measure", "recipient"),
        *("key", "ranking", "identifiers", "subset", "target", "width", "share", "batch", "person", "action", "both"),
        *("figure", "change", "ranked", "phrase", "where", "tag", "stops"),
    }
)
PAGES = {
    "home": "pages/start/home.py",
    "team": "pages/start/team.py",
    "profiles": "pages/curate/profiles.py",
    "labels": "pages/curate/labels.py",
    "consensus": "pages/curate/consensus.py",
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
_WAITING = "url.waiting"  # the unfinished parts of callbacks
_BROWSER = "url.browser"  # the page whose query the browser has to replace, that query, and the new one
_SENDS = "url.sends"  # the page whose query the browser sends, and that query
_STEPS = "url.steps"  # the number of the session's steps, from page to page too
_VISITS = "url.visits"  # the number of the session's visits to a page from another one
_COMPONENT = "url.component"  # the page on which a component writes parameters itself, and those parameters
_RESENT = "url.resent"  # the page, the query that the browser sends there, and the one by `replace`


def _known(name: str) -> str:
    if name not in PARAMETERS:
        raise KeyError(f"'{name}' is not a parameter of the URL; url.PARAMETERS lists them")
    return name


def get(name: str) -> str | None:
    """Return the parameter as the URL has it; None if it is missing or empty."""
    _keep_replaced()
    return st.query_params.get(_known(name)) or None


def get_int(name: str) -> int | None:
    """Return the parameter as a number; None if it is missing or no number."""
    value = get(name)
    # isascii too: isdigit alone takes '²', for which int() raises.
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 16 else None


def put(**values: Value) -> None:
    """Set parameters of the URL that the user chose, remove those that are None, and keep both in the session: one step
    for Back. For defaults, see `replace`.

    The address changes once, however many there are: each assignment to `st.query_params` would be an entry of the
    browser's history, and Back would lead to half of one view and half of another."""
    before, after = _change(values)
    if after != before:  # writing the same again would be one more step for Back
        context = get_script_run_ctx()
        # In another view a component begins anew: where it was may be an item that is decided by now.
        left = _of_component(context) if context else ()
        _push({name: value for name, value in after.items() if name in values or name not in left})


def replace(**values: Value) -> None:
    """Set parameters as `put` does, without a step for Back: defaults, and the user's position in a list. The browser
    learns of it at the end of the run (ui/shell.py)."""
    before, after = _change(values)
    context = get_script_run_ctx()
    if after == before or context is None:
        return
    if context.fragment_ids_this_run:  # the shell is not drawn in such a run
        _push(after)
        return
    lagging = _lagging(context)
    before_all = lagging[1] if lagging else context.query_string
    _, sent, replaced = st.session_state.get(_RESENT) or (None, "", {})
    if urlencode(replaced) != context.query_string:
        sent = context.query_string
    if sent:  # without a query the browser sends what its address bar shows
        st.session_state[_RESENT] = context.page_script_hash, sent, after
    _set(context, after)
    st.session_state[_BROWSER] = context.page_script_hash, before_all, context.query_string


def leave_to_component(*names: str) -> None:
    """Let a component of this page write these parameters into the address itself: a change of them is no link."""
    context = get_script_run_ctx()
    if context is not None:
        st.session_state[_COMPONENT] = context.page_script_hash, tuple(map(_known, names))


def _of_component(context: ScriptRunContext) -> tuple[str, ...]:
    of_page, names = st.session_state.get(_COMPONENT) or (None, ())
    return names if of_page == context.page_script_hash else ()


def _follow(context: ScriptRunContext) -> None:
    """Give the browser the address of a link that led to another view of this page, as a step for Back. Streamlit's
    frontend (1.67) sends the query of such a link once, neither shows nor keeps it, and with the next message the old
    one comes again."""
    page, sends = st.session_state.get(_SENDS) or (None, "")
    if page != context.page_script_hash:
        st.session_state[_VISITS] = visit() + 1
    if page != context.page_script_hash or context.is_history_navigation:
        st.session_state[_SENDS] = context.page_script_hash, context.query_string
        st.session_state[_STEPS] = st.session_state.get(_STEPS, 0) + 1
        return
    replaced = (st.session_state.get(_BROWSER) or ("", "", ""))[2]
    if not any(_same(context.query_string, query, _of_component(context)) for query in (sends, replaced)):
        _push({name: value for name, value in st.query_params.to_dict().items() if value})


def visit() -> int:
    """Return the number of this visit to a page: it stays the same until the session shows another page."""
    return int(st.session_state.get(_VISITS, 0))


def _same(one: str, other: str, without: Collection[str] = ()) -> bool:
    first, second = (
        sorted(item for item in parse_qsl(query, keep_blank_values=True) if item[0] not in without)
        for query in (one, other)
    )
    return first == second


def _push(query: Mapping[str, str]) -> None:
    """Give the browser another address, as a step for Back."""
    st.query_params.from_dict(query)
    st.session_state[_STEPS] = st.session_state.get(_STEPS, 0) + 1
    if context := get_script_run_ctx():
        st.session_state[_SENDS] = context.page_script_hash, context.query_string
    st.session_state[_BROWSER] = None  # the browser has it now, and sends it
    st.session_state[_RESENT] = None


def _set(context: ScriptRunContext, query: Mapping[str, str]) -> None:
    with get_session_state().query_params() as params:  # st.query_params would push it
        params.clear_with_no_forward_msg(preserve_embed=True)
        for name, value in query.items():
            params.set_with_no_forward_msg(name, value)
    context.query_string = urlencode(query)  # a rerun starts with it


def _keep_replaced() -> None:
    """Take the replaced query if the browser sends the one before. Streamlit's frontend does not see that the shell
    replaces the address. Not if Back or another page leads to that query."""
    context = get_script_run_ctx()
    resends = st.session_state.get(_RESENT) if context else None
    if context is None or resends is None:
        return
    page, sent, replaced = resends
    resent = context.query_string == sent
    if page != context.page_script_hash or (resent and context.is_history_navigation):
        st.session_state[_RESENT] = None
    elif resent:
        _set(context, replaced)


_NOTHING = object()


def set_field(key: str, value: object) -> None:
    """Set the value of a field for text or a number before it is drawn: `st.session_state[key] = value`, unless the
    browser already shows this value. Setting it again would overwrite what the user has typed since.

    Not for lists, whose options the browser knows only by their texts and has to be told of changes, nor for sliders:
    with other bounds a slider is another widget, which has no value yet."""
    if not is_shown(key) or st.session_state.get(key, _NOTHING) != value:
        st.session_state[key] = value


def durable(do: Callable[..., object]) -> Callable[..., None]:
    """Return a callback that calls `do`, again from its start in the next run if it is interrupted. do: may be repeated
    until its last touch of Streamlit."""
    # Taken now: reading it from the session at the click could be interrupted.
    waiting: list[Callable[[], object]] = st.session_state.setdefault(_WAITING, [])

    def callback(*args: Any, **kwargs: Any) -> None:
        waiting.append(partial(do, *args, **kwargs))
        _do(waiting)

    return callback


def catch_up() -> None:
    """Finish interrupted callbacks, at the start of each run of the app."""
    if context := get_script_run_ctx():
        _follow(context)
        _keep_replaced()
        if not _lagging(context):
            st.session_state[_BROWSER] = None
    _do(st.session_state.get(_WAITING, []))


def _do(waiting: list[Callable[[], object]]) -> None:
    while waiting:
        first = waiting[0]
        try:
            first()
        except Exception:  # not the exceptions that end a run, which are no Exception
            _drop(waiting, first)
            raise
        _drop(waiting, first)


def _drop(waiting: list[Callable[[], object]], done: Callable[[], object]) -> None:
    # Not whatever is first now: the run before may still be at it.
    if waiting and waiting[0] is done:
        del waiting[0]


def _lagging(context: ScriptRunContext) -> tuple[str, str, str] | None:
    """Return the content of _BROWSER, if the browser is still on that page and at one of these two queries."""
    replaced: tuple[str, str, str] | None = st.session_state.get(_BROWSER)
    here = replaced and replaced[0] == context.page_script_hash and context.query_string in replaced[1:]
    return replaced if here else None


def unsent() -> tuple[str | None, str, int]:
    """Return the query that the browser had and the one that `replace` made of it; None for the first if nothing was
    replaced. Repeated in every run while it holds, because `st.rerun` loses what a run has sent. Third, a number that
    tells equal pairs apart if a step lies between them."""
    replaced = st.session_state.get(_BROWSER)
    number: int = st.session_state.get(_STEPS, 0)
    return replaced[1] if replaced else None, urlencode(st.query_params.to_dict()), number


def _change(values: Mapping[str, Value]) -> tuple[dict[str, str], dict[str, str]]:
    """Keep the values in the session; returns the query before and after."""
    for name, value in values.items():
        st.session_state[_REMEMBERED + _known(name)] = None if value is None else str(value)
    _keep_replaced()
    before = st.query_params.to_dict()
    after = {name: value for name, value in before.items() if name not in values}
    return before, after | {name: str(value) for name, value in values.items() if value is not None}


def drop(*names: str) -> None:
    """Remove parameters from the URL; the session still knows them."""
    _keep_replaced()
    before = st.query_params.to_dict()
    if any(_known(name) in before for name in names):
        _push({name: value for name, value in before.items() if name not in names})


def remembered(name: str) -> str | None:
    """Return the last value of a parameter in this session, on any page."""
    value = st.session_state.get(_REMEMBERED + _known(name))
    return value if isinstance(value, str) else None


def go(page: str, **params: Value) -> None:
    """Open another page; ends this script run."""
    for name, value in params.items():
        st.session_state[_REMEMBERED + _known(name)] = None if value is None else str(value)
    query = {name: str(value) for name, value in params.items() if value is not None}
    st.session_state[_RESENT] = None
    # st.switch_page drops the query of the old page, so the new one gets its own here.
    st.switch_page(PAGES[page], query_params=query)


def page_link(page: str, label: str, *, icon: str | None = None, **params: Value) -> None:
    """Draw a link to another page of the app. The label must be a literal, or come from safe.plain_label."""
    query = {_known(name): str(value) for name, value in params.items() if value is not None}
    context = get_script_run_ctx()
    here = context.pages_manager.get_pages().get(context.page_script_hash) if context else None
    shown = here is not None and str(here.get("script_path", "")).endswith(PAGES[page])
    if context and shown and st.session_state.get(_SENDS) == (context.page_script_hash, urlencode(query)):
        # The browser would send what it sends anyway, and the query that replaced that would stay: with an empty
        # parameter, which says nothing, it is another one.
        query |= {next(name for name in ("search", "basket") if name not in query): ""}
    st.page_link(PAGES[page], label=label, icon=icon, query_params=query)
