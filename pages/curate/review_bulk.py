"""Parts of the Review page for many pairs at once: deciding all that match, undoing a batch, and spreading one decision
to similar pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import pandas as pd
import streamlit as st

from cimemories.charts.theme import VOTES
from cimemories.model import Label
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
from cimemories.review.index import Ints, PairIndex
from cimemories.review.queue import Item, Pair, items, sample, still_matching, undecided
from cimemories.review.standing import standing
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.labellings import LabellingRow
from cimemories.text import count
from cimemories.ui import annotator, once, page, presses, safe, tables, url

PREVIEWED = 20
_BULK_NOTICE = "bulk.notice"
_SHUFFLES = "bulk.shuffles"
_SHOWN = "bulk.shown"  # the last drawn button, and the positions of its pairs
SPREAD = "review.spread"  # whether the queue shows the pairs that its last decision could be spread to
_SOURCES = {"batch": "all that matched", "proposal": "spread from one decision"}
_AXES = {
    Axis.CONTEXTS: "Same statement, similar task",
    Axis.ATTRIBUTES: "Same person and event, same task",
    Axis.PROFILES: "Similar statement of another person",
}
_AXIS_KEYS = {"t": Axis.CONTEXTS, "v": Axis.ATTRIBUTES, "w": Axis.PROFILES}
_SPREADING = "review.spreading"


@dataclass
class _Spreading:
    """The last decision, the pairs that were drawn for it by axis, and the axes that are chosen. A key decides what was
    drawn: another tab may have decided something since."""

    last: LastDecision | None = None
    pairs: dict[Axis, list[Pair]] = field(default_factory=dict)
    axes: set[Axis] = field(default_factory=set)
    presses: Counter[Axis] = field(default_factory=Counter)  # of the key of each axis

    @property
    def chosen(self) -> list[Pair]:
        return [pair for axis, pairs in self.pairs.items() if axis in self.axes for pair in pairs]


def draw(
    store: Store,
    dataset: DatasetRow,
    labelling: LabellingRow | None,
    index: PairIndex,
    positions: Ints,
    context: str,
    name: str,
) -> str:
    """Draw the part for the pairs at these positions; returns the page's takeaway. context: the filters in words; name:
    of the filters."""
    draw_notice()
    person = annotator.name()
    open_pairs = undecided(store, index, positions, person) if person else positions
    safe.inline(context, muted=True)
    left, right = st.columns([2, 5], gap="large")
    under_way = False
    with left:
        safe.heading("Label all matching pairs")
        with page.Reporting("Not all pairs were decided.", StoreError):
            under_way = once.under_way(_job(store, dataset, person), _notify, key="bulk.batch")
        if not under_way:
            with page.Reporting("Nothing was decided.", StoreError):
                _form(store, dataset, index, person, positions, open_pairs, name)
        if person:
            safe.heading("Your batches")
            own_batches(store, dataset, person)
    with right:
        _preview(store, labelling, index, positions)
        if person:
            page.fold(
                "Spread your last decision",
                ":material/account_tree:",
                "bulk.box.spread",
                lambda: spread(store, dataset, labelling, index, person),
            )
    if not len(positions):
        return "No pair matches the filters."
    done = len(positions) - len(open_pairs)
    decided = f"; you have decided {count(done)} of them" if done else ""
    return f"{count(len(positions))} of {count(len(index), 'pair')} match the filters{decided}."


def _form(
    store: Store, dataset: DatasetRow, index: PairIndex, person: str, positions: Ints, open_pairs: Ints, name: str
) -> None:
    done = len(positions) - len(open_pairs)
    again = done > 0 and st.toggle(
        "Include pairs I have decided",
        key="bulk.again",
        help="Off: your earlier decisions stay. Other people's decisions stay in the record either way.",
    )
    chosen = positions if again else open_pairs
    # The pairs to be decided, before a label is chosen: a batch this large should be no surprise afterwards.
    others = int((standing(store, index.shape).deciders(chosen, but=person) > 0).sum())
    parts = [count(len(chosen), "pair"), f"{count(others)} decided by others"]
    if done and not again:
        parts.append(f"{count(done)} left out, which you have decided")
    safe.inline(", ".join(parts) + ".", strong=True)
    label = st.radio("Label", list(Label), index=None, format_func=safe.glyphed, horizontal=True, key="bulk.label")
    reason = st.text_input("Reason", key="bulk.reason", max_chars=500).strip()
    # A reason too: it is the only explanation for a reader who finds one of thousands later.
    missing = "your name" if not person else "a label" if label is None else "" if reason else "a reason"

    # A click counts for the pairs shown: not for those of other filters, nor for new matches. Pairs that no longer
    # match, because other users have decided them, are left out.
    key = f"bulk.apply.{content_hash([name, *index.shape.key, again])}"
    drawn_key, shown = st.session_state.get(_SHOWN, (key, chosen))
    matching = still_matching(chosen, shown) if drawn_key == key else chosen
    gone = len(shown) - len(matching) if drawn_key == key else 0

    def work(report: once.Report) -> str:
        pairs = index.pairs(matching)
        return _record_batch(store, dataset, person, pairs, label, reason, "batch", report, left_out=gone)

    def begin() -> None:
        if not len(matching):
            raise StoreError("none of the pairs that were shown matches the filters any more.")
        if not once.begin(_job(store, dataset, person), work):
            raise StoreError("another batch of yours is under way. Wait for it, then apply this one.")

    once.button(
        safe.plain_label(f"Apply to all {count(len(chosen))}"),
        begin,
        key=key,
        type="primary",
        icon=":material/done_all:",
        disabled=not len(chosen) or bool(missing),
    )
    st.session_state[_SHOWN] = key, chosen
    if missing and len(chosen):
        safe.inline(f"Needs {missing}.", muted=True)


def _job(store: Store, dataset: DatasetRow, person: str) -> str:
    """Return the name of the job of a batch: one at a time for each person and dataset, in any window."""
    return content_hash(["batch", str(store.engine.url), str(store.workspace.absolute()), dataset.id, person])


def _notify(sentence: str) -> None:
    page.keep_notices(_BULK_NOTICE, sentence)
    st.session_state.pop(SPREAD, None)


def _record_batch(
    store: Store,
    dataset: DatasetRow,
    person: str,
    pairs: Sequence[Pair],
    label: Label | None,
    reason: str,
    source: str,
    report: once.Report,
    *,
    left_out: int = 0,
) -> str:
    """Decide pairs as one batch and return its outcome; if stopped, all of it is undone. Raises StoreError with the
    number of decided pairs if not all could be decided: those stay, and can be undone as any batch."""
    if label is None:
        raise StoreError("it needs a label. Choose one and try again.")
    written, batch = 0, uuid4().hex
    try:
        # One transaction a piece: other writers get their turn, and if one fails, those before stay.
        for written in decide_all(store, dataset.id, person, pairs, label, reason=reason, source=source, batch=batch):
            report(written / len(pairs), f"{count(written)} of {count(len(pairs), 'pair')} decided")
    except once.StoppedError:
        if written < len(pairs):
            undo_batch(store, dataset.id, person, batch)
            return "Stopped. No pair was decided; what was written by then is undone."
    except StoreError as problem:
        raise StoreError(f"only {count(written)} of {count(len(pairs))} were: {problem}") from problem
    left = f" Left out, since the filters no longer match: {count(left_out, 'pair')}." if left_out else ""
    return f"{count(written, 'pair')} decided as {label}, in one batch.{left} You can undo it under Your batches."


def draw_notice() -> None:
    """Draw the outcome of the last batch, once."""
    for notice in page.kept_notices(_BULK_NOTICE):
        page.notice(notice)


def _preview(store: Store, labelling: LabellingRow | None, index: PairIndex, positions: Ints) -> None:
    if not len(positions):
        page.empty("No pair matches", "Widen the filters to see a preview here.")
        return
    title, again = st.columns([4, 1], vertical_alignment="bottom")
    with title:
        shown = min(PREVIEWED, len(positions))
        safe.heading(f"{shown} of {count(len(positions), 'pair')}, a random sample")
    with again:
        if st.button("Show others", icon=":material/shuffle:", key="bulk.shuffle", disabled=len(positions) <= shown):
            # The seed of the sample changes only with this button, so that no other rerun shows other pairs.
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
        "votes": " ".join(letters for _, _, letters in item.votes).translate(VOTES),
        "revealed": f"{item.reveals} of {item.draws}" if item.draws else "",
        "people": item.decided,
        "labels": "simulated" if labelling is not None and labelling.simulated else "",
    }


def own_batches(store: Store, dataset: DatasetRow, person: str) -> None:
    """Draw this person's newest batches, each with its undo button."""
    rows = batches(store, dataset.id, person)
    if not rows:
        safe.inline("None yet. You can undo any batch, however large.", muted=True)
    for row in rows:
        text, button = st.columns([5, 3], vertical_alignment="center")
        with text:
            label = f"as {row.label}" if row.label else "with several labels"
            undone = f", {count(row.taken_back)} of them undone" if row.taken_back else ""
            source = _SOURCES.get(row.source, row.source)
            safe.inline(f"{count(row.pairs, 'pair')} {label}, {source}{undone}.")
            safe.inline(f"{row.created[:16].replace('T', ' ')} UTC. {row.reason}", muted=True)
        with button:
            _undo_button(store, dataset, person, row)


