"""From votes to labels: the consensus rule (paper, Section 4.1.2), and the labels that it makes of the counted votes of
a labelling. A dataset's current named rule holds for its labellings, else the paper's.

`vote_counts` is a dense array, kept as a file that can be deleted at any time, so that any rule can be tried on it in
milliseconds; `consensus_labels` is what the current rule makes of it: attribute, context, label code, votes counted.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories import files
from cimemories.access import readonly
from cimemories.flows.cache import workspace_cached
from cimemories.model import Label, Persona, Verdict
from cimemories.store import datasets, labellings, versions, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.labellings import LabellingRow, RuleRow
from cimemories.text import count, exact_percent

# Codes of labels: small integers, so that they fit dense arrays. Below AMBIGUOUS nothing is a label.
TOO_FEW: Final = -2
UNLABELLED: Final = -1
AMBIGUOUS: Final = 0
NECESSARY: Final = 1
INAPPROPRIATE: Final = 2
CODES: Final = {Label.AMBIGUOUS: AMBIGUOUS, Label.NECESSARY: NECESSARY, Label.INAPPROPRIATE: INAPPROPRIATE}
LABELS: Final = {code: label for label, code in CODES.items()}
RETAINING: Final = (NECESSARY, INAPPROPRIATE)  # a context counts for a profile where some attribute has each of them

TOO_FEW_NAME = "too few votes"

PAPER_NAME = "the paper's rule"
PAPER_THRESHOLD = 1.0
# One of so many planned votes of a persona may be lost, unless a rule says how many must be there.
ONE_LOST_OF = 10


def mixture(votes: npt.ArrayLike, priors: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return P(verdict | pair) = sum over personas of prior x share of votes.

    votes: counts [..., personas, 3] of necessary, inappropriate, abstain; votes that could not be parsed, or that
    contradict themselves, are not among them. priors: [personas], adding up to 1. Returns shares [..., 3]; nan where a
    persona with a prior above 0 has no counted vote, since its share is then unknown.
    """
    counts = np.asarray(votes, dtype=np.float64)
    weights = np.asarray(priors, dtype=np.float64)
    total = counts.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        # 0 / 0 where a persona has no counted vote: nan, as intended.
        shares = counts / total
    # A persona without a prior may lack votes: 0 x nan would be nan.
    shares = np.where((weights == 0)[:, None], 0.0, shares)
    mixed: npt.NDArray[np.float64] = (weights[:, None] * shares).sum(axis=-2)
    return mixed


def consensus(
    votes: npt.ArrayLike, priors: npt.ArrayLike, threshold: float = 1.0, least: npt.ArrayLike = 0
) -> npt.NDArray[np.int8]:
    """Return the label code of each pair: the verdict whose mixture probability reaches the threshold, else AMBIGUOUS.

    votes: counts [..., personas, 3] of necessary, inappropriate, abstain. threshold in (0.5, 1]; 1 is the paper's rule
    (no entropy: every counted vote of every persona agrees), decided on whole counts and not on rounded shares. least:
    counted votes that each persona with a prior above 0 must have, one number or [...]; a pair where one has fewer is
    TOO_FEW, whatever they say: of 10 votes that agree with probability 0.9 all do in 35 % of cases, of one that is left
    in 90 %, so lost votes would make a consensus of their own. With least 0 (shares without counts) a pair for which
    such a persona has no vote is AMBIGUOUS. UNLABELLED without any vote. Raises ValueError for a threshold outside its
    range or priors that are negative or do not add up to 1.
    """
    counts = np.asarray(votes)
    weights = np.asarray(priors, dtype=np.float64)
    # Above one half at most one verdict can reach it.
    if not 0.5 < threshold <= 1.0:
        raise ValueError(f"the threshold must lie above 0.5 and not above 1, this is {threshold}")
    if not abs(weights.sum() - 1.0) <= 1e-6:  # written so that nan is refused too
        raise ValueError(f"the priors of the personas must add up to 1, these add up to {weights.sum():g}")
    if (weights < 0).any():
        raise ValueError(f"the priors of the personas must not be below 0, the least is {weights.min():g}")
    with_prior = weights > 0
    totals = counts.sum(axis=-1)
    complete = (totals[..., with_prior] > 0).all(axis=-1)
    result = np.full(counts.shape[:-2], AMBIGUOUS, dtype=np.int8)
    if threshold == 1.0:
        # Whole counts: the mixture of unanimous votes is the sum of the priors, which floating point can put below 1.
        reached = (counts[..., with_prior, :] == totals[..., with_prior, None]).all(axis=-2)
    else:
        # Shares summed in floating point may fall short of a threshold that they reach. nan (no votes) reaches none.
        reached = np.nan_to_num(mixture(counts, weights)) >= threshold - 1e-12
    result[complete & reached[..., 0]] = NECESSARY
    result[complete & reached[..., 1]] = INAPPROPRIATE
    result[(totals[..., with_prior] < np.asarray(least)[..., None]).any(axis=-1)] = TOO_FEW
    result[totals.sum(axis=-1) == 0] = UNLABELLED
    return result


