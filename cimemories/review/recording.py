"""What people answer in the queues of the review and of a judge audit: decisions, verdicts, marks and comments, each
recorded once, however often the browser sends it; and how far the slice of an audit has come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cimemories.model import Label
from cimemories.review.adjudication import Cause, Disputed, last_unsettled
from cimemories.store import audits, decisions, reviews
from cimemories.store.audits import AuditVerdict, Flow, NewVerdict, SliceItem
from cimemories.store.decisions import ADJUDICATED, NewDecision
from cimemories.store.engine import Connection, Store
from cimemories.store.reviews import Mark, MarkKind

Pair = tuple[int, int]
LABEL_TEXTS = frozenset(map(str, Label))
CAUSES = frozenset(map(str, Cause))


class Event(Protocol):
    """One press of a key, or one comment, as `ui.workbench.Event` has it: kind is say, undo, comment or a MarkKind.

    says: the label or verdict of a `say`. cause: of an adjudication, with its reason as text. of: the uid of the
    event that an undo takes back, None for the last one of before the page was opened.
    """

    @property
    def uid(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def card(self) -> str: ...
    @property
    def says(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def blind(self) -> bool: ...
    @property
    def text(self) -> str: ...
    @property
    def cause(self) -> str: ...
    @property
    def of(self) -> str | None: ...


@dataclass(frozen=True)
class Recorded:
    """back: the pair, of an audit the flow, that an undo of something decided before the page was opened leads back to.
    gone: uids of events that the record cannot hold: an edit or a deletion took away their pair, of an audit their run.
    new: decisions that the record did not have; verdicts are not counted."""

    back: Pair | Flow | None
    gone: frozenset[str]
    new: int = 0


def card_id(ids: Pair | Flow) -> str:
    """What a card of the queue is known by; one of a dispute has a third part (`dispute_id`)."""
    return f"{ids[0]}.{ids[1]}"


def dispute_id(item: Disputed, annotator: str) -> str:
    """What a card of a dispute is known by: another one when somebody else decides the pair."""
    return f"{card_id(item.pair)}.{item.seen(annotator)}"


def pair_of(card: str) -> Pair | None:
    """The (attribute id, context id) that a card is about; None where its id names none."""
    ids = card.split(".")
    # From a browser, so anything may come: isdigit alone takes '²', which int refuses, and 15 digits fit any id.
    valid = len(ids) in (2, 3) and all(text.isascii() and text.isdigit() and len(text) < 16 for text in ids)
    return (int(ids[0]), int(ids[1])) if valid else None


def flow_of(card: str) -> Flow:
    """The (response id, attribute id) that a card of an audit is about; (0, 0), which is none, where it names none."""
    return pair_of(card) or (0, 0)


def record(store: Store, dataset_id: int, annotator: str, events: Sequence[Event], source: str = "queue") -> Recorded:
    """Record events of one person and dataset in their order, in one transaction. source: where they decided;
    ADJUDICATED for events on cards of disputes, which need a cause, and are refused (`gone`) where somebody else has
    decided the pair since: their decision would be overruled unseen.

    Raises StoreError where nothing could be written: then nothing was, and the browser still holds all of it.
    """
    back: Pair | None = None
    new = 0
    gone: set[str] = set()
    with store.write() as connection:
        there = decisions.still_there(
            connection, dataset_id, {pair for event in events if (pair := pair_of(event.card)) is not None}
        )
        # Decisions one after the other are gathered and written together.
        waiting: list[NewDecision] = []
        # Kept with the first decision that names it, so that a later release cannot change what people went by.
        guideline = reviews.keep_guideline(connection).hash
        for event in events:
            pair = pair_of(event.card)
            if pair is not None and pair not in there:
                gone.add(event.uid)
            elif event.kind == "say":
                adjudicates = source == ADJUDICATED
                if pair is None or event.says not in LABEL_TEXTS or (adjudicates and event.cause not in CAUSES):
                    gone.add(event.uid)
                    continue
                # Read in the transaction that writes, or a decision could come between.
                is_new = adjudicates and not decisions.is_known(connection, dataset_id, event.uid)
                if is_new and _is_outdated(connection, dataset_id, annotator, event.card, pair):
                    gone.add(event.uid)
                    continue
                waiting.append(
                    NewDecision(
                        *pair,
                        Label(event.says),
                        uid=event.uid,
                        reason=event.text.strip() if adjudicates else "",
                        cause=event.cause if adjudicates else None,
                        seconds=event.seconds,
                        source=source,
                        blind=event.blind,
                        guideline=guideline,
                    )
                )
            else:
                # In the order they were made: an undo must find the decision that it takes back.
                new += decisions.add_all(connection, dataset_id, annotator, waiting)
                waiting = []
                if event.kind == "undo":
                    # Of several undos the last one that leads anywhere decides where the page goes.
                    undone = _undo(connection, dataset_id, annotator, event, adjudicated=source == ADJUDICATED)
                    back = undone or back
                elif pair is not None and event.kind == "comment":
                    reviews.add_comment(connection, dataset_id, annotator, *pair, event.text, event.uid)
                elif pair is not None:
                    mark = Mark(*pair, MarkKind(event.kind), uid=event.uid, reason=event.text, seconds=event.seconds)
                    reviews.add_marks(connection, dataset_id, annotator, [mark])
        new += decisions.add_all(connection, dataset_id, annotator, waiting)
    return Recorded(back, frozenset(gone), new)


def _is_outdated(connection: Connection, dataset_id: int, annotator: str, card: str, pair: Pair) -> bool:
    """Whether somebody else has decided the pair since the card of its dispute was made."""
    history = decisions.history(connection, dataset_id, [pair[0]], pair[1])
    return card != f"{card_id(pair)}.{last_unsettled(history, annotator)}"


def _undo(connection: Connection, dataset_id: int, annotator: str, event: Event, *, adjudicated: bool) -> Pair | None:
    """Take back what the event names; without a name the annotator's last decision, own or adjudication, whose pair is
    returned."""
    if event.of is not None:
        # The name may be that of a mark: decisions and marks are undone with the same key.
        if not decisions.undo(connection, dataset_id, annotator, event.of, event.uid):
            reviews.take_back_mark(connection, dataset_id, annotator, event.of, event.uid)
        return None
    # Sent again, it must not take back one decision more.
    if decisions.is_known(connection, dataset_id, event.uid):
        return None
    last = decisions.last_decision(connection, dataset_id, annotator, adjudicated=adjudicated)
    if last is None or last.uid is None:
        return None
    decisions.undo(connection, dataset_id, annotator, last.uid, event.uid)
    return last.attribute, last.context


# ---- the audit of a judge


@dataclass(frozen=True)
class AuditState:
    """A slice as one reviewer sees it. undecided: the items without a verdict of theirs, in the slice's order, of a
    slice of attributes without those that anybody found to leak; audited: how many of the slice's `total` items anybody
    has given a verdict on."""

    undecided: list[Flow]
    audited: int
    total: int


def slice_flows(store: Store, slice_id: int) -> dict[Flow, SliceItem]:
    """The items of a slice by the flow that they are about, in their order."""
    with store.read() as connection:
        return {(item.response or 0, item.attribute): item for item in audits.slice_items(connection, slice_id)}


def audit_state(
    store: Store, run_id: str, flows: Mapping[Flow, SliceItem], annotator: str, *, by_attribute: bool = False
) -> AuditState:
    """How far these items have come, for this reviewer and in all. by_attribute: they are messages of attributes, which
    one confirmed reveal settles."""
    with store.read() as connection:
        of_run = audits.of_run(connection, run_id)
    # Theirs are taken before standing: another person's newer verdict must not hide them.
    mine = audits.standing(item for item in of_run if item.annotator == annotator)
    answered = {flow: audit for flow, audit in audits.standing(of_run).items() if flow in flows}
    settled = {flow[1] for flow, audit in answered.items() if by_attribute and audits.says_revealed(audit.verdict)}
    undecided = [flow for flow in flows if flow not in mine and flow[1] not in settled]
    return AuditState(undecided, len(answered), len(flows))


def record_audit(
    store: Store, dataset_id: int, annotator: str, events: Sequence[Event], flows: Collection[Flow]
) -> Recorded:
    """Record events in their order, in one transaction, each once however often it comes; those of a slice that was on
    the screen before this one (`flows`) too.

    Raises StoreError where nothing could be written: then nothing was, and the browser still holds all of it.
    """
    back: Flow | None = None
    gone: set[str] = set()
    verdicts = {str(verdict): verdict for verdict in AuditVerdict}
    with store.write() as connection:
        owners = audits.datasets_of(connection, (flow_of(event.card)[0] for event in events))
        for event in events:
            flow = flow_of(event.card)
            owner = owners.get(flow[0])  # none: the run has been deleted meanwhile, and its messages with it
            if event.kind == "undo" and event.of is None:
                # Sent again, it must not take back one verdict more.
                if not audits.is_known(connection, dataset_id, event.uid):
                    last = audits.last_verdict(connection, dataset_id, annotator, flows)
                    if last is not None and audits.undo(connection, dataset_id, annotator, last.uid, event.uid):
                        back = last.flow
            elif owner is None:
                gone.add(event.uid)
            elif event.kind == "undo" and event.of is not None:
                audits.undo(connection, owner, annotator, event.of, event.uid)
            elif event.kind == "say":
                verdict = verdicts.get(event.says or "")
                if verdict is None:
                    gone.add(event.uid)
                else:
                    new = NewVerdict(*flow, verdict, uid=event.uid, seconds=event.seconds, blind=event.blind)
                    audits.add_all(connection, owner, annotator, [new])
            elif event.kind == "comment" and event.text.strip():
                context, _ = audits.places(connection, [flow])[flow]
                comment = f"{event.text} (response {flow[0]})"
                reviews.add_comment(connection, owner, annotator, flow[1], context, comment, event.uid)
    return Recorded(back, frozenset(gone))
