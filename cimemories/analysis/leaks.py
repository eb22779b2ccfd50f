"""One profile in one context of a run: the messages, what each gives away, and how that was labelled."""

from __future__ import annotations

from dataclasses import dataclass

from cimemories.analysis.flows import Flows, Scope
from cimemories.curation.consensus import LABELS
from cimemories.model import Context, JudgementStatus, Label, Profile, ResponseStatus, Reveal, Strength, is_bio
from cimemories.store import datasets, judgements

_LABELS = """
    SELECT attribute, label, decided, reveals, draws FROM {flow} WHERE profile = ? AND context = ? AND level = 'full'
"""


@dataclass(frozen=True)
class Memory:
    """One attribute of the memory in this context: its label (None: nobody has labelled it) and its counts."""

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


@dataclass(frozen=True)
class Sample:
    """One message with what the judge found in it. `text` is None where no message came back."""

    number: int
    status: ResponseStatus
    cause: str | None
    text: str | None
    judgement: JudgementStatus
    judgement_cause: str | None
    reveals: tuple[Reveal, ...]

    def leaked(self, memories: dict[int, Memory]) -> list[int]:
        """The attributes that this message reveals in full although they are inappropriate here, identifiers aside."""
        found = (memories[r.attribute] for r in self.reveals if r.strength == Strength.FULL)
        return [m.attribute for m in found if m.label == Label.INAPPROPRIATE and not m.bio]


@dataclass(frozen=True)
class LeakView:
    """Everything that is known of one profile in one context of a run; `memories` in the order of the prompt."""

    profile: Profile
    context: Context
    memories: dict[int, Memory]
    samples: tuple[Sample, ...]


def leak_view(flows: Flows, asked: Scope, profile_id: int, context_id: int) -> LeakView | None:
    """The view, or None where the run has no such profile and context."""
    frame = flows.query(asked, _LABELS, [profile_id, context_id])
    if frame.empty:
        return None
    counts = {int(row["attribute"]): row for row in frame.to_dict("records")}
    with flows.store.read() as connection:
        record = datasets.profile_record(connection, profile_id)
        responses = judgements.judged_responses(connection, asked.run.id, asked.judge.id, profile_id, context_id)
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
        )
    samples = tuple(
        Sample(
            number=r.sample + 1,
            status=r.status,
            cause=r.cause,
            text=r.text,
            judgement=r.judgement,
            judgement_cause=r.judgement_cause,
            reveals=r.reveals,
        )
        for r in responses
    )
    context = record.profile.contexts[record.context_ids.index(context_id)]
    return LeakView(record.profile, context, memories, samples)
