"""Record answers in the queues of the review and of a judge audit: decisions, verdicts, marks and comments, each once,
however often the browser sends it; and the progress of an audit's slice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.scope import Scope
from cimemories.model import Label
from cimemories.review.adjudication import Cause, Disputed, last_unsettled
from cimemories.review.index import DatasetGone
from cimemories.store import audits, datasets, decisions, judgements, reviews
from cimemories.store.audits import Audit, AuditVerdict, Flow, NewVerdict, SliceItem
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import ADJUDICATED, NewDecision
from cimemories.store.engine import Connection, Store
from cimemories.store.reviews import Comment, Mark, MarkKind
from cimemories.store.runs import RunRow
from cimemories.store.tables import response

Pair = tuple[int, int]
LABEL_TEXTS = frozenset(map(str, Label))
CAUSES = frozenset(map(str, Cause))


@dataclass(frozen=True)
class Event:
    """One answer or action of a person at the desk.

    kind is say, skip, flag, comment or undo. card: the id of the item. answer: the label or verdict of a `say`. text:
    the comment, or the reason for a flag or an adjudication. cause: why people differed, of an adjudication. of: the
    uid of the event that an undo takes back; None: the person's last one, made before the page was opened.
    """

    uid: str
    kind: str
    card: str
    answer: str | None
    seconds: float = 0.0
    blind: bool = False
    text: str = ""
    of: str | None = None
    cause: str = ""


@dataclass(frozen=True)
class Recorded:
    """The outcome of recording events. back: the pair (of an audit, the flow) whose decision from before the page was
    opened was undone; the page returns to it. refused: uids of events that cannot be recorded, since their pair or run
    was edited away or deleted. new: decisions added; verdicts are not counted."""

    back: Pair | Flow | None
    refused: frozenset[str]
    new: int = 0


def card_id(ids: Pair | Flow) -> str:
    """Return the id of a card of the queue; that of a dispute or of training has a third part."""
    return f"{ids[0]}.{ids[1]}"


def training_id(pair: Pair, slice_id: int) -> str:
    """Return the id of a card of training, whose answer is no decision whatever desk records it."""
    return f"{card_id(pair)}.{slice_id}"


def dispute_id(item: Disputed, annotator: str) -> str:
    """Return the id of a card of a dispute, which changes when another person decides the pair."""
    return f"{card_id(item.pair)}.{item.seen(annotator)}"


def pair_of(card: str) -> Pair | None:
    """Return the (attribute id, context id) of a card, or None if its id is not valid."""
    ids = card.split(".")
    # From a browser, so anything may come: isdigit alone takes '²', which int refuses, and 15 digits fit any id.
    valid = len(ids) in (2, 3) and all(text.isascii() and text.isdigit() and len(text) < 16 for text in ids)
    return (int(ids[0]), int(ids[1])) if valid else None


def flow_of(card: str) -> Flow:
    """Return the (response id, attribute id) of a card of an audit, or (0, 0), which matches nothing, if its id is not
    valid."""
    return pair_of(card) or (0, 0)


def record(
    store: Store, dataset: DatasetRow, annotator: str, events: Sequence[Event], source: str = "queue"
) -> Recorded:
    """Record events of one person and dataset in their order, in one transaction. source: where they decided;
    ADJUDICATED for events on cards of disputes. These need a cause, and are refused if another person has decided the
    pair since the card was shown: that decision would be overruled unseen.

    Raises DatasetGone if the dataset was deleted, even if another one has its id by now, and StoreError if the record
    cannot be written: then nothing was, and the browser still has all events.
    """
    back: Pair | None = None
    new = 0
    refused: set[str] = set()
    dataset_id, adjudicates = dataset.id, source == ADJUDICATED
    with store.write(Role.CURATOR if adjudicates else Role.ANNOTATOR) as connection:
        decisions.take_turns(connection, dataset_id, annotator, exclusive=adjudicates)
        there = decisions.still_there(
            connection, dataset_id, {pair for event in events if (pair := pair_of(event.card)) is not None}
        )
        # After the lock on the pairs, which waits for a deletion that has begun.
        if datasets.created(connection, dataset_id) != dataset.created:
            raise DatasetGone(f"the dataset {dataset.name} was deleted")
        # Consecutive decisions are written together.
        waiting: list[NewDecision] = []
        # Recorded with the decisions, so that a later release cannot change which guideline people followed.
        guideline = reviews.keep_guideline(connection).hash
        for event in events:
            pair = pair_of(event.card)
            trains = not adjudicates and event.card.count(".") == 2  # see training_id
            if pair is not None and pair not in there:
                refused.add(event.uid)
            elif event.kind == "say" and event.answer in LABEL_TEXTS and pair is not None and trains:
                mark = Mark(*pair, MarkKind.TRAINED, uid=event.uid, reason=str(event.answer), seconds=event.seconds)
                reviews.add_marks(connection, dataset_id, annotator, [mark])
            elif event.kind == "say":
                if pair is None or event.answer not in LABEL_TEXTS or (adjudicates and event.cause not in CAUSES):
                    refused.add(event.uid)
                    continue
                # Read in the transaction that writes, or a decision could come between.
                is_new = adjudicates and not decisions.is_known(connection, dataset_id, event.uid)
                if is_new:
                    history = decisions.history(connection, dataset_id, [pair[0]], pair[1])
                    # Another id: another person has decided the pair since the card was made.
                    if event.card != f"{card_id(pair)}.{last_unsettled(history, annotator)}":
                        refused.add(event.uid)
                        continue
                waiting.append(
                    NewDecision(
                        *pair,
                        Label(event.answer),
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
                # Written before the event: an undo must find the decision that it takes back.
                new += decisions.add_all(connection, dataset_id, annotator, waiting)
                waiting = []
                if event.kind == "undo":
                    # Of several undos the last one that returns a pair decides where the page goes.
                    undone = _undo(connection, dataset_id, annotator, event, adjudicated=adjudicates)
                    back = undone or back
                elif pair is not None and event.kind == "comment":
                    reviews.add_comment(connection, dataset_id, annotator, *pair, event.text, event.uid)
                elif pair is not None:
                    mark = Mark(*pair, MarkKind(event.kind), uid=event.uid, reason=event.text, seconds=event.seconds)
                    reviews.add_marks(connection, dataset_id, annotator, [mark])
        new += decisions.add_all(connection, dataset_id, annotator, waiting)
    return Recorded(back, frozenset(refused), new)


def _undo(connection: Connection, dataset_id: int, annotator: str, event: Event, *, adjudicated: bool) -> Pair | None:
    """Take back what the event names, or else the annotator's last decision (`adjudicated`: adjudication), and return
    its pair."""
    if event.of is not None:
        # The uid may be that of a mark: decisions and marks are undone with the same key.
        if not decisions.undo(connection, dataset_id, annotator, event.of, event.uid):
            reviews.take_back_mark(connection, dataset_id, annotator, event.of, event.uid)
        return None
    # An undo that is sent again must not take back another decision.
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
    """A slice as one reviewer sees it. undecided: the items without a verdict of theirs, in the slice's order; in a
    slice of attributes, without those already found to leak. total: how many items they are to answer; audited: how
    many items of the slice have a verdict of any person."""

    undecided: list[Flow]
    audited: int
    total: int


def slice_flows(store: Store, slice_id: int) -> dict[Flow, SliceItem]:
    """Return the items of a slice by their flow, in their order."""
    with store.read() as connection:
        return {(item.response or 0, item.attribute): item for item in audits.slice_items(connection, slice_id)}


def audit_state(
    store: Store,
    run_id: str,
    flows: Mapping[Flow, SliceItem],
    annotator: str,
    *,
    by_attribute: bool = False,
    assigned: Collection[Flow] | None = None,
) -> AuditState:
    """Return the progress of these items for this reviewer. by_attribute: the slice is of attributes, each settled by
    one confirmed reveal. assigned: the reviewer's items, which only their own verdicts settle; None: all items, which
    anyone's verdicts settle."""
    with store.read() as connection:
        of_run = audits.of_run(connection, run_id)
    # Filtered before `standing`: another person's newer verdict must not hide the reviewer's.
    mine = decisions.standing(item for item in of_run if item.annotator == annotator)
    answered = {flow: audit for flow, audit in decisions.standing(of_run).items() if flow in flows}
    deciding = answered if assigned is None else {flow: audit for flow, audit in mine.items() if flow in flows}
    settled = {flow[1] for flow, audit in deciding.items() if by_attribute and audits.says_revealed(audit.verdict)}
    items = flows if assigned is None else assigned
    undecided = [flow for flow in items if flow not in mine and flow[1] not in settled]
    return AuditState(undecided, len(answered), len(items))


