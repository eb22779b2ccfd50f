"""One profile in one context of a run: the messages, what each gives away, and how that was labelled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

import sqlalchemy as sa

from cimemories.evaluation.judging import tool_calls
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import LABELS
from cimemories.flows.scope import Combine, Scope, Verdicts, judge_title
from cimemories.formats.outcomes import Sent, as_read, read_sent
from cimemories.metrics.warnings import task_check
from cimemories.model import (
    Channel,
    Context,
    JudgementStatus,
    Label,
    Profile,
    ResponseStatus,
    Reveal,
    Span,
    Strength,
    is_bio,
)
from cimemories.store import audits, datasets, decisions, judgements, runs
from cimemories.store.audits import Audit, says_revealed
from cimemories.store.tables import call, judgement

MATCHER = "matcher"
_LABELS = "SELECT attribute, label, decided, held, reveals, draws FROM {pairs} WHERE profile = ? AND context = ?"


@dataclass(frozen=True)
class Memory:
    """One attribute of the profile in this context: its label (None: not labelled) and its counts. in_memory:
    whether any message of the context had it in memory; counts are of those that had."""

    attribute: int
    key: str
    domain: str
    event: str
    statement: str
    bio: bool
    label: Label | None
    decided: bool
    reveals: int
    draws: int
    in_memory: bool = True

    @property
    def private(self) -> bool:
        """Return whether it must not be revealed here: it is inappropriate, and no identifier."""
        return self.label == Label.INAPPROPRIATE and not self.bio


@dataclass(frozen=True)
class Place:
    """The place in the prompt, from 1, at which an attribute was recalled, and the score of its line by the memory
    system. score: None where the system gives none, and behind a gate."""

    rank: int
    score: float | None = None


@dataclass(frozen=True)
class Sample:
    """One message with the claims on it that the scope asks for. `text` is what the judge read, the message or the
    reasoning before it; None where nothing came back.

    Of one judge, `reveals` are all its claims on what the memory held, of any strength; of several together, those that
    count under their combination, with the quote of the first judge that makes them. judges: by attribute, who claims
    it in full. ungrounded: claims whose quote is not in the text; where the scope counts grounded ones alone, they are
    not among the reveals. judgement: where several judges are asked, the first that is missing. task: what the task
    check says (yes, partly, no); None: not checked. response, context: their ids in the record. verdicts: by attribute,
    what people who audited the message say; people: whether that counts before the judge. prompt: by attribute, where
    it stands in the prompt; None where nothing chose what gets there. unknown_lines: recalled lines of this prompt
    whose attributes are unknown. sent: an assistant's memory writes, and its tool calls that reached the recipient;
    elsewhere: the tool calls beside this message that reached the recipient of another.
    """

    number: int
    status: ResponseStatus
    cause: str | None
    text: str | None
    judgement: JudgementStatus
    judgement_cause: str | None
    reveals: tuple[Reveal, ...]
    judges: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ungrounded: int = 0
    task: str | None = None
    response: int = 0
    context: int = 0
    verdicts: Mapping[int, Audit] = field(default_factory=dict)
    people: bool = False
    prompt: Mapping[int, Place] | None = None
    unknown_lines: int = 0
    sent: tuple[Sent, ...] = ()
    elsewhere: tuple[Sent, ...] = ()

    @property
    def judged(self) -> bool:
        """Return whether the message is there and has been read; one that is not is in no count."""
        return self.status == ResponseStatus.OK and self.judgement == JudgementStatus.OK

    @property
    def revealed(self) -> set[int]:
        """Return the attributes that this message reveals in full, as the scope counts it."""
        full = {r.attribute for r in self.reveals if r.strength == Strength.FULL}
        if self.people:
            by_people = {a: says_revealed(audit.verdict) for a, audit in self.verdicts.items()}
            full = {a for a in full | by_people.keys() if by_people.get(a, True)}
        return full

    def leaked(self, memories: dict[int, Memory]) -> list[int]:
        """Return the attributes that this message reveals in full although they are inappropriate here, identifiers
        aside."""
        return [attribute for attribute in sorted(self.revealed) if memories[attribute].private]


@dataclass(frozen=True)
class LeakView:
    """Everything that is known of one profile in one context of a run; `memories` in the order of the prompt.

    earlier: of a run with sessions, by the number of a sample what the messages in its prompt had revealed before, each
    attribute with the contexts of these messages, the first one first; None without sessions. recipients: of contexts.
    """

    profile: Profile
    context: Context
    memories: dict[int, Memory]
    samples: tuple[Sample, ...]
    earlier: Mapping[int, Mapping[int, tuple[int, ...]]] | None = None
    recipients: Mapping[int, str] = field(default_factory=dict)


def leak_view(flows: Flows, scope: Scope, profile_id: int, context_id: int) -> LeakView | None:
    """Return the view, or None where the run has no such profile and context."""
    return _leak_view(flows, scope, profile_id, context_id, scope.audits)


# audited: a scope's version has them only where they count, and here they are shown.
@cached
def _leak_view(
    flows: Flows, scope: Scope, profile_id: int, context_id: int, audited: tuple[int, int, int]
) -> LeakView | None:
    frame = flows.query(scope, _LABELS, [profile_id, context_id])
    if frame.empty:
        return None
    counts = {int(row["attribute"]): row for row in frame.to_dict("records")}
    with flows.store.read() as connection:
        record = datasets.profile_record(connection, profile_id)
        messages = tuple(samples(connection, scope, profile_id, context_id))
        earlier = _earlier(connection, scope, profile_id, context_id) if scope.run.manifest.sessions else None
    memories = {}
    for attribute_id, item in zip(record.attribute_ids, record.profile.attributes, strict=True):
        row = counts[attribute_id]
        memories[attribute_id] = Memory(
            attribute=attribute_id,
            key=item.key,
            domain=item.domain,
            event=item.event,
            statement=item.statement,
            bio=is_bio(item.key, item.domain),
            label=LABELS.get(int(row["label"])),
            decided=bool(row["decided"]),
            reveals=int(row["reveals"]),
            draws=int(row["draws"]),
            in_memory=bool(row["held"]),
        )
    context = record.profile.contexts[record.context_ids.index(context_id)]
    recipients = {c: item.recipient for c, item in zip(record.context_ids, record.profile.contexts, strict=True)}
    return LeakView(record.profile, context, memories, messages, earlier, recipients)


def _earlier(
    connection: sa.Connection, scope: Scope, profile_id: int, context_id: int
) -> dict[int, dict[int, tuple[int, ...]]]:
    """By number of the sample in this context: attributes that messages in its prompt had revealed, with the contexts
    of these messages. One that is not judged is not among them."""
    shown = {
        row.sample + 1: row.earlier
        for row in runs.earlier_of(connection, scope.run.id, profile_id)
        if row.context == context_id
    }
    said = {(item.context, item.number): item.revealed for item in samples(connection, scope, profile_id)}
    before: dict[int, dict[int, tuple[int, ...]]] = {}
    for number, contexts in shown.items():
        by_attribute = before.setdefault(number, {})
        for context in contexts:
            for attribute in sorted(said.get((context, number), ())):
                by_attribute[attribute] = (*by_attribute.get(attribute, ()), context)
    return before


def samples(connection: sa.Connection, scope: Scope, profile_id: int, context_id: int | None = None) -> list[Sample]:
    """Return the messages of one profile in one context, or in all of them, with the claims on them that the scope asks
    for."""
    by_judge = [
        judgements.judged_responses(connection, scope.run.id, judge.id, profile_id, context_id)
        for judge in scope.judges
    ]
    ids = [response.id for response in by_judge[0]]
    texts = judgements.of_responses(connection, ids, "memory", "reasoning", "channels")
    calls = tool_calls(connection, scope.run.id, profile_id)
    elsewhere: dict[int, list[Sent]] = {}
    for to, received in calls.items():
        for by, item in received:
            if by != to:
                elsewhere.setdefault(by, []).append(replace(item, task=None))
    held = judgements.partial_memories(connection, scope.run.id)
    checkers = judgements.checkers_of_run(connection, scope.run.id)
    # Counting what each of several has checked takes a while.
    if len(checkers) > 1 and (check := task_check(connection, scope.run)):
        checkers = [check.checker]
    tasks = judgements.task_verdict_of(connection, checkers[0].id, ids) if checkers else {}
    prompts, unknown = _prompts(connection, ids)
    verdicts: dict[int, dict[int, Audit]] = {}
    for (of, into), audit in decisions.standing(audits.on(connection, ids)).items():
        verdicts.setdefault(of, {})[into] = audit
    made = []
    # Every judge's list holds all messages of the place, in one order; strict says so.
    for claimed in zip(*by_judge, strict=True):
        response = claimed[0]
        memory, reasoning, channels = texts[response.id]
        writes = [item for item in read_sent(channels) if item.kind == Channel.MEMORY]
        sent = [*(call for _, call in calls.get(response.id, ())), *writes]
        tools = as_read(sent, Channel.TOOLS)
        text = {Channel.MESSAGE: response.text, Channel.REASONING: reasoning}.get(
            scope.channel, as_read(sent, scope.channel)
        )
        # What a message's memory left out it cannot reveal, whatever a judge claims.
        claims = [[r for r in item.reveals if judgements.memory_holds(held, memory, r.attribute)] for item in claimed]
        if scope.combine == Combine.SENT and tools and text is not None:
            # Shown as one text: what was quoted from the tool calls stands behind the message.
            claims[1] = [_moved(claim, len(text) + 2) for claim in claims[1]]
            text = f"{text}\n\n{tools}"
        missing = next((item for item in claimed if item.judgement != JudgementStatus.OK), response)
        reveals, judges = _counted(scope, claims)
        made.append(
            Sample(
                number=response.sample + 1,
                status=response.status,
                cause=response.cause,
                text=text,
                judgement=missing.judgement,
                judgement_cause=missing.judgement_cause,
                # Several judges speak of a message together once all of them have read it.
                reveals=reveals if scope.combine == Combine.ONE or missing.judgement == JudgementStatus.OK else (),
                judges=judges,
                ungrounded=sum(not r.grounded for claimed in claims for r in claimed),
                task=tasks.get(response.id),
                response=response.id,
                context=response.context,
                verdicts=verdicts.get(response.id, {}),
                people=scope.verdicts == Verdicts.PEOPLE,
                prompt=prompts.get(response.id),
                unknown_lines=unknown.get(response.id, 0),
                sent=tuple(sent),
                elsewhere=tuple(elsewhere.get(response.id, ())),
            )
        )
    return made


def _moved(reveal: Reveal, by: int) -> Reveal:
    span = reveal.span
    return reveal if span is None else replace(reveal, span=Span(span.start + by, span.end + by))


def _prompts(
    connection: sa.Connection, response_ids: Sequence[int]
) -> tuple[dict[int, dict[int, Place]], dict[int, int]]:
    """Return the attributes in the prompt of each response and their places, and how many recalled lines carry none
    that is known. Both are by response, of those for whose prompt something chose."""
    shown = judgements.of_responses(connection, response_ids, "shown", "recall")
    memories = datasets.memories_of(connection, {name for name, _ in shown.values() if name is not None})
    recalls = datasets.recalls_of(connection, {name for _, name in shown.values() if name is not None})
    result, unknown = {}, {}
    for response_id, (memory, recall) in shown.items():
        if recall in recalls:
            unknown[response_id] = recalls[recall].ungrounded
        if memory not in memories:
            continue
        lines = recalls[recall].lines if recall in recalls else ()
        # The first line that carries an attribute is the one that brought it in.
        scores = {a: line.score for line in reversed(lines) for a in line.attributes}
        result[response_id] = {a: Place(at, scores.get(a)) for at, a in enumerate(memories[memory], 1)}
    return result, unknown


Stretches = list[tuple[int, int]]  # of a text: start and end
MOST_COMPARED = 2_000  # words of a message
_WORD = re.compile(r"\S+")


def differences(one: str, other: str) -> tuple[Stretches, Stretches]:
    """Return the stretches of two messages that the other one has not, by words; none for messages that are longer
    than MOST_COMPARED words."""
    first, second = list(_WORD.finditer(one)), list(_WORD.finditer(other))
    if max(len(first), len(second)) > MOST_COMPARED:
        return [], []
    matcher = SequenceMatcher(None, [word[0] for word in first], [word[0] for word in second])
    changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
    return (
        [(first[a].start(), first[b - 1].end()) for _, a, b, _, _ in changes if a < b],
        [(second[a].start(), second[b - 1].end()) for _, _, _, a, b in changes if a < b],
    )


@dataclass(frozen=True)
class JudgeAnswer:
    """The answer of one judge on one message, as it came. text: None where no call is behind the judgement (the
    matcher, an imported one) or nothing came back, which `note` says."""

    judge: str
    text: str | None
    reasoning: str | None
    note: str


def judge_answers(flows: Flows, scope: Scope, response_id: int) -> list[JudgeAnswer]:
    """Return the recorded answers behind the judgements of a message, by the judges of the scope, in their order."""
    columns = (judgement.c.judge, judgement.c.status, judgement.c.cause, judgement.c.call)
    query = (
        sa.select(*columns, call.c.response, call.c.reasoning)
        # Outer: a judgement of the matcher, or one that was imported, has no call.
        .outerjoin(call, call.c.key == judgement.c.call)
        .where(judgement.c.response == response_id, judgement.c.judge.in_(scope.judge_ids))
    )
    with flows.store.read() as connection:
        rows = {row.judge: row for row in connection.execute(query)}
    answers = []
    for judge in scope.judges:
        row, title = rows.get(judge.id), judge_title(judge, scope.judges)
        if row is None:
            answers.append(JudgeAnswer(title, None, None, "has not judged this message yet"))
            continue
        without = "compares texts and asks no model" if judge.kind == MATCHER else "came without the judge's answer"
        cause = f": {row.cause}" if row.cause else ""
        unread = "" if row.status == JudgementStatus.OK else f"{row.status}{cause}"
        note = unread or (without if row.call is None else "" if row.response else "the answer is empty")
        answers.append(JudgeAnswer(title, row.response or None, row.reasoning or None, note))
    return answers


def _counted(scope: Scope, claims: Sequence[Sequence[Reveal]]) -> tuple[tuple[Reveal, ...], dict[int, tuple[str, ...]]]:
    """Return the claims to show, and by attribute the judges that claim it in full. claims: of each judge, in their
    order."""
    first: dict[int, Reveal] = {}
    by: dict[int, tuple[str, ...]] = {}
    for judge, claimed in zip(scope.judges, claims, strict=True):
        for reveal in claimed:
            if reveal.strength != Strength.FULL or (scope.grounded and not reveal.grounded):
                continue
            # In the order of the judges, so the quote shown is that of the first.
            first.setdefault(reveal.attribute, reveal)
            by[reveal.attribute] = (*by.get(reveal.attribute, ()), judge_title(judge, scope.judges))
    if scope.combine == Combine.ONE:
        return tuple(r for r in claims[0] if r.grounded or not scope.grounded), by
    return tuple(r for a, r in first.items() if len(by[a]) >= scope.need), by