@dataclass(frozen=True)
class AppliedRule:
    """A rule as it is applied to one labelling: `priors` stand in the order of its personas, and so do `keys`.

    name: of the named rule, or PAPER_NAME. note: why the dataset's current rule does not hold here, else ''.
    least_votes: counted votes that each persona with a prior must have on a pair; None: all planned ones but one in
    ten (of fewer than ten all), 0: any number. shares: the labelling came as shares without counts, so that no least
    number applies. both_lists: what a vote is that names a pair necessary and inappropriate: a conflict, which is not
    counted, or necessary, as in the authors' code.
    """

    name: str
    threshold: float
    keys: tuple[str, ...]
    priors: tuple[float, ...]
    note: str = ""
    least_votes: int | None = None
    shares: bool = False
    both_lists: str = labellings.BOTH_LISTS[0]

    @property
    def is_paper(self) -> bool:
        """True if this is the paper's rule, by name: a named rule with the same numbers is not."""
        return self.name == PAPER_NAME

    @property
    def digest(self) -> str:
        """Digest of the numbers of the rule: a part of the name of all that is cached from it."""
        numbers = [self.threshold, list(self.priors), self.least_votes]
        return content_hash([*numbers, *self._further.values()])[:12]

    @property
    def _further(self) -> dict[str, str]:
        # Only if it is not the default: rules recorded before there was such a setting keep their digest.
        return {"both_lists": self.both_lists} if self.both_lists != labellings.BOTH_LISTS[0] else {}

    @property
    def prior_by_key(self) -> dict[str, float]:
        return dict(zip(self.keys, self.priors, strict=True))

    def as_json(self) -> dict[str, object]:
        numbers = {"threshold": self.threshold, "priors": self.prior_by_key, "least_votes": self.least_votes}
        return {"name": self.name, **numbers, **self._further}

    @property
    def text(self) -> str:
        """'threshold 100 %, priors fundamentalist 26 %, pragmatic 64 %, unconcerned 10 %, at least 9 in 10 votes of
        each persona'."""
        shares = ", ".join(f"{key} {exact_percent(prior)}" for key, prior in self.prior_by_key.items())
        both = f"a vote in both lists counts as {self.both_lists}" if self._further else ""
        parts = f"threshold {exact_percent(self.threshold)}", f"priors {shares}", self.least, both
        return ", ".join(filter(None, parts))

    @property
    def least(self) -> str:
        """'at least 9 in 10 votes of each persona': how many votes a pair needs; '' where any number is enough."""
        if self.shares:
            return "no least number of votes (imported shares have no counts)"
        return labellings.least_text(self.least_votes)


def paper_rule(personas: Sequence[Persona], note: str = "") -> AppliedRule:
    """Return the paper's rule (Section 4.1.2: no entropy) with the priors of these personas."""
    return AppliedRule(PAPER_NAME, PAPER_THRESHOLD, _keys(personas), tuple(p.prior for p in personas), note)