@dataclass(frozen=True)
class AuditSitting:
    """A person's newest standing verdicts on a slice, compared with the judge on whether the message reveals the
    attribute in full. missed: reveals that the person sees and the judge does not claim; claimed: the other way round.
    What the judge has not judged counts as no claim."""

    verdicts: int
    missed: int
    claimed: int

    @property
    def agreeing(self) -> int:
        return self.verdicts - self.missed - self.claimed


def audit_sitting(store: Store, scope: Scope, flows: Collection[Flow], annotator: str, newest: int) -> AuditSitting:
    """Compare an annotator's last `newest` standing verdicts on these items with the scope's judge."""
    with store.read() as connection:
        verdicts = (item for item in audits.of_run(connection, scope.run.id) if item.annotator == annotator)
        made = sorted(decisions.standing(verdicts).values(), key=lambda item: (item.created, item.id))
        last = [item for item in made if item.place in flows][-newest:]
        claims = judgements.claims(connection, scope.judge.id, {item.response for item in last})
    missed = claimed = 0
    for item in last:
        strength, *_ = claims.get(item.response, {}).get(item.attribute, (None,))
        by_person, by_judge = audits.says_revealed(item.verdict), audits.says_revealed(strength)
        missed += by_person and not by_judge
        claimed += by_judge and not by_person
    return AuditSitting(len(last), missed, claimed)


