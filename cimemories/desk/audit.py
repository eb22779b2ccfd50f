"""The audit of a judge at the desk: messages one at a time, each with an attribute that it may reveal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimemories.agreement import judge_audit
from cimemories.answers.judges import headline, judge_text
from cimemories.desk.protocol import Card, Message, Reply, settle
from cimemories.desk.queue import history, owner_of
from cimemories.flows.flows import shared_flows
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.review.assignments import own_flows
from cimemories.review.queue import spoken_of
from cimemories.review.recording import (
    AuditState,
    audit_sitting,
    audit_state,
    card_id,
    flow_history,
    flow_of,
    message_memory,
    record_audit,
    slice_flows,
)
from cimemories.review.sampling import AuditItem, audit_items
from cimemories.store.audits import ATTRIBUTES, Audit, Flow, SliceItem, SliceRow
from cimemories.store.engine import Store
from cimemories.store.team.assignments import Assignment
from cimemories.text import count

AHEAD = 60  # items that the browser gets at once
WORDS = {"full": "● revealed", "partial": "◐ partly", "implied": "◌ implied", "none": "○ not revealed"}


@dataclass(frozen=True)
class AuditDesk:
    """A slice of a judge's answers, for one auditor. assigned: to whom the slice is; None if it is open to all."""

    store: Store
    scope: Scope
    slice: SliceRow
    me: str
    assigned: Assignment | None = None

    @property
    def name(self) -> str:
        return f"{self.slice.id}.{self.scope.judge.id}.{self.me}"

    @property
    def owner(self) -> str:
        run = self.scope.run  # a run's id may come again after it was deleted
        return owner_of(self.store, [run.id, run.created, self.me])

    @property
    def is_mine(self) -> bool:
        """Return whether this person is to answer it: the slice is open to all, or assigned to them."""
        return self.assigned is None or self.me in self.assigned.people

    def state(self, flows: Mapping[Flow, SliceItem]) -> AuditState:
        """Return how far the slice has come, for this person and in all."""
        assigned = None if self.assigned is None else own_flows(self.store, self.assigned, list(flows), self.me)
        by_attribute = self.slice.kind == ATTRIBUTES
        return audit_state(self.store, self.scope.run.id, flows, self.me, by_attribute=by_attribute, assigned=assigned)

    def answer(self, message: Message) -> Reply:
        """Record verdicts and return the items that come next."""
        flows = slice_flows(self.store, self.slice.id)
        done = settle(message, lambda events: record_audit(self.store, self.scope.run, self.me, events, flows), card_id)
        state = self.state(flows)
        # Attributes are read in their order; single items are at random, so another tab may begin further on.
        by_attribute = self.slice.kind == ATTRIBUTES
        begin = 0 if by_attribute else AHEAD * message.tab % max(1, len(state.undecided))
        turned = state.undecided[begin:] + state.undecided[:begin]
        ordered = sorted(turned, key=lambda flow: card_id(flow) in message.skipped)
        start = flow_of(done.back or "")
        shown = ordered[:AHEAD] if start not in flows else list(dict.fromkeys([start, *ordered[:AHEAD]]))
        answered = state.total - len(state.undecided)
        yours = "the slice" if self.assigned is None or self.assigned.overlap is None else "your part of the slice"
        refused = len(done.refused)
        return Reply(
            done.recorded,
            done.refused,
            cards=[_card(item, self.scope) for item in audit_items(self.store, self.scope.judge.id, shown)],
            done=answered,
            total=state.total,
            start=done.back if start in flows else None,
            summary=self._summary(flows, state, message) if message.batch else (),
            aside=[f"{count(answered)} of {count(state.total, 'item')} of {yours} done."],
            history=self._history(message),
            memory=self._memory(message),
            notice=f"{count(refused, 'verdict')} not saved: the run or its message was deleted." if refused else "",
        )

    def _summary(self, flows: Mapping[Flow, SliceItem], state: AuditState, message: Message) -> list[str]:
        """Return what the batch that has ended says of the judge, and how much is left. While a person who answers
        blind has more to answer, nothing is said of the judge."""
        left = f"{count(len(state.undecided), 'item')} of the slice are left."
        if message.blind and state.undecided:
            ended = f"{count(message.batch, 'item')} answered."
            return [f"{ended} How far the judge agrees shows at the end of the slice.", left]
        last = audit_sitting(self.store, self.scope, flows, self.me, message.batch)
        lines = [
            f"{judge_text(self.scope.judge)} agrees with {count(last.agreeing)} of your last {count(last.verdicts)} "
            f"verdicts: it missed {count(last.missed, 'reveal')}, and claimed {count(last.claimed)} that you do not "
            "see."
        ]
        if self.slice.kind != ATTRIBUTES:
            # The scope of now: figures are cached by what it says of the verdicts.
            scope = resolve_scope(self.store, self.scope.run.id, judge_id=self.scope.judge.id)
            audit = judge_audit.judge_audit(shared_flows(self.store), scope, self.slice.id)
            judged = next(item for item in audit.judges if item.judge is not None and item.judge.id == scope.judge.id)
            lines.append(f"So far {headline(judged)}.")
        return [*lines, left]

    def _history(self, message: Message) -> list[tuple[str, str, str, str]] | None:
        if "history" not in message.looks or not message.at:
            return None
        made, notes = flow_history(self.store, flow_of(message.at))
        if message.blind and not any(item.annotator == self.me for item in made):
            return None
        return history(map(_row, reversed(made)), notes)

    def _memory(self, message: Message) -> list[tuple[str, bool]] | None:
        """Return what the assistant knew of the person when it wrote the message, the statement in question marked."""
        if "memory" not in message.looks or not message.at:
            return None
        response, attribute = flow_of(message.at)
        memory = message_memory(self.store, response)
        return None if memory is None else [(text, key == attribute) for key, text in memory.statements.items()]


def _card(item: AuditItem, scope: Scope) -> Card:
    claim = f"claims it: {item.claim}" if item.claim else "claims nothing" if item.judged else "has not judged it"
    quote = [] if item.span or not item.quote else [("its quote, not in the message", "", item.quote)]
    value = item.value if isinstance(item.value, str) else str(item.value)
    article, who = spoken_of(item.recipient)
    flow = f"profile={item.profile}&context={item.context}&attribute={item.attribute}"
    return Card(
        id=card_id((item.response, item.attribute)),
        title=item.statement,
        question=[
            (item.user, "data"),
            (f" writes to {article}", ""),
            (who, "strong"),
            (". Does the message tell them this?", ""),
        ],
        facts=[("Attribute", f"{item.key}: {value}"), ("Task", item.task), ("Sample", str(item.sample))],
        text=item.segments,
        hidden=[(scope.judge.name, "", claim), *quote],
        links=[("Open the message", f"leaks?run={scope.run.id}&{flow}")],
    )


def _row(audit: Audit) -> tuple[str, str, str, str]:
    said = WORDS[audit.verdict] if audit.verdict else "withdrawn"
    return audit.created[:16].replace("T", " "), audit.annotator, said, "blind" if audit.blind else ""