def custom_rule(
    personas: Sequence[Persona],
    name: str,
    threshold: float,
    priors: Mapping[str, float],
    least_votes: int | None = None,
    both_lists: str = labellings.BOTH_LISTS[0],
) -> AppliedRule:
    """Return a custom rule for these personas. Raises StoreError where the numbers are no rule, or the priors are not
    for exactly these personas."""
    labellings.check_rule(threshold, priors, least_votes, both_lists)
    keys = _keys(personas)
    if set(priors) != set(keys):
        raise StoreError(
            f"a rule for this labelling needs a prior for each of {', '.join(keys)} and for no other; "
            f"given were {', '.join(priors)}."
        )
    by_persona = tuple(priors[key] for key in keys)
    return AppliedRule(name, threshold, keys, by_persona, least_votes=least_votes, both_lists=both_lists)


def fitted(row: RuleRow | None, personas: Sequence[Persona]) -> AppliedRule:
    """Return the current rule of a dataset, by persona key, for the personas of one of its labellings.

    Where the keys are not the same, the rule says nothing of some persona: the paper's rule holds then, and the note
    says so.
    """
    if row is None:
        return paper_rule(personas)
    keys = _keys(personas)
    if set(row.priors) != set(keys):
        return paper_rule(
            personas,
            f"the current rule '{row.name}' is for the personas {', '.join(row.priors)}; this labelling's are "
            f"{', '.join(keys)}, so {PAPER_NAME} holds for it",
        )
    return custom_rule(personas, row.name, row.threshold, row.priors, row.least_votes, row.both_lists)


def applied_rule(connection: sa.Connection, labelling_id: str) -> AppliedRule:
    """Return the rule that makes labels of the votes of a labelling now. Raises StoreError for an unknown labelling."""
    row = work.load(connection, labelling_id)
    dataset_id = int(row["dataset"])
    personas = list(labellings.personas(connection, labelling_id).values())
    rule = fitted(labellings.current_rule(connection, dataset_id), personas)
    rule = replace(rule, shares=row["endpoint"] == labellings.IMPORTED)
    frozen = versions.freeze_of(connection, dataset_id)
    if frozen is None or LEAST_VOTES in frozen.rule or rule.least_votes is not None or rule.shares:
        return rule
    # A frozen dataset keeps its labels.
    before = "this dataset was frozen before rules asked for a least number of votes, so none is asked for"
    return replace(rule, least_votes=0, note="; ".join(filter(None, (rule.note, before))))


def rule_of(store: Store, labelling_id: str) -> AppliedRule:
    """Return `applied_rule`; opens its own connection."""
    with store.read() as connection:
        return applied_rule(connection, labelling_id)


def _keys(personas: Sequence[Persona]) -> tuple[str, ...]:
    return tuple(persona.key for persona in personas)


COLUMNS = ("attribute", "context", "label", "votes")
LEAST_VOTES = "least_votes"  # the name of the field in the rule of a freeze
COUNTED = (Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN)
LABELLINGS_KEPT = 3  # one of a thousand profiles takes 250 MB: seven million pairs, nine counts and two ids each
ORIGIN = ".cache-origin"  # an empty file in the workspace, see _place_key


