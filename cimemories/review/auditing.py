"""Verdicts on a slice of a judge audit, recorded as they come from the browser, and how far the slice has come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cimemories.review.recording import Event
from cimemories.store import audits, reviews
from cimemories.store.audits import AuditVerdict, Flow, NewVerdict, SliceItem
from cimemories.store.engine import Store


@dataclass(frozen=True)
class Recorded:
    """back: the flow that an undo of a verdict from before the page was opened leads back to. gone: uids of events that
    the record cannot hold: their run has been deleted meanwhile."""

    back: Flow | None
    gone: frozenset[str]


@dataclass(frozen=True)
class AuditState:
    """A slice as one reviewer sees it. undecided: the items without a verdict of theirs, in the slice's order; audited:
    how many of the slice's `total` items anybody has given a verdict on."""

    undecided: list[Flow]
    audited: int
    total: int


def card_id(flow: Flow) -> str:
    """What a card of the queue is known by."""
    return f"{flow[0]}.{flow[1]}"


def flow_of(card: str) -> Flow:
    """The (response id, attribute id) that a card is about; (0, 0), which is none, where its id names none."""
    ids = card.split(".")
    # From a browser, so anything may come: isdigit alone takes '²', which int refuses, and 15 digits fit any id.
    valid = len(ids) == 2 and all(text.isascii() and text.isdigit() and len(text) < 16 for text in ids)
    return (int(ids[0]), int(ids[1])) if valid else (0, 0)


def slice_flows(store: Store, slice_id: int) -> dict[Flow, SliceItem]:
    """The items of a slice by the flow that they are about, in their order."""
    with store.read() as connection:
        return {(item.response or 0, item.attribute): item for item in audits.slice_items(connection, slice_id)}


def audit_state(store: Store, run_id: str, flows: Mapping[Flow, SliceItem], annotator: str) -> AuditState:
    """How far these items have come, for this reviewer and in all."""
    with store.read() as connection:
        of_run = audits.of_run(connection, run_id)
    # Theirs are taken before standing: another person's newer verdict must not hide them.
    mine = audits.standing(item for item in of_run if item.annotator == annotator)
    audited = len(flows.keys() & audits.standing(of_run).keys())
    return AuditState([flow for flow in flows if flow not in mine], audited, len(flows))


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
