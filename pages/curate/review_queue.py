"""Part of the Review page: the queue. One pair at a time, decided by keys that the browser answers (ui.workbench).

Which pairs come, in what order, and who sees them is all in the URL, or saved under a name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

import streamlit as st

from cimemories.model import Label
from cimemories.review import queue
from cimemories.review.index import Facet, PairIndex, Positions, pair_index
from cimemories.review.queue import UNLABELLED_NAME, Filters, Item, Order, Pair, items, select, undecided
from cimemories.review.recording import card_id, pair_of, record
from cimemories.review.sampling import label_slices
from cimemories.review.status import guidelines, pair_history, sitting
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Guideline, Plan
from cimemories.text import percent
from cimemories.ui import page, safe, url, workbench
from cimemories.ui.safe import tag
from cimemories.ui.workbench import Card, Key
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import decision_row
from pages.curate.profile_view import display_name, spoken
from pages.start import failure

ORDERS = {
    Order.EFFECT: "effect on results",
    Order.ENTROPY: "divided votes first",
    Order.CONTEXT: "one recipient at a time",
    Order.ATTRIBUTE: "one attribute at a time",
    Order.RANDOM: "random",
}
LABEL_OPTIONS = (*map(str, Label), UNLABELLED_NAME)
YES_NO = {"yes": True, "no": False}
PARAMETERS = (
    *("profile", "domain", "event", "sphere", "label", "dissenter", "undecided", "others", "revealed", "flagged"),
    *("slice", "order", "seed", "blind"),
)
KEY = "review"
KEYS = (
    Key("n", "necessary", str(Label.NECESSARY), "N", safe.NECESSARY),
    Key("i", "inappropriate", str(Label.INAPPROPRIATE), "X", safe.INAPPROPRIATE),
    Key("u", "ambiguous", str(Label.AMBIGUOUS), "?", safe.AMBIGUOUS),
)
HUNDRED = 100
COMING = "Loading pairs …"
NOTHING_LEFT = "No pairs left for you here. Change the filters, or open Agreement."
_HISTORY = "review.box.history"
_START, _DECIDED = "review.start", "review.decided"
_SUMMARY, _QUEUE = "review.summary", "review.queue"


def draw_filters(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> tuple[Filters, Order, int]:
    """The filters and the order of the URL, with the controls that change them."""
    first, second, third, fourth, fifth = st.columns([3, 3, 3, 3, 3], vertical_alignment="bottom")
    with first:
        # A slice that is left half done is still a sample only where its pairs came at random.
        first_order = Order.RANDOM if url.get("slice") else Order.EFFECT
        orders = [str(o) for o in sorted(Order, key=lambda o: o is not first_order)]
        order = choice("Order", "order", orders, lambda o: ORDERS[Order(o)], None)
    names = index.shape.names
    with second:
        domain = choice("Domain", "domain", sorted(names[Facet.DOMAIN]), display_name, "all domains")
    with third:
        label = choice("Current label", "label", list(LABEL_OPTIONS), _label, "all labels")
    with fourth:
        undecided_only = choice("Pairs", "undecided", ["no"], lambda _: "all", "not decided by me")
    with fifth, st.popover("More filters, views, overlap", icon=":material/tune:", width="stretch"):
        event = choice("Event", "event", sorted(names[Facet.EVENT]), display_name, "all events")
        spheres = sorted(name for name in names[Facet.SPHERE] if name)
        sphere = choice("Sphere", "sphere", spheres, display_name, "all spheres")
        profiles = {str(i): name for i, name in zip(index.shape.profile_ids, names[Facet.PROFILE], strict=True)}
        profile = choice("Profile", "profile", list(profiles), profiles.__getitem__, "all profiles")
        dissenter = None
        if index.rule is not None:
            dissenter = choice("Dissenting persona", "dissenter", list(index.rule.keys), str, "any or none")
        others = choice("Others decided differently", "others", ["yes"], str, "any")
        revealed = choice("Revealed in a recorded run", "revealed", list(YES_NO), str, "any")
        flagged = choice("Flagged as a bad item", "flagged", list(YES_NO), str, "any")
        slices = {str(row.id): f"{row.name} ({row.items})" for row in label_slices(store, dataset.id)}
        chosen_slice = choice("Audit slice", "slice", list(slices), slices.__getitem__, "none")
        _views(store, me)
        _overlap(store, dataset, me)
    filters = Filters(
        profile=int(profile) if profile else None,
        domain=domain,
        event=event,
        sphere=sphere,
        labels=(label,) if label else (),
        dissenter=dissenter,
        undecided_by=me if undecided_only is None else None,
        others_differ_from=me if others else None,
        revealed=YES_NO[revealed] if revealed else None,
        flagged=YES_NO[flagged] if flagged else None,
        slice=int(chosen_slice) if chosen_slice else None,
    )
    return filters, Order(order or first_order), url.get_int("seed") or 0


def _label(name: str) -> str:
    return "not labelled" if name == UNLABELLED_NAME else safe.glyphed(Label(name))


def _views(store: Store, me: str) -> None:
    safe.heading("Saved views")
    for view in queue.saved_views(store):
        known = {name: value for name, value in view.query.items() if name in url.PARAMETERS}
        url.page_link("review", safe.plain_label(view.name), icon=":material/bookmark:", **known)
    with st.form("review.view", border=False, clear_on_submit=True):
        name = st.text_input("Name of this view", max_chars=reviews.LONGEST_VIEW_NAME)
        if st.form_submit_button("Save this view", icon=":material/bookmark_add:"):
            query = {p: v for p in ("dataset", "labelling", *PARAMETERS) if (v := url.get(p)) is not None}
            try:
                queue.save_view(store, name, query, me)
            except StoreError as problem:
                page.error("The view was not saved.", str(problem))
            else:
                st.rerun()


def _overlap(store: Store, dataset: DatasetRow, me: str) -> None:
    safe.heading("Overlap")
    now = queue.overlap(store, dataset.id)
    safe.inline(f"{percent(now.share)} of the pairs go to {now.people} people, the others to one.", muted=True)
    with st.form("review.overlap", border=False):
        share = st.number_input("Share of pairs for several people, in %", 0, 100, round(100 * now.share))
        people = st.number_input("People per such pair", 2, 20, max(2, now.people))
        if st.form_submit_button("Set overlap", icon=":material/group:"):
            queue.set_overlap(store, dataset.id, Plan(share / 100, int(people), now.seed), me)
            st.rerun()


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
    """The queue with what belongs to the pair in it. A fragment: it runs again at each message of the browser, while
    the rest of the page stays as it was drawn."""
    # There with or without a message, so that the queue below keeps its position: Streamlit would reset it otherwise.
    above = st.container()
    if work.store.read_only:
        page.notice("This workspace is read-only, so nothing can be decided here. Copy it to a writable folder.")
        return
    try:
        workbench.set_owner(KEY, work.owner, (work.dataset.id, work.me))
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
    guideline = guidelines(store)[-1]
    index = pair_index(store, dataset.id, work.labelling.id if work.labelling else None)
    positions = select(store, index, work.filters, work.order, work.seed)
    every = select(store, index, replace(work.filters, undecided_by=None), work.order, work.seed)
    pairs = _next_pairs(work, index, positions)
    blind = _blind()
    shown = items(store, index, index.shape.locate([a for a, _ in pairs], [c for _, c in pairs])) if pairs else []
    # Pairs are reserved under the name of the browser's tab, which its first message brings.
    waiting = workbench.place(KEY) is None
    workbench.draw(
        [_card(item) for item in shown],
        key=KEY,
        session=work.name,
        owner=work.owner,
        keys=KEYS,
        blind=blind,
        done=len(every) - len(undecided(store, index, every, work.me)),
        total=len(every),
        start=st.session_state.get(_START),
        watch=bool(st.session_state.get(_HISTORY)),
        empty=COMING if waiting else NOTHING_LEFT,
    )
    _hundred(store, dataset, index, work.me)
    left, right = st.columns(2)
    with left:
        page.fold("Guideline", ":material/menu_book:", "review.box.norms", lambda: _guideline(guideline))
    with right:
        page.fold(
            "History and comments of this pair",
            ":material/history:",
            _HISTORY,
            lambda: _history(store, dataset, blind),
        )


def _hundred(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> None:
    """After each hundred of a sitting: what they do to the labels, and the way to what they do to results."""
    hundreds = st.session_state.get(_DECIDED, 0) // HUNDRED
    if hundreds < 1:
        return
    # Made once a hundred: this runs at each key, and reads every decision of the dataset.
    if st.session_state.get(_SUMMARY, (0, ""))[0] != hundreds:
        last = sitting(store, index, me, HUNDRED)
        text = (
            f"{hundreds * HUNDRED} decided in this sitting. Of the last {last.decisions}, {last.settled} settle an "
            f"ambiguous pair and {last.against} go against the consensus."
        )
        st.session_state[_SUMMARY] = (hundreds, text)
    page.notice(st.session_state[_SUMMARY][1])
    url.page_link(
        "review", "See their effect on results", icon=":material/trending_up:", dataset=dataset.id, tab="agreement"
    )


def _record(store: Store) -> None:
    """Record what came since the last time, for whom and of what it was decided.

    Raises StoreError where that cannot be done: nothing is confirmed then, so the browser keeps it.
    """
    if st.session_state.get(_START) in workbench.answered(KEY):
        # The address names the pair of the message before: who leaves right after an answer is not asked it again.
        st.session_state.pop(_START)
    recorded: set[str] = set()
    gone: set[str] = set()
    # Not sorted by owner: groupby joins neighbours only, so events are recorded in the order in which they were made.
    for owner, group in groupby(workbench.pending(KEY), key=lambda event: workbench.owner(KEY, event)):
        # Decided under a name that this session does not know: it waits in the browser for its owner.
        if owner is None:
            continue
        dataset_id, annotator = owner
        events = list(group)
        done = record(store, dataset_id, annotator, events)
        recorded |= {event.uid for event in events} - done.gone
        gone |= done.gone
        st.session_state[_DECIDED] = st.session_state.get(_DECIDED, 0) + done.new
        if done.back is not None:
            st.session_state[_START] = card_id(done.back)
    workbench.confirm(KEY, recorded, gone)
    if gone:
        answers = "answer was" if len(gone) == 1 else "answers were"
        page.notice(f"{len(gone)} {answers} not saved: an edit has removed the pair.")
    here = pair_of(workbench.at(KEY) or "")
    if here is not None:
        url.put(attribute=here[0], context=here[1])


def _next_pairs(work: Work, index: PairIndex, positions: Positions) -> list[Pair]:
    """The pairs that come next for this browser, reserved for it; first the one that the link or an undo names."""
    session = workbench.place(KEY)
    if session is None:
        first = url.get_int("attribute"), url.get_int("context")
        if first[0] is not None and first[1] is not None:
            st.session_state[_START] = card_id((first[0], first[1]))
        return []
    changed = st.session_state.get(_QUEUE) != work.name
    if changed and st.session_state.get(_QUEUE) is not None:
        st.session_state.pop(_START, None)  # it named where to begin in the queue before
    start = pair_of(str(st.session_state.get(_START) or ""))
    if start is not None and index.shape.locate([start[0]], [start[1]])[0] < 0:
        start = None
    # release: with another filter the pairs of the queue before are free for others.
    reserved = queue.reserve(work.store, index, positions, work.me, session, release=changed)
    st.session_state[_QUEUE] = work.name
    return list(dict.fromkeys([*([start] if start else []), *reserved]))


def _blind() -> bool:
    """Whether votes are hidden: as the browser said last, else as the link says; an audit slice begins blind."""
    in_slice = url.get("slice") is not None
    blind = workbench.blind(KEY)
    if blind is not None:
        url.put(blind=int(blind) if blind or in_slice else None)
    return url.get("blind") == "1" or (in_slice and url.get("blind") is None)


def _card(item: Item) -> Card:
    event = "" if item.event == item.domain else f", {display_name(item.event)}"
    revealed = f"revealed in {item.reveals} of {item.draws} judged messages" if item.draws else ""
    people = f"decided by {item.decided} already" if item.decided else ""
    return Card(
        id=card_id((item.attribute, item.context)),
        title=item.statement,
        facts=[
            ("Recipient", item.recipient, True),
            ("Task", item.task, True),
            ("Attribute", f"{item.key}: {spoken(item.value)}"),
            ("Domain, event", f"{display_name(item.domain)}{event}"),
            ("Profile", item.user),
        ],
        hidden=[
            *((key, f"{prior * 100:.0f} %", letters) for key, prior, letters in item.votes),
            ("consensus", "", safe.glyphed(item.consensus) or "not labelled"),
            *([("in runs", "", "; ".join(filter(None, (revealed, people))))] if revealed or people else []),
        ],
    )


def _guideline(guideline: Guideline) -> None:
    safe.inline(f"Version {guideline.version}. Earlier versions are on the Guideline tab.", muted=True)
    safe.show(safe.document(guideline.text))


def _history(store: Store, dataset: DatasetRow, blind: bool) -> None:
    pair = pair_of(workbench.at(KEY) or "")
    if pair is None:
        safe.inline("Press j or k, or decide: the pair on the screen is shown here.", muted=True)
        return
    if blind:
        page.notice("Hidden while you work blind. Press b to show it.")
        return
    made, notes = pair_history(store, dataset.id, pair)
    rows = [decision_row(d) for d in reversed(made)]
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
    else:
        safe.inline("No decisions or comments on this pair yet.", muted=True)
    url.page_link(
        "labels",
        "Open on the Labels page",
        icon=":material/label:",
        dataset=dataset.id,
        attribute=pair[0],
        context=pair[1],
    )
