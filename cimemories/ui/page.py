"""Parts that pages share: the head, selectboxes, notices and errors, marks of samples and votes, sliders of a rule."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import streamlit as st
from streamlit import runtime
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner import get_script_run_ctx

from cimemories.text import Parts, sentence, simulated_text, without_credentials, without_options
from cimemories.ui import component, safe, url
from cimemories.ui.safe import Html, show, tag

# ---- rule sliders


LEAST, MOST = 51, 100  # percent


@dataclass(frozen=True)
class Moved:
    """The sliders that the user has moved. threshold: 0 to 1, None until it is moved. weights: 0 to 100 each, in the
    order of the personas, only their proportions count; None until they are moved, and if all are 0."""

    threshold: float | None
    weights: tuple[int, ...] | None
    all_zero: bool

    @property
    def any(self) -> bool:
        return self.threshold is not None or self.weights is not None or self.all_zero


def rule_sliders(page: str, threshold: float, keys: Sequence[str], priors: Sequence[float]) -> Moved:
    """Draw the sliders for a rule to try: its threshold and the weights of the personas, as the URL has them, else as
    given. page: prefix of the widgets' keys. keys, priors: of the personas, in one order."""
    percent = url.get_int("threshold")
    # A link may hold any number; one that the slider cannot show counts as none.
    moved = percent if percent is not None and LEAST <= percent <= MOST else None
    bound(
        st.slider,
        "Consensus threshold in percent",
        LEAST,
        MOST,
        key=f"{page}.threshold",
        value=moved or min(max(round(100 * threshold), LEAST), MOST),
        put=lambda number: url.put(threshold=number),
        help="A verdict becomes the label where its share in the mixture of personas reaches this value. At 100 every "
        "counted vote has to agree, as in the paper; priors then matter only where one of them is 0.",
    )
    parts = (url.get("priors") or "").split("-")
    valid = len(parts) == len(keys) and all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts)
    weights = tuple(min(int(part), 100) for part in parts) if valid else None
    names = [f"{page}.weight.{number}" for number in range(len(keys))]

    def changed(_: object) -> None:
        url.put(priors="-".join(str(st.session_state[name]) for name in names))

    for name, persona, weight in zip(names, keys, weights or [round(100 * prior) for prior in priors], strict=True):
        label = safe.plain_label(f"Weight of the {persona}")
        bound(st.slider, label, 0, 100, key=name, value=weight, put=changed)
    # Weights that are all 0 have no proportions; the caller says so instead of dividing by 0.
    all_zero = weights is not None and not any(weights)
    return Moved(moved / 100 if moved else None, None if all_zero else weights, all_zero)


def least_votes(page: str, now: int | None, most: int) -> int | None:
    """Draw the number of votes that each persona needs, and return it, as the URL has it, else as given; None for an
    empty field."""
    linked = url.get_int("votes") or 0
    votes: int | None = bound(
        st.number_input,
        "Votes needed of each persona",
        1,
        most,
        key=f"{page}.votes",
        value=(linked if 1 <= linked <= most else now) or None,
        put=lambda number: url.put(votes=number),
        typed=True,
        placeholder="9 in 10 planned",
        help="A pair with fewer counted votes of some persona gets no label. Votes agree by chance the more often, "
        "the fewer there are. Empty: nine in ten of the planned votes, all where fewer than ten are.",
    )
    return votes


# ---- page


T = TypeVar("T")
Option = TypeVar("Option", int, str)
# A new choice of the key makes these meaningless: an attribute of one profile is none of the next one's.
DEPENDENTS = {
    "dataset": ("labelling", "run", "judge", "profile", "context", "attribute", "sample", "slice"),
    "run": ("judge", "sample", "slice"),
    "profile": ("attribute", "sample"),
    "context": ("sample",),
}
_link = component("link")
_SHOWN = "page.shown."  # the choices of this run of the page, for its title
LINK_HELP = "The address of this view"


