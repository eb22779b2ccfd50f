"""Parts of the Leaks page: the basket of examples for a paper, with notes and exports; the filters, each value with the
number of examples it would leave; the patterns among what they leave; and the navigation between examples, by keys,
buttons or the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pandas as pd
import streamlit as st

from cimemories.answer import Column, Table
from cimemories.answers import leaks as question
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.leaks import basket, conditions, gallery, table
from cimemories.leaks.basket import BasketRow, basket_rows
from cimemories.leaks.examples import WHERE, Examples, FilterCounts, Filters
from cimemories.leaks.gallery import Agreement, Certainty, Facet, Kind, Phrase, Quote
from cimemories.leaks.table import LeakRow
from cimemories.model import Strength
from cimemories.store import datasets
from cimemories.store.engine import Store, StoreError
from cimemories.text import count
from cimemories.ui import annotator, answers, page, presses, safe, url
from cimemories.ui.safe import join, tag
from pages.explore.leaks_message import Browsed

TAB, PATTERNS, GALLERY = "basket", "patterns", "gallery"
UNNAMED = "basket"


def name() -> str:
    """Return the name of the basket: the logged-in account, else the one in the URL or the session, else the
    annotator's name, else UNNAMED."""
    account = annotator.account()
    return account or url.get("basket") or url.remembered("basket") or annotator.name() or UNNAMED


def views(browsed: Browsed) -> None:
    """Draw the choice between the gallery, the patterns and the basket."""
    try:
        label = f"Basket ({len(basket.items(browsed.flows.store, name()))})"
    except StoreError:
        label = "Basket (!)"
    texts = {GALLERY: "Messages", PATTERNS: "Patterns", TAB: label}
    with browsed.view:
        page.choice("View", texts, "leaks.tab", "tab", default=GALLERY, visible=False)


def draw_basket(flows: Flows) -> None:
    """Draw the basket: its name, its examples, its exports."""
    store = flows.store
    with st.container(key="leaks_basket"):
        _name()
    try:
        items_shown = basket_rows(flows, basket.items(store, name()))
    except StoreError as problem:
        page.error(str(problem))
        return
    if not items_shown:
        page.empty(
            "Nothing in this basket yet",
            "Press a, or the star, to put the current example into the basket. The workspace keeps it under its name.",
        )
        return
    rows = [item.row for item in items_shown if item.row is not None]
    _exports(rows, gone=len(items_shown) - len(rows))
    for number, item in enumerate(items_shown):
        with st.container(border=True):
            _example(store, item, number, len(items_shown))


def _name() -> None:
    if annotator.account():
        safe.inline(f"The basket of {annotator.account()}.", muted=True)
        return
    page.bound(
        st.text_input,
        "Name of the basket",
        key="leaks.basket.name",
        value=name(),
        put=lambda text: url.put(basket=" ".join(text.split()) or None),
        typed=True,
        max_chars=basket.LONGEST_NAME,
        help="Each name is a basket of its own. The name is in the URL, so reloads and links find it.",
    )
    if name() != UNNAMED:
        url.replace(basket=name())


def _exports(rows: list[LeakRow], gone: int) -> None:
    left, markdown, latex = st.columns([6, 2, 2], vertical_alignment="center")
    simulated = sum(bool(row.simulated) for row in rows)
    with left:
        text = f"{count(len(rows), 'example')} as a table of task, recipient, leaked attribute, excerpt and model."
        text += f" {count(simulated)} simulated, and marked as such." if simulated else ""
        text += f" {count(gone)} left out: no longer leaks." if gone else ""
        safe.inline(text, muted=True)
    for column, label, render, file, kind in (
        (markdown, "Markdown", table.as_markdown, "leaks.md", "text/markdown"),
        (latex, "LaTeX table", table.as_latex, "leaks.tex", "application/x-tex"),
    ):
        column.download_button(
            label,
            data=partial(render, rows),
            file_name=file,
            mime=kind,
            on_click="ignore",
            icon=":material/download:",
            disabled=not rows,
            width="stretch",
            key=f"leaks.export.{file}",
        )


