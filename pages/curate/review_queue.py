"""Part of the Review page: the queue. One pair at a time, decided by keys that the browser answers (ui.workbench)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import streamlit as st

from cimemories.curation.consensus import LABELS
from cimemories.model import Label
from cimemories.review.index import Facet, PairIndex, Positions, pair_index
from cimemories.review.queue import UNLABELLED_NAME, Filters, Item, Order, items, open_to, select
from cimemories.store import audits, decisions, reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import Said
from cimemories.store.engine import Connection, Store, StoreError, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Mark, MarkKind, Plan
from cimemories.text import percent
from cimemories.ui import page, safe, url, workbench
from cimemories.ui.safe import tag
from cimemories.ui.workbench import Card, Event, Key
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import decision_row
from pages.curate.profile_view import spoken, words
from pages.start import failure

# ---- review filters
#
# Part of the Review page: which pairs come, in what order, who sees them; all of it in the URL, or under a name.


ORDERS = {
    Order.EFFECT: "effect on results",
    Order.ENTROPY: "divided votes first",
    Order.CONTEXT: "one recipient at a time",
    Order.ATTRIBUTE: "one attribute at a time",
    Order.RANDOM: "at random",
}
LABEL_OPTIONS = (*map(str, Label), UNLABELLED_NAME)
YES_NO = {"yes": True, "no": False}
PARAMETERS = (
    *("profile", "domain", "event", "sphere", "label", "dissenter", "undecided", "others", "revealed", "flagged"),
    *("slice", "order", "seed", "blind"),
)


def draw_filters(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> tuple[Filters, Order, int]:
    """The filters and the order that the URL asks for, with the controls that change them."""
    first, second, third, fourth, fifth = st.columns([3, 3, 3, 3, 3], vertical_alignment="bottom")
    with first:
        # A slice that is left half done is a sample still only where its pairs came at random.
        first_order = Order.RANDOM if url.get("slice") else Order.EFFECT
        orders = [str(o) for o in sorted(Order, key=lambda o: o is not first_order)]
        order = choice("Order", "order", orders, lambda o: ORDERS[Order(o)], None)
    names = index.shape.names
    with second:
        domain = choice("Domain", "domain", sorted(names[Facet.DOMAIN]), words, "all domains")
    with third:
        label = choice("Current label", "label", list(LABEL_OPTIONS), _label, "all labels")
    with fourth:
        undecided = choice("Decided", "undecided", ["no"], lambda _: "by me too", "not by me yet")
    with fifth, st.popover("More filters, views, overlap", icon=":material/tune:", width="stretch"):
        event = choice("Event", "event", sorted(names[Facet.EVENT]), words, "all events")
        spheres = sorted(name for name in names[Facet.SPHERE] if name)
        sphere = choice("Sphere", "sphere", spheres, words, "all spheres")
        profile = _profile(index)
        dissenter = None
        if index.rule is not None:
            dissenter = choice("Dissenting persona", "dissenter", list(index.rule.keys), str, "any or none")
        others = choice("Decided differently by others", "others", ["yes"], str, "does not matter")
        revealed = choice("Revealed in a recorded run", "revealed", list(YES_NO), str, "does not matter")
        flagged = choice("Flagged as a bad item", "flagged", list(YES_NO), str, "does not matter")
        chosen_slice = _slice(store, dataset)
        _views(store, me)
        _overlap(store, dataset, me)
    filters = Filters(
        profile=profile,
        domain=domain,
        event=event,
        sphere=sphere,
        labels=(label,) if label else (),
        dissenter=dissenter,
        undecided_by=me if undecided is None else None,
        others_differ_from=me if others else None,
        revealed=YES_NO[revealed] if revealed else None,
        flagged=YES_NO[flagged] if flagged else None,
        slice=chosen_slice,
    )
    return filters, Order(order or first_order), url.get_int("seed") or 0


def _label(name: str) -> str:
    return "not labelled" if name == UNLABELLED_NAME else safe.glyphed(Label(name))


def _profile(index: PairIndex) -> int | None:
    ids = [str(i) for i in index.shape.profile_ids.tolist()]
    named = dict(zip(ids, index.shape.names[Facet.PROFILE], strict=True))
    chosen = choice("Profile", "profile", ids, lambda i: named[i], "all profiles")
    return None if chosen is None else int(chosen)


def _slice(store: Store, dataset: DatasetRow) -> int | None:
    with store.read() as connection:
        drawn = {str(row.id): row for row in audits.all_slices(connection, dataset.id, "labels")}
    chosen = choice("Audit slice", "slice", list(drawn), lambda i: f"{drawn[i].name} ({drawn[i].items})", "none")
    return None if chosen is None else int(chosen)


def _views(store: Store, me: str) -> None:
    safe.heading("Saved views")
    with store.read() as connection:
        views = reviews.views_of_page(connection, "review")
    for view in views:
        known = {name: value for name, value in view.query.items() if name in url.PARAMETERS}
        url.page_link("review", safe.plain_label(view.name), icon=":material/bookmark:", **known)
    with st.form("review.view", border=False, clear_on_submit=True):
        name = st.text_input("Name of this view", max_chars=reviews.LONGEST_VIEW_NAME)
        if st.form_submit_button("Save this view", icon=":material/bookmark_add:"):
            query = {p: v for p in ("dataset", "labelling", *PARAMETERS) if (v := url.get(p)) is not None}
            try:
                with store.write() as connection:
                    reviews.save_view(connection, name, "review", query, me)
            except StoreError as problem:
                page.error("The view was not saved.", str(problem))
            else:
                st.rerun()


def _overlap(store: Store, dataset: DatasetRow, me: str) -> None:
    safe.heading("Overlap")
    with store.read() as connection:
        now = reviews.overlap_plan(connection, dataset.id)
    safe.inline(f"{percent(now.share)} of the pairs are given to {now.people} people, the others to one.", muted=True)
    with st.form("review.overlap", border=False):
        wanted = st.number_input("Share of pairs given to several people, in %", 0, 100, round(100 * now.share))
        people = st.number_input("How many people see those", 2, 20, max(2, now.people))
        if st.form_submit_button("Set overlap", icon=":material/group:"):
            with store.write() as connection:
                reviews.set_overlap_plan(connection, dataset.id, Plan(wanted / 100, int(people), now.seed), me)
            st.rerun()


# ---- review recording
#
# Part of the Review page: what was said in the queue becomes events of the record, each once.


Pair = tuple[int, int]
LABEL_TEXTS = frozenset(map(str, Label))


def pair_of(card: str) -> Pair | None:
    """The (attribute id, context id) that a card is about; None where its id names none."""
    first, _, second = card.partition(".")
    return (int(first), int(second)) if _is_id(first) and _is_id(second) else None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def card_id(pair: Pair) -> str:
    """What a card of the queue is known by."""
    return f"{pair[0]}.{pair[1]}"


@dataclass(frozen=True)
class Recorded:
    """back: the pair that an undo of something said before the page was opened leads back to. new: decisions that the
    record did not have. gone: uids of events that the record cannot hold: their pair was taken away by an edit or a
    deletion."""

    back: Pair | None
    new: int
    gone: frozenset[str]


def record(store: Store, dataset_id: int, annotator: str, events: Sequence[Event]) -> Recorded:
    """Record events of one person and dataset in their order, in one transaction, each once however often it comes.

    Raises StoreError where nothing could be written: then nothing was, and the browser still holds all of it.
    """
    back: Pair | None = None
    new = 0
    gone: set[str] = set()
    with store.write() as connection:
        there = decisions.still_there(
            connection, dataset_id, {pair for event in events if (pair := pair_of(event.card)) is not None}
        )
        waiting: list[Said] = []
        # Kept with the first decision that names it, so that a later release cannot change what people went by.
        guideline = reviews.keep_guideline(connection).hash
        for event in events:
            pair = pair_of(event.card)
            if pair is not None and pair not in there:
                gone.add(event.uid)
            elif event.kind == "say":
                if pair is not None and event.says in LABEL_TEXTS:
                    waiting.append(_said(pair, event, guideline))
                else:
                    gone.add(event.uid)
            else:
                new += decisions.add_all(connection, dataset_id, annotator, waiting)
                waiting = []
                if event.kind == "undo":
                    back = _undo(connection, dataset_id, annotator, event) or back
                elif pair is not None:
                    _other(connection, dataset_id, annotator, pair, event)
        new += decisions.add_all(connection, dataset_id, annotator, waiting)
    return Recorded(back, new, frozenset(gone))


def _said(pair: Pair, event: Event, guideline: str) -> Said:
    return Said(
        *pair,
        Label(event.says or ""),
        uid=event.uid,
        seconds=event.seconds,
        source="queue",
        blind=event.blind,
        guideline=guideline,
    )


def _other(connection: Connection, dataset_id: int, annotator: str, pair: Pair, event: Event) -> None:
    if event.kind == "comment":
        reviews.add_comment(connection, dataset_id, annotator, *pair, event.text, event.uid)
    else:
        mark = Mark(*pair, MarkKind(event.kind), uid=event.uid, seconds=event.seconds)
        reviews.add_marks(connection, dataset_id, annotator, [mark])


def _undo(connection: Connection, dataset_id: int, annotator: str, event: Event) -> Pair | None:
    if event.of is not None:
        if not decisions.undo(connection, dataset_id, annotator, event.of, event.uid):
            reviews.take_back_mark(connection, dataset_id, annotator, event.of, event.uid)
        return None
    if decisions.is_known(connection, dataset_id, event.uid):
        return None
    last = decisions.last_said(connection, dataset_id, annotator)
    if last is None or last.uid is None:
        return None
    decisions.undo(connection, dataset_id, annotator, last.uid, event.uid)
    return last.attribute, last.context


# ---- review queue


KEY = "review"
KEYS = (
    Key("n", "necessary", str(Label.NECESSARY), "N", safe.NECESSARY),
    Key("i", "inappropriate", str(Label.INAPPROPRIATE), "X", safe.INAPPROPRIATE),
    Key("u", "ambiguous", str(Label.AMBIGUOUS), "?", safe.AMBIGUOUS),
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
        guideline = reviews.current_guideline(connection)
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
        skipped = reviews.standing_marks(connection, dataset, MarkKind.SKIP, MarkKind.FLAG, annotator=work.me)
        plan = reviews.overlap_plan(connection, dataset)
    start = pair_of(str(st.session_state.get(_START) or ""))
    if start is not None and index.shape.locate([start[0]], [start[1]])[0] < 0:
        start = None
    count = max(LEAST_HELD, min(MOST_HELD, len(positions) // 4))
    free = open_to(work.store, index, positions, work.me, plan.people if plan.share else 1)
    wanted = (pair for pair in index.each(free) if pair not in skipped)
    with work.store.write(relaxed=True) as connection:
        if st.session_state.get(_QUEUE) != work.name:
            reviews.release_pairs(connection, session)  # what another filter had reserved is the others' again
        given = reviews.hand_out_pairs(connection, dataset, work.me, session, wanted, count, LEASE_SECONDS)
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
        notes = reviews.comments_of_pair(connection, *pair)
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