def simulated_badge(parts: Parts = True) -> safe.Html:
    """Return the violet badge beside a name or number, which says what of it comes from the simulator; '' for
    nothing."""
    text = simulated_text(parts)
    hint = "answered by the simulator, not by a model"
    return safe.tag("span", text, cls="ci-chip ci-simulated", title=hint) if text else safe.join([])


def head(title: str, takeaway: str, *, simulated: Parts = False) -> None:
    """Draw the title, the view's result in one sentence, the simulated badge, and the link that reproduces the view.

    The takeaway mostly depends on the scope, which is drawn below it: make `top = st.container()` first, draw the
    scope, then call this `with top:`. The browser's title names the page and the run or dataset that `select` chose."""
    # It tells the browser's history and tabs apart. A plain text: it is never read as markup.
    shown = [st.session_state.pop(f"{_SHOWN}{param}", "") for param in ("run", "dataset")]
    st.set_page_config(page_title=" · ".join(dict.fromkeys([title, *filter(None, shown), "CIMemories Studio"])))
    text, link = st.columns([9, 1], vertical_alignment="top")
    with text:
        line = safe.join([safe.tag("h2", title), simulated_badge(simulated)])
        safe.show(safe.tag("div", line, safe.tag("p", takeaway), cls="ci-head"))
    with link, st.popover("Link", icon=":material/link:", width="stretch", type="tertiary", help=LINK_HELP):
        _link(key="page.link")


def session_check() -> Callable[[], bool]:
    """Return a function that tells whether this script's browser window is still open, from any thread and without
    drawing."""
    # Taken now: the context belongs to the script's thread, and other threads have none.
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return lambda: True
    app, session = runtime.get_instance(), context.session_id
    return lambda: bool(app.is_active_session(session))


def notices(texts: Iterable[str]) -> None:
    """Draw remarks as sentences in one box; nothing if there is none."""
    if sentences := [safe.coded(without_options(sentence(text))) for text in texts]:
        safe.show(safe.lines(sentences, "ci-line", box="ci-notice"))


def definitions(rows: Iterable[tuple[Html | str, str]]) -> None:
    """Draw the meanings of answers, one below the other. rows: (the answer as its chip, its meaning)."""
    for chip, text in rows:
        show(tag("div", chip, tag("div", text, cls="ci-muted"), cls="ci-line"))


def badge_simulated(parts: Parts = True) -> None:
    """Draw the violet badge alone."""
    if parts:
        safe.show(simulated_badge(parts))


def notice(text: str, *more: str) -> None:
    """Draw a hint that is not an error: a requested item does not exist, and what is shown instead. more: hints that a
    click opens."""
    content, *others = [safe.coded(without_options(hint)) for hint in (text, *more)]
    if others:
        summary = safe.tag("summary", content, safe.tag("span", f"{len(others)} more", cls="ci-more"))
        content = safe.tag("details", summary, *(safe.tag("div", other) for other in others), cls="ci-fold")
    safe.show(safe.tag("div", content, cls="ci-notice"))


def outcome(texts: Sequence[str], key: str) -> None:
    """Draw the outcome of the last action, visible however far down the page that was done; nothing if there is
    none."""
    if texts:
        with st.container(key=f"outcome.{key}"):
            for text in texts:
                notice(text)


def error(what: str, where: str = "", next: str = "") -> None:
    """Draw what went wrong, where, and what to do next. All three may carry data."""
    details = " ".join(part for part in (where, next) if part)
    what, details = (without_options(without_credentials(text)) for text in (what, details))
    safe.show(safe.tag("div", safe.tag("b", what), safe.coded(details), cls="ci-error"))