def _example(store: Store, item: BasketRow, number: int, of: int) -> None:
    text, buttons = st.columns([12, 3])
    with buttons:
        _buttons(store, item, number, of)
    with text:
        if item.row is None:
            safe.inline(f"{number + 1}. {item.item.run}", strong=True)
            page.notice(item.removal_reason)
        else:
            _row(item.row, number)
        page.bound(
            st.text_input,
            "Note",
            key=f"leaks.note.{item.item.id}",
            value=item.item.note,
            put=lambda note: _change(store, basket.noted(item.item.id, note)),
            typed=True,
            max_chars=basket.LONGEST_NOTE,
            placeholder="Note for the table",
            label_visibility="collapsed",
        )


def _row(row: LeakRow, number: int) -> None:
    badge = page.simulated_badge(row.simulated)
    head = tag("div", tag("b", f"{number + 1}. {row.recipient}: {row.task}"), "  ", badge, cls="ci-line")
    leaked = "ci-leaked" if row.strength == Strength.FULL else "ci-leaked ci-weak"
    pieces = [tag("mark", piece.text, cls=leaked) if piece.leaked else piece.text for piece in row.excerpt]
    if not row.in_message:
        pieces = [
            tag("span", "Quoted by the judge, not found in the message: " if pieces else "No quote.", cls="ci-muted"),
            *pieces,
        ]
    safe.show(
        tag(
            "div",
            head,
            tag("div", f"{row.key}: ", safe.data(row.statement), cls="ci-muted"),
            tag("div", join(pieces), cls="ci-line"),
            tag("div", f"{row.model}; {table.rests_on(row)}", cls="ci-muted"),
            cls="ci-lines",
        )
    )


def _buttons(store: Store, item: BasketRow, number: int, of: int) -> None:
    saved = item.item
    moves = (
        ("up", ":material/arrow_upward:", "One place up", basket.moved(saved.id, -1), number == 0),
        ("down", ":material/arrow_downward:", "One place down", basket.moved(saved.id, 1), number == of - 1),
        ("out", ":material/delete:", "Remove from the basket", basket.without(saved.id), False),
    )
    for column, (what, icon, text, change, off) in zip(st.columns(3), moves, strict=True):
        key = f"leaks.basket.{what}.{saved.id}"
        column.button(
            "", icon=icon, key=key, help=text, disabled=off, on_click=url.durable(partial(_change, store, change))
        )
    if item.row is not None:
        st.button(
            "Open",
            icon=":material/open_in_new:",
            key=f"show.leaks.basket.open.{saved.id}",
            help="The example in the gallery",
            type="tertiary",
            on_click=url.durable(url.put),
            kwargs={
                "tab": None,
                "run": saved.run,
                "profile": saved.profile,
                "context": saved.context,
                "attribute": saved.attribute,
                "sample": item.row.sample,
            },
        )


def _change(store: Store, how: Callable[[basket.Items], basket.Items]) -> None:
    try:
        basket.change(store, name(), how)
    except StoreError as problem:
        page.error("The basket was not changed.", str(problem))


FILTERED = "leaks.filtered"


class Filter(NamedTuple):
    """A filter of the gallery. param: of the URL. many: it has many values, so that they stand in a list."""

    param: str
    title: str
    help: str = ""
    many: bool = False


