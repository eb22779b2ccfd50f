"""Parts of the Review page in which pairs are decided: one at a time in the queue, by keys that the browser answers
(ui.workbench), or all that match at once, with batches undone and a decision spread further.

Which pairs come, in what order, and who sees them is all in the URL, or saved under a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pandas as pd
import streamlit as st

from cimemories.metrics.label_uncertainty import WIDTH
from cimemories.model import Label
from cimemories.review import queue
from cimemories.review.bulk import (
    Axis,
    Batch,
    LastDecision,
    Proposal,
    batches,
    decide_all,
    last_single,
    proposals,
    undo_batch,
)
from cimemories.review.index import Facet, Ints, PairIndex, Positions, pair_index
from cimemories.review.queue import UNLABELLED_NAME, Filters, Item, Order, Pair, items, sample, select, undecided
from cimemories.review.random_share import SHARE
from cimemories.review.recording import card_id, pair_of, record
from cimemories.review.sampling import label_slices
from cimemories.review.status import guidelines, pair_history, sitting
from cimemories.review.value import Aim, Target, Valued, candidates, lacking, run_name, valued
from cimemories.store import reviews
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.store.reviews import Guideline, Plan
from cimemories.text import count, percent
from cimemories.ui import annotator, page, safe, tables, url, workbench
from cimemories.ui.safe import tag
from cimemories.ui.workbench import Card, Key
from pages.curate.label_matrix import choice
from pages.curate.pair_panel import decision_row
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
    *("slice", "order", "seed", "blind", "target", "run", "width", "share"),
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


@dataclass(frozen=True)
class Ordering:
    """In which order pairs come. aim, share: of Order.VALUE; width: the half-width of the label uncertainty that is
    wanted, as a share."""

    order: Order
    seed: int
    aim: Aim
    share: float
    width: float

    def valued(self, store: Store, index: PairIndex) -> Valued | None:
        """The values to order by; None where the order needs none, or there are none."""
        return valued(store, index, self.aim) if self.order is Order.VALUE else None

    def select(self, store: Store, index: PairIndex, filters: Filters, value: Valued | None) -> Positions:
        return select(store, index, filters, self.order, self.seed, value=value, share=self.share)


def draw_filters(store: Store, dataset: DatasetRow, index: PairIndex, me: str) -> tuple[Filters, Ordering]:
    """The filters and the order of the URL, with the controls that change them."""
    first, second, third, fourth, fifth = st.columns([3, 3, 3, 3, 3], vertical_alignment="bottom")
    with first:
        # A slice that is left half done is still a sample only where its pairs came at random.
        first_order = Order.RANDOM if url.get("slice") else Order.VALUE
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
        ordering = _ordering(store, dataset, Order(order or first_order))
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
    return filters, ordering


def _ordering(store: Store, dataset: DatasetRow, order: Order) -> Ordering:
    """The order with what it is for: its controls are there where it is by value."""
    aim, share, width = Aim(), SHARE, WIDTH
    if order is Order.VALUE:
        safe.heading("Most informative first")
        targets = [str(item) for item in Target]
        target = Target(choice("Make surer", "target", targets, lambda t: TARGETS[Target(t)], None) or targets[0])
        run = None
        if target != Target.ORDER:
            rows = candidates(store, dataset.id)
            names = {row.id: run_name(row, rows) for row in rows}
            run = choice("For run", "run", list(names), names.__getitem__, "the newest judged run")
        aim = Aim(target, (run,) if run else ())
        width = _number("Wanted label uncertainty, ± points", "width", 100 * WIDTH, 0.1, 10.0, 0.1) / 100
        share = _number("Drawn at random, in %", "share", 100 * SHARE, 0.0, 100.0, 5.0) / 100
    return Ordering(order, url.get_int("seed") or 0, aim, share, width)


def _number(label: str, param: str, default: float, least: float, most: float, step: float) -> float:
    """A number of the URL with its control; what is none there, or lies outside, is the default."""
    try:
        value = float(url.get(param) or default)
    except ValueError:
        value = default
    value = value if least <= value <= most else default  # nan is in no range
    key = f"filters.{param}"
    st.session_state[key] = value

    def keep() -> None:
        number = st.session_state[key]
        url.put(**{param: None if number == default else f"{number:g}"})

    st.number_input(safe.plain_label(label), least, most, step=step, format="%g", key=key, on_change=keep)
    return value


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
            with page.Reporting("The view was not saved.", StoreError):
                queue.save_view(store, name, query, me)
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
    value = work.ordering.valued(store, index)
    positions = work.ordering.select(store, index, work.filters, value)
    every = select(store, index, replace(work.filters, undecided_by=None), Order.ATTRIBUTE)
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
    if work.ordering.order is Order.VALUE:
        _sureness(value, work.ordering)
    _hundred(store, dataset, index, work.me)
    left, right = st.columns(2)
    with left:
        page.fold("Guideline", ":material/menu_book:", "review.box.norms", lambda: _guideline(guideline))
    with right:
        page.fold(
            "History and comments of this pair", ":material/history:", _HISTORY, lambda: _history(store, dataset, blind)
        )


def _sureness(value: Valued | None, ordering: Ordering) -> None:
    """How sure the number is now, and how much is left to do."""
    if value is None:
        safe.inline(lacking(ordering.aim), muted=True)
        return
    safe.inline(value.sentence(ordering.width))
    safe.inline(value.beside, muted=True)


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
    for note in reversed(notes):
        kind = "resolved" if note.resolved_by else "comment"
        cells = (note.created[:16].replace("T", " "), note.annotator, kind, note.text)
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    if rows:
        safe.show(safe.grid((), rows))
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


# ---- many at once


PREVIEWED = 20
_BULK_NOTICE = "bulk.notice"
_SHUFFLES = "bulk.shuffles"
_SOURCES = {"batch": "all that matched", "proposal": "spread from one decision"}
_AXES = {Axis.CONTEXTS: "Similar contexts", Axis.ATTRIBUTES: "Same domain and event", Axis.PROFILES: "Other profiles"}


def draw_bulk(
    store: Store, dataset: DatasetRow, labelling: LabellingRow | None, index: PairIndex, positions: Ints
) -> str:
    """Draws the part for the pairs at these positions of the index; returns the page's takeaway."""
    if notice := st.session_state.pop(_BULK_NOTICE, None):
        page.notice(notice)
    person = annotator.name()
    open_pairs = undecided(store, index, positions, person) if person else positions
    left, right = st.columns([2, 5], gap="large")
    with left:
        safe.heading("Label all matching pairs")
        _form(store, dataset, index, person, positions, open_pairs)
        if person:
            _own_batches(store, dataset, person)
    with right:
        _preview(store, labelling, index, positions)
        if person:
            page.fold(
                "Spread your last decision",
                ":material/account_tree:",
                "bulk.box.spread",
                lambda: _spread(store, dataset, labelling, index, person),
            )
    if not len(positions):
        return "No pair matches the filters."
    done = len(positions) - len(open_pairs)
    decided = f"; you have decided {count(done)} of them" if done else ""
    return f"{count(len(positions))} of {count(len(index))} pairs match the filters{decided}."


