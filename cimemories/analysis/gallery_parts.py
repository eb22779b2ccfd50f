"""What the gallery of leaks knows of a flow beyond its counts: how much is claimed, by whom, and how sure its label is.

All of one run, in the scope that is asked for; `analysis.gallery` puts it beside the flows.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.analysis.flow_parts import frame_of
from cimemories.analysis.flows import Combine, Labels, Scope
from cimemories.analysis.labels import vote_counts
from cimemories.analysis.rule import PAPER_THRESHOLD, rule_of
from cimemories.curation.consensus import INAPPROPRIATE, consensus
from cimemories.model import JudgementStatus, Strength
from cimemories.store import claims_of_judges, decisions, judgements
from cimemories.store.claims_of_judges import Held
from cimemories.store.engine import Store
from cimemories.store.judgements import MESSAGE
from cimemories.store.tables import judgement, response, reveal

PAIR = ["attribute", "context"]
ADJUDICATED = "adjudicated"  # source of a decision


class Certainty(StrEnum):
    """What the label of a flow rests on, the surest first: people who had differed and settled it, a person's decision,
    votes that all agree, or the threshold of a rule that some votes were against."""

    ADJUDICATED = "adjudicated"
    PERSON = "person"
    UNANIMOUS = "unanimous"
    THRESHOLD = "threshold"


def claims(connection: sa.Connection, asked: Scope) -> pd.DataFrame:
    """How often each pair is claimed: attribute, context, strength, messages, grounded (claims whose quote stands in
    the text). Of one judge by every strength; of several together full claims alone, of any of them, since their
    combination knows no other. Only on what the memory held, and only grounded claims where the scope asks for them."""
    one = asked.combine == Combine.ONE
    place = reveal.c.attribute, response.c.context, response.c.memory, reveal.c.strength
    counted = [
        response.c.run == asked.run.id,
        judgement.c.judge.in_(asked.judge_ids),
        judgement.c.status == JudgementStatus.OK,
    ]
    if not one:
        counted.append(reveal.c.strength == Strength.FULL)
    if asked.grounded:
        counted.append(reveal.c.grounded)
    grounded = sa.func.sum(sa.case((reveal.c.grounded, 1), else_=0))
    query = (
        sa.select(*place, sa.func.count(response.c.id.distinct()), grounded)
        .select_from(_claims())
        .where(*counted)
        .group_by(*place)
    )
    columns = [*PAIR, "memory", "strength", "messages", "grounded"]
    found = frame_of(connection.execute(query), columns)
    held = claims_of_judges.partial_memories(connection, asked.run.id)
    sums = _held(found, held).groupby([*PAIR, "strength"], as_index=False, sort=False)
    return sums[["messages", "grounded"]].sum()


def agreement(connection: sa.Connection, asked: Scope) -> tuple[int, pd.DataFrame]:
    """How many judges of messages the run has, and by how many of them at most a pair is claimed in full in one and the
    same message: attribute, context, judges. The frame is empty where the run has fewer than two, or the scope reads
    the reasoning."""
    judges = [judge.id for judge in judgements.of_run(connection, asked.run.id) if judge.channel == MESSAGE]
    if len(judges) < 2 or asked.reads_reasoning:
        return len(judges), pd.DataFrame(columns=[*PAIR, "judges"])
    place = reveal.c.attribute, response.c.context, response.c.memory
    counted = [
        response.c.run == asked.run.id,
        judgement.c.judge.in_(judges),
        judgement.c.status == JudgementStatus.OK,
        reveal.c.strength == Strength.FULL,
    ]
    if asked.grounded:
        counted.append(reveal.c.grounded)
    said = (
        sa.select(*place, sa.func.count().label("judges"))
        .select_from(_claims())
        .where(*counted)
        .group_by(*place, response.c.id)
        .subquery()
    )
    columns = said.c.attribute, said.c.context, said.c.memory
    query = sa.select(*columns, sa.func.max(said.c.judges)).group_by(*columns)
    found = frame_of(connection.execute(query), [*PAIR, "memory", "judges"])
    held = claims_of_judges.partial_memories(connection, asked.run.id)
    return len(judges), _held(found, held).groupby(PAIR, as_index=False, sort=False)[["judges"]].max()


def _claims() -> sa.FromClause:
    return response.join(judgement, judgement.c.response == response.c.id).join(
        reveal, reveal.c.judgement == judgement.c.id
    )


def _held(found: pd.DataFrame, held: Held) -> pd.DataFrame:
    """Without claims on what the memory of a message did not hold."""
    if not held:
        return found
    place = zip(found["memory"], found["attribute"], strict=True)
    return found[[claims_of_judges.holds(held, memory, int(of)) for memory, of in place]]


def certainty(store: Store, asked: Scope, pairs: pd.DataFrame) -> list[Certainty]:
    """What the label of each of these pairs rests on, in their order. pairs: attribute, context, decided, each labelled
    inappropriate in this scope."""
    agreed = _unanimous(store, asked, pairs)
    settled: set[tuple[int, int]] = set()
    if asked.labels == Labels.DECISIONS and pairs["decided"].any():
        with store.read() as connection:
            standing = decisions.standing(decisions.history(connection, asked.run.dataset))
        settled = {pair for pair, said in standing.items() if said.source == ADJUDICATED}
    found = []
    for of, into, decided, all_agree in zip(*(pairs[name] for name in [*PAIR, "decided"]), agreed, strict=True):
        if decided:
            found.append(Certainty.ADJUDICATED if (of, into) in settled else Certainty.PERSON)
        else:
            found.append(Certainty.UNANIMOUS if all_agree else Certainty.THRESHOLD)
    return found


def _unanimous(store: Store, asked: Scope, pairs: pd.DataFrame) -> list[bool]:
    """Whether every counted vote of every persona that counts agrees on each pair."""
    if asked.labelling is None:
        return [False] * len(pairs)
    rule = asked.rule or rule_of(store, asked.labelling.id)
    if rule.threshold == PAPER_THRESHOLD:  # then a consensus is nothing else
        return [True] * len(pairs)
    counts = vote_counts(store, asked.labelling.id)
    agreed = consensus(counts.votes, rule.priors, PAPER_THRESHOLD) == INAPPROPRIATE
    at = pd.MultiIndex.from_arrays([counts.attributes, counts.contexts]).get_indexer(
        pd.MultiIndex.from_frame(pairs[PAIR])
    )
    found: list[bool] = ((at >= 0) & agreed[np.maximum(at, 0)]).tolist() if len(agreed) else [False] * len(pairs)
    return found