FILTERS = {
    Facet.RUN: Filter("runs", "Model and run", many=True),
    Facet.DOMAIN: Filter("domains", "Domain", many=True),
    Facet.SPHERE: Filter("spheres", "Sphere", many=True),
    Facet.RECIPIENT: Filter("recipients", "Recipient", many=True),
    Facet.PROFILE: Filter("profiles", "Profile", many=True),
    Facet.STRENGTH: Filter(
        "strength",
        "Strength",
        "The strongest claim on the flow. Only what is revealed in full counts as a violation.",
    ),
    Facet.PHRASE: Filter(
        "phrase",
        "Phrase",
        "How a message says it, by a quote of the judge: all words of the memory statement, a part of them, or others.",
    ),
    Facet.QUOTE: Filter(
        "quote",
        "Quote in the message",
        "Whether a claim of that strength quotes words that stand in the message (grounded).",
    ),
    Facet.AGREEMENT: Filter(
        "agreement", "Claimed by", "Whether all judges of the run claim it in full in one and the same message."
    ),
    Facet.CERTAINTY: Filter(
        "certainty",
        "Label by",
        "What the label inappropriate rests on: people who had differed and settled it, one person, votes that all "
        "agree, or the threshold of the rule.",
    ),
    Facet.KIND: Filter("kind", "Simulated or real", "Simulated: the messages, the labels, or the judge."),
}
MOST_VALUES = 500
MOST_SEEN = 420  # pixels of the table of patterns, which scrolls
WORDS = {
    str(Phrase.COPIED): "statement copied",
    str(Phrase.PART): "a part copied",
    str(Phrase.REWORDED): "reworded",
    str(Phrase.NONE): "no quote",
    str(Quote.GROUNDED): "quote found",
    str(Quote.UNGROUNDED): "no quote found",
    str(Agreement.ALL): "all judges",
    str(Agreement.SOME): "some judges",
    str(Agreement.ALONE): "one judge",
    str(Certainty.ADJUDICATED): "adjudicated",
    str(Certainty.PERSON): "a person",
    str(Certainty.UNANIMOUS): "unanimous votes",
    str(Certainty.THRESHOLD): "by threshold",
    str(Kind.REAL): "real",
    str(Kind.SIMULATED): "simulated",
}
BY_DEFAULT = {Facet.STRENGTH: [str(Strength.FULL)]}


def url_filters(every: bool) -> Filters:
    """Return the filters as the URL has them. every: whether several runs are browsed, without which no run can be
    chosen."""
    filters: dict[str, Sequence[str]] = {}
    for facet, shown in FILTERS.items():
        values = [unquote(part) for part in (url.get(shown.param) or "").split(",") if part]
        filters[facet] = values or BY_DEFAULT.get(facet, [])
    condition = url.get("where")
    return filters | ({} if every else {Facet.RUN: []}) | ({WHERE: [condition]} if condition else {})


def button_text() -> str:
    """Return the text of the button that the filters are behind: it says how many there are."""
    number = sum(url.get(param) is not None for param in FILTERING)
    return f"Filters ({number})" if number else "Filters"


FILTERING = (*(shown.param for shown in FILTERS.values()), "where")
COLUMNS_HELP = (
    f"Columns: {', '.join(sorted(conditions.COLUMNS))}. Also: and, or, not, in, between, like, ilike, + - * /"
)


def draw_condition() -> None:
    """Draw the field for a condition on the columns of the leaks."""

    def put(text: str) -> None:
        url.put(where=text.strip() or None)
        st.session_state[FILTERED] = True

    page.bound(
        st.text_input,
        "Only where",
        key="leaks.where",
        value=url.get("where") or "",
        put=put,
        typed=True,
        max_chars=conditions.LONGEST_WITH_TEXTS,
        placeholder="domain = 'health' and claimed / draws >= 0.5",
        help=COLUMNS_HELP,
    )


def only_where() -> None:
    """Draw the condition that leaks are filtered by, since the field is behind a button; nothing without one."""
    if condition := url.get("where"):
        with st.container(horizontal=True, vertical_alignment="center", key="leaks_where"):
            safe.show(tag("div", "Only where ", tag("span", condition, cls="ci-code"), cls="ci-line", title=condition))
            clear_button("Show all", "show.leaks.clear.where")


