"""The labels of one profile as a matrix, attributes by contexts, for the Labels page.

matrix      label codes (flows.labels), rows and columns in the record's order
view        the same as drawn: rows by domain and event, columns by sphere, and which cells match the filters
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.flows.labels import (
    AMBIGUOUS,
    CODES,
    INAPPROPRIATE,
    NECESSARY,
    TOO_FEW,
    TOO_FEW_NAME,
    UNLABELLED,
    VoteCounts,
    rule_of,
    vote_counts,
)
from cimemories.labels.survival import survival
from cimemories.labels.votes import GroupBy
from cimemories.model import DOMAINS, GENERAL, Attribute, Context
from cimemories.store import decisions
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store

Codes = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]
COUNTED = (NECESSARY, INAPPROPRIATE, AMBIGUOUS)
GLYPHS = {NECESSARY: "N", INAPPROPRIATE: "I", AMBIGUOUS: "U", UNLABELLED: "-", TOO_FEW: "~"}
# By code - TOO_FEW, which is the lowest code.
_GLYPH_BYTES = np.frombuffer("".join(GLYPHS[code] for code in range(TOO_FEW, 3)).encode(), dtype=np.uint8)
# The kinds of cells: a label, None for no vote, or TOO_FEW_NAME.
Kinds = dict[str | None, int]
_CODES: Kinds = {None: UNLABELLED, TOO_FEW_NAME: TOO_FEW} | {str(label): code for label, code in CODES.items()}


class Differs(StrEnum):
    """A difference by which pairs are filtered: among the personas, or between people and the consensus."""

    DISSENT = "dissent"  # not all counted votes on the pair agree
    DECIDED = "decided"  # a person decided the pair
    CHANGED = "changed"  # a person decided otherwise than the consensus


@dataclass(frozen=True)
class Matrix:
    """Labels of one profile. Arrays are [attributes, contexts] in the record's order."""

    record: ProfileRecord
    consensus: Codes
    effective: Codes
    decided: Flags

    @property
    def attribute_counts(self) -> npt.NDArray[np.int64]:
        """Count the contexts in which each attribute is necessary, inappropriate, ambiguous: [attributes, 3]."""
        return np.stack([(self.effective == code).sum(axis=1) for code in COUNTED], axis=1)

    @property
    def context_counts(self) -> npt.NDArray[np.int64]:
        """Count the attributes that are necessary, inappropriate, ambiguous in each context: [contexts, 3]."""
        return np.stack([(self.effective == code).sum(axis=0) for code in COUNTED], axis=1)

    @property
    def retained(self) -> Flags:
        """Return a mask of the contexts that enter the metrics, with a necessary and an inappropriate attribute:
        [contexts]."""
        necessary, inappropriate, _ = self.context_counts.T
        retained: Flags = (necessary > 0) & (inappropriate > 0)
        return retained

    @property
    def discarded(self) -> Flags:
        """Return a mask of the contexts with labels, or too few votes for them, that are not retained: [contexts]. One
        without any vote is neither."""
        discarded: Flags = (self.effective != UNLABELLED).any(axis=0) & ~self.retained
        return discarded

    @property
    def totals(self) -> Kinds:
        """Count pairs by effective label; None: not labelled, TOO_FEW_NAME: too few votes. They add up to attributes x
        contexts."""
        return _by_label(self.effective)

    def context_totals(self, context_id: int) -> Kinds:
        """Return the totals of one context alone; they add up to the attributes."""
        return _by_label(self.effective[:, self.record.context_ids.index(context_id)])


def _by_label(cells: Codes) -> Kinds:
    return {kind: int((cells == code).sum()) for kind, code in _CODES.items()}


def matrix(store: Store, labelling_id: str | None, record: ProfileRecord) -> Matrix:
    """Return the matrix of a profile under a labelling, or under people's decisions alone if it is None. Raises
    StoreError for an unknown labelling."""
    shape = (len(record.attribute_ids), len(record.context_ids))
    consensus = np.full(shape, UNLABELLED, dtype=np.int8)
    if labelling_id is not None:
        votes = _votes(store, labelling_id, record)
        _fill(consensus, record, votes.attributes, votes.contexts, votes.labels(rule_of(store, labelling_id)))
    with store.read() as connection:
        history = decisions.history(connection, record.dataset, record.attribute_ids)
    effective, decided = consensus.copy(), np.zeros(shape, dtype=np.bool_)
    standing = [(a, c, CODES[d.label]) for (a, c), d in decisions.standing(history).items() if d.label is not None]
    if standing:
        attributes, contexts, codes = (np.array(column) for column in zip(*standing, strict=True))
        _fill(effective, record, attributes, contexts, codes)
        _fill(decided, record, attributes, contexts, np.ones(len(codes)))
    return Matrix(record, consensus, effective, decided)