def _form(store: Store, dataset: DatasetRow, index: PairIndex, person: str, positions: Ints, open_pairs: Ints) -> None:
    done = len(positions) - len(open_pairs)
    again = st.toggle(
        "Include pairs I have decided",
        key="bulk.again",
        help="Off: your earlier decisions stay. Other people's decisions stay in the record either way.",
    )
    chosen = positions if again else open_pairs
    if done and not again:
        safe.inline(f"{count(done)} matching pairs are left out: you have decided them.", muted=True)
    label = st.radio("Label", list(Label), index=None, format_func=safe.glyphed, horizontal=True, key="bulk.label")
    reason = st.text_input("Reason", key="bulk.reason", max_chars=500)
    missing = "your name" if not person else "a label" if label is None else ""
    pressed = st.button(
        safe.plain_label(f"Apply to all {count(len(chosen))}"),
        type="primary",
        icon=":material/done_all:",
        key="bulk.apply",
        disabled=not len(chosen) or bool(missing),
    )
    if missing and len(chosen):
        safe.inline(f"Needs {missing}.", muted=True)
    if pressed and label is not None:
        _record_batch(store, dataset, person, index.pairs(chosen), label, reason.strip(), "batch")


def _record_batch(
    store: Store, dataset: DatasetRow, person: str, pairs: Sequence[Pair], label: Label, reason: str, source: str
) -> None:
    """Decide a batch; ends this run of the script unless something fails."""
    written = 0
    bar = st.progress(0.0)
    try:
        # Piece by piece, each a transaction of its own: where one fails, those before it stay and are counted.
        for written in decide_all(store, dataset.id, person, pairs, label, reason=reason, source=source):
            bar.progress(written / len(pairs))
    except StoreError as problem:
        page.error(f"Only {count(written)} of {count(len(pairs))} pairs were decided.", str(problem))
        return
    _rerun(f"{count(written)} pairs decided as {label}, in one batch. You can undo it under Your batches.")