def clear_button(label: str, key: str) -> None:
    """Draw the button that removes all filters."""

    def clear() -> None:
        url.put(**dict.fromkeys(FILTERING))
        st.session_state[FILTERED] = True

    st.button(label, key=key, icon=":material/filter_alt_off:", type="tertiary", on_click=url.durable(clear))


def draw_filters(browsed: Browsed, left: FilterCounts, now: Filters) -> None:
    """Draw all filters, each bound to its parameter of the URL."""
    if not any(left.unfiltered.values()):
        return
    scopes, people = browsed.scopes, dict[str, str]()
    with browsed.flows.store.read() as connection:
        for dataset in {scope.run.dataset for scope in scopes.values()}:
            people |= {str(i): name for i, name in datasets.profile_names(connection, dataset).items()}
    sides = st.columns(2)
    for facet, shown in FILTERS.items():
        counts = left.counts[facet]
        values = [value for value, number in left.unfiltered[facet].items() if number]
        if len(values) > MOST_VALUES:
            # The most frequent ones: a list of thousands would take the browser seconds.
            most = sorted(values, key=counts.__getitem__, reverse=True)[:MOST_VALUES]
            values = [value for value in values if value in {*most, *now[facet]}]
        if len(values) < 2 and set(now[facet]) <= set(values):
            continue

        def name_of(value: str, facet: Facet = facet, counts: dict[str, int] = counts) -> str:
            return f"{_filter_name(facet, value, scopes, people)} ({count(counts.get(value, 0))})"

        with sides[not shown.many]:
            _filter(facet, sorted(values, key=counts.__getitem__, reverse=True) if shown.many else values, name_of, now)
    if any(map(url.get, FILTERING)):
        clear_button("Clear the filters", "show.leaks.clear")


def draw_patterns(browsed: Browsed, examples: Examples, now: Filters) -> None:
    """Draw the leaks by what leaked and how; a row leads to its messages."""
    options = {name: column.title for name, column in question.GROUPS.items()}
    by = page.several("Group by", options, "leaks.by", "by", default=question.BY_DEFAULT, pills=True)
    table = question.grouped(examples, now, by)
    hint = "" if table.empty else " Select a row to read its messages."
    safe.show(tag("div", tag("b", question.patterns_sentence(table, by)), tag("span", hint, cls="ci-muted")))
    if table.empty:
        return
    key = f"leaks.patterns.{'.'.join(by)}"
    picked = answers.twin(table, key, on_select="row", height=MOST_SEEN, alt="Patterns of leaks")
    scopes = list(browsed.scopes.values())
    about = scopes[0].about if len(scopes) == 1 else {"runs": ", ".join(browsed.scopes)}
    answers.export(table, "leaks.patterns", about, parts_of(scope.simulated for scope in scopes))
    if picked is not None:
        condition = conditions.equal({name: table.frame[name].iloc[picked] for name in by})
        before = url.get("where")
        st.session_state[FILTERED] = True
        shown = dict.fromkeys(("tab", "profile", "context", "attribute", "sample"))
        url.put(where=f"({before}) and {condition}" if before else condition, **shown)
        st.rerun()


def _filter_name(facet: Facet, value: str, scopes: dict[str, Scope], people: dict[str, str]) -> str:
    if facet == Facet.RUN and value in scopes:
        run = scopes[value].run
        return run.model if run.model in run.name else f"{run.model}, {run.name}"
    if facet == Facet.PROFILE:
        return people.get(value, value)
    if facet == Facet.SPHERE and not value:
        return "no sphere"
    return WORDS.get(value, value.replace("_", " "))


