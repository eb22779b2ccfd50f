"""Runs whose memories leave attributes out, message by message, and that several judges have read, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import sqlalchemy as sa
from worlds import add_call, add_dataset, add_judge, add_labels, plan_run, records, settle_response

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import JudgementStatus, Reveal, Span, Strength, WorkStatus
from cimemories.store import datasets, judgements, runs, work
from cimemories.store.engine import Store
from cimemories.store.tables import response

Claim = tuple[Strength, bool]  # how much, and whether the quote is in the message


@dataclass
class JudgedWorld:
    """labels: [profile, attribute, context]. held, claims: by response, what its memory holds and, by judge, what that
    says of which attribute; no entry of a judge that has not judged it. place: by response (profile, context)."""

    run_id: str
    labels: np.ndarray
    judges: list[int]
    attributes: list[tuple[int, ...]]
    contexts: tuple[int, ...]
    place: dict[int, tuple[int, int]] = field(default_factory=dict)
    held: dict[int, set[int]] = field(default_factory=dict)
    claims: dict[int, dict[int, dict[int, Claim]]] = field(default_factory=dict)

    def counts(self, judges: list[int], need: int, grounded: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draws and reveals, message by message: [profile, attribute, context]."""
        draws, reveals = np.zeros(self.labels.shape, int), np.zeros(self.labels.shape, int)
        for number, (p, c) in self.place.items():
            if any(judge not in self.claims[number] for judge in judges):
                continue
            for a, attribute in enumerate(self.attributes[p]):
                if attribute in self.held[number]:
                    claims = [self.claims[number][judge].get(attribute) for judge in judges]
                    full = sum(x is not None and x[0] == "full" and (x[1] or not grounded) for x in claims)
                    draws[p, a, c] += 1
                    reveals[p, a, c] += full >= need
        return draws, reveals


def judged_world(store: Store, seed: int = 1, judges: int = 3, samples: int = 3, whole: float = 0.4) -> JudgedWorld:
    """Random labels, memories and claims on 2 profiles x 5 attributes x 4 contexts. whole: the share of messages whose
    assistant holds everything. Of the last context no message ever holds the first attribute."""
    chance = np.random.default_rng(seed)
    shape = (2, 5, 4)
    dataset = add_dataset(store, *shape, name=f"judged {seed}")
    labels = chance.choice([NECESSARY, INAPPROPRIATE, AMBIGUOUS], p=[0.4, 0.4, 0.2], size=shape)
    add_labels(store, dataset.id, labels)
    people = records(store, dataset.id)
    with store.write() as connection:
        run_id = plan_run(connection, dataset.id, samples, judge="judge 0")
        more = [add_judge(connection, f"judge {n}") for n in range(1, judges)]
        judgements.assign(connection, run_id, more)
        ids = [row.id for row in judgements.of_run(connection, run_id)]
        world = JudgedWorld(run_id, labels, ids, [p.attribute_ids for p in people], people[0].context_ids)
        for p, person in enumerate(people):
            for group in runs.owed(connection, run_id, person.id):
                for number in group.samples.values():
                    c = person.context_ids.index(group.context)
                    world.place[number] = p, c
                    _message(connection, world, person.id, number, chance, whole)
        work.finish(connection, run_id, WorkStatus.FINISHED)
        work.bump(connection, run_id)
    return world


def _message(
    connection: sa.Connection,
    world: JudgedWorld,
    profile_id: int,
    number: int,
    chance: np.random.Generator,
    whole: float,
) -> None:
    p, c = world.place[number]
    own = world.attributes[p]
    last = c == len(world.contexts) - 1
    held = [a for a in own if chance.random() < 0.6 and not (last and a == own[0])]
    if chance.random() < whole and not last:
        held = list(own)
    if len(held) < len(own) or chance.random() < 0.5:  # a whole memory may be named or not
        named = datasets.keep_memories(connection, profile_id, held)
        connection.execute(sa.update(response).where(response.c.id == number).values(memory=named))
    settle_response(connection, number, add_call(connection, "an answer"))
    world.held[number] = set(held)
    world.claims[number] = {}
    for judge in world.judges:
        if chance.random() < 0.1:
            continue
        claims = {
            a: (Strength.FULL if chance.random() < 0.8 else Strength.PARTIAL, bool(chance.random() < 0.7))
            for a in own
            if chance.random() < 0.5
        }
        world.claims[number][judge] = claims
        reveals = [Reveal(a, "All of it", Span(0, 9) if g else None, s) for a, (s, g) in claims.items()]
        judgements.settle(connection, number, judge, status=JudgementStatus.OK, reveals=reveals)
