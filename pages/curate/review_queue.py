"""Part of the Review page: the queue. One pair at a time, decided by keys that the browser answers (ui.workbench)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

import streamlit as st

from cimemories.analysis.review_index import PairIndex, pair_index
from cimemories.analysis.review_items import Item, items
from cimemories.analysis.review_select import Filters, Order, open_to, select
from cimemories.analysis.review_shape import Positions
from cimemories.curation.consensus import LABELS
from cimemories.model import Label
from cimemories.store import claims, comments, decisions, guidelines, marks
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.ids import content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.marks import Kind
from cimemories.ui import page, safe, style, url, workbench
from cimemories.ui.safe import tag
from cimemories.ui.workbench import Card, Key
from pages.curate.pair_panel import decision_row
from pages.curate.profile_view import spoken, words
from pages.curate.review_recording import Pair, card_id, pair_of, record
from pages.start import failure

KEY = "review"
KEYS = (
    Key("n", "necessary", str(Label.NECESSARY), "N", style.NECESSARY),
    Key("i", "inappropriate", str(Label.INAPPROPRIATE), "X", style.INAPPROPRIATE),
    Key("u", "ambiguous", str(Label.AMBIGUOUS), "?", style.AMBIGUOUS),
)
# Pairs held by one browser: enough to press on for seconds while the server is away, few enough to leave for others.
MOST_HELD, LEAST_HELD = 60, 8
LEASE_SECONDS = 60.0
HUNDRED = 100
_HISTORY = "review.box.history"
COMING = "Getting your pairs …"
NOTHING_LEFT = "Nothing is left for you here: change the filters, or look at Agreement."
_START, _DECIDED = "review.start", "review.decided"
_SUMMARY, _QUEUE = "review.summary", "review.queue"


@dataclass(frozen=True)
class Work:
    """Which queue it is: whose, of what, filtered and ordered how."""

    store: Store
    dataset: DatasetRow
    labelling: LabellingRow | None
    filters: Filters
    order: Order
    seed: int
    me: str

    @property
    def name(self) -> str:
        """What the queue is known by: another filter or order is another queue."""
        labelled = self.labelling.id if self.labelling else None
        return content_hash([self.owner, labelled, vars(self.filters), self.order, self.seed])

    @property
    def owner(self) -> str:
        """Who works on what. SQLite gives ids of deleted datasets out again, and a port serves many workspaces."""
        where = [str(self.store.engine.url), str(self.store.workspace.absolute())]
        return content_hash([*where, self.dataset.id, self.dataset.created, self.me])


@st.fragment
def draw(work: Work) -> None:
    """The queue with what belongs to the pair in it; redrawn by itself at each word of the browser."""
    above = (
        st.container()
    )  # there with or without a message, so that the queue below keeps its position and is not reset
    if work.store.read_only:
        page.notice("Pairs cannot be decided in a read-only workspace. Copy it to a folder that can be written.")
        return
    try:
        workbench.own(KEY, work.owner, (work.dataset.id, work.me))
        with above:
            _record(work.store)
        _queue(work)
    except Exception as error:  # a full disk is no StoreError
        reason = failure.explanation(error)
        if reason is None:
            raise
        with above:
            workbench.not_saved(reason)
        workbench.redraw(KEY)


def _queue(work: Work) -> None:
    store, dataset = work.store, work.dataset
    with store.read() as connection:
        guideline = guidelines.current(connection)
    index = pair_index(store, dataset.id, work.labelling.id if work.labelling else None)
    positions = select(store, index, work.filters, work.order, work.seed)
    whole = replace(work.filters, undecided_by=None)
    total = len(select(store, index, whole, work.order, work.seed))
    pairs = _given(work, index, positions)
    blind = _blind()
    shown = items(store, index, index.shape.locate([a for a, _ in pairs], [c for _, c in pairs])) if pairs else []
    waiting = workbench.place(KEY) is None
    workbench.draw(
        [_card(item) for item in shown],
        key=KEY,
        session=work.name,
        owner=work.owner,
        keys=KEYS,
        blind=blind,
        done=total - len(positions),
        total=total,
        start=st.session_state.get(_START),
        watch=bool(st.session_state.get(_HISTORY)),
        empty=COMING if waiting else NOTHING_LEFT,
    )
    _hundred(store, dataset, index, work.me)
    _beside(store, dataset, guideline.text, guideline.version, blind)


def _hundred(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> None:
    """After each hundred of a sitting: what they do to the labels, and the way to what they do to results."""
    reached = st.session_state.get(_DECIDED, 0) // HUNDRED
    if reached < 1:
        return
    if st.session_state.get(_SUMMARY, (0, ""))[0] != reached:
        with store.read() as connection:
            mine = [d for d in decisions.history(connection, dataset.id) if d.annotator == me]
        last = sorted(decisions.standing(mine).values(), key=lambda d: d.created)[-HUNDRED:]
        places = index.shape.locate([d.attribute for d in last], [d.context for d in last])
        before = [LABELS.get(code) for code in index.consensus[places].tolist()]
        settled = sum(was is Label.AMBIGUOUS and d.label is not was for was, d in zip(before, last, strict=True))
        against = sum(
            was in (Label.NECESSARY, Label.INAPPROPRIATE) and d.label is not was
            for was, d in zip(before, last, strict=True)
        )
        words = (
            f"{reached * HUNDRED} decided in this sitting. Of the last {len(last)}, {settled} settle an ambiguous pair "
            f"and {against} go against the consensus."
        )
        st.session_state[_SUMMARY] = (reached, words)
    page.notice(st.session_state[_SUMMARY][1])
    url.page_link(
        "review", "What they change in the results", icon=":material/trending_up:", dataset=dataset.id, tab="agreement"
    )


def _record(store: Store) -> None:
    """Write down what was said since the last time, for whom and of what it was said.

    Raises StoreError where that cannot be done: nothing is confirmed then, so the browser keeps it.
    """
    if st.session_state.get(_START) in workbench.answered(KEY):
        # The address names the pair of the message before: who leaves right after an answer is not asked it again.
        st.session_state.pop(_START)
    recorded: set[str] = set()
    gone: set[str] = set()
    for whose, group in groupby(workbench.heard(KEY), key=lambda event: workbench.owner(KEY, event)):
        if whose is None:
            continue
        dataset_id, annotator = whose
        events = list(group)
        done = record(store, dataset_id, annotator, events)
        recorded |= {event.uid for event in events} - done.gone
        gone |= done.gone
        st.session_state[_DECIDED] = st.session_state.get(_DECIDED, 0) + done.new
        if done.back is not None:
            st.session_state[_START] = card_id(done.back)
    workbench.confirm(KEY, recorded, gone)
    if gone:
        page.notice(
            f"{len(gone)} of your last answers were about pairs that an edit has taken away; they are not kept."
        )
    here = pair_of(workbench.at(KEY) or "")
    if here is not None:
        url.put(attribute=here[0], context=here[1])


def _given(work: Work, index: PairIndex, positions: Positions) -> list[Pair]:
    """The pairs that come next for this browser, reserved for it; first the one that the link or an undo asks for."""
    session, dataset = workbench.place(KEY), work.dataset.id
    if session is None:
        first = url.get_int("attribute"), url.get_int("context")
        if first[0] is not None and first[1] is not None:
            st.session_state[_START] = card_id((first[0], first[1]))
        return []
    if st.session_state.get(_QUEUE) not in (None, work.name):
        st.session_state.pop(_START, None)  # where to begin was said of the queue before
    with work.store.read() as connection:
        skipped = marks.standing(connection, dataset, Kind.SKIP, Kind.FLAG, annotator=work.me)
        plan = claims.plan(connection, dataset)
    start = pair_of(str(st.session_state.get(_START) or ""))
    if start is not None and index.shape.locate([start[0]], [start[1]])[0] < 0:
        start = None
    count = max(LEAST_HELD, min(MOST_HELD, len(positions) // 4))
    free = open_to(work.store, index, positions, work.me, plan.people if plan.share else 1)
    wanted = (pair for pair in index.each(free) if pair not in skipped)
    with work.store.write(relaxed=True) as connection:
        if st.session_state.get(_QUEUE) != work.name:
            claims.release(connection, session)  # what another filter had reserved is the others' again
        given = claims.hand_out(connection, dataset, work.me, session, wanted, count, LEASE_SECONDS)
    st.session_state[_QUEUE] = work.name
    return list(dict.fromkeys([*([start] if start else []), *given]))


def _blind() -> bool:
    """Whether votes are hidden: as the browser said last, else as the link says; an audit slice begins blind."""
    in_slice = url.get("slice") is not None
    said = workbench.blind(KEY)
    if said is not None:
        url.put(blind=int(said) if said or in_slice else None)
    return url.get("blind") == "1" or (in_slice and url.get("blind") is None)


def _card(item: Item) -> Card:
    event = "" if item.event == item.domain else f", {words(item.event)}"
    revealed = f"revealed in {item.reveals} of {item.draws} judged messages" if item.draws else ""
    people = f"decided by {item.decided} already" if item.decided else ""
    return Card(
        id=card_id((item.attribute, item.context)),
        title=item.statement,
        facts=[
            ("Recipient", item.recipient, True),
            ("Task", item.task, True),
            ("Attribute", f"{item.key}: {spoken(item.value)}"),
            ("Domain, event", f"{words(item.domain)}{event}"),
            ("Profile", item.user),
        ],
        hidden=[
            *((key, f"{prior * 100:.0f} %", letters) for key, prior, letters in item.votes),
            ("consensus", "", safe.glyphed(item.consensus) or "not labelled"),
            *([("in runs", "", "; ".join(part for part in (revealed, people) if part))] if revealed or people else []),
        ],
    )


def _beside(store: Store, dataset: DatasetRow, guideline: str, version: int, blind: bool) -> None:
    left, right = st.columns(2)
    with left:
        page.fold("Guideline", ":material/menu_book:", "review.box.norms", lambda: _guideline(guideline, version))
    with right:
        page.fold(
            "History and comments of this pair",
            ":material/history:",
            _HISTORY,
            lambda: _history(store, dataset, blind),
        )


def _guideline(text: str, version: int) -> None:
    safe.inline(f"Version {version}. The Guideline tab has its history.", muted=True)
    safe.show(safe.document(text))


def _history(store: Store, dataset: DatasetRow, blind: bool) -> None:
    pair = pair_of(workbench.at(KEY) or "")
    if pair is None:
        safe.inline("Nothing yet: press j or k, or decide, and it is the pair on the screen.", muted=True)
        return
    with store.read() as connection:
        said = decisions.history(connection, dataset.id, [pair[0]], pair[1])
        notes = comments.of_pair(connection, *pair)
    if blind:
        page.notice("Hidden while you work blind: press b to see what others said.")
        return
    if not said and not notes:
        safe.inline("Nobody has said anything of this pair yet.", muted=True)
    rows = [decision_row(d) for d in reversed(said)]
    rows += [
        tag(
            "tr",
            tag("td", c.created[:16].replace("T", " ")),
            tag("td", c.annotator),
            tag("td", "resolved" if c.resolved_by else "comment"),
            tag("td", c.text),
        )
        for c in reversed(notes)
    ]
    if rows:
        safe.show(tag("table", tag("tbody", *rows), cls="ci-grid"))
    url.page_link(
        "labels",
        "Open it on the Labels page",
        icon=":material/label:",
        dataset=dataset.id,
        attribute=pair[0],
        context=pair[1],
    )