@dataclass(frozen=True)
class MessageMemory:
    """The memory behind a message: ids of its profile and context, and by attribute id the statements that the memory
    held, in the profile's order."""

    profile: int
    context: int
    statements: Mapping[int, str]


def message_memory(store: Store, response_id: int) -> MessageMemory | None:
    """Return the memory behind a message, or None if the message no longer exists."""
    query = sa.select(response.c.profile, response.c.context, response.c.memory).where(response.c.id == response_id)
    with store.read() as connection:
        row = connection.execute(query).first()
        if row is None:
            return None
        record = datasets.profile_record(connection, row.profile)
        held = datasets.memories_of(connection, [row.memory]).get(row.memory) if row.memory else None
    facts = zip(record.attribute_ids, record.profile.attributes, strict=True)
    statements = {a: fact.statement for a, fact in facts if held is None or a in held}
    return MessageMemory(row.profile, row.context, statements)


def flow_history(store: Store, flow: Flow) -> tuple[list[Audit], list[Comment]]:
    """Return the verdicts and the comments on one message and attribute, oldest first."""
    with store.read() as connection:
        made = [item for item in audits.on(connection, [flow[0]]) if item.attribute == flow[1]]
        (context,) = judgements.of_responses(connection, flow[:1], "context").get(flow[0], (0,))
        notes = reviews.comments_of_pair(connection, flow[1], context)
    return made, [note for note in notes if note.text.endswith(_of_response(flow))]


def _of_response(flow: Flow) -> str:
    """Return the end of a comment on a message: comments belong to pairs, which have many messages in a run."""
    return f"(response {flow[0]})"


def record_audit(
    store: Store, run: RunRow, annotator: str, events: Sequence[Event], flows: Collection[Flow]
) -> Recorded:
    """Record events in their order, in one transaction, each once however often it is sent. flows: the slice on the
    screen; events may also be of the one before it. Events on messages of a deleted run are refused.

    Raises StoreError if the record cannot be written: then nothing was, and the browser still has all events.
    """
    back: Flow | None = None
    refused: set[str] = set()
    verdicts = {str(verdict): verdict for verdict in AuditVerdict}
    with store.write(Role.ANNOTATOR) as connection:
        there = audits.in_run(connection, run.id, run.created, (flow_of(event.card)[0] for event in events))
        for event in events:
            flow = flow_of(event.card)
            if event.kind == "undo" and event.of is None:
                # An undo that is sent again must not take back another verdict.
                if not audits.is_known(connection, run.dataset, event.uid):
                    last = audits.last_verdict(connection, run.dataset, annotator, flows)
                    if last is not None and audits.undo(connection, run.dataset, annotator, last.uid, event.uid):
                        back = last.place
            elif flow[0] not in there:
                refused.add(event.uid)
            elif event.kind == "undo" and event.of is not None:
                audits.undo(connection, run.dataset, annotator, event.of, event.uid)
            elif event.kind == "say":
                verdict = verdicts.get(event.answer or "")
                if verdict is None:
                    refused.add(event.uid)
                else:
                    new = NewVerdict(*flow, verdict, uid=event.uid, seconds=event.seconds, blind=event.blind)
                    audits.add_all(connection, run.dataset, annotator, [new])
            elif event.kind == "comment" and event.text.strip():
                (context,) = judgements.of_responses(connection, flow[:1], "context")[flow[0]]
                comment = f"{event.text} {_of_response(flow)}"
                reviews.add_comment(connection, run.dataset, annotator, flow[1], context, comment, event.uid)
    return Recorded(back, frozenset(refused))
