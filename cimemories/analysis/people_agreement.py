"""How far people agree, with each other and with the consensus of a labelling. Models are not in it: the agreement of
draws and of personas is measured in draws_agreement, and never mixed with this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.analysis.kappa import Comparison, Figure, alpha, compare
from cimemories.analysis.labels import VoteCounts, vote_counts
from cimemories.analysis.pair_groups import GroupBy, Groups, groupings, pair_words
from cimemories.analysis.people import CATEGORIES, Answers, Bools, Ints, Labels, answers
from cimemories.analysis.rule import AppliedRule, applied_rule
from cimemories.curation.consensus import AMBIGUOUS, INAPPROPRIATE, LABELS, NECESSARY, UNLABELLED
from cimemories.store import slices
from cimemories.store.engine import Store
from cimemories.store.slices import SliceItem, SliceRow

ORDER = (NECESSARY, INAPPROPRIATE, AMBIGUOUS)  # of rows and columns of a confusion table: N, X, ?
GROUPS = (GroupBy.DOMAIN, GroupBy.SPHERE)
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Among:
    """People among themselves. alpha: Krippendorff's, over the pairs that two or more answered (`pairs`); same: on how
    many of these all who answered say the same; people: who answered any of them."""

    alpha: Figure
    pairs: int
    same: int
    people: int

    @property
    def share(self) -> float:
        """Pairs on which all say the same, over those of two or more; nan where there is none."""
        return self.same / self.pairs if self.pairs else float("nan")


@dataclass(frozen=True)
class Against:
    """A person, or all people together (who None), against the consensus.

    answered: pairs that they answered; unlabelled: of these, without a counted vote, so in no figure. comparison:
    people first, the consensus second; its table is in label codes. counts: the same table without weights.
    """

    who: str | None
    answered: int
    unlabelled: int
    comparison: Comparison
    counts: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampled:
    """The slice that figures are restricted to. strata, covered: in all, and with an answered pair; population: pairs
    that the slice stands for; reached: how many of them the covered strata hold."""

    row: SliceRow
    answered: int
    strata: int
    covered: int
    population: float
    reached: float


@dataclass(frozen=True)
class PeopleAgreement:
    """All figures of people. against: all people together first (the label that most of them give, on a tie the one
    given last), then each person. by: one frame a grouping (domain, sphere), see `by_group`. adjudicated: pairs with
    an adjudication, which is nobody's own answer and enters nothing."""

    labelling_id: str | None
    rule: AppliedRule | None
    blind_only: bool
    sampled: Sampled | None
    answered: int
    among: Among
    against: Sequence[Against]
    by: Mapping[GroupBy, pd.DataFrame]
    adjudicated: int


@dataclass(frozen=True)
class Answered:
    """The answers that figures are made of, beside the consensus of the same pairs. consensus: label codes [pairs],
    UNLABELLED without a counted vote. strata: codes [pairs] into sizes, how many pairs each stratum has; without a
    slice one stratum."""

    answers: Answers
    consensus: Labels
    rule: AppliedRule | None
    sampled: Sampled | None
    strata: Ints
    sizes: Weights

    def who(self, who: str | None) -> Labels:
        """What a person says, or all together: label codes [pairs]. Raises ValueError for an unknown person."""
        return self.answers.together() if who is None else self.answers.said[self.answers.people.index(who)]

    def weights(self, counted: Bools) -> Weights:
        """What each of the counted pairs stands for: the size of its stratum over how many of the stratum are counted
        (Horvitz and Thompson 1952, JASA 47, 663-685, where what was answered is taken as drawn at random from what was
        drawn). Shares are then of the strata with a counted pair; the others are in no figure. counted: [pairs]."""
        mine = self.strata[counted]
        return self.sizes[mine] / np.bincount(mine, minlength=len(self.sizes))[mine]


def answered(
    store: Store, dataset_id: int, labelling_id: str | None, *, blind_only: bool = False, slice_id: int | None = None
) -> Answered:
    """The answers of people to a dataset's pairs, to those of one slice where given, beside the consensus.

    Raises StoreError for an unknown labelling or slice.
    """
    found = answers(store, dataset_id)
    if blind_only:
        found = found.blind_only()
    strata, sizes, sampled = np.zeros(len(found.attributes), np.int64), np.ones(1), None
    if slice_id is not None:
        with store.read() as connection:
            row, items = slices.one(connection, slice_id), slices.items_of(connection, slice_id)
        found, strata, sizes, sampled = _in_slice(found, row, items)
    rule, labels = None, np.full(len(found.attributes), UNLABELLED, np.int8)
    if labelling_id is not None:
        counts = vote_counts(store, labelling_id)
        with store.read() as connection:
            rule = applied_rule(connection, labelling_id)
        labels = consensus_at(counts, rule, found.attributes, found.contexts)
    return Answered(found, labels, rule, sampled, strata, sizes)


def consensus_at(counts: VoteCounts, rule: AppliedRule, attributes: Ints, contexts: Ints) -> Labels:
    """The label codes of these pairs alone, UNLABELLED for pairs without a row among the votes."""
    labels = np.full(len(attributes), UNLABELLED, np.int8)
    if not len(attributes) or not len(counts.attributes):
        return labels
    width = int(max(counts.contexts.max(), contexts.max())) + 1
    numbers, wanted = counts.attributes * width + counts.contexts, attributes * width + contexts
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    there = numbers[at] == wanted
    part = VoteCounts(
        counts.labelling_id,
        counts.revision,
        attributes[there],
        contexts[there],
        counts.votes[at[there]],
        counts.personas,
        counts.imported,
    )
    labels[there] = part.labels(rule)
    return labels


