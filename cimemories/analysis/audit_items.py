"""What a person sees of an item of an audit: the message, the memory statement, and what a judge claims of the two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import Span, Strength, Value
from cimemories.store import judgements
from cimemories.store.audits import Flow
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, context, profile, response


@dataclass(frozen=True)
class AuditItem:
    """One (response, attribute). judged: whether the judge has judged the response; claim: the strength that it
    claims, None where it claims nothing; span: where its quote stands in `text`, None where it is not in there."""

    response: int
    attribute: int
    context: int
    statement: str
    key: str
    value: Value
    domain: str
    user: str
    recipient: str
    task: str
    sample: int
    text: str
    judged: bool
    claim: Strength | None
    span: Span | None
    quote: str

    @property
    def segments(self) -> list[tuple[str, str]]:
        """The message in pieces (words, kind), the claimed quote of kind 'quote'; empty pieces left out."""
        if self.span is None:
            return [(self.text, "")]
        start, end = self.span.start, self.span.end
        parts = [(self.text[:start], ""), (self.text[start:end], "quote"), (self.text[end:], "")]
        return [(words, kind) for words, kind in parts if words]


def audit_items(store: Store, judge_id: int, flows: Sequence[Flow]) -> list[AuditItem]:
    """These items in their order, for some dozens at a time; those whose response is gone are left out."""
    with store.read() as connection:
        rows = connection.execute(
            sa.select(
                response.c.id,
                response.c.sample,
                response.c.text,
                response.c.context,
                profile.c.name,
                context.c.recipient,
                context.c.task,
            )
            .join(profile, response.c.profile == profile.c.id)
            .join(context, response.c.context == context.c.id)
            .where(response.c.id.in_({r for r, _ in flows}))
        ).all()
        facts = connection.execute(sa.select(attribute).where(attribute.c.id.in_({a for _, a in flows}))).mappings()
        attributes = {row["id"]: row for row in facts}
        claimed = judgements.claims(connection, judge_id, (r for r, _ in flows))
    responses = {row.id: row for row in rows}
    found = []
    for response_id, attribute_id in flows:
        message, fact = responses.get(response_id), attributes.get(attribute_id)
        if message is None or fact is None:
            continue
        claim, span, quote = claimed.get(response_id, {}).get(attribute_id, (None, None, ""))
        found.append(
            AuditItem(
                response=response_id,
                attribute=attribute_id,
                context=message.context,
                statement=fact["statement"],
                key=fact["key"],
                value=json.loads(fact["value"]),
                domain=fact["domain"],
                user=message.name,
                recipient=message.recipient,
                task=message.task,
                sample=message.sample + 1,
                text=message.text or "",
                judged=response_id in claimed,
                claim=claim,
                span=span,
                quote=quote,
            )
        )
    return found