class Reporting(AbstractContextManager[None, bool]):
    """Draw an error that its block raises, as in `with Reporting("Nothing was saved.", StoreError):`, and let the page
    go on behind it. Code that needs the block's success belongs into it."""

    def __init__(self, what: str, *errors: type[Exception], next: str = "") -> None:
        self.what, self.errors, self.next = what, errors, next

    # bool, not None: so mypy knows that the block may be left halfway.
    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> bool:
        if not isinstance(problem, self.errors):
            return False
        error(self.what, sentence(problem), self.next)
        return True


def empty(title: str, text: str, action: Callable[[], object] | None = None) -> None:
    """Draw an empty state: a description of its content; `action` draws the control that adds it."""
    safe.show(safe.tag("div", safe.tag("b", title), safe.coded(text), cls="ci-empty"))
    if action is not None:
        action()


def no_datasets(title: str, takeaway: str, why: str) -> None:
    """Draw a page that needs a dataset and has none: its head, why it needs one, and the way to get one."""
    head(title, takeaway)
    empty("No datasets yet", why, lambda: url.page_link("profiles", "Import a file", icon=":material/upload_file:"))


def no_runs(title: str, nothing: str, why: str) -> None:
    """Draw a page that needs a run and has none, likewise."""
    head(title, "No runs yet.")
    empty(nothing, why, lambda: url.page_link("runs", "Start a run", icon=":material/play_circle:"))


NOTICE_SECONDS = 3.0


def keep_notices(key: str, *texts: str) -> None:
    """Keep the notices of an action for the run of the page that shows them by `kept_notices`."""
    st.session_state[key] = [*texts]


def kept_notices(key: str) -> list[str]:
    """Return the notices of `keep_notices`, for the runs of the next few seconds: the second click of a double click
    draws the page again, and may end the run that showed them first."""
    texts: list[str] | None = st.session_state.get(key)
    if not texts:
        return []
    shown: tuple[list[str], float] | None = st.session_state.get(f"{key}.shown")
    if shown is None or shown[0] is not texts:
        st.session_state[f"{key}.shown"] = texts, time.monotonic()
    elif time.monotonic() - shown[1] > NOTICE_SECONDS:
        del st.session_state[key], st.session_state[f"{key}.shown"]
        return []
    return texts


def fold(label: str, icon: str, key: str, draw: Callable[[], T], *, expanded: bool = False) -> T | None:
    """Draw an expander whose content is made only while it is open: a plain `st.expander` runs its block when closed,
    too.

    Returns what `draw` returns, None while closed. `st.session_state` has under `key` whether it is open. If `expanded`
    changes between runs, it opens or closes again."""
    # Another key for another default: under one key Streamlit keeps the first default, and `expanded` has no effect.
    box_key = f"{key}.expanded" if expanded else key
    box = st.expander(safe.plain_label(label), icon=icon, key=box_key, expanded=expanded, on_change="rerun")
    if not box.open:
        return None
    with box:
        return draw()


# ---- fields whose value is in the address


def bound(
    widget: Callable[..., Any],
    label: str,
    *args: object,
    key: str,
    value: object,
    put: Callable[[Any], object],
    typed: bool = False,
    **options: Any,
) -> Any:
    """Draw a widget with the value that the address has, and return its value. put: writes a changed one into the
    address. typed: the user types in it. `label` must be a literal, or come from safe.plain_label."""
    field = fresh(key, value) if _BEHIND.get() else key
    # Through the state, not by `value`, `index` or `default`, which Streamlit ignores once the widget exists.
    if typed:
        url.set_field(field, value)
    else:
        st.session_state[field] = value

    def changed() -> None:
        # A callback runs before the page does, which then reads the new value from the URL like any other.
        own(key)
        put(st.session_state[field])

    return widget(label, *args, key=field, on_change=url.durable(changed), **options)


_BEHIND: ContextVar[bool] = ContextVar("behind", default=False)