@dataclass(frozen=True)
class VoteCounts:
    """The counted votes of a labelling, one row a pair that has any row at all, ordered by (attribute, context).

    attributes, contexts: ids [pairs]. votes: [pairs, personas, 3], necessary, inappropriate and abstain; counts, or of
    an imported labelling the shares of its file (0 to 1 a persona). personas: in the order of the middle axis.
    revision: of the labelling that these were read at. planned: how many votes of each persona were planned on a pair,
    counted or lost: [pairs], or one number for all. conflicts: votes in both lists, [pairs, personas]; None if there
    are none. both_lists: whether these are among the necessary ones here.
    """

    labelling_id: str
    revision: int
    attributes: npt.NDArray[np.int64]
    contexts: npt.NDArray[np.int64]
    votes: npt.NDArray[Any]
    personas: tuple[Persona, ...]
    imported: bool
    planned: npt.NDArray[np.int64] | int = 0
    conflicts: npt.NDArray[np.int16] | None = None
    both_lists: str = labellings.BOTH_LISTS[0]

    def under(self, both_lists: str) -> VoteCounts:
        """Return the votes with those in both lists as a rule has them."""
        if both_lists == self.both_lists or self.conflicts is None:
            return replace(self, both_lists=both_lists)
        votes = self.votes.copy()
        votes[..., 0] += self.conflicts if both_lists == "necessary" else -self.conflicts
        return replace(self, votes=votes, both_lists=both_lists)

    def labels(self, rule: AppliedRule) -> npt.NDArray[np.int8]:
        """Return the label code of each pair by this rule: [pairs]; UNLABELLED where no vote is counted, TOO_FEW where
        a persona has fewer than the rule asks for."""
        votes = self.under(rule.both_lists).votes
        return consensus(votes, rule.priors, rule.threshold, self.needed(rule.least_votes))

    def needed(self, least_votes: int | None) -> npt.NDArray[np.int64] | int:
        """Return how many counted votes a rule asks of each persona: [pairs], or one number; 0 for imported shares."""
        if self.imported:
            return 0
        return self.planned - self.planned // ONE_LOST_OF if least_votes is None else least_votes

    def at(self, rows: slice | npt.NDArray[Any]) -> VoteCounts:
        """Return some of the pairs: a slice, positions or a mask [pairs]."""
        planned = self.planned if isinstance(self.planned, int) else self.planned[rows]
        return replace(
            self,
            attributes=self.attributes[rows],
            contexts=self.contexts[rows],
            votes=self.votes[rows],
            planned=planned,
            conflicts=None if self.conflicts is None else self.conflicts[rows],
        )

    def positions(self, attributes: npt.NDArray[np.int64], contexts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows of pairs among those here, -1 for pairs that are not: [...] of ids that broadcast to it."""
        # A pair as one number: pairs are ordered by both ids, so their numbers are sorted and one search finds all.
        width = int(max(self.contexts.max(initial=0), contexts.max(initial=0))) + 1
        numbers, keys = self.attributes * width + self.contexts, attributes * width + contexts
        if not len(numbers):
            return np.full(keys.shape, -1)
        # A pair beyond the last is clamped, and fails the comparison.
        at = np.minimum(np.searchsorted(numbers, keys), len(numbers) - 1)
        return np.where(numbers[at] == keys, at, -1)


def default_labelling(store: Store, dataset_id: int) -> LabellingRow | None:
    """Return the labelling that numbers rest on unless another is asked for; None without votes. It is the one that a
    person chose last. Else, of the finished ones (of all with a vote where none is finished), it is the one that covers
    most (profile, context) pairs, of equals the newest: a labelling of one context so moves no number of the others.
    One that was imported with results is taken only where there is no other: importing a run must not move the numbers
    of the others."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset_id)
    voted = [row for row in rows if row.imported or row.ballots.get(labellings.OK)]
    if chosen := [row for row in voted if row.chosen]:
        return max(chosen, key=lambda row: row.chosen)
    # Under a labelling that is under way every number would move as its votes come in.
    finished = [row for row in voted if row.status.is_finished]
    our_finished, our_voted = ([row for row in rows if not row.from_results] for rows in (finished, voted))
    # The rows are oldest first; max takes the first of equals.
    candidates = (our_finished or our_voted or finished or voted)[::-1]
    if len(candidates) < 2:
        return next(iter(candidates), None)
    return max(candidates, key=lambda row: _covered_pairs(store, row.id, row.revision, imported=row.imported))


@workspace_cached(most=1_000)
def _covered_pairs(store: Store, labelling_id: str, revision: int, *, imported: bool) -> int:
    with store.read() as connection:
        return labellings.covered_pairs(connection, labelling_id, imported=imported)


def unlabelled_text(store: Store, row: LabellingRow | None, most: int | None = None) -> str:
    """Say how many profiles of its dataset a labelling has no vote for: '8 of 10 profiles have no label by
    labelling-3f9a'; empty where each has one, and without a labelling. most: of the first so many profiles."""
    if row is None:
        return ""
    with store.read() as connection:
        profiles = datasets.profile_ids(connection, row.dataset, most)
        covered = labellings.covered_profiles(connection, row.id, imported=row.imported)
    missing = len(set(profiles) - covered)
    have = "has" if missing == 1 else "have"
    return f"{missing:,} of {count(len(profiles), 'profile')} {have} no label by {row.id}" if missing else ""


def chosen_labelling(store: Store, dataset: DatasetRow, labelling_id: str | None) -> LabellingRow | None:
    """Return the labelling of that id, or the default one. Raises StoreError where the dataset has none of that id."""
    if labelling_id is None:
        return default_labelling(store, dataset.id)
    return labelling_by_id(store, dataset.id, dataset.name, labelling_id)


def labelling_by_id(store: Store, dataset_id: int, dataset_name: str, labelling_id: str) -> LabellingRow:
    """Return the labelling of a dataset of that id. Raises StoreError where there is none."""
    with store.read() as connection:
        rows = {row.id: row for row in labellings.all_rows(connection, dataset_id)}
    if labelling_id not in rows:
        there = ", ".join(rows) or "none yet"
        raise StoreError(f"'{dataset_name}' has no labelling '{labelling_id}'. It has: {there}.")
    return rows[labelling_id]


def consensus_labels(store: Store, labelling_id: str) -> pd.DataFrame:
    """Return columns attribute, context (ids), label (code), votes (counted ones, of all personas; 0 for labels that
    were imported as shares).

    By the dataset's current rule, else the paper's with the priors that the labelling was planned with (`fitted`).
    Pairs without any vote are not in the table; those with too few have the code TOO_FEW. Made of the counts each time,
    so that no rule that held before can show. Raises StoreError for an unknown labelling.
    """
    return label_frame(vote_counts(store, labelling_id), rule_of(store, labelling_id))


def labels_under(
    store: Store, labelling: LabellingRow | None, rule: AppliedRule | None, profiles: Sequence[int] | None = None
) -> pd.DataFrame:
    """Return `consensus_labels` of a labelling as it was read, by this rule (None: the one that holds); empty without a
    labelling. profiles: of these alone; None: of all."""
    if labelling is None:
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in COLUMNS})
    if rule is None:
        rule = rule_of(store, labelling.id)
    if profiles is not None:
        return label_frame(votes_of(store, labelling, profiles), rule)
    # At the revision that the scope was resolved at, so that its version tells which labels these are.
    return label_frame(_votes(store, labelling.id, labelling.revision, imported=labelling.imported), rule)