def _fill(
    target: Codes | Flags,
    record: ProfileRecord,
    attributes: npt.NDArray[np.int64],
    contexts: npt.NDArray[np.int64],
    values: npt.NDArray[np.generic],
) -> None:
    """Write values to the cells of these pairs; pairs of other profiles are ignored."""
    # get_indexer gives -1 for an id that is not the profile's.
    rows = pd.Index(record.attribute_ids, dtype=np.int64).get_indexer(pd.Index(attributes))
    columns = pd.Index(record.context_ids, dtype=np.int64).get_indexer(pd.Index(contexts))
    inside = (rows >= 0) & (columns >= 0)
    target[rows[inside], columns[inside]] = values[inside]


def _votes(store: Store, labelling_id: str, record: ProfileRecord) -> VoteCounts:
    """Return the counted votes on the pairs of one profile, and of other profiles whose ids lie between."""
    counts = vote_counts(store, labelling_id)
    # Counts are sorted by attribute, and the ids of a profile lie close together: a slice copies nothing.
    first, last = min(record.attribute_ids, default=0), max(record.attribute_ids, default=-1)
    part = slice(*np.searchsorted(counts.attributes, [first, last + 1]))
    return counts.at(part)


def dissent(store: Store, labelling_id: str, record: ProfileRecord) -> Flags:
    """Return a mask of the pairs whose counted votes differ, or whose imported shares name more than one verdict:
    [attributes, contexts]."""
    votes = _votes(store, labelling_id, record)
    differs = np.zeros((len(record.attribute_ids), len(record.context_ids)), dtype=np.bool_)
    # More than one verdict has a vote.
    _fill(differs, record, votes.attributes, votes.contexts, ((votes.votes > 0).any(axis=1)).sum(axis=1) > 1)
    return differs


@dataclass(frozen=True)
class Group:
    """Adjacent rows or columns, from `start` to `end` (exclusive) of the view. counts: necessary, inappropriate and
    ambiguous pairs, whether or not they match the filters."""

    name: str
    note: str
    start: int
    end: int
    counts: tuple[int, int, int]