def _undo_button(store: Store, dataset: DatasetRow, person: str, row: Batch) -> None:
    def undone(number: int) -> None:
        # Later decisions on pairs of the batch stay.
        stay = row.pairs - row.taken_back - number
        later = f" {count(stay)} keep your later decisions." if stay else ""
        _notify(f"{count(number, 'decision')} undone; these pairs are again as you left them before the batch.{later}")

    with page.Reporting("The batch was not undone.", StoreError):
        once.button(
            "Undo",
            lambda: undo_batch(store, dataset.id, person, row.id),
            undone,
            key=f"bulk.undo.{row.id}",
            icon=":material/undo:",
            disabled=row.taken_back >= row.pairs,
        )


def spread_by_keys(store: Store, dataset: DatasetRow, person: str) -> bool:
    """Answer the keys pressed since the pairs were drawn; returns whether the user is done with them."""
    spreading: _Spreading = st.session_state.setdefault(_SPREADING, _Spreading())
    outcome, back = "", False
    with page.Reporting("Not all pairs were decided.", StoreError), presses.pending(f"{SPREAD}.keys") as pending:
        for key in pending.keys:
            back = back or key == "k"
            if axis := _AXIS_KEYS.get(key):
                spreading.axes ^= {axis}
                spreading.presses[axis] += 1
            elif key == "g" and spreading.chosen:
                outcome = _spread(store, dataset, person, spreading)
    if outcome:
        _notify(outcome)
    if back:
        st.session_state.pop(SPREAD, None)
    return back or bool(outcome)