def votes_of(store: Store, labelling: LabellingRow, profiles: Sequence[int]) -> VoteCounts:
    """Return `vote_counts` of some profiles alone, for labellings that do not fit into memory."""
    return _read_votes(store, labelling.id, labelling.revision, imported=labelling.imported, profiles=profiles)


def label_frame(counts: VoteCounts, rule: AppliedRule) -> pd.DataFrame:
    """Apply a rule to these votes: the columns of consensus_labels."""
    counts = counts.under(rule.both_lists)
    labels = counts.labels(rule)
    # Shares of a file are no votes, however many there were.
    votes = np.zeros(len(labels)) if counts.imported else counts.votes.sum(axis=(1, 2))
    frame = pd.DataFrame(
        {
            "attribute": counts.attributes,
            "context": counts.contexts,
            "label": labels.astype(np.int8),
            "votes": votes.astype(np.int32),
        }
    )
    return frame[frame["label"] != UNLABELLED].reset_index(drop=True)


def vote_counts(store: Store, labelling_id: str) -> VoteCounts:
    """Return all counted votes of a labelling, from memory, else from its Parquet file, else from the record; votes in
    both lists as the rule has them that holds now. The arrays are shared: do not write to them. Raises StoreError for
    an unknown labelling."""
    with store.read() as connection:
        row, rule = work.load(connection, labelling_id), applied_rule(connection, labelling_id)
    counts = _votes(store, labelling_id, int(row["revision"]), imported=row["endpoint"] == labellings.IMPORTED)
    return counts.under(rule.both_lists)


