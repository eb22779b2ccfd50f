"""Where the review of a dataset stands: who has decided how much, what is in dispute, the comments on pairs, and the
guideline that people follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.labels import LABELS, UNLABELLED, default_labelling
from cimemories.model import Label
from cimemories.review.adjudication import disputes, own_decision
from cimemories.review.index import Ints, PairIndex, pair_index
from cimemories.review.random_share import ShareAgreement, share_agreement
from cimemories.review.value import Aim, Valued, lacking, valued
from cimemories.store import datasets, decisions, reviews, runs
from cimemories.store.decisions import ADJUDICATED, Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import Comment, Guideline
from cimemories.store.tables import attribute, comment, context, profile, profile_context
from cimemories.store.team import log

REOPENED = "Reopened: "


@dataclass(frozen=True)
class Person:
    """One person. `labels`: on how many pairs their own standing decision is each label; `adjudicated`: pairs on which
    an adjudication of theirs stands, which is no label of their own; `taken_back`: pairs on which nothing of theirs
    stands any more. `sources`: decisions of theirs in force, adjudications among them, by how they were made."""

    name: str
    labels: Mapping[str, int]
    adjudicated: int
    taken_back: int
    sources: Mapping[str, int]


@dataclass(frozen=True)
class Status:
    """`decided`: pairs whose label is a person's, of `pairs`. `disputed`: of the `shared` ones, that is those which two
    or more people decided. `guideline`: the version that stands."""

    dataset: str
    simulated: bool
    pairs: int
    decided: int
    shared: int
    disputed: int
    comments: int
    open_comments: int
    flagged: int
    guideline: int
    people: tuple[Person, ...]

    def as_json(self) -> dict[str, object]:
        """Plain values, people as a list."""
        return asdict(self)


def status(store: Store, dataset: str) -> Status:
    """The state of a dataset's review. Raises StoreError for a dataset that is not there."""
    # Pairs of an attribute and a context that its profile is tested in.
    count = (
        sa.select(sa.func.count())
        .select_from(attribute)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(profile_context, profile_context.c.profile == profile.c.id)
    )
    with store.read() as connection:
        row = datasets.named(connection, dataset)
        history = decisions.history(connection, row.id)
        notes = reviews.comments_of_dataset(connection, row.id)
        flagged = len(reviews.standing_marks(connection, row.id, reviews.MarkKind.FLAG))
        version = reviews.current_guideline(connection).version
        pairs = int(connection.execute(count.where(profile.c.dataset == row.id)).scalar_one())
    # A transaction of its own: a decision made between the two may count in this one alone.
    disputed = disputes(store, row.id)
    by_person: dict[str, list[Decision]] = {}
    for item in history:
        by_person.setdefault(item.annotator, []).append(item)
    return Status(
        dataset=row.name,
        simulated=row.simulated,
        pairs=pairs,
        decided=len(decisions.standing(history)),
        shared=disputed.shared,
        disputed=len(disputed.open),
        comments=len(notes),
        open_comments=sum(item.open for item in notes),
        flagged=flagged,
        guideline=version,
        people=tuple(_person(name, made) for name, made in sorted(by_person.items())),
    )


@dataclass(frozen=True)
class Sureness:
    """How sure the labels make a number, and what the random share of the queue says of them. value: None where
    `valued` has none. share: None without votes. width: wanted, as a share."""

    value: Valued | None
    share: ShareAgreement | None
    width: float
    aim: Aim

    @property
    def sentences(self) -> tuple[str, ...]:
        value, share = self.value, self.share
        sentences = (value.sentence(self.width), value.beside) if value else (lacking(self.aim),)
        return (*sentences, share.sentence) if share else sentences

    def as_json(self) -> dict[str, object]:
        return {
            "label_uncertainty": self.value.as_json(self.width) if self.value else None,
            "random_share": self.share.as_json() if self.share else None,
        }


def sureness(store: Store, dataset: str, aim: Aim, width: float, seed: int = 0) -> Sureness:
    """Of the dataset's default labelling, with every decision that stands now. aim: runs by id or name. Raises
    StoreError for a dataset or run that is not there, or a run that is not judged."""
    with store.read() as connection:
        row = datasets.named(connection, dataset)
        ids = tuple(runs.named(connection, name).id for name in aim.runs)
    labelling = default_labelling(store, row.id)
    if labelling is None:
        return Sureness(None, None, width, aim)
    index = pair_index(store, row.id, labelling.id)
    value = valued(store, index, Aim(aim.target, ids), batch=1)
    return Sureness(value, share_agreement(store, index, seed), width, aim)