@contextmanager
def behind(box: DeltaGenerator) -> Iterator[None]:
    """Draw fields into a popover. A browser that has shown it once keeps what its fields held, and sends that with the
    next click, though the address has changed meanwhile (Streamlit 1.67): such a field gets another key (`fresh`)."""
    token = _BEHIND.set(True)
    try:
        with box:
            yield
    finally:
        _BEHIND.reset(token)


def fresh(key: str, value: object) -> str:
    """Return the key for a field in a popover: another one whenever its value was changed elsewhere, which is not by
    the field itself (`own`)."""
    known, number, by_itself = st.session_state.get(f"{key}.behind", (value, 0, False))
    number += known != value and not by_itself
    st.session_state[f"{key}.behind"] = value, number, False
    return f"{key}.{number}" if number else key


def own(key: str) -> None:
    """Note that the field itself changes its value."""
    if known := st.session_state.get(f"{key}.behind"):
        st.session_state[f"{key}.behind"] = *known[:2], True


def select(
    label: str,
    options: Sequence[Option],
    format: Callable[[Option], str],
    key: str,
    param: str,
    *,
    help: str | None = None,
    above: DeltaGenerator | None = None,
) -> Option | None:
    """Draw a selectbox bound to a URL parameter and shared by all pages that use the same parameter.

    Its value is the URL's, else the session's last choice, else the first option. An id that is not among the options
    gives a notice (in `above`, if the list is in something closed) and falls back. None without options. A change drops
    the parameters that depend on this one (DEPENDENTS). `label` and `help` must be literals."""

    if not options:
        return None
    # As text, since the URL knows only texts while ids may be numbers.
    by_text = {str(item): item for item in options}
    value = by_text[
        choice(
            label,
            {text: format(item) for text, item in by_text.items()},
            key,
            param,
            boxed=True,
            remembered=True,
            missing=f"{label} '{{}}' from the link does not exist (any longer). Showing another one.",
            above=above,
            also=lambda: dict.fromkeys(DEPENDENTS.get(param, ())),
            help=help,
        )
    ]
    st.session_state[f"{_SHOWN}{param}"] = safe.option(format(value), 40)
    return value


def _text(texts: Mapping[str, str], item: object) -> str:
    # Streamlit also passes a text here: that of an option which no longer exists.
    return texts.get(str(item), str(item))


def choice(
    label: str,
    options: Mapping[str, str],
    key: str,
    param: str,
    *,
    default: str = "",
    boxed: bool = False,
    remembered: bool = False,
    missing: str = "",
    above: DeltaGenerator | None = None,
    also: Callable[[], Mapping[str, url.Value]] = dict,
    help: str | None = None,
    visible: bool = True,
) -> str:
    """Draw buttons for a choice of this view and return it. The URL leaves it out while it is `default`; if that is no
    option, the first one is, and the URL names it too. options: texts by value.

    boxed: as a selectbox. remembered: without a value in the URL, the session's last choice on any page. A value that
    is not among the options is replaced by the default. missing: a notice of that, in the container `above` if it is
    given. also: called at a change, for other parameters to be set with it."""
    every = {str(value): text for value, text in options.items()}
    linked, last = url.get(param), url.remembered(param) if remembered else None
    if linked is not None and linked not in every:
        if missing:
            with above or st.container():
                notice(missing.format(safe.option(linked, 40)))
            url.replace(**{param: None})
        linked = None
    linked = linked or last
    # As a plain text, since Streamlit would compare the classes of an enumeration's members.
    usual = str(default) if str(default) in every else next(iter(every))
    value = str(linked) if linked in every else usual

    def address(chosen: str) -> str | None:
        return None if chosen == default else chosen

    if remembered or usual != default:
        # Even if it is the default: the address alone has to reproduce the view, and defaults change with the data.
        url.replace(**{param: address(value)})

    def put(chosen: str) -> None:
        # Streamlit matches options by their formatted text. An option whose text has changed since it was drawn (it
        # holds a status) comes back as its old text, and would go into the URL as if it were a value.
        if chosen in every:
            url.put(**{param: address(chosen), **also()})

    shared: dict[str, Any] = {"key": key, "value": value, "put": put, "help": help}
    shared["label_visibility"] = "visible" if visible else "collapsed"
    label = safe.plain_label(label)
    if boxed:
        bound(st.selectbox, label, list(every), format_func=partial(_text, safe.options(every, every.get)), **shared)
    else:
        bound(st.segmented_control, label, list(every), format_func=every.__getitem__, required=True, **shared)
    return value


