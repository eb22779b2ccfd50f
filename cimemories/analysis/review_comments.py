"""Comments of a dataset, each with its pair in words."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store import comments
from cimemories.store.comments import Comment
from cimemories.store.engine import Store
from cimemories.store.review_tables import comment
from cimemories.store.tables import attribute, context, profile


@dataclass(frozen=True)
class Remark:
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
        words = (self.comment.text, self.comment.resolution, self.statement, self.key, self.task, self.recipient)
        return "\n".join((*words, self.profile_name)).casefold()


def remarks(store: Store, dataset_id: int) -> list[Remark]:
    """Every comment of a dataset: open ones first, of each the newest first."""
    query = (
        sa.select(comment.c.id, attribute.c.profile, profile.c.name.label("profile_name"), attribute.c.key)
        .add_columns(attribute.c.statement, context.c.task, context.c.recipient)
        .join(attribute, comment.c.attribute == attribute.c.id)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(context, comment.c.context == context.c.id)
        .where(comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    )
    names = ("profile", "profile_name", "key", "statement", "task", "recipient")
    with store.read() as connection:
        said = comments.of_dataset(connection, dataset_id)
        about = {row["id"]: {n: row[n] for n in names} for row in connection.execute(query).mappings()}
    newest = [Remark(item, **about[item.id]) for item in reversed(said)]
    return sorted(newest, key=lambda item: not item.comment.open)