def _filter(facet: Facet, values: list[str], name_of: Callable[[str], str], now: Filters) -> None:
    """Draw one filter: a list if it has many values, else buttons."""
    key, shown = f"leaks.filter.{facet}", FILTERS[facet]
    texts = safe.options(values, name_of)

    def text(value: str) -> str:
        return texts.get(value, value) if shown.many else safe.plain_label(texts.get(value, value))

    here = [value for value in now[facet] if value in values]
    field = page.fresh(key, here)
    st.session_state[field] = here

    def changed() -> None:
        page.own(key)
        # An option whose count has changed since the browser drew it comes back as its old text. It stands for one of
        # the earlier choices; if one of them is gone, only those with known texts can be told apart.
        picked = [value for value in st.session_state[field] if value in values]
        before = [value for value in here if value not in picked]
        renamed = len(st.session_state[field]) - len(picked)
        chosen = before + picked if renamed and renamed >= len(before) else picked
        part = ",".join(quote(value, safe=" ") for value in chosen)
        url.put(**{shown.param: None if chosen == BY_DEFAULT.get(facet) else part or None})
        st.session_state[FILTERED] = True

    shared: dict[str, Any] = {"key": field, "on_change": url.durable(changed), "format_func": text}
    if shown.many:
        st.multiselect(safe.plain_label(shown.title), values, placeholder="all", **shared)
    else:
        st.pills(safe.plain_label(shown.title), values, selection_mode="multi", help=shown.help, wrap=True, **shared)


KEYS = "jka"
KEY, PLACE = "leaks.keys", "leaks.place"
SEVERITY = (
    "Severest first: by strength of the claim (full, partial, implied); then what is of another subject than the task; "
    "then by the share of judged messages that reveal it; then those with a quote that stands in a message; then by "
    "certainty of the label (adjudicated, a person, unanimous votes, a threshold); then those that all judges of the "
    "run claim in one message. What is equally severe takes turns over domains and people, first what is to be kept "
    "from most recipients. How sensitive a domain is plays no part, since the seeds do not say it."
)


@dataclass
class _Place:
    """The position that a session's presses led to. at: the latest example. target: the same, until the URL has it.
    problems: failed actions that were not shown yet."""

    at: str | None = None
    target: str | None = None
    problems: list[str] = field(default_factory=list)


def _place() -> _Place:
    place: _Place = st.session_state.setdefault(PLACE, _Place())
    return place


def current(browsed: Browsed, examples: Examples, ids: Sequence[str]) -> str | None:
    """Return the current example: the one that the URL names, else the first, moved by the keys and buttons pressed.
    The URL names it afterwards. None if it names a message but no attribute, or there is no example."""
    run = url.get("run") if browsed.every else next(iter(browsed.scopes))
    profile, context, attribute = (url.get_int(name) for name in ("profile", "context", "attribute"))
    somewhere = profile is not None and context is not None and run in browsed.scopes
    named = f"{run}.{attribute}.{context}" if somewhere and attribute is not None else None
    filtered = st.session_state.get(FILTERED, False)
    place, into = _place(), name()
    with presses.pending(KEY) as pending:
        # A target remains from a run that ended before the URL had it.
        moved = pending.led or place.target is not None
        at = place.target or (place.at if pending.led else None) or named
        if (filtered and at not in ids) or (at is None and not somewhere):
            at = next(iter(ids), None)
        for key in pending.keys:
            if key == "a":
                _star(browsed, examples, at, into, place)
            else:
                at = gallery.step(ids, at, 1 if key == "j" else -1) or at
        place.target = place.at = at
    row = examples.named([at]) if at is not None and at != named else None
    if row is not None and len(row):
        where = row.iloc[0]
        # The first example is a default, also after a filter, which was a step for Back already. Others are
        # pushed: fast keys end runs before a replaced address is sent.
        (url.put if moved or (named and not filtered) else url.replace)(
            run=str(where["run"]),
            profile=int(where["profile"]),
            context=int(where["context"]),
            attribute=int(where["attribute"]),
            sample=None,
            second=None,
        )
    st.session_state[FILTERED] = False
    if place.target == at:  # else a run that started meanwhile has moved on
        place.target = None
    return at