def _spread(store: Store, dataset: DatasetRow, person: str, spreading: _Spreading) -> str:
    """Decide the chosen pairs like the last one and return the outcome."""
    label = spreading.last.label if spreading.last else None
    reason = "Spread from one decision: " + ", ".join(_AXES[axis].lower() for axis in _AXES if axis in spreading.axes)
    pairs, spreading.axes, spreading.pairs = spreading.chosen, set(), {}
    # A few hundred at most, in one transaction: no bar and no stop button.
    return _record_batch(store, dataset, person, pairs, label, reason, "proposal", lambda *_: None)


def spread(
    store: Store, dataset: DatasetRow, labelling: LabellingRow | None, index: PairIndex, person: str
) -> list[str]:
    """Draw the pairs that resemble this person's last decision, and the button that decides the chosen ones.

    Returns the keys that do the same (spread_by_keys)."""
    last = last_single(store, dataset.id, person)
    if last is None:
        safe.inline("Decide a pair in the queue first. Similar pairs are then proposed here.", muted=True)
        return []
    try:
        with st.spinner("Looking for similar pairs …"):
            proposed = proposals(store, index, person, last.attribute, last.context)
    except StoreError as problem:
        page.error("Nothing can be proposed.", str(problem))
        return []
    _origin(store, index, last)
    if not proposed:
        page.notice("No undecided pair resembles this one.")
        return []
    spreading: _Spreading = st.session_state.setdefault(_SPREADING, _Spreading())
    if spreading.last != last:
        spreading.last, spreading.axes = last, set()
    spreading.pairs = {item.axis: [(pair.attribute, pair.context) for pair in item.pairs] for item in proposed}
    for item in proposed:
        _axis(item, spreading)
    pairs = spreading.chosen
    with page.Reporting("Not all pairs were decided.", StoreError):
        once.button(
            safe.plain_label(f"Decide these {count(len(pairs))} as {last.label}"),
            lambda: _spread(store, dataset, person, spreading),
            _notify,
            key=f"bulk.accept.{content_hash(pairs)}",
            type="primary",
            icon=":material/done_all:",
            disabled=not pairs,
        )
    _proposed(store, labelling, index, proposed)
    return [*(key for key, axis in _AXIS_KEYS.items() if axis in spreading.pairs), "g"]