def _rerun(notice: str) -> None:
    st.session_state[_BULK_NOTICE] = notice
    st.rerun()


def _preview(store: Store, labelling: LabellingRow | None, index: PairIndex, positions: Ints) -> None:
    if not len(positions):
        page.empty("No pair matches", "Widen the filters to see a preview here.")
        return
    title, again = st.columns([4, 1], vertical_alignment="bottom")
    with title:
        shown = min(PREVIEWED, len(positions))
        safe.heading(f"{shown} of {count(len(positions))} pairs, a random sample")
    with again:
        if st.button("Show others", icon=":material/shuffle:", key="bulk.shuffle", disabled=len(positions) <= shown):
            # The seed of the sample: a number that only this button changes, so that no other rerun shows other pairs.
            st.session_state[_SHUFFLES] = st.session_state.get(_SHUFFLES, 0) + 1
    sampled = items(store, index, sample(positions, PREVIEWED, seed=st.session_state.get(_SHUFFLES, 0)))
    frame = pd.DataFrame([_row(item, labelling) for item in sampled])
    tables.table(
        frame,
        key="bulk.preview",
        columns={
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "task": ("wide", "Task"),
            "label": ("text", "Label"),
            "votes": ("text", "Votes"),
            "revealed": ("small", "Revealed"),
            "user": ("text", "User"),
        },
        height="content",
        alt="A random sample of the matching pairs, with their current labels",
    )
    tables.csv_button(frame, "review-sample.csv", key="bulk.csv.preview")


def _row(item: Item, labelling: LabellingRow | None) -> dict[str, Any]:
    return {
        "user": item.user,
        "statement": item.statement,
        "recipient": item.recipient,
        "task": item.task,
        "domain": item.domain,
        "event": item.event,
        "label": safe.glyphed(item.effective),
        "consensus": safe.glyphed(item.consensus),
        "votes": " ".join(letters for _, _, letters in item.votes),
        "revealed": f"{item.reveals} of {item.draws}" if item.draws else "",
        "people": item.decided,
        "labels": "simulated" if labelling is not None and labelling.simulated else "",
    }


def _own_batches(store: Store, dataset: DatasetRow, person: str) -> None:
    safe.heading("Your batches")
    rows = batches(store, dataset.id, person)
    if not rows:
        safe.inline("None yet. You can undo any batch, however large.", muted=True)
    for row in rows:
        text, button = st.columns([3, 1], vertical_alignment="center")
        with text:
            label = f"as {row.label}" if row.label else "with several labels"
            undone = f", {count(row.taken_back)} of them undone" if row.taken_back else ""
            source = _SOURCES.get(row.source, row.source)
            safe.inline(f"{count(row.pairs)} pairs {label}, {source}{undone}.")
            safe.inline(f"{row.created[:16].replace('T', ' ')} UTC. {row.reason}", muted=True)
        with button:
            key = f"bulk.undo.{row.id}"
            if st.button("Undo", icon=":material/undo:", key=key, disabled=row.taken_back >= row.pairs):
                _undo(store, dataset, person, row)