@dataclass(frozen=True)
class MatrixView:
    """The matrix as drawn. `rows` and `columns` are positions in the record. `cells` (effective labels) and `consensus`
    have one character a cell, row by row: N, I, U, - for none or ~ for too few votes; `decided` and `matches` 0 or 1: a
    person decided it, the filters match it.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    blocks: tuple[Group, ...]
    spheres: tuple[Group, ...]
    cells: str
    consensus: str
    decided: str
    matches: str
    matching: int


def view(
    profile: Matrix,
    *,
    domain: str | None = None,
    event: str | None = None,
    sphere: str | None = None,
    labels: Sequence[str | None] = (),
    differs: Flags | None = None,
) -> MatrixView:
    """Return the matrix in the order it is drawn. Domain, event and sphere drop rows and columns; labels (none: all)
    and `differs` say which of the remaining cells match. `matching`: how many do."""
    attributes, contexts = profile.record.profile.attributes, profile.record.profile.contexts
    rows = [i for i in row_order(attributes) if domain in (None, attributes[i].domain)]
    rows = [i for i in rows if event in (None, attributes[i].event)]
    columns = [j for j in column_order(contexts) if sphere in (None, contexts[j].sphere or "")]
    cells = profile.effective[np.ix_(rows, columns)]
    matches = np.ones(cells.shape, dtype=np.bool_)
    if labels:
        matches &= np.isin(cells, [_CODES[kind] for kind in labels])
    if differs is not None:
        matches &= differs[np.ix_(rows, columns)]
    return MatrixView(
        rows=tuple(rows),
        columns=tuple(columns),
        blocks=_groups([(attributes[i].domain, attributes[i].event) for i in rows], cells),
        spheres=_groups([(contexts[j].sphere or "", "") for j in columns], cells.T),
        cells=_glyphs(cells),
        consensus=_glyphs(profile.consensus[np.ix_(rows, columns)]),
        decided=_bits(profile.decided[np.ix_(rows, columns)]),
        matches=_bits(matches),
        matching=int(matches.sum()),
    )


def row_order(attributes: Sequence[Attribute]) -> list[int]:
    """Return positions sorted by domain (general, the paper's, then others), then by event in order of appearance."""
    domains = list(dict.fromkeys([GENERAL, *DOMAINS, *(a.domain for a in attributes)]))
    events = list(dict.fromkeys(a.event for a in attributes))
    return sorted(
        range(len(attributes)), key=lambda i: (domains.index(attributes[i].domain), events.index(attributes[i].event))
    )


def column_order(contexts: Sequence[Context]) -> list[int]:
    """Return positions sorted by sphere in order of appearance; contexts without a sphere come last."""
    spheres = [*dict.fromkeys(c.sphere or "" for c in contexts if c.sphere), ""]
    return sorted(range(len(contexts)), key=lambda j: spheres.index(contexts[j].sphere or ""))


def _groups(names: Sequence[tuple[str, str]], cells: Codes) -> tuple[Group, ...]:
    starts = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    groups = []
    for start, end in zip(starts, [*starts, len(names)][1:], strict=True):
        part = cells[start:end]
        necessary, inappropriate, ambiguous = (int((part == code).sum()) for code in COUNTED)
        groups.append(Group(*names[start], start, end, (necessary, inappropriate, ambiguous)))
    return tuple(groups)


def _glyphs(codes: Codes) -> str:
    # The lowest code becomes 0, an index into the glyphs.
    return _GLYPH_BYTES[codes.reshape(-1) - TOO_FEW].tobytes().decode()


def _bits(flags: Flags) -> str:
    return (flags.reshape(-1).astype(np.uint8) + ord("0")).tobytes().decode()


def differing(store: Store, labels: Matrix, labelling_id: str | None, kind: Differs) -> Flags:
    """Return a mask of the pairs with this difference: [attributes, contexts]. Without a labelling there is no
    dissent."""
    if kind is Differs.DECIDED:
        return labels.decided
    if kind is Differs.CHANGED:
        changed: Flags = labels.decided & (labels.effective != labels.consensus)
        return changed
    if labelling_id is None:
        return np.zeros_like(labels.decided)
    return dissent(store, labelling_id, labels.record)


# ---- for the Profiles page: a strip of glyphs for every attribute, shares by profile


ORDER = "NIU~-"  # necessary, inappropriate, ambiguous, too few votes, not labelled


@dataclass(frozen=True)
class ProfileLabels:
    """The effective labels of one profile. `strips`: attribute id -> one glyph of ORDER for each context, in the order
    of the profile's contexts. `people`: the same with 1 for each pair that a person decided, else 0."""

    strips: dict[int, str]
    people: dict[int, str]

    @property
    def decided(self) -> int:
        """Return the number of pairs that a person decided."""
        return sum(bits.count("1") for bits in self.people.values())

    def counts(self, attributes: Iterable[int] | None = None) -> dict[str, int]:
        """Count pairs by glyph, all five in ORDER; of these attributes (ids) or of all."""
        ids = self.strips if attributes is None else attributes
        counted = Counter("".join(self.strips.get(i, "") for i in ids))
        return {glyph: counted[glyph] for glyph in ORDER}


def profile_labels(store: Store, labelling_id: str | None, record: ProfileRecord) -> ProfileLabels:
    """Return the labels of one profile: its standing decisions, else the labelling's consensus. Raises StoreError for
    an unknown labelling."""
    labels = matrix(store, labelling_id, record)
    strips = {
        attribute_id: "".join(GLYPHS[int(code)] for code in row)
        for attribute_id, row in zip(record.attribute_ids, labels.effective, strict=True)
    }
    bits = (_bits(row) for row in labels.decided)
    return ProfileLabels(strips, dict(zip(record.attribute_ids, bits, strict=True)))


def ambiguous_shares(store: Store, labelling_id: str) -> dict[int, float]:
    """Return the share of ambiguous pairs of each profile (by id) under the rule; decisions are not considered.
    Profiles without a labelled pair are left out."""
    frame = survival(store, labelling_id).by[GroupBy.PROFILE]
    frame = frame[frame["pairs"] > 0]
    shares = frame["ambiguous"] / frame["pairs"]
    return {int(profile_id): float(share) for profile_id, share in zip(frame["id"], shares, strict=True)}
