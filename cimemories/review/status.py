"""The state of a dataset's review: decisions by person, disputes, comments on pairs, and the guideline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.answer import Answer, Column, Table
from cimemories.flows.labels import LABELS, UNLABELLED
from cimemories.labels.votes import PairText, pair_texts
from cimemories.metrics.uncertainty import binomial_bounds
from cimemories.model import Label
from cimemories.review.adjudication import disputes, last_decision
from cimemories.review.index import Ints, PairIndex
from cimemories.review.training import Answered, answered
from cimemories.store import datasets, decisions, reviews
from cimemories.store.audits import TEST, TRAINING
from cimemories.store.decisions import ADJUDICATED, Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import Comment, Guideline
from cimemories.store.tables import attribute, profile, profile_context
from cimemories.store.team import log
from cimemories.text import count

REOPENED = "Reopened: "


PEOPLE = {
    "name": Column("text", "Reviewer"),
    **{str(label): Column("count", f"{label}".capitalize(), "Pairs by the person's own decision") for label in Label},
    "own": Column("count", "Own in force"),
    "adjudicated": Column("count", "Adjudicated", "An adjudication is no label of the person's own"),
    "taken_back": Column("count", "Taken back", "Pairs on which nothing of theirs stands any more"),
    "training_right": Column("percent", "Right in training", "Of the training pairs that they answered"),
    "tests_right": Column("percent", "Right in tests", "Of the hidden test pairs that they answered"),
}


WHAT = "What each person decided"


@dataclass(frozen=True, kw_only=True)
class Status(Answer):
    """decided: pairs whose label is a person's, of `pairs`. disputed: of the `shared` ones, which two or more people
    decided. guideline: the version that stands. people: what each has decided; `sources` (not shown): decisions in
    force, adjudications among them, by how they were made."""

    dataset: str
    pairs: int
    decided: int
    shared: int
    disputed: int
    comments: int
    open_comments: int
    flagged: int
    guideline: int
    people: Table


def status(store: Store, dataset: str) -> Status:
    """Return the state of a dataset's review. Raises StoreError for a dataset that is not there."""
    # Pairs of an attribute and a context that its profile is tested in.
    number = (
        sa.select(sa.func.count())
        .select_from(attribute)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(profile_context, profile_context.c.profile == profile.c.id)
    )
    with store.read() as connection:
        row = datasets.by_name(connection, dataset)
        history = decisions.history(connection, row.id)
        notes = reviews.comments_of_dataset(connection, row.id)
        flagged = len(reviews.standing_marks(connection, row.id, reviews.MarkKind.FLAG))
        version = reviews.current_guideline(connection).version
        pairs = int(connection.execute(number.where(profile.c.dataset == row.id)).scalar_one())
    # A transaction of its own: a decision made between the two may count in this one alone.
    disputed = disputes(store, row.id)
    by_person: dict[str, list[Decision]] = {}
    for item in history:
        by_person.setdefault(item.annotator, []).append(item)
    stacks = {name: decisions.stacks(made) for name, made in by_person.items()}
    labels = {
        name: {pair: last.label for pair, stack in of.items() if (last := last_decision(stack)) and last.label}
        for name, of in stacks.items()
    }
    with store.read() as connection:
        known = answered(connection, row.id, labels)
    names = sorted(by_person.keys() | known.keys())
    people = [_person(name, by_person.get(name, [])) | _known(known.get(name, {})) for name in names]
    decided, opened = len(decisions.standing(history)), sum(item.open for item in notes)
    return Status(
        sentence=f"'{row.name}': {count(decided)} of {count(pairs, 'pair')} decided; {count(len(disputed.open))} of "
        f"{count(disputed.shared, 'pair')} with several reviewers are disputed; comments: {count(opened)} of "
        f"{count(len(notes))} open; flagged pairs: {count(flagged)}; guideline: version {version}.",
        simulated=("profiles",) * row.simulated,
        dataset=row.name,
        pairs=pairs,
        decided=decided,
        shared=disputed.shared,
        disputed=len(disputed.open),
        comments=len(notes),
        open_comments=opened,
        flagged=flagged,
        guideline=version,
        people=Table(pd.DataFrame(people, columns=list(people[0]) if people else [*PEOPLE, "sources"]), PEOPLE, WHAT),
    )


def _person(name: str, made: list[Decision]) -> dict[str, object]:
    standing = decisions.standing(made)
    by_pair = decisions.stacks(made)
    # A person's decision stays below their adjudication.
    labels = Counter(last.label for last in map(last_decision, by_pair.values()) if last is not None)
    by_label = {str(label): labels[label] for label in Label}
    return {
        "name": name,
        **by_label,
        "own": sum(by_label.values()),
        "adjudicated": sum(stack[-1].source == ADJUDICATED for stack in by_pair.values() if stack),
        # Pairs they ever decided, less those on which something of theirs stands.
        "taken_back": len(by_pair) - len(standing),
        # An undo brings back the decision before it, whose source it is that counts.
        "sources": dict(
            sorted(Counter(stack[-1].source for stack in by_pair.values() if stack and stack[-1].label).items())
        ),
    }