def several(
    label: str,
    options: Mapping[str, str],
    key: str,
    param: str,
    *,
    between: str = ".",
    default: Sequence[str] = (),
    pills: bool = False,
    most: int | None = None,
    **more: Any,
) -> list[str]:
    """Draw a choice of several values, and return those that the URL names, in its order; by default `default`.
    options: texts by value. between: separates values in the URL. pills: as buttons. more: of the widget."""
    chosen = [value for value in _named(param, between) if value in options][:most] or list(default)

    def put(values: Sequence[str]) -> None:
        valid = [value for value in values if value in options]
        url.put(**{param: None if set(valid) == set(default) else between.join(valid) or None})

    if pills:
        more |= {"selection_mode": "multi", "format_func": options.__getitem__}
    else:
        more |= {"max_selections": most, "format_func": partial(_text, safe.options(options, options.__getitem__, 48))}
    widget = st.pills if pills else st.multiselect
    return list(
        bound(widget, safe.plain_label(label), list(options), key=key, value=chosen, put=put, **more) or default
    )


def _named(param: str, between: str) -> list[str]:
    return list(dict.fromkeys(part for part in (url.get(param) or "").split(between) if part))


def runs(names: Mapping[str, str], key: str, everything: str, *, most: int | None = None) -> list[str]:
    """Draw the choice of runs, at most `most`, and return those that the URL names, in its order; none named means
    those that `everything` describes. names: by id. Missing ones of the link are left out with a notice."""
    linked = _named("runs", ".")
    if len([part for part in linked if part in names][:most]) < len(linked):
        notice("Some runs of the link are not here (any more), or are of another dataset.")
    help = f"Runs of one dataset with at least one judgement. None chosen: {everything}."
    return several("Runs", names, key, "runs", most=most, placeholder=everything, help=help)


TAG_WIDTH = 240  # pixels
BY_TAG = "by"  # an address names a tag with a # before it


def run_tag(
    tags: Iterable[Sequence[str]],
    key: str,
    *,
    grouped: bool = False,
    also: Callable[[], Mapping[str, url.Value]] = dict,
) -> str:
    """Draw the choice of a tag, if there are any, and return it as '#pilot'; '' for all runs. tags: of each run.
    grouped: offer BY_TAG too, all runs, a group a tag. also: as of `choice`."""
    counts = Counter(f"#{word}" for words in tags for word in words)
    if not counts:
        return ""
    options = {"": "all"} | ({BY_TAG: "all, a group each"} if grouped else {})
    options |= {word: f"{word} ({number})" for word, number in sorted(counts.items())}
    with st.container(width=TAG_WIDTH):
        return choice("Tag", options, key, "tag", boxed=True, also=also)


def number(label: str, param: str, default: float, least: float, most: float, step: float) -> float:
    """Draw a number of the URL with its control, and return it; an invalid one, or one out of range, is the default."""
    try:
        value = float(url.get(param) or default)
    except ValueError:
        value = default
    value = float(value if least <= value <= most else default)  # nan is in no range

    def put(number: float) -> None:
        url.put(**{param: None if number == default else f"{number:g}"})

    bound(
        st.number_input,
        safe.plain_label(label),
        float(least),
        float(most),
        key=f"filters.{param}",
        value=value,
        put=put,
        typed=True,
        step=float(step),
        format="%g",
    )
    return value
