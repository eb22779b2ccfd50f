"""The part of the Review page in which pairs are decided one at a time, by keys that the browser answers
(ui.workbench), in batches of a hundred.

Which pairs come, in what order, and who sees them is all in the URL, or saved under a name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import streamlit as st

from cimemories.metrics.label_uncertainty import WIDTH
from cimemories.model import Label
from cimemories.review import queue
from cimemories.review.assignments import assignment_of, overlap_of
from cimemories.review.index import DatasetGone, Facet, PairIndex, Positions, pair_index
from cimemories.review.queue import (
    UNLABELLED_NAME,
    Filters,
    Item,
    Order,
    Pair,
    items,
    open_to,
    question,
    select,
    undecided,
)
from cimemories.review.random_share import SHARE
from cimemories.review.recording import card_id, pair_of, record
from cimemories.review.sampling import label_slices
from cimemories.review.status import guidelines, pair_history, sitting
from cimemories.review.value import MOST_RUNS, Aim, Target, Valued, candidates, lacking, run_name, value_without, valued
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Guideline
from cimemories.text import exact_percent, listed
from cimemories.ui import once, page, safe, url, workbench
from cimemories.ui.workbench import Card, Event
from pages.curate import review_bulk
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import DECIDING, decision_row
from pages.curate.profile_view import display_name, spoken
from pages.start import failure

ORDERS = {
    Order.VALUE: "most informative first",
    Order.ENTROPY_RATE: "entropy × reveal rate",
    Order.ENTROPY: "divided votes first",
    Order.CONTEXT: "one recipient at a time",
    Order.ATTRIBUTE: "one attribute at a time",
    Order.RANDOM: "random",
}
TARGETS = {
    Target.VIOLATION: "violation",
    Target.COMPLETENESS: "completeness",
    Target.ORDER: "the order of models",
}
LABEL_OPTIONS = (*map(str, Label), UNLABELLED_NAME)
YES_NO = {"yes": True, "no": False}
PARAMETERS = (
    *("profile", "domain", "event", "sphere", "label", "dissenter", "undecided", "others", "revealed", "flagged"),
    *("slice", "order", "seed", "blind", "target", "run", "runs", "width", "share", "batch"),
)
KEY = "review"
ACTIONS = "szkjfceb?"
# In the words of seeds/guideline.md.
DEFINITIONS = {
    Label.NECESSARY: "Without it the task fails, or the recipient has to come back and ask for it.",
    Label.INAPPROPRIATE: "The person would not want this recipient to learn it in this way.",
    Label.AMBIGUOUS: "Sensible people differ, and would still differ after talking about it.",
}
BATCH = 100
COMING = "Loading pairs …"
NOT_OF_ALL = (
    "The random share is drawn from these pairs alone. For all pairs it speaks only without filters and with seed 0."
)
NOTHING_LEFT = "No pairs left for you here. Change the filters, or open Agreement."
_HISTORY = "review.box.history"
_START, _QUEUE = "review.start", "review.queue"
_SUMMARY, _ASKED = "review.summary", "review.spread.asked"


@dataclass(frozen=True)
class Ordering:
    """In which order pairs come. aim, share: of Order.VALUE; width: the half-width of the label uncertainty that is
    wanted, as a share. batch: how many pairs are a batch."""

    order: Order
    seed: int
    aim: Aim
    share: float
    width: float
    batch: int = BATCH

    def valued(self, store: Store, index: PairIndex) -> Valued | None:
        """The values to order by; None where the order needs none, or there are none."""
        return valued(store, index, self.aim) if self.order is Order.VALUE else None

    def select(self, store: Store, index: PairIndex, filters: Filters, value: Valued | None) -> Positions:
        return select(store, index, filters, self.order, self.seed, value=value, share=self.share)


def draw_filters(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> tuple[Filters, Ordering]:
    """The filters and the order of the URL, with the controls that change them."""
    names = index.shape.names
    # A slice that is left half done is still a sample only where its pairs came at random.
    first_order = Order.RANDOM if url.get("slice") else Order.VALUE
    orders = [str(o) for o in sorted(Order, key=lambda o: o is not first_order)]
    left, right = st.columns(2)
    with left:
        order = choice("Order", "order", orders, lambda o: ORDERS[Order(o)], None)
        domain = choice("Domain", "domain", sorted(names[Facet.DOMAIN]), display_name, "all domains")
    with right:
        label = choice("Current label", "label", list(LABEL_OPTIONS), _label, "all labels")
        undecided_only = choice("Pairs", "undecided", ["no"], lambda _: "all", "not decided by me")
    ordering = _ordering(store, dataset, Order(order or first_order))
    left, right = st.columns(2)
    with left:
        event = choice("Event", "event", sorted(names[Facet.EVENT]), display_name, "all events")
        spheres = sorted(name for name in names[Facet.SPHERE] if name)
        sphere = choice("Sphere", "sphere", spheres, display_name, "all spheres")
    with right:
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
    return filters, ordering


def _ordering(store: Store, dataset: DatasetRow, order: Order) -> Ordering:
    """The order with what it is for: its controls are there where it is by value."""
    aim, share, width = Aim(), SHARE, WIDTH
    if order is Order.VALUE:
        safe.heading("Most informative first")
        targets = [str(item) for item in Target]
        target = Target(choice("Make surer", "target", targets, lambda t: TARGETS[Target(t)], None) or targets[0])
        rows = candidates(store, dataset.id)
        names = {row.id: run_name(row, rows) for row in rows}
        if target == Target.ORDER:
            runs = page.runs(names, "filters.runs", "all judged runs", most=MOST_RUNS)
        else:
            run = choice("For run", "run", list(names), names.__getitem__, "the newest judged run")
            runs = [run] if run else []
        aim = Aim(target, tuple(runs))
        width = page.number("Wanted label uncertainty, ± points", "width", 100 * WIDTH, 0.1, 10.0, 0.1) / 100
        share = page.number("Drawn at random, in %", "share", 100 * SHARE, 0.0, 100.0, 5.0) / 100
    batch = round(page.number("Pairs per batch", "batch", BATCH, 10, 1000, 10))
    return Ordering(order, url.get_int("seed") or 0, aim, share, width, batch)


def _label(name: str) -> str:
    return "not labelled" if name == UNLABELLED_NAME else safe.glyphed(Label(name))


def _views(store: Store, me: str) -> None:
    safe.heading("Saved views")
    for view in queue.saved_views(store):
        known = {name: value for name, value in view.query.items() if name in url.PARAMETERS}
        url.page_link("review", safe.plain_label(view.name), icon=":material/bookmark:", **known)
    with st.form("review.view", border=False, clear_on_submit=True):
        name = st.text_input("Name of this view", max_chars=reviews.LONGEST_VIEW_NAME)
        query = {p: v for p in ("dataset", "labelling", *PARAMETERS) if (v := url.get(p)) is not None}
        with page.Reporting("The view was not saved.", StoreError):
            once.button(
                "Save this view",
                lambda: queue.save_view(store, name, query, me),
                key="review.view.save",
                submits=True,
                icon=":material/bookmark_add:",
            )


@dataclass(frozen=True)
class Work:
    """Which queue it is: whose, of what, filtered and ordered how."""

    store: Store
    dataset: DatasetRow
    labelling: LabellingRow | None
    filters: Filters
    ordering: Ordering
    me: str

    @property
    def name(self) -> str:
        """What the queue is known by: another filter or order is another queue."""
        labelled = self.labelling.id if self.labelling else None
        by = self.ordering
        named: list[object] = [self.owner, labelled, vars(self.filters), by.order, by.seed]
        # Values move while people decide, and leave the queue what it is.
        return content_hash([*named, by.aim.target, by.aim.runs, by.share] if by.order is Order.VALUE else named)

    @property
    def owner(self) -> str:
        """Who works on what. SQLite gives ids of deleted datasets out again, and a port serves many workspaces."""
        where = [str(self.store.engine.url), str(self.store.workspace.absolute())]
        return content_hash([*where, self.dataset.id, self.dataset.created, self.me])


def context_line(store: Store, dataset: DatasetRow, filters: Filters, ordering: Ordering | None = None) -> str:
    """What is in the queue: 'demo (simulated), health, ambiguous, most informative first'."""
    slices = {row.id: f"slice {row.name}" for row in label_slices(store, dataset.id)} if filters.slice else {}
    parts = [
        f"{dataset.name} (simulated)" if dataset.simulated else dataset.name,
        slices.get(filters.slice or 0),
        *(display_name(name) if name else None for name in (filters.domain, filters.event, filters.sphere)),
        "one profile" if filters.profile else None,
        *("not labelled" if name == UNLABELLED_NAME else name for name in filters.labels),
        f"{filters.dissenter} dissents" if filters.dissenter else None,
        "decided differently by others" if filters.others_differ_from else None,
        None if filters.revealed is None else "revealed in a run" if filters.revealed else "not revealed in a run",
        None if filters.flagged is None else "flagged" if filters.flagged else "not flagged",
        None if filters.undecided_by else "decided ones too",
        ORDERS[ordering.order] if ordering else None,
    ]
    return ", ".join(part for part in parts if part)


@st.fragment
def draw(work: Work) -> None:
    """The queue with what belongs to the pair in it. A fragment: it runs again at each message of the browser, while
    the rest of the page stays as it was drawn."""
    # There with or without a message, so that the queue below keeps its position: Streamlit would reset it otherwise.
    above = st.container()
    if work.store.read_only:
        page.notice("This workspace is read-only, so nothing can be decided here. Copy it to a writable folder.")
        return
    with failure.collecting(KEY, above):
        workbench.set_owner(KEY, work.owner, (work.dataset.id, work.me))
        with above:
            review_bulk.draw_notice()
            _record(work.store)
        try:
            _queue(work)
        except DatasetGone:  # unlike what else may fail here it does not pass, and no answer can be kept for later
            page.error(
                "This dataset was deleted.",
                "Somebody has deleted it since you opened it, so nothing more can be decided here.",
                "Reload the page for the datasets that are left.",
            )


def _queue(work: Work) -> None:
    store, dataset = work.store, work.dataset
    index = pair_index(store, dataset.id, work.labelling.id if work.labelling else None)
    if st.session_state.get(review_bulk.SPREAD):
        _spread(work, index)
        return
    value = work.ordering.valued(store, index)
    positions = work.ordering.select(store, index, work.filters, value)
    every = select(store, index, replace(work.filters, undecided_by=None), Order.ATTRIBUTE)
    pairs = _next_pairs(work, index, positions)
    blind = _blind()
    shown = items(store, index, index.shape.locate([a for a, _ in pairs], [c for _, c in pairs])) if pairs else []
    # Pairs are reserved under the name of the browser's tab, which its first message brings.
    waiting = workbench.place(KEY) is None
    left = undecided(store, index, every, work.me)
    done = len(every) - len(left)
    assigned = assignment_of(store, work.filters.slice)
    plan = overlap_of(assigned)
    if assigned is not None and plan is not None:
        # Of pairs with overlap only as many as are this person's part, and as others have left.
        left = open_to(store, index, left, work.me, plan.people)[: max(0, assigned.share - done)]
    # A slice is one assigned set, however large; else the work comes in batches.
    batch = 0 if work.filters.slice else work.ordering.batch
    summary = _summary(work, index) if batch and workbench.batch(KEY) >= batch else []
    desk, rail = workbench.desk()
    with desk:
        workbench.draw(
            [card(item) for item in shown],
            key=KEY,
            session=work.name,
            owner=work.owner,
            keys=DECIDING,
            actions=ACTIONS,
            blind=blind,
            done=done,
            total=done + len(left),
            start=st.session_state.get(_START),
            address=("attribute", "context"),
            watch=bool(st.session_state.get(_HISTORY)),
            empty=COMING if waiting else NOTHING_LEFT,
            hiding="Votes, consensus and past leaks show after your answer.",
            context=context_line(store, dataset, work.filters, work.ordering),
            batch=batch,
            summary=summary,
        )
    with rail:
        draw_definitions(store)
        page.fold("History and comments", ":material/history:", _HISTORY, lambda: _history(work, blind))
        if work.ordering.order is Order.VALUE:
            _sureness(value, work.ordering)
            narrowed = replace(work.filters, undecided_by=None) != Filters()
            if work.ordering.share and (narrowed or work.ordering.seed):
                safe.inline(NOT_OF_ALL, muted=True)
        if summary:
            effect = "See what all decisions do to a run"
            url.page_link("review", effect, icon=":material/trending_up:", dataset=dataset.id, tab="agreement")


def draw_definitions(store: Store) -> None:
    """What the labels mean, beside the card, and the guideline."""
    page.definitions((safe.label_chip(label), text) for label, text in DEFINITIONS.items())
    page.fold("Guideline", ":material/menu_book:", "review.box.norms", lambda: _guideline(guidelines(store)[-1]))


def _spread(work: Work, index: PairIndex) -> None:
    """In the place of the queue: the pairs to which the last decision could be spread."""
    # At the top, since the list of proposals is long.
    st.button(
        "Back to the queue",
        key="review.spread.back",
        icon=":material/arrow_back:",
        on_click=url.durable(lambda: st.session_state.pop(review_bulk.SPREAD, None)),
    )
    safe.heading("Spread your last decision")
    review_bulk.spread(work.store, work.dataset, work.labelling, index, work.me)


def _summary(work: Work, index: PairIndex) -> list[str]:
    """What the batch that has just ended did to labels and results, and how much is left."""
    last = sitting(work.store, index, work.me, workbench.batch(KEY))
    key = work.name, last.decisions, last.newest
    kept: tuple[object, list[str]] = st.session_state.get(_SUMMARY, (None, []))
    if kept[0] == key:  # made once a batch: it computes the values anew
        return kept[1]
    lines = [
        f"{last.settled} of your last {last.decisions} decisions settle an ambiguous pair, {last.against} go against "
        "the consensus."
    ]
    now = valued(work.store, index, work.ordering.aim, batch=1)
    before = value_without(work.store, index, work.ordering.aim, last.positions)
    if now is None or before is None:
        lines.append(lacking(work.ordering.aim))
    else:
        lines += [now.since_sentence(before), now.sentence(work.ordering.width)]
    st.session_state[_SUMMARY] = key, lines
    return lines


def _sureness(value: Valued | None, ordering: Ordering) -> None:
    """How sure the number is now, and how much is left to do."""
    if value is None:
        safe.inline(lacking(ordering.aim), muted=True)
        return
    safe.inline(value.sentence(ordering.width))
    safe.inline(value.beside, muted=True)


def _record(store: Store) -> None:
    """Record what came since the last time, for whom and of what it was decided.

    Raises StoreError where that cannot be done: nothing is confirmed then, so the browser keeps it.
    """
    if st.session_state.get(_START) in workbench.answered(KEY):
        # The address names the pair of the message before: who leaves right after an answer is not asked it again.
        st.session_state.pop(_START)

    def decided(owner: tuple[int, str], events: list[Event]) -> Collection[str]:
        spreads = {event.uid for event in events if event.kind == "spread"}
        # Once each: the queue is not drawn meanwhile, so the browser hears of no confirmation and sends it again.
        if spreads - st.session_state.setdefault(_ASKED, set()):
            st.session_state[_ASKED] |= spreads
            st.session_state[review_bulk.SPREAD] = True
        done = record(store, *owner, [event for event in events if event.kind != "spread"])
        if done.back is not None:
            st.session_state[_START] = card_id(done.back)
        return done.gone

    if gone := workbench.take(KEY, decided):
        answers = "answer was" if len(gone) == 1 else "answers were"
        page.notice(f"{len(gone)} {answers} not saved: an edit or a deletion has removed the pair.")
    here = pair_of(workbench.at(KEY) or "")
    if here is not None:
        url.written(attribute=here[0], context=here[1])


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
    assigned = assignment_of(work.store, work.filters.slice)
    if assigned is not None and work.me not in assigned.people:
        page.notice(f"This slice is assigned to {listed(assigned.people)}. You can look at it on Agreement.")
        return []
    plan = overlap_of(assigned)
    everybody = work.filters.slice is not None and plan is None
    reserved = queue.reserve(
        work.store, index, positions, work.me, session, release=changed, everybody=everybody, plan=plan
    )
    st.session_state[_QUEUE] = work.name
    return list(dict.fromkeys([*([start] if start else []), *reserved]))


def _blind() -> bool:
    """Whether votes are hidden until the answer: yes, unless the browser or the link says otherwise."""
    blind = workbench.blind(KEY)
    if blind is not None and blind != (url.get("blind") != "0"):
        url.put(blind=None if blind else 0)
    return url.get("blind") != "0"


def card(item: Item) -> Card:
    """A pair as it is decided."""
    event = "" if item.event == item.domain else f", {display_name(item.event)}"
    revealed = f"revealed in {item.reveals} of {item.draws} judged messages" if item.draws else ""
    people = f"decided by {item.decided} already" if item.decided else ""
    return Card(
        id=card_id((item.attribute, item.context)),
        title=item.statement,
        question=question(item.recipient, item.task),
        facts=[
            ("Attribute", f"{item.key}: {spoken(item.value)}"),
            ("Domain, event", f"{display_name(item.domain)}{event}"),
            ("Profile", item.user),
        ],
        hidden=[
            *((key, exact_percent(prior), letters) for key, prior, letters in item.votes),
            ("consensus", "", safe.glyphed(item.consensus) or "not labelled"),
            *([("in runs", "", "; ".join(filter(None, (revealed, people))))] if revealed or people else []),
        ],
    )


def _guideline(guideline: Guideline) -> None:
    safe.inline(f"Version {guideline.version}. Earlier versions are on the Guideline tab.", muted=True)
    safe.show(safe.document(guideline.text))


def _history(work: Work, blind: bool) -> None:
    pair = pair_of(workbench.at(KEY) or "")
    if pair is None:
        safe.inline(COMING, muted=True)
        return
    made, notes = pair_history(work.store, work.dataset.id, pair)
    hidden = blind and not any(d.annotator == work.me for d in made)
    nothing = "No decisions or comments on this pair yet."
    if not workbench.history(map(decision_row, reversed(made)), notes, hidden=hidden, nothing=nothing):
        return
    url.page_link(
        "labels",
        "Open on the Labels page",
        icon=":material/label:",
        dataset=work.dataset.id,
        attribute=pair[0],
        context=pair[1],
    )