def _undo(store: Store, dataset: DatasetRow, person: str, row: Batch) -> None:
    with page.Reporting("The batch was not undone.", StoreError):
        undone = undo_batch(store, dataset.id, person, row.id)
        # Of the batch, what was decided anew since: that decision is another one and stays.
        kept = row.pairs - row.taken_back - undone
        later = f" {count(kept)} keep your later decisions." if kept else ""
        _rerun(f"{count(undone)} decisions undone; your earlier decisions count again.{later}")


def _spread(store: Store, dataset: DatasetRow, labelling: LabellingRow | None, index: PairIndex, person: str) -> None:
    last = last_single(store, dataset.id, person)
    if last is None:
        safe.inline("Decide a pair in the queue first. Similar pairs are then proposed here.", muted=True)
        return
    try:
        proposed = proposals(store, index, person, last.attribute, last.context)
    except StoreError as problem:
        page.error("Nothing can be proposed.", str(problem))
        return
    _origin(store, index, last)
    if not proposed:
        page.notice("No undecided pair resembles this one.")
        return
    chosen = [item for item in proposed if _axis(item)]
    _proposed(store, labelling, index, proposed)
    pairs = [(pair.attribute, pair.context) for item in chosen for pair in item.pairs]
    if st.button(
        safe.plain_label(f"Decide these {count(len(pairs))} as {last.label}"),
        type="primary",
        icon=":material/done_all:",
        key="bulk.accept",
        disabled=not pairs,
    ):
        reason = "Spread from one decision: " + ", ".join(_AXES[item.axis].lower() for item in chosen)
        _record_batch(store, dataset, person, pairs, last.label, reason, "proposal")


def _origin(store: Store, index: PairIndex, last: LastDecision) -> None:
    for item in items(store, index, index.shape.locate([last.attribute], [last.context])):
        towards = ("Towards", f"{item.recipient}: {item.task}")
        safe.show(safe.facts([("You decided", safe.label_chip(last.label)), ("Statement", item.statement), towards]))


def _axis(item: Proposal) -> bool:
    """A checkbox for each axis, none ticked: nothing is applied without being chosen."""
    ticked = st.checkbox(safe.plain_label(_AXES[item.axis]), key=f"bulk.axis.{item.axis}")
    closest = max(pair.similarity for pair in item.pairs)
    pairs = count(len(item.pairs), "pair")
    safe.inline(f"{pairs}, similarity {item.similarity:.2f} to {closest:.2f}. {item.reason}", muted=True)
    return bool(ticked)


def _proposed(store: Store, labelling: LabellingRow | None, index: PairIndex, proposed: Sequence[Proposal]) -> None:
    rows = []
    for proposal in proposed:
        similarity = {(pair.attribute, pair.context): pair.similarity for pair in proposal.pairs}
        at = index.shape.locate([a for a, _ in similarity], [c for _, c in similarity])
        for item in items(store, index, at):
            own = {"because": _AXES[proposal.axis], "similarity": similarity[item.attribute, item.context]}
            rows.append(own | _row(item, labelling))
    frame = pd.DataFrame(rows)
    tables.table(
        frame,
        key="bulk.proposed",
        columns={
            "because": ("text", "Proposed by"),
            "similarity": ("number", "Similarity"),
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "task": ("wide", "Task"),
            "label": ("text", "Label"),
            "user": ("text", "User"),
        },
        alt="Proposed pairs, with the reason and their similarity to the decided one",
    )
    tables.csv_button(frame, "review-proposals.csv", key="bulk.csv.proposed")