def _origin(store: Store, index: PairIndex, last: LastDecision) -> None:
    for item in items(store, index, index.shape.locate([last.attribute], [last.context])):
        towards = ("Towards", safe.join([safe.data(item.recipient), ": ", safe.data(item.task)]))
        statement = ("Statement", safe.join([safe.data(item.user), ": ", safe.data(item.statement)]))
        safe.show(safe.facts([("You decided", safe.label_chip(last.label)), statement, towards]))


def _axis(item: Proposal, spreading: _Spreading) -> None:
    """Draw the checkbox of an axis, unticked at first: nothing is applied unless chosen."""
    # After a press another checkbox: a second press comes with the value that the browser has of this one, as if the
    # person had clicked it back.
    number = spreading.presses[item.axis]
    key = f"bulk.axis.{item.axis}.{number}"
    st.session_state[key] = item.axis in spreading.axes
    st.checkbox(
        safe.plain_label(f"{_AXES[item.axis]} ({count(len(item.pairs), 'pair')})"),
        key=key,
        help=safe.plain_label(item.reason, 200),
        on_change=url.durable(partial(_choose, spreading, item.axis, number, key)),
    )


def _choose(spreading: _Spreading, axis: Axis, number: int, key: str) -> None:
    if number == spreading.presses[axis]:
        (spreading.axes.add if st.session_state[key] else spreading.axes.discard)(axis)


def _proposed(store: Store, labelling: LabellingRow | None, index: PairIndex, proposed: Sequence[Proposal]) -> None:
    rows = []
    for proposal in proposed:
        similarity = {(pair.attribute, pair.context): pair.similarity for pair in proposal.pairs}
        at = index.shape.locate([a for a, _ in similarity], [c for _, c in similarity])
        for item in items(store, index, at):
            reason = {"because": _AXES[proposal.axis], "similarity": similarity[item.attribute, item.context]}
            rows.append(reason | _row(item, labelling))
    frame = pd.DataFrame(rows)
    tables.table(
        frame,
        key="bulk.proposed",
        columns={
            "because": ("text", "Why"),
            "user": ("text", "Person"),
            "statement": ("wide", "Statement"),
            "recipient": ("text", "Recipient"),
            "task": ("wide", "Task"),
            "label": ("text", "Label"),
            "similarity": ("number", "Similarity"),
        },
        alt="Proposed pairs, with the reason and their similarity to the decided one",
    )
    tables.csv_button(frame, "review-proposals.csv", key="bulk.csv.proposed")
