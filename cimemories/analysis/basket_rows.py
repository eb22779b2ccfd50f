"""What is in a basket, as the record has it now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimemories.analysis.basket import Item
from cimemories.analysis.flows import Combine, Flows, Scope, scope
from cimemories.analysis.gallery import gallery
from cimemories.analysis.leak_rows import LeakRow, leak_rows
from cimemories.store.engine import StoreError


@dataclass(frozen=True)
class Held:
    """One example of a basket. row: None where it is a leak no more, for the reason `gone`."""

    item: Item
    row: LeakRow | None
    gone: str = ""


def item_of(asked: Scope, profile: int, context: int, attribute: int) -> Item:
    """A flow as it is put into a basket: by the claims, verdicts and labels that it was looked at with."""
    judge = str(asked.judge.id) if asked.combine == Combine.ONE else str(asked.combine)
    return Item(
        run=asked.run.id,
        profile=profile,
        context=context,
        attribute=attribute,
        judge=judge,
        verdicts=str(asked.verdicts),
        labels=str(asked.labels),
        grounded=asked.grounded,
    )


def held(flows: Flows, items: Sequence[Item]) -> list[Held]:
    """Each of these with its row, or why it has none: its run is deleted, or it is no leak any more."""
    scopes: dict[tuple[object, ...], Scope | str] = {}
    found = []
    for item in items:
        way = item.run, item.judge, item.verdicts, item.labels, item.grounded
        if way not in scopes:
            scopes[way] = _scope(flows, item)
        asked = scopes[way]
        if isinstance(asked, str):
            found.append(Held(item, None, asked))
            continue
        examples = gallery(flows, [asked])
        own = examples[examples["id"] == item.id]
        rows = leak_rows(flows, {asked.run.id: asked}, own, {item.id: item.note})
        gone = "" if rows else "It is no leak any more: its label, or what counts as revealed, has changed."
        found.append(Held(item, rows[0] if rows else None, gone))
    return found


def _scope(flows: Flows, item: Item) -> Scope | str:
    try:
        return scope(
            flows.store, item.run, None, item.judge or None, item.verdicts, grounded=item.grounded, labels=item.labels
        )
    except (StoreError, ValueError) as problem:
        return f"It cannot be read any more: {problem}"
