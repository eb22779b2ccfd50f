"""What a card of the review queue says of a pair: its words, the votes draw by draw, and what runs and people did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.analysis.pairs import GLYPHS, MISSING_GLYPH
from cimemories.analysis.review_index import PairIndex
from cimemories.analysis.review_shape import Facet, Ints
from cimemories.analysis.review_standing import Standing, standing
from cimemories.curation.consensus import LABELS, UNLABELLED
from cimemories.model import Label, Value
from cimemories.store import labellings
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, ballot, context, vote

_LETTERS = {str(verdict): glyph for verdict, glyph in GLYPHS.items()}
Letters = tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Item:
    """One pair as it is shown. attribute, context: ids.

    votes: of each persona its key, its prior by the rule that holds, and a letter a draw, in their order: N, X, ? for
    an abstention, - where the vote is missing; of a labelling that was imported as shares, and without one, there are
    none. reveals of draws: judged messages of finished runs that reveal the attribute in full. decided: how many
    people's decisions stand.
    """

    attribute: int
    context: int
    statement: str
    key: str
    value: Value
    domain: str
    event: str
    user: str
    recipient: str
    task: str
    sphere: str | None
    consensus: Label | None
    effective: Label | None
    votes: Letters
    reveals: int
    draws: int
    decided: int


def items(store: Store, index: PairIndex, positions: npt.NDArray[np.generic] | Sequence[int]) -> list[Item]:
    """The pairs at these positions, in their order; meant for a screenful, not for thousands. A pair whose attribute or
    context was removed in the meantime is left out."""
    at = np.asarray(positions, np.int64)
    if not len(at):
        return []
    shape, found = index.shape, standing(store, index.shape)
    pairs = index.pairs(at)
    owners = shape.codes(Facet.PROFILE, at)
    with store.read() as connection:
        attributes = _rows(connection, attribute, {a for a, _ in pairs})
        contexts = _rows(connection, context, {c for _, c in pairs})
        votes = _votes(connection, index, pairs, shape.profile_ids[owners].tolist())
    decided = found.deciders(at)
    shown = []
    for n, (a, c) in enumerate(pairs):
        if a not in attributes or c not in contexts:
            continue
        said, towards = attributes[a], contexts[c]
        shown.append(
            Item(
                attribute=a,
                context=c,
                statement=said.statement,
                key=said.key,
                value=json.loads(said.value),
                domain=said.domain,
                event=said.event,
                user=shape.names[Facet.PROFILE][owners[n]],
                recipient=towards.recipient,
                task=towards.task,
                sphere=towards.sphere,
                consensus=_label(index.consensus[at[n]]),
                effective=_label(_effective(index, found, at[n])),
                votes=votes.get((a, c), ()),
                reveals=int(index.reveals[at[n]]),
                draws=int(index.draws[at[n]]),
                decided=int(decided[n]),
            )
        )
    return shown


def sample(positions: npt.NDArray[np.generic], count: int, seed: int = 0) -> Ints:
    """A random sample of these positions without replacement, in their order; all of them where there are no more."""
    if len(positions) <= count:
        return positions
    chosen = np.random.default_rng(seed).choice(len(positions), count, replace=False)
    drawn: Ints = positions[np.sort(chosen)]
    return drawn


def undecided(store: Store, index: PairIndex, positions: npt.NDArray[np.generic], annotator: str) -> Ints:
    """Those of these positions on which no decision of this annotator stands, in their order."""
    mask = np.ones(len(index), np.bool_)
    mask[standing(store, index.shape).of(annotator)[0]] = False
    kept: Ints = positions[mask[positions]]
    return kept


def _label(code: int) -> Label | None:
    return None if code == UNLABELLED else LABELS[int(code)]


def _effective(index: PairIndex, found: Standing, position: int) -> int:
    decided = found.decided[position]
    return int(index.consensus[position] if decided == UNLABELLED else decided)


def _rows(connection: sa.Connection, table: sa.Table, ids: set[int]) -> dict[int, Any]:
    return {row.id: row for row in connection.execute(sa.select(table).where(table.c.id.in_(ids)))}


def _votes(
    connection: sa.Connection, index: PairIndex, pairs: Sequence[tuple[int, int]], profiles: Sequence[int]
) -> dict[tuple[int, int], Letters]:
    """The letters of each pair, by persona in the order of the rule."""
    if index.labelling_id is None or index.rule is None or index.imported:
        return {}
    personas = list(labellings.personas(connection, index.labelling_id))
    columns = [sa.column(name, sa.BigInteger) for name in ("attribute", "profile", "context")]
    rows = sorted({(a, p, c) for (a, c), p in zip(pairs, profiles, strict=True)})
    asked = sa.values(*columns, name="asked").data(rows).cte()
    own = (
        ballot.c.labelling == index.labelling_id,
        ballot.c.profile == asked.c.profile,
        ballot.c.context == asked.c.context,
    )
    cast = connection.execute(
        sa.select(asked.c.attribute, asked.c.context, ballot.c.persona, vote.c.verdict)
        .select_from(asked)
        .join(ballot, sa.and_(*own))
        .outerjoin(vote, sa.and_(vote.c.ballot == ballot.c.id, vote.c.attribute == asked.c.attribute))
        .order_by(ballot.c.draw)
    )
    drawn: dict[tuple[int, int, int], str] = {}
    for a, c, persona, verdict in cast:
        drawn[a, c, persona] = drawn.get((a, c, persona), "") + _LETTERS.get(verdict, MISSING_GLYPH)
    keyed = list(zip(personas, index.rule.keys, index.rule.priors, strict=True))
    return {(a, c): tuple((key, prior, drawn.get((a, c, i), "")) for i, key, prior in keyed) for a, c in pairs}