def _known(said: Mapping[str, Sequence[Answered]]) -> dict[str, object]:
    """Return the shares of right answers to pairs with a known answer, with their intervals."""
    row: dict[str, object] = {}
    for name, use in (("training_right", TRAINING), ("tests_right", TEST)):
        pairs = said.get(use, ())
        share = np.array([np.mean([one is other for one, other in pairs]) if pairs else np.nan])
        low, high = binomial_bounds(share, np.array([float(len(pairs))]))
        row |= {name: share[0], f"{name}_low": low[0], f"{name}_high": high[0], f"{name}_items": len(pairs)}
    return row


@dataclass(frozen=True)
class Sitting:
    """The counts of a person's newest standing decisions, adjudications apart. settled: those on a pair that the
    consensus calls ambiguous; against: those against a consensus of necessary or inappropriate. positions: of their
    pairs in the index; newest: when the last one was made, '' without any."""

    decisions: int
    settled: int
    against: int
    positions: Ints
    newest: str


def sitting(store: Store, index: PairIndex, annotator: str, newest: int) -> Sitting:
    """Compare an annotator's last `newest` standing decisions with the consensus."""
    with store.read() as connection:
        by_annotator = [d for d in decisions.history(connection, index.dataset_id) if d.annotator == annotator]
    # By time, since ids tell only the order of arrival.
    made = [d for d in decisions.standing(by_annotator).values() if d.source != ADJUDICATED]
    last = sorted(made, key=lambda d: d.created)[-newest:]
    positions = index.shape.locate([d.attribute for d in last], [d.context for d in last])
    # A pair that has left the dataset has position -1, and no consensus to be changed.
    before = [LABELS.get(code) for code in np.where(positions < 0, UNLABELLED, index.consensus[positions]).tolist()]
    # Where no vote is counted there was no consensus that could be changed.
    changed = [was for was, d in zip(before, last, strict=True) if was is not None and d.label is not was]
    settled = changed.count(Label.AMBIGUOUS)
    newest_made = last[-1].created if last else ""
    return Sitting(len(last), settled, len(changed) - settled, positions[positions >= 0], newest_made)


@dataclass(frozen=True)
class PairComment(PairText):
    """A comment and the pair that it is about."""

    comment: Comment

    @property
    def searched(self) -> str:
        """Return the text that a search looks in, in lower case."""
        parts = (self.comment.text, self.comment.resolution, self.statement, self.key, self.task, self.recipient)
        return "\n".join((*parts, self.user)).casefold()


def pair_comments(store: Store, dataset_id: int) -> list[PairComment]:
    """Return the comments of a dataset: open ones first, then the newest first."""
    with store.read() as connection:
        notes = reviews.comments_of_dataset(connection, dataset_id)
        texts = pair_texts(connection, {(note.attribute, note.context) for note in notes})
    newest_first = [PairComment(**vars(texts[note.attribute, note.context]), comment=note) for note in reversed(notes)]
    return sorted(newest_first, key=lambda item: not item.comment.open)


def resolve_comment(store: Store, dataset_id: int, annotator: str, comment_id: int, reason: str) -> None:
    """Close a comment with a reason. Raises StoreError where the dataset has no such comment."""
    with store.write(Role.ANNOTATOR) as connection:
        reviews.resolve_comment(connection, dataset_id, annotator, comment_id, reason)


def reopen_comment(store: Store, dataset_id: int, annotator: str, item: Comment) -> None:
    """Post a resolved comment again as a new one; the old one keeps its resolution. Raises StoreError where it is open
    again already."""
    text = f"{REOPENED}{item.text.removeprefix(REOPENED)}"
    with store.write(Role.ANNOTATOR) as connection:
        for note in reviews.comments_of_pair(connection, item.attribute, item.context):
            if note.open and note.text == text:
                raise StoreError(f"{note.annotator} has reopened this comment already. It is among the open ones.")
        reviews.add_comment(connection, dataset_id, annotator, item.attribute, item.context, text)


def pair_history(store: Store, dataset_id: int, pair: tuple[int, int]) -> tuple[list[Decision], list[Comment]]:
    """Return the decisions and the comments on one pair (attribute id, context id), oldest first."""
    with store.read() as connection:
        made = decisions.history(connection, dataset_id, [pair[0]], pair[1])
        return list(made), reviews.comments_of_pair(connection, *pair)


def guidelines(store: Store) -> list[Guideline]:
    """Return the versions of the guideline, the current one last."""
    with store.read() as connection:
        return reviews.guideline_versions(connection)


def save_guideline(store: Store, text: str, annotator: str, after: Guideline, reason: str) -> Guideline:
    """Save a text as the version after the one that it was written from, and return the current version: that one where
    the text is the same. Raises StoreError if another version was saved in the meantime, and without a reason."""
    with store.write(Role.CURATOR) as connection:
        newest = reviews.current_guideline(connection, exclusive=True)
        if newest.version != after.version:
            raise StoreError(
                f"{newest.annotator} saved version {newest.version} after you opened this one. Copy your text, reload "
                "the page and merge the two."
            )
        saved = reviews.save_guideline(connection, text, annotator, reason)
        if saved.version != newest.version:
            log.add(connection, "guideline.saved", f"version {saved.version}", reason=saved.reason)
        return saved
