"""Recall, flow by flow: what reached the prompt, between what the assistant stores and what it says.

A gate or a memory system chooses for each message which of the stored attributes the model gets to see. So every judged
sample of a flow is one of four:

                        said                       not said
    recalled            leaked, or conveyed        the model held it back, or lost it in writing
    not recalled        known from elsewhere       the memory held it back, or lost it in retrieval

`draws` and `reveals` of `FlowArrays` are the whole and its left column; here is the upper row. Where nothing chooses,
all that is stored is recalled. A memory that leaves an attribute out (compositions) recalls nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sqlalchemy as sa

from cimemories.flows.arrays import FlowArrays, IdentifierRule, Ints, blocks, flow_arrays
from cimemories.flows.flows import Flows, cached, verdict_changes
from cimemories.flows.scope import Scope
from cimemories.store import datasets, judgements
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import PartialMemories


@dataclass(frozen=True)
class RecalledArrays:
    """Counts of a run, [profile, attribute, context] each: recalled, judged samples with the attribute in the prompt
    (at most the draws of `data`); recalled_reveals, how many of these reveal it (at most its reveals)."""

    data: FlowArrays
    recalled: Ints
    recalled_reveals: Ints

    @property
    def unrecalled(self) -> Ints:
        """Samples that reveal what was not in their prompt."""
        result: Ints = self.data.reveals - self.recalled_reveals
        return result

    @property
    def reached(self) -> Ints:
        """Samples in which the attribute was recalled, or said without."""
        result: Ints = self.recalled + self.unrecalled
        return result


@cached
def recalls(flows: Flows, scope: Scope) -> bool:
    """Return whether something chose what reached the prompts of a run."""
    with flows.store.read() as connection:
        return judgements.recalls(connection, scope.run.id)


def recalled_blocks(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT
) -> Iterator[RecalledArrays]:
    """Yield the counts of a run in blocks of profiles (arrays.blocks). Raises StoreError where a response names what is
    not in the workspace."""
    return (recalled_arrays(flows, scope, data) for data in blocks(flows, scope, rule))


def recalled_arrays(flows: Flows, scope: Scope, data: FlowArrays) -> RecalledArrays:
    """Return the counts of these arrays of a run. Raises as `recalled_blocks`."""
    facts = flows.cached(("recall of a run", scope.version), lambda: run_facts(flows.store, scope))
    if data.part is not None:
        return count_recalled(flows.store, scope, data, data.profiles, facts)
    # Once for all identifier rules, which do not change what is counted.
    whole = flow_arrays(flows, scope)
    counts = whole.derived("recalled", lambda: count_recalled(flows.store, scope, whole, facts=facts))
    return replace(counts, data=data)


@dataclass(frozen=True)
class RunFacts:
    """Facts that are read once a run, however many blocks it has: its partial memories, and what people's verdicts
    change (flows.verdict_changes)."""

    memories: PartialMemories
    changes: list[tuple[int, int, int, int]]


def run_facts(store: Store, scope: Scope) -> RunFacts:
    """Read these facts from the record."""
    with store.read() as connection:
        memories = judgements.partial_memories(connection, scope.run.id)
        return RunFacts(memories, verdict_changes(connection, scope, memories))


def count_recalled(
    store: Store,
    scope: Scope,
    data: FlowArrays,
    profiles: Sequence[int] | None = None,
    facts: RunFacts | None = None,
) -> RecalledArrays:
    """Count, from the record, what was recalled of the flows of these arrays. profiles: those of the arrays, where the
    run has more; facts: its `run_facts`, read here if None."""
    run_id, judges = scope.run.id, scope.judge_ids
    facts = facts or run_facts(store, scope)
    with store.read() as connection:
        draws = judgements.judged_draws(connection, run_id, judges, profiles, by_shown=True).all()
        claims = judgements.reveal_counts(
            connection, run_id, judges, scope.need, grounded=scope.grounded, profiles=profiles, by_shown=True
        ).all()
        audited = judgements.of_responses(connection, {change[0] for change in facts.changes}, "shown")
        prompts = {response: shown for response, (shown,) in audited.items()}
        names = {row.shown for row in draws} | set(prompts.values())
        shown = _prompts(connection, run_id, {name for name in names if name is not None})
    size, contexts = data.draws.shape[2], {context: at for at, context in enumerate(data.contexts)}
    ids = data.names.attribute.astype(np.int64)
    # The place of each attribute's first cell in the flat arrays; the padding has the id -1.
    first = {int(ids.reshape(-1)[at]): at * size for at in np.flatnonzero(ids.reshape(-1) >= 0)}
    everything = {profile: ids[p][ids[p] >= 0].tolist() for p, profile in enumerate(data.profiles)}
    recalled, said = (np.zeros(data.draws.size, data.draws.dtype) for _ in range(2))
    cells: dict[tuple[int, str | None, str | None], Ints] = {}
    for row in draws:
        key = row.profile, row.memory, row.shown
        if key not in cells:
            partial = facts.memories.get(row.memory)
            stored: Collection[int] = everything.get(row.profile, ()) if partial is None else partial
            prompt = stored if row.shown is None else shown[row.shown].intersection(stored)
            cells[key] = np.array([first[a] for a in prompt if a in first], np.int64)
        if row.context in contexts:
            recalled[cells[key] + contexts[row.context]] += row.draws

    def count(attribute: int, context: int, prompt: str | None, number: int) -> None:
        if attribute in first and context in contexts and (prompt is None or attribute in shown[prompt]):
            said[first[attribute] + contexts[context]] += number

    for row in claims:
        if judgements.memory_holds(facts.memories, row.memory, row.attribute):
            count(row.attribute, row.context, row.shown, row.reveals)
    for response, attribute, context, change in facts.changes:
        count(attribute, context, prompts[response], change)
    shape = data.draws.shape
    return RecalledArrays(data, recalled.reshape(shape), said.reshape(shape))


def _prompts(connection: sa.Connection, run_id: str, hashes: Collection[str]) -> dict[str, frozenset[int]]:
    memories = datasets.memories_of(connection, hashes)
    if lost := next((name for name in hashes if name not in memories), None):
        raise StoreError(
            f"{run_id} names the recalled memories {lost[:12]}, which are not in the workspace, so what its "
            "model saw is unknown. Import the run again, or delete it."
        )
    return {name: frozenset(ids) for name, ids in memories.items()}