@workspace_cached(most=LABELLINGS_KEPT)
def _votes(store: Store, labelling_id: str, revision: int, *, imported: bool) -> VoteCounts:
    return _read_votes(store, labelling_id, revision, imported=imported)


def _read_votes(
    store: Store, labelling_id: str, revision: int, *, imported: bool, profiles: Sequence[int] | None = None
) -> VoteCounts:
    """Read the votes at a revision, of these profiles (None: of all), from their Parquet file, else from the record."""
    name = f"counts-{labelling_id}"
    if profiles is not None:
        name += f"-profiles{profiles[0]}to{profiles[-1]}of{len(profiles)}"
    # 'conflicts': older files had no such columns.
    path = cache_file(store, name, f"{revision}-conflicts")
    frame = read_cache(path)
    with store.read() as connection:
        personas = labellings.personas(connection, labelling_id)
        if frame is None:
            every = [None] if profiles is None else profiles
            tallies = chain.from_iterable(labellings.tallies(connection, labelling_id, ids) for ids in every)
            # By numpy: pandas asks every row of the record what kind of thing it is, which takes longer than the
            # query. float64 holds shares and ids alike: whole numbers up to 2**53 are exact.
            values = np.fromiter(chain.from_iterable(tallies), dtype=np.float64)
            frame = _counted(values, list(personas), imported)
            frame["planned"] = _planned(connection, labelling_id, frame, profiles)
            write_cache(partial(frame.to_parquet, index=False), path, name)
    counted = 2 + len(personas) * len(COUNTED)
    conflicts = frame.iloc[:, counted:-1].to_numpy().astype(np.int16)
    return VoteCounts(
        labelling_id=labelling_id,
        revision=revision,
        attributes=frame["attribute"].to_numpy(dtype=np.int64),
        contexts=frame["context"].to_numpy(dtype=np.int64),
        votes=frame.iloc[:, 2:counted].to_numpy().reshape(len(frame), len(personas), len(COUNTED)),
        personas=tuple(personas.values()),
        imported=imported,
        planned=_one_number(frame["planned"].to_numpy()),
        conflicts=conflicts if conflicts.any() else None,
    )


def _planned(
    connection: sa.Connection, labelling_id: str, pairs: pd.DataFrame, profiles: Sequence[int] | None = None
) -> npt.NDArray[np.int16]:
    """Return how many draws were planned on each pair: those of its profile and context. 0 for imported shares."""
    draws = labellings.planned_draws(connection, labelling_id, profiles)
    dataset_id = int(work.load(connection, labelling_id)["dataset"])
    ids = datasets.attribute_ids(connection, dataset_id, profiles)
    owners = {i: profile for profile, attribute_ids in ids.items() for i in attribute_ids}
    ballots = pd.Series(draws, dtype=np.int16) if draws else pd.Series(0, pd.MultiIndex.from_tuples([(0, 0)]), np.int16)
    keys = pd.MultiIndex.from_arrays([pairs["attribute"].map(owners), pairs["context"]])
    return np.asarray(ballots.reindex(keys, fill_value=0), np.int16)


def _one_number(planned: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64] | int:
    """Return one number where all pairs have the same, as they do unless a labelling was extended in part."""
    same = len(planned) == 0 or bool((planned == planned[0]).all())
    return int(planned[:1].sum()) if same else planned.astype(np.int64)