def _star(browsed: Browsed, examples: Examples, example: str | None, into: str, place: _Place) -> None:
    """Put the example into the basket of this name, or take it out. Touches nothing of Streamlit's: see
    presses.pending."""
    row = examples.named([] if example is None else [example])
    if row.empty:
        place.problems.append("Only leaks go into the basket, and this flow is not one.")
        return
    where = row.iloc[0]
    item = basket.item_of(
        browsed.scopes[str(where["run"])], int(where["profile"]), int(where["context"]), int(where["attribute"])
    )
    try:
        basket.change(browsed.flows.store, into, basket.toggled(item))
    except StoreError as problem:
        place.problems.append(f"The basket was not changed: {problem}")


def draw_steps(flows: Flows, ids: Sequence[str], at: str | None, *, number_left: int) -> None:
    """Draw the position among the examples, and buttons that do what the keys do. number_left: how many examples the
    filters leave, which may be more than the ids."""
    number = None if at is None or at not in ids else list(ids).index(at) + 1
    with st.container(horizontal=True, vertical_alignment="center", key="leaks_steps"):
        text = f"{count(number)} of {count(number_left)}" if number else count(number_left, "example")
        order = tag("span", "severest first", cls="ci-muted")
        safe.show(tag("div", tag("b", text), tag("div", order), title=SEVERITY))
        _button("Previous", ":material/chevron_left:", "k", disabled=number in (None, 1))
        _button("Next", ":material/chevron_right:", "j", disabled=not ids or number == len(ids))
        try:
            inside = any(item.id == at for item in basket.items(flows.store, name()))
        except StoreError:
            inside = False  # the basket itself says what is wrong with it
        label, icon = ("In basket", ":material/star:") if inside else ("To basket", ":material/star_border:")
        _button(label, icon, "a", disabled=at is None, primary=inside)


def draw_keys() -> None:
    """Draw the keys, and what went wrong with the last ones."""
    place = _place()
    for problem in place.problems[:]:
        page.notice(problem)
        place.problems.remove(problem)
    presses.draw(KEYS, key=KEY)


def _button(label: str, icon: str, key: str, *, disabled: bool, primary: bool = False) -> None:
    st.button(
        safe.plain_label(label),
        icon=icon,
        key=f"leaks.press.{key}" if key == "a" else f"show.leaks.press.{key}",
        disabled=disabled,
        type="primary" if primary else "secondary",
        help=f"{label} ({key})",
        on_click=url.durable(presses.press),
        args=(KEY, key),
    )


def listed(shown: pd.DataFrame, number_left: int, browsed: Browsed, at: str | None) -> None:
    """Draw the list of the examples, folded; a click leads to one. number_left: how many the filters leave."""
    more = number_left > len(shown)
    page.fold(
        f"The {count(len(shown))} severest as a list" if more else "All examples as a list",
        ":material/list:",
        "leaks.box.list",
        lambda: _list(shown, browsed, at),
    )
    if more:
        safe.inline(
            f"Of {count(number_left)} examples that the filters leave, the {count(len(shown))} severest are shown. "
            "Filter further to see others; on the command line, cimemories leaks RUN --top 0 --json writes them all.",
            muted=True,
        )


def _list(shown: pd.DataFrame, browsed: Browsed, at: str | None) -> None:
    ids = shown["id"].tolist()
    frame = shown.assign(source=[browsed.scopes[run].run.name for run in shown["run"].astype(str)])
    frame.index = pd.Index(ids)
    columns = question.LISTED | ({"source": Column("text", "Run")} if browsed.every else {})
    position = ids.index(at) if at in ids else None
    picked = answers.twin(
        Table(frame[list(columns)], columns, "Leaks that the filters leave, the severest first"),
        "leaks.list",
        on_select="row",
        selected=position,
        height=250,
    )
    if picked is not None and picked != position:
        _place().target = ids[picked]
        st.rerun()