def _person(name: str, made: list[Decision]) -> Person:
    standing = decisions.standing(made)
    by_pair = decisions.stacks(made)
    # Below an adjudication their own decision stays.
    labels = Counter(own.label for stack in by_pair.values() if (own := own_decision(stack)) is not None)
    return Person(
        name,
        {str(label): labels[label] for label in Label},
        sum(stack[-1].source == ADJUDICATED for stack in by_pair.values() if stack),
        # Pairs they ever decided, less those on which something of theirs stands.
        len(by_pair) - len(standing),
        # An undo brings back the decision before it, whose source it is that counts.
        dict(sorted(Counter(stack[-1].source for stack in by_pair.values() if stack and stack[-1].label).items())),
    )


@dataclass(frozen=True)
class Sitting:
    """Of a person's newest standing decisions, adjudications apart: how many there are, how many settle a pair that the
    consensus calls ambiguous, and how many go against a consensus of necessary or inappropriate. positions: of their
    pairs in the index; newest: when the last one was made, '' without any."""

    decisions: int
    settled: int
    against: int
    positions: Ints
    newest: str


def sitting(store: Store, index: PairIndex, annotator: str, newest: int) -> Sitting:
    """What the last `newest` standing decisions of an annotator do to the consensus."""
    with store.read() as connection:
        own = [d for d in decisions.history(connection, index.dataset_id) if d.annotator == annotator]
    # By time, since ids tell only the order of arrival.
    made = [d for d in decisions.standing(own).values() if d.source != ADJUDICATED]
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
class PairComment:
    """A comment and what it is about. `profile`: the id of the profile that the attribute is of."""

    comment: Comment
    profile: int
    profile_name: str
    key: str
    statement: str
    task: str
    recipient: str

    @property
    def searched(self) -> str:
        """What a search looks in, in lower case."""
        parts = (self.comment.text, self.comment.resolution, self.statement, self.key, self.task, self.recipient)
        return "\n".join((*parts, self.profile_name)).casefold()


def pair_comments(store: Store, dataset_id: int) -> list[PairComment]:
    """Every comment of a dataset: open ones first, of each the newest first."""
    query = (
        sa.select(comment.c.id, attribute.c.profile, profile.c.name.label("profile_name"), attribute.c.key)
        .add_columns(attribute.c.statement, context.c.task, context.c.recipient)
        .join(attribute, comment.c.attribute == attribute.c.id)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(context, comment.c.context == context.c.id)
        # A row that resolves another one is the end of that comment, not one of its own.
        .where(comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    )
    with store.read() as connection:
        notes = reviews.comments_of_dataset(connection, dataset_id)
        rows = connection.execute(query).mappings()
        about = {row["id"]: {name: row[name] for name in row if name != "id"} for row in rows}
    newest_first = [PairComment(item, **about[item.id]) for item in reversed(notes)]
    return sorted(newest_first, key=lambda item: not item.comment.open)


def resolve_comment(store: Store, dataset_id: int, annotator: str, comment_id: int, reason: str) -> None:
    """Close a comment with a reason. Raises StoreError where the dataset has no such comment."""
    with store.write(Role.ANNOTATOR) as connection:
        reviews.resolve_comment(connection, dataset_id, annotator, comment_id, reason)


def reopen_comment(store: Store, dataset_id: int, annotator: str, item: Comment) -> None:
    """Ask a resolved comment again: as a new one, since what was said of it stays. Raises StoreError where it is open
    again already."""
    text = f"{REOPENED}{item.text.removeprefix(REOPENED)}"
    with store.write(Role.ANNOTATOR) as connection:
        for note in reviews.comments_of_pair(connection, item.attribute, item.context):
            if note.open and note.text == text:
                raise StoreError(f"{note.annotator} has reopened this comment already. It is among the open ones.")
        reviews.add_comment(connection, dataset_id, annotator, item.attribute, item.context, text)


def pair_history(store: Store, dataset_id: int, pair: tuple[int, int]) -> tuple[list[Decision], list[Comment]]:
    """Every decision and every comment on one pair (attribute id, context id), oldest first."""
    with store.read() as connection:
        made = decisions.history(connection, dataset_id, [pair[0]], pair[1])
        return list(made), reviews.comments_of_pair(connection, *pair)


def guidelines(store: Store) -> list[Guideline]:
    """Every version of the guideline, the current one last."""
    with store.read() as connection:
        return reviews.guideline_versions(connection)


def save_guideline(store: Store, text: str, annotator: str, after: Guideline, reason: str) -> Guideline:
    """Save a text as the version after the one that it was written from, and return the current version: that one where
    the text is the same. Raises StoreError where somebody else has saved a version in the meantime, and without a
    reason."""
    with store.write(Role.CURATOR) as connection:
        newest = reviews.current_guideline(connection, alone=True)
        if newest.version != after.version:
            raise StoreError(
                f"{newest.annotator} saved version {newest.version} after you opened this one. Copy your text, reload "
                "the page and merge the two."
            )
        saved = reviews.save_guideline(connection, text, annotator, reason)
        if saved.version != newest.version:
            log.add(connection, "guideline.saved", f"version {saved.version}", reason=saved.reason)
        return saved