def _counted(tallies: npt.NDArray[np.float64], personas: list[int], imported: bool) -> pd.DataFrame:
    """Return one row a pair: attribute, context, a column for each persona's necessary, inappropriate and abstain, and
    then one for each persona's votes in both lists. tallies: attribute, context, persona and its counts, one row after
    the other."""
    columns = ["attribute", "context", "persona", *map(str, Verdict)]
    rows = pd.DataFrame(tallies.reshape(-1, len(columns)), columns=columns)
    # Sorted by attribute, then context: the order that VoteCounts promises and `searchsorted` needs.
    pairs, position = np.unique(rows[["attribute", "context"]].to_numpy(dtype=np.int64), axis=0, return_inverse=True)
    order = {persona_id: index for index, persona_id in enumerate(personas)}
    # Shares are fractions; a persona's counts are at most its draws, so 16 bits hold them.
    counts = np.zeros((len(pairs), len(order), len(COUNTED)), dtype=np.float64 if imported else np.int16)
    persona_position = rows["persona"].map(order).to_numpy(dtype=np.int64)
    for index, verdict in enumerate(COUNTED):
        # reshape: some versions of numpy give the inverse along an axis in more than one dimension.
        counts[position.reshape(-1), persona_position, index] = rows[str(verdict)].to_numpy()
    conflicts = np.zeros((len(pairs), len(order)), np.int16)
    conflicts[position.reshape(-1), persona_position] = rows[str(Verdict.CONFLICT)].to_numpy()
    pairs, flat = pairs.reshape(-1, 2), counts.reshape(len(pairs), len(order) * len(COUNTED))
    names = [f"{persona}.{verdict}" for persona in range(len(order)) for verdict in COUNTED]
    ids = {"attribute": pairs[:, 0], "context": pairs[:, 1]}
    both = {f"{persona}.{Verdict.CONFLICT}": conflicts[:, persona] for persona in range(len(order))}
    return pd.DataFrame(ids | {name: flat[:, n] for n, name in enumerate(names)} | both)


def cache_file(store: Store, name: str, version: str) -> Path:
    """Return the path of a rebuildable table of this name and version.

    Numbers are read from these files, so one that came with a copied workspace must not be trusted: the name holds a
    key that only this place has, and such a file is never found.
    """
    return store.workspace / "cache" / f"{name}-{version}-{_place_key(store.workspace)}.parquet"


def _place_key(workspace: Path) -> str:
    """Return 16 hexadecimal digits that differ for every copy of a workspace, and stay when it is moved on its disk.

    Made of the inode number and the change time of a file of ours: a copied or unpacked one gets new ones from the
    system, and no program can set them. Where the file is missing and cannot be made, every call gives another key.
    """
    file = workspace / ORIGIN
    try:
        # lexists and lstat: a link is taken as what it is, never followed to another user's file.
        if not os.path.lexists(file) and not readonly.chosen():
            files.make_file(file)
        status = file.lstat()
    except OSError:
        return secrets.token_hex(8)
    return hashlib.sha256(f"{status.st_ino} {status.st_ctime_ns}".encode()).hexdigest()[:16]


def read_cache(path: Path) -> pd.DataFrame | None:
    """Read a table that write_cache wrote; None where there is none, or only a damaged one (after a power cut, say)."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError):  # pyarrow's errors of a file that is no whole Parquet file are ValueErrors
        return None


def write_cache(write: Callable[[Path], object], path: Path, name: str) -> None:
    """Let `write` write a rebuildable table, whole or not at all, and drop its older versions. A full disk (an OSError)
    is no failure: the table is only built again next time. Nothing is written by a read-only app."""
    # A name of its own, so that two threads that write the same table do not share a draft.
    draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.draft")
    if readonly.chosen():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(draft)
        # A rename is atomic: readers find the old file or the new one.
        draft.replace(path)
        for old in path.parent.glob(f"{name}-*.parquet"):
            if old != path:
                # missing_ok: another process may be clearing up at the same moment.
                old.unlink(missing_ok=True)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