def _in_slice(found: Answers, row: SliceRow, items: Sequence[SliceItem]) -> tuple[Answers, Ints, Weights, Sampled]:
    """The answered pairs of a slice, the stratum of each, and how many pairs each stratum has in the population."""
    drawn = pd.DataFrame([vars(item) for item in items], columns=["attribute", "context", "stratum", "weight"])
    names, code = np.unique(drawn["stratum"].to_numpy(str), return_inverse=True)
    sizes = np.bincount(code, weights=drawn["weight"].to_numpy(np.float64), minlength=len(names)).astype(np.float64)
    pairs = pd.DataFrame({"attribute": found.attributes, "context": found.contexts})
    placed = pairs.merge(drawn.assign(code=code), on=["attribute", "context"], how="left")["code"]
    keep = placed.notna().to_numpy(np.bool_)
    strata = placed[keep].to_numpy(np.int64)
    covered = np.unique(strata)
    reached = float(sizes[covered].sum())
    sampled = Sampled(row, int(keep.sum()), len(names), len(covered), float(sizes.sum()), reached)
    return found.at(keep), strata, sizes, sampled


def people_agreement(
    store: Store, dataset_id: int, labelling_id: str | None, *, blind_only: bool = False, slice_id: int | None = None
) -> PeopleAgreement:
    """All figures of people, overall and by domain and sphere, each with its count and interval.

    With a slice only its pairs count, and figures against the consensus are weighted so that they speak for the whole
    population it was drawn from; alpha is not weighted. Raises StoreError for an unknown labelling or slice.
    """
    data = answered(store, dataset_id, labelling_id, blind_only=blind_only, slice_id=slice_id)
    with store.read() as connection:
        groups = groupings(connection, dataset_id, _bare(data.answers))
    present = [who for n, who in enumerate(data.answers.people) if (data.answers.said[n] != UNLABELLED).any()]
    return PeopleAgreement(
        labelling_id=labelling_id,
        rule=data.rule,
        blind_only=blind_only,
        sampled=data.sampled,
        answered=len(data.answers.attributes),
        among=among(data.answers),
        against=[against(data, who) for who in (None, *present)],
        by={group_by: by_group(data, groups[group_by]) for group_by in GROUPS},
        adjudicated=data.answers.adjudicated,
    )


def among(found: Answers) -> Among:
    """People among themselves."""
    counts = found.counts
    shared = counts.sum(axis=1) > 1
    same = int((counts[shared].max(axis=1) == counts[shared].sum(axis=1)).sum()) if shared.any() else 0
    people = int((found.said[:, shared] != UNLABELLED).any(axis=1).sum())
    return Among(alpha(counts), int(shared.sum()), same, people)


def against(data: Answered, who: str | None, keep: Bools | None = None) -> Against:
    """A person, or all people together, against the consensus; on some pairs alone where given. keep: [pairs]."""
    said = data.who(who)
    answering = said != UNLABELLED
    counted = answering & (data.consensus != UNLABELLED)
    # What a pair stands for is settled before a group is looked at: a stratum may lie across groups.
    mass = np.zeros(len(said))
    mass[counted] = data.weights(counted)
    if keep is not None:
        answering, counted = answering & keep, counted & keep
    one, two = said[counted].astype(np.int64), data.consensus[counted].astype(np.int64)
    weights = None if data.sampled is None else mass[counted]
    found = compare(one, two, CATEGORIES, weights)
    counts = np.bincount(one * CATEGORIES + two, minlength=CATEGORIES**2).reshape(CATEGORIES, CATEGORIES)
    return Against(who, int(answering.sum()), int(answering.sum() - counted.sum()), found, counts.astype(np.int64))


def by_group(data: Answered, groups: Groups) -> pd.DataFrame:
    """One row a group with an answered pair: id, name, answered (pairs), shared (by two or more), and the columns
    alpha, agreement, kappa, ac1 with Figures: alpha among people, the rest of all people against the consensus."""
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
    store: Store, dataset_id: int, data: Answered, who: str | None, said: int, consensus: int
) -> pd.DataFrame:
    """The pairs behind one cell of a confusion table, by label codes: attribute, context (ids), people (what each
    says, in words), the words of pair_words; in the order of the record."""
    mask = (data.who(who) == said) & (data.consensus == consensus)
    found = data.answers.at(mask)
    words = [
        ", ".join(
            f"{person}: {LABELS[code]}" for person, code in zip(found.people, column, strict=True) if code != UNLABELLED
        )
        for column in found.said.T.tolist()
    ]
    frame = pd.DataFrame({"attribute": found.attributes, "context": found.contexts, "people": words})
    with store.read() as connection:
        return pair_words(connection, dataset_id, frame)


def _bare(found: Answers) -> VoteCounts:
    """These pairs as the groupings want them: with no votes."""
    empty = np.zeros((len(found.attributes), 0, CATEGORIES))
    return VoteCounts("", 0, found.attributes, found.contexts, empty, (), False)
