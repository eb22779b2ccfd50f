"""Agreement of people with each other and with the consensus of a labelling.

Each person counts with the newest of their own answers that stands. An answer is a decision that a person made for
themselves. An adjudication is none: it was made with the answers of the others in sight, so that counting it would make
people agree who did not. What was taken back is not counted, and an undo brings back the answer that stood before,
blind where that was. Models are not in it: `agreement.models` measures them, and the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.agreement.statistics import Comparison, Estimate, compare, confusion, krippendorff_alpha, unanimous
from cimemories.flows.cache import workspace_cached
from cimemories.flows.labels import CODES, LABELS, UNLABELLED, AppliedRule, VoteCounts, applied_rule, vote_counts
from cimemories.labels.votes import GroupBy, Groups, describe_pairs, groupings
from cimemories.model import Label
from cimemories.store import audits
from cimemories.store.audits import SliceItem, SliceRow
from cimemories.store.decisions import ADJUDICATED, UNDO, moment
from cimemories.store.engine import Store
from cimemories.store.tables import dataset, decision

CATEGORIES = len(CODES)
DATASETS_CACHED = 8
# Of a decision, as they are read here.
COLUMNS = ("id", "annotator", "attribute", "context", "label", "source", "blind")
GROUPS = (GroupBy.DOMAIN, GroupBy.SPHERE)
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int8]
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """The labels that people gave. people: names in order. attributes, contexts: ids [pairs], ordered by both, each
    with an answer. labels: codes [people, pairs], UNLABELLED where the person gives none. blind: [people, pairs],
    whether it was given without sight of the votes. order: [people, pairs], grows with time. adjudicated: pairs of the
    dataset that have been adjudicated, which is not among the answers."""

    people: tuple[str, ...]
    attributes: Ints
    contexts: Ints
    labels: Labels
    blind: Bools
    order: Ints
    adjudicated: int

    @property
    def counts(self) -> Ints:
        """Count the people who gave each label: [pairs, label codes]."""
        return np.stack([(self.labels == code).sum(axis=0) for code in range(CATEGORIES)], axis=1).astype(np.int64)

    @property
    def in_force(self) -> int:
        """Return the number of standing answers, one a person and pair."""
        return int((self.labels != UNLABELLED).sum())

    @property
    def shared(self) -> int:
        """Return the number of pairs that two or more people answered."""
        return int((self.counts.sum(axis=1) > 1).sum())

    def blind_only(self) -> Answers:
        """Return only the answers given without sight of the votes."""
        return replace(self, labels=np.where(self.blind, self.labels, UNLABELLED).astype(np.int8)).answered()

    def at(self, keep: Bools) -> Answers:
        """Return only these pairs; keep: [pairs]."""
        return replace(
            self,
            attributes=self.attributes[keep],
            contexts=self.contexts[keep],
            labels=self.labels[:, keep],
            blind=self.blind[:, keep],
            order=self.order[:, keep],
        )

    def answered(self) -> Answers:
        """Return only the pairs with an answer. All people stay, also those without an answer."""
        return self.at((self.labels != UNLABELLED).any(axis=0))

    def majority(self) -> Labels:
        """Return the label that most people give, of ties the one given last: [pairs]; UNLABELLED without an answer."""
        if not len(self.people):
            return np.full(len(self.attributes), UNLABELLED, np.int8)
        counts = self.counts
        # When each label was given last; -1 where it was not given.
        last = np.stack(
            [np.where(self.labels == code, self.order, -1).max(axis=0) for code in range(CATEGORIES)], axis=1
        )
        # Only the most frequent labels remain; of these the newest wins.
        most = counts == counts.max(axis=1, keepdims=True)
        best = np.where(most, last, -1).argmax(axis=1)
        return np.where(counts.sum(axis=1) > 0, best, UNLABELLED).astype(np.int8)


def answers(store: Store, dataset_id: int) -> Answers:
    """Return the answers of a dataset, cached until a decision moves its revision. The arrays are shared: do not write
    to them. Without any decision, or for an unknown dataset, there are no people and no pairs."""
    # With the time: SQLite gives the id of a deleted dataset out again, and revisions begin again.
    query = sa.select(dataset.c.created, dataset.c.revision).where(dataset.c.id == dataset_id)
    with store.read() as connection:
        version = connection.execute(query).first()
    return _answers(store, dataset_id, None if version is None else tuple(version))


@workspace_cached(most=DATASETS_CACHED)
def _answers(store: Store, dataset_id: int, _version: tuple[str, int] | None) -> Answers:
    columns = (*(decision.c[name] for name in COLUMNS), decision.c.created, decision.c.uid)
    query = sa.select(*columns).where(decision.c.dataset == dataset_id)
    with store.read() as connection:
        rows = connection.execute(query).all()
    by_time = [row[: len(COLUMNS)] for row in sorted(rows, key=moment)]
    return of_events(pd.DataFrame(by_time, columns=list(COLUMNS)))


def of_events(events: pd.DataFrame) -> Answers:
    """Return the answers that decisions come to. events: COLUMNS of the table of decisions, oldest first."""
    people, person = np.unique(events["annotator"].to_numpy(str), return_inverse=True)
    pairs, pair = np.unique(events[["attribute", "context"]].to_numpy(np.int64), axis=0, return_inverse=True)
    # (person, pair) as one number.
    cell = person.reshape(-1).astype(np.int64) * len(pairs) + pair.reshape(-1)
    codes = events["label"].map({str(label): CODES[label] for label in Label}).fillna(UNLABELLED).to_numpy(np.int64)
    source = events["source"].to_numpy(object)
    stands = _standing(cell, source == UNDO)
    # An adjudication of a pair counts once, however many people made or repeated it.
    adjudicated = len(np.unique(pair.reshape(-1)[stands & (source == ADJUDICATED) & (codes != UNLABELLED)]))
    answering = np.flatnonzero(stands & (source != ADJUDICATED))
    # Events are in the order of time, and of several values for one cell numpy keeps the last.
    flat = np.full(len(people) * len(pairs), -1, np.int64)
    flat[cell[answering]] = answering
    newest = flat.reshape(len(people), len(pairs))
    if len(events):
        # -1 means no answer and is no index; what is read there instead is not used.
        at = np.maximum(newest, 0)
        labels = np.where(newest >= 0, codes[at], UNLABELLED).astype(np.int8)
        blind = (newest >= 0) & events["blind"].to_numpy(np.bool_)[at]
    else:
        labels, blind = np.zeros(newest.shape, np.int8), np.zeros(newest.shape, np.bool_)
    order = np.where(labels != UNLABELLED, newest, -1)
    return Answers(tuple(map(str, people)), pairs[:, 0], pairs[:, 1], labels, blind, order, adjudicated).answered()


def _standing(cell: Ints, undone: Bools) -> Bools:
    """Return a mask of the events that no undo has taken away: [events]. A person's answers to a pair are a stack: an
    undo takes the top away, anything else comes onto it. An undo with nothing beneath it (carried from an earlier
    version) is an answer.
    """
    stands = np.ones(len(cell), np.bool_)
    stacks: dict[int, list[int]] = {}
    # Only stacks with an undo are gone through: everything else stands.
    touched = np.isin(cell, cell[undone])
    for position in np.flatnonzero(touched).tolist():
        stack = stacks.setdefault(int(cell[position]), [])
        if undone[position] and stack:
            stands[stack.pop()] = False
            stands[position] = False
        else:
            stack.append(position)
    return stands


@dataclass(frozen=True)
class Among:
    """People among themselves. alpha: Krippendorff's, over the pairs that two or more answered (`pairs`); unanimous: on
    how many of these all answers agree; people: how many answered any of them."""

    alpha: Estimate
    pairs: int
    unanimous: int
    people: int

    @property
    def share(self) -> float:
        """Return the share of pairs with two answers or more on which all are the same; nan without any."""
        return self.unanimous / self.pairs if self.pairs else float("nan")


@dataclass(frozen=True)
class Against:
    """A person, or all people together (person None), against the consensus.

    answered: pairs that they answered; unlabelled: of these, without a counted vote, so in no figure. comparison:
    people first, the consensus second; its table is in label codes. counts: the same table without weights.
    """

    person: str | None
    answered: int
    unlabelled: int
    comparison: Comparison
    counts: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampled:
    """The answered part of a slice. strata, covered: in all, and with an answered pair; population: pairs that the
    slice stands for; reached: how many of them the covered strata hold."""

    row: SliceRow
    answered: int
    strata: int
    covered: int
    population: float
    reached: float


@dataclass(frozen=True)
class PeopleAgreement:
    """All statistics of people. against: all people together first (`Answers.majority`), then each person. by: one
    frame a grouping (domain, sphere), see `by_group`. adjudicated: pairs with an adjudication, which is not an answer
    and enters nothing. answered: pairs; in_force: answers to them that stand, one a person and pair."""

    labelling_id: str | None
    rule: AppliedRule | None
    blind_only: bool
    sampled: Sampled | None
    answered: int
    in_force: int
    among: Among
    against: Sequence[Against]
    by: Mapping[GroupBy, pd.DataFrame]
    adjudicated: int


@dataclass(frozen=True)
class Answered:
    """Answers beside the consensus of the same pairs. consensus: label codes [pairs], UNLABELLED without a counted
    vote. strata: codes [pairs] into sizes, how many pairs each stratum has; without a slice one stratum."""

    answers: Answers
    consensus: Labels
    rule: AppliedRule | None
    sampled: Sampled | None
    strata: Ints
    sizes: Weights

    def labels_of(self, person: str | None) -> Labels:
        """Return a person's labels, or the majority's (None): codes [pairs]. Raises ValueError for an unknown
        person."""
        return self.answers.majority() if person is None else self.answers.labels[self.answers.people.index(person)]

    def weights(self, counted: Bools) -> Weights:
        """Return the weight of each counted pair: the size of its stratum over how many of the stratum are counted
        (Horvitz and Thompson 1952, JASA 47, 663-685, where what was answered is taken as sampled at random from what
        was drawn). Shares are then of the strata with a counted pair; the others count nowhere. counted: [pairs]."""
        mine = self.strata[counted]
        # Strata without a counted pair are in no quotient: `mine` names only those that have one.
        return self.sizes[mine] / np.bincount(mine, minlength=len(self.sizes))[mine]


def answered(
    store: Store, dataset_id: int, labelling_id: str | None, *, blind_only: bool = False, slice_id: int | None = None
) -> Answered:
    """Return the answers of people to a dataset's pairs, to those of one slice where given, beside the consensus.

    Raises StoreError for an unknown labelling or slice.
    """
    given = answers(store, dataset_id)
    if blind_only:
        given = given.blind_only()
    strata, sizes, sampled = np.zeros(len(given.attributes), np.int64), np.ones(1), None
    if slice_id is not None:
        with store.read() as connection:
            row, items = audits.slice_row(connection, slice_id), audits.slice_items(connection, slice_id)
        given, strata, sizes, sampled = _in_slice(given, row, items)
    rule, labels = None, np.full(len(given.attributes), UNLABELLED, np.int8)
    if labelling_id is not None:
        with store.read() as connection:
            rule = applied_rule(connection, labelling_id)
        labels = _consensus_at(vote_counts(store, labelling_id), rule, given.attributes, given.contexts)
    return Answered(given, labels, rule, sampled, strata, sizes)


def _consensus_at(counts: VoteCounts, rule: AppliedRule, attributes: Ints, contexts: Ints) -> Labels:
    """Return the label codes of these pairs alone, UNLABELLED for pairs without enough votes."""
    labels = np.full(len(attributes), UNLABELLED, np.int8)
    at = counts.positions(attributes, contexts)
    labels[at >= 0] = counts.at(at[at >= 0]).labels(rule)
    # A pair with too few votes has no consensus that people could be compared with.
    return np.maximum(labels, np.int8(UNLABELLED))


def _in_slice(given: Answers, row: SliceRow, items: Sequence[SliceItem]) -> tuple[Answers, Ints, Weights, Sampled]:
    """Return the answered pairs of a slice, the stratum of each, and how many pairs each stratum has in the
    population."""
    frame = pd.DataFrame([vars(item) for item in items], columns=["attribute", "context", "stratum", "weight"])
    names, code = np.unique(frame["stratum"].to_numpy(str), return_inverse=True)
    sizes = np.bincount(code, weights=frame["weight"].to_numpy(np.float64), minlength=len(names)).astype(np.float64)
    pairs = pd.DataFrame({"attribute": given.attributes, "context": given.contexts})
    # A left merge keeps the order of the pairs; nan: the pair is not in the slice.
    matched = pairs.merge(frame.assign(code=code), on=["attribute", "context"], how="left")["code"]
    keep = matched.notna().to_numpy(np.bool_)
    strata = matched[keep].to_numpy(np.int64)
    covered = np.unique(strata)
    reached = float(sizes[covered].sum())
    sampled = Sampled(row, int(keep.sum()), len(names), len(covered), float(sizes.sum()), reached)
    return given.at(keep), strata, sizes, sampled


def people_agreement(
    store: Store, dataset_id: int, labelling_id: str | None, *, blind_only: bool = False, slice_id: int | None = None
) -> PeopleAgreement:
    """Return all statistics of people, overall and by domain and sphere, each with its count and interval.

    With a slice only its pairs count, and what compares with the consensus is weighted so that it speaks for the whole
    population the slice was drawn from; alpha is not weighted. Raises StoreError for an unknown labelling or slice.
    """
    data = answered(store, dataset_id, labelling_id, blind_only=blind_only, slice_id=slice_id)
    given = data.answers
    # Groupings need ids alone, so these counts have no personas.
    without_votes = VoteCounts(
        "", 0, given.attributes, given.contexts, np.zeros((len(given.attributes), 0, CATEGORIES)), (), False
    )
    with store.read() as connection:
        groups = groupings(connection, dataset_id, without_votes)
    present = [who for n, who in enumerate(given.people) if (given.labels[n] != UNLABELLED).any()]
    return PeopleAgreement(
        labelling_id=labelling_id,
        rule=data.rule,
        blind_only=blind_only,
        sampled=data.sampled,
        answered=len(given.attributes),
        in_force=given.in_force,
        among=among(given),
        against=[against(data, who) for who in (None, *present)],
        by={group_by: by_group(data, groups[group_by]) for group_by in GROUPS},
        adjudicated=given.adjudicated,
    )


def among(answers: Answers) -> Among:
    """Compute the agreement of people among themselves."""
    counts = answers.counts
    shared = counts.sum(axis=1) > 1
    people = int((answers.labels[:, shared] != UNLABELLED).any(axis=1).sum())
    return Among(krippendorff_alpha(counts), int(shared.sum()), unanimous(counts[shared]), people)


def against(data: Answered, person: str | None, keep: Bools | None = None) -> Against:
    """Return a person, or all people together, against the consensus; on some pairs alone where given. keep:
    [pairs]."""
    labels = data.labels_of(person)
    answering = labels != UNLABELLED
    counted = answering & (data.consensus != UNLABELLED)
    # What a pair stands for is settled before a group is looked at: a stratum may lie across groups.
    mass = np.zeros(len(labels))
    mass[counted] = data.weights(counted)
    if keep is not None:
        answering, counted = answering & keep, counted & keep
    one, two = labels[counted].astype(np.int64), data.consensus[counted].astype(np.int64)
    comparison = compare(one, two, CATEGORIES, None if data.sampled is None else mass[counted])
    counts = confusion(one, two, CATEGORIES).astype(np.int64)
    return Against(person, int(answering.sum()), int(answering.sum() - counted.sum()), comparison, counts)


def by_group(data: Answered, groups: Groups) -> pd.DataFrame:
    """Return one row a group with an answered pair: id, name, answered (pairs), shared (by two or more), and the
    columns alpha, agreement, kappa, ac1 with Estimates: alpha among people, the rest of all people against the
    consensus."""
    rows = []
    for code in np.unique(groups.codes).tolist():
        mask = groups.codes == code
        mine, together = among(data.answers.at(mask)), against(data, None, mask)
        rows.append(
            {
                "id": groups.ids[code],
                "name": groups.names[code],
                "answered": together.answered,
                "shared": mine.pairs,
                "alpha": mine.alpha,
                "agreement": together.comparison.agreement,
                "kappa": together.comparison.kappa,
                "ac1": together.comparison.ac1,
            }
        )
    names = ["id", "name", "answered", "shared", "alpha", "agreement", "kappa", "ac1"]
    return pd.DataFrame(rows, columns=names)


def cell_pairs(
    store: Store, dataset_id: int, data: Answered, person: str | None, label: int, consensus: int
) -> pd.DataFrame:
    """Return the pairs behind one cell of a confusion table, by label codes: attribute, context (ids), people (the
    label of each by name, as text), and the columns of describe_pairs; in the order of the record."""
    given = data.answers.at((data.labels_of(person) == label) & (data.consensus == consensus))
    texts = [
        ", ".join(
            f"{person}: {LABELS[code]}" for person, code in zip(given.people, column, strict=True) if code != UNLABELLED
        )
        for column in given.labels.T.tolist()
    ]
    frame = pd.DataFrame({"attribute": given.attributes, "context": given.contexts, "people": texts})
    with store.read() as connection:
        return describe_pairs(connection, dataset_id, frame)
