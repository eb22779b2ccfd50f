"""Bulk decisions: batches that are undone as one, and proposals of pairs that resemble a decided one.

Nothing that is proposed is ever applied by itself. Similarity is the cosine of TF-IDF vectors (Salton and Buckley 1988,
Information Processing & Management 24, 513-523), which a reader can check: the same rare words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.cache import shared_cache
from cimemories.model import Label
from cimemories.review.index import Facet, Ints, PairIndex, PairShape
from cimemories.review.standing import standing
from cimemories.store import decisions, reviews
from cimemories.store.decisions import UNDO, NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, decision, profile
from cimemories.store.team import log

RECENT = 200  # decisions that are looked through for the last single one
PIECE = 1000  # decisions of one transaction: others get their turn between two
CONTEXT_COSINE = 0.15  # of task and recipient, a dozen words: one rare word in common
STATEMENT_COSINE = 0.7  # near-identical: the same sentence but for a number, a name or a date
MOST_CONTEXTS = 8
MOST_PAIRS = 200
DOMAINS_CACHED = 6
_DIGITS = re.compile(r"\d+")
Candidates = list[tuple[int, float]]  # position, -1 where there is no such pair; similarity
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Batch:
    """Decisions made together. pairs: how many; taken_back: how many of them were. label: None where the batch has
    several. created: of the first, ISO 8601 in UTC."""

    id: str
    source: str
    pairs: int
    taken_back: int
    label: Label | None
    reason: str
    created: str


@dataclass(frozen=True)
class LastDecision:
    """A pair (ids) and the label that was decided."""

    attribute: int
    context: int
    label: Label


def batches(store: Store, dataset_id: int, annotator: str, limit: int = 10) -> list[Batch]:
    """Return the newest batches of one annotator in a dataset, newest first."""
    conditions = decision.c.dataset == dataset_id, decision.c.annotator == annotator, decision.c.batch.is_not(None)
    grouped = (
        sa.select(
            decision.c.batch,
            sa.func.min(decision.c.source).label("source"),
            sa.func.count().label("pairs"),
            # The lowest and the highest name of a label: the same where the batch has one label.
            sa.func.min(decision.c.label).label("lowest"),
            sa.func.max(decision.c.label).label("highest"),
            sa.func.min(decision.c.reason).label("reason"),
            sa.func.min(decision.c.created).label("created"),
        )
        .where(*conditions, decision.c.source != UNDO)
        .group_by(decision.c.batch)
        .order_by(sa.func.max(decision.c.id).desc())
        .limit(limit)
    )
    with store.read() as connection:
        rows = connection.execute(grouped).all()
        # An undo of a batch is a batch of its own, named after it.
        undone: dict[str, int] = {
            str(row[0]): int(row[1])
            for row in connection.execute(
                sa.select(decision.c.batch, sa.func.count())
                .where(
                    *conditions, decision.c.source == UNDO, decision.c.batch.in_([f"undo-{row.batch}" for row in rows])
                )
                .group_by(decision.c.batch)
            )
        }
    return [
        Batch(
            id=row.batch,
            source=row.source,
            pairs=row.pairs,
            taken_back=undone.get(f"undo-{row.batch}", 0),
            label=Label(row.lowest) if row.lowest is not None and row.lowest == row.highest else None,
            reason=row.reason,
            created=row.created,
        )
        for row in rows
    ]


def last_single(store: Store, dataset_id: int, annotator: str) -> LastDecision | None:
    """Return the pair that this annotator decided last, not in a batch and not undone since, or None if there is none
    among their newest RECENT decisions."""
    query = (
        sa.select(decision.c.attribute, decision.c.context, decision.c.label, decision.c.source)
        .where(decision.c.dataset == dataset_id, decision.c.annotator == annotator)
        # By time: an import may have brought older ones since.
        .order_by(decision.c.created.desc(), decision.c.id.desc())
        .limit(RECENT)
    )
    seen: set[tuple[int, int]] = set()
    with store.read() as connection:
        # Newest first: only what comes first of a pair can stand, so an older one is passed over.
        for attribute, context, label, source in connection.execute(query):
            if (attribute, context) not in seen and label is not None and source in ("single", "queue"):
                return LastDecision(attribute, context, Label(label))
            seen.add((attribute, context))
    return None


def decide_all(
    store: Store,
    dataset_id: int,
    annotator: str,
    pairs: Sequence[tuple[int, int]],
    label: Label,
    *,
    reason: str,
    source: str,
    batch: str,
) -> Iterator[int]:
    """Decide all pairs as one batch of this new id, PIECE by PIECE, each in a transaction of its own; after each, how
    many are decided so far. Raises StoreError where a piece cannot be written: those before it stay."""
    written = 0
    with store.read() as connection:
        guideline = reviews.current_guideline(connection).hash
    for start in range(0, len(pairs), PIECE):
        piece = [
            NewDecision(a, c, label, reason=reason, source=source, batch=batch, guideline=guideline)
            for a, c in pairs[start : start + PIECE]
        ]
        # A transaction a piece: other people's presses are written between two of them.
        with store.write(Role.ANNOTATOR) as connection:
            decisions.take_turns(connection, dataset_id, annotator)
            written += decisions.add_all(connection, dataset_id, annotator, piece)
            if start == 0:  # it may be stopped before the last piece
                name = log.dataset_name(connection, dataset_id)
                log.add(connection, "decisions.bulk", name, label=str(label), pairs=len(pairs))
        yield written


def undo_batch(store: Store, dataset_id: int, annotator: str, batch_id: str) -> int:
    """Undo a batch of this annotator; return how many decisions that took back. Pairs decided again since are left."""
    with store.write(Role.ANNOTATOR) as connection:
        decisions.take_turns(connection, dataset_id, annotator)
        undone = decisions.undo_batch(connection, dataset_id, annotator, batch_id)
        log.add(connection, "decisions.bulk_undone", log.dataset_name(connection, dataset_id), pairs=undone)
        return undone


class Axis(StrEnum):
    """The direction in which a decision is spread."""

    CONTEXTS = "contexts"  # the same attribute in similar contexts
    ATTRIBUTES = "attributes"  # attributes of the same domain and event in the same context
    PROFILES = "profiles"  # near-identical statements of other profiles, in the same or a similar context


@dataclass(frozen=True)
class SimilarPair:
    """One pair (ids) and how much it resembles the decided one, 0 to 1."""

    attribute: int
    context: int
    similarity: float


@dataclass(frozen=True)
class Proposal:
    """Pairs along one axis, most similar first, why they are proposed, and the least similarity among them."""

    axis: Axis
    reason: str
    similarity: float
    pairs: tuple[SimilarPair, ...]


def proposals(store: Store, index: PairIndex, annotator: str, attribute_id: int, context_id: int) -> list[Proposal]:
    """Propose pairs on which a decision of this annotator on one pair might hold too, by axis; axes without any are
    left out.

    At most MOST_PAIRS pairs an axis, none that the annotator has decided, none on two axes. similarity is the cosine of
    what differs from the decided pair: task and recipient (CONTEXTS), statement (ATTRIBUTES, where domain and event are
    the reason and the cosine only orders), or statement x context (PROFILES). Raises StoreError where the pair is none
    of the dataset's.
    """
    shape = index.shape
    (origin,) = shape.locate([attribute_id], [context_id])
    if origin < 0:
        raise StoreError("the pair you decided is no longer in the dataset. Decide another one first.")
    # The pair itself counts as decided, so that it is never proposed.
    decided = set(standing(store, shape).of(annotator)[0].tolist()) | {int(origin)}
    with store.read() as connection:
        contexts = _similar_contexts(connection, shape, context_id)
        statements = _Statements.of_domain(connection, shape, attribute_id)
    row = int(np.searchsorted(shape.attribute_ids, attribute_id))
    domain, event = (
        shape.names[facet][shape.row_codes[facet][row]].replace("_", " ") for facet in (Facet.DOMAIN, Facet.EVENT)
    )
    at = shape.locate([attribute_id] * len(contexts), [c for c, _ in contexts])
    cosines = statements.cosines(attribute_id)
    result = []
    for axis, reason, candidates in (
        (
            Axis.CONTEXTS,
            "This statement, for tasks like this one.",
            [(int(position), cosine) for position, (_, cosine) in zip(at, contexts, strict=True)],
        ),
        (
            Axis.ATTRIBUTES,
            f"Other statements of this person about {domain} from the event {event}, for the same task.",
            _same_context(shape, statements, cosines, origin),
        ),
        (
            Axis.PROFILES,
            "Statements of other people that differ in a name, a number or a date, for the same task or one like it.",
            _other_profiles(shape, statements, cosines, origin, contexts),
        ),
    ):
        pairs: list[SimilarPair] = []
        for position, similarity in sorted(candidates, key=lambda c: (-c[1], c[0])):
            if position >= 0 and position not in decided and len(pairs) < MOST_PAIRS:
                # On this axis it is taken, so that no later axis proposes it again.
                decided.add(position)
                ((a, c),) = shape.ids(np.array([position]))
                pairs.append(SimilarPair(a, c, round(min(similarity, 1.0), 4)))
        if pairs:
            result.append(Proposal(axis, reason, pairs[-1].similarity, tuple(pairs)))
    return result


def _same_context(shape: PairShape, statements: _Statements, cosines: Floats, origin: int) -> Candidates:
    row, context_id = int(shape.attribute_row[origin]), int(shape.contexts[origin])
    # The statements are of one domain, so profile and event are left to compare.
    same = [shape.row_codes[facet] == shape.row_codes[facet][row] for facet in (Facet.PROFILE, Facet.EVENT)]
    siblings = np.flatnonzero(np.logical_and.reduce(same)[statements.rows])
    at = shape.locate(shape.attribute_ids[statements.rows[siblings]], [context_id] * len(siblings))
    return [(int(position), float(cosine)) for position, cosine in zip(at, cosines[siblings], strict=True)]


def _other_profiles(
    shape: PairShape, statements: _Statements, cosines: Floats, origin: int, contexts: Sequence[tuple[int, float]]
) -> Candidates:
    """Return near-identical statements of other profiles, in the same context or the most similar one that the profile
    is tested in."""
    owners = shape.row_codes[Facet.PROFILE][statements.rows]
    owner = shape.row_codes[Facet.PROFILE][shape.attribute_row[origin]]
    near = np.flatnonzero((cosines >= STATEMENT_COSINE) & (owners != owner))
    ids = shape.attribute_ids[statements.rows[near]]
    best = np.full(len(near), -1, np.int64)
    similarity = np.zeros(len(near))
    # From the most similar context down, so the first that a profile has is its best.
    for context_id, cosine in [(int(shape.contexts[origin]), 1.0), *contexts]:
        at = shape.locate(ids, [context_id] * len(ids))
        new = (best < 0) & (at >= 0)
        best[new], similarity[new] = at[new], cosines[near][new] * cosine
    return [(int(position), float(s)) for position, s in zip(best, similarity, strict=True)]


def _similar_contexts(connection: sa.Connection, shape: PairShape, context_id: int) -> list[tuple[int, float]]:
    """Return the contexts of the dataset that read like this one, most similar first, without it: (id, cosine)."""
    rows = connection.execute(
        sa.select(context.c.id, context.c.task, context.c.recipient)
        .where(context.c.dataset == shape.dataset_id)
        .order_by(context.c.ordinal)
    ).all()
    origin = next((n for n, row in enumerate(rows) if row.id == context_id), None)
    if origin is None:
        return []
    vectors = _vectors([f"{row.task} {row.recipient}" for row in rows], pairs_of_words=False)
    # Vectors have length 1, so their product is the cosine.
    cosines = (vectors @ vectors[origin].T).toarray().ravel()
    near = [n for n in np.argsort(-cosines, kind="stable") if n != origin and cosines[n] >= CONTEXT_COSINE]
    return [(int(rows[n].id), float(cosines[n])) for n in near[:MOST_CONTEXTS]]


@dataclass(frozen=True)
class _Statements:
    """The statements of all attributes of one domain. rows: into the shape's attributes; vectors: [rows, words]."""

    rows: Ints
    ids: Ints
    vectors: Any

    def cosines(self, attribute_id: int) -> Floats:
        """Return the cosine of each statement with that of this attribute, which is one of them: [rows]."""
        (row,) = np.flatnonzero(self.ids == attribute_id)
        return np.asarray((self.vectors @ self.vectors[row].T).toarray().ravel(), np.float64)

    @classmethod
    def of_domain(cls, connection: sa.Connection, shape: PairShape, attribute_id: int) -> _Statements:
        """Return the statements of this attribute's domain; near-identical ones of another domain mean something
        else."""
        row = int(np.searchsorted(shape.attribute_ids, attribute_id))
        domain = int(shape.row_codes[Facet.DOMAIN][row])

        def read() -> _Statements:
            texts = connection.execute(
                sa.select(attribute.c.id, attribute.c.statement)
                .join(profile, attribute.c.profile == profile.c.id)
                .where(profile.c.dataset == shape.dataset_id, attribute.c.domain == shape.names[Facet.DOMAIN][domain])
                .order_by(attribute.c.id)
            ).all()
            ids = np.array([item.id for item in texts], np.int64)
            rows = np.searchsorted(shape.attribute_ids, ids)
            return cls(rows, ids, _vectors([item.statement for item in texts], pairs_of_words=True))

        return shared_cache.get("statements", (shape.key, domain), read, most=DOMAINS_CACHED)


def _vectors(texts: Sequence[str], *, pairs_of_words: bool) -> Any:
    """Return TF-IDF vectors of length 1, [texts, words]; all numbers are the same word. Pairs of words tell sentences
    apart that are made of the same words."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # imported late: it takes a second

    vectorizer = TfidfVectorizer(
        preprocessor=lambda text: _DIGITS.sub("0", text.casefold()),
        # Words of one letter too, which the default leaves out.
        token_pattern=r"(?u)\b\w+\b",
        stop_words=None if pairs_of_words else "english",
        ngram_range=(1, 2) if pairs_of_words else (1, 1),
        sublinear_tf=pairs_of_words,
    )
    try:
        return vectorizer.fit_transform(texts)
    except ValueError:  # no text has any word: then nothing is similar
        from scipy.sparse import csr_matrix

        return csr_matrix((len(texts), 1))
