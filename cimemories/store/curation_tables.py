"""The tables of curation beyond votes: versions of a dataset, their history, rules, imported labels, generation.

They hang on the same metadata as `store.tables`, which holds what they refer to.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)

from cimemories.store.tables import RowId, id_column, metadata, to, work_columns

# A dataset that labels or runs rest on is never changed: an edit makes its next version, which has a row here.
dataset_version = Table(
    "dataset_version",
    metadata,
    to("dataset", primary_key=True),
    Column("parent", RowId, ForeignKey("dataset.id", ondelete="SET NULL")),
    Column("version", Integer, nullable=False),
    Column("created", Text, nullable=False),
    Index("ix_dataset_version_parent", "parent"),
)

# A frozen dataset cannot be changed; the hash covers profiles, contexts, votes, decisions and rule.
freeze = Table(
    "freeze",
    metadata,
    to("dataset", primary_key=True),
    Column("hash", Text, nullable=False),
    Column("labelling", Text),
    Column("rule", Text, nullable=False),  # JSON: threshold and priors
    Column("counts", Text, nullable=False),  # JSON: what the hash covers
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

# Append-only: every change of a profile or of the contexts by hand, with what stood there before and after.
edit = Table(
    "edit",
    metadata,
    id_column(),
    to("dataset"),
    Column("profile", Integer),  # its ordinal, which all versions of a dataset share; null: the contexts of all
    Column("kind", Text, nullable=False),  # attribute | context | bio
    Column("action", Text, nullable=False),  # add | change | remove
    Column("before", Text),
    Column("after", Text),
    Column("annotator", Text, nullable=False),
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("created", Text, nullable=False),
    Index("ix_edit_dataset", "dataset"),
)

# A named rule for turning votes into labels; `current` on at most one of a dataset, else the paper's rule holds.
rule = Table(
    "rule",
    metadata,
    id_column(),
    to("dataset"),
    Column("name", Text, nullable=False),
    Column("threshold", Float, nullable=False),
    Column("priors", Text, nullable=False),  # JSON: persona key -> prior
    Column("current", Boolean, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "name"),
)

# Labels that came without votes: shares by persona as a file gave them; the endpoint of their labelling is `imported`.
imported_vote = Table(
    "imported_vote",
    metadata,
    Column("labelling", Text, ForeignKey("labelling.id", ondelete="CASCADE"), primary_key=True),
    to("attribute", primary_key=True),
    to("context", primary_key=True),
    to("persona", primary_key=True),
    Column("necessary", Float, nullable=False),
    Column("inappropriate", Float, nullable=False),
    Column("abstain", Float, nullable=False),
    Index("ix_imported_vote_attribute", "attribute"),
    Index("ix_imported_vote_context", "context"),
    sqlite_with_rowid=False,
)

# Profiles being written by a model. Its dataset is made when all parts are settled; nothing is half there before.
generation = Table(
    "generation",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),  # of the dataset to be
    Column("model", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("dataset", RowId, ForeignKey("dataset.id", ondelete="SET NULL")),
    *work_columns(),
    Index("ix_generation_dataset", "dataset"),
)

# One profile's one event: a call, and up to two more for what was rejected.
generation_part = Table(
    "generation_part",
    metadata,
    id_column(),
    Column("generation", Text, ForeignKey("generation.id", ondelete="CASCADE"), nullable=False),
    Column("profile", Integer, nullable=False),  # ordinal
    Column("position", SmallInteger, nullable=False),  # 0 the general attributes, 1.. the events in their order
    Column("event", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, default=0, server_default="0"),
    Column("status", Text, nullable=False),
    Column("cause", Text),
    Column("attributes", Text, nullable=False, default="[]", server_default="[]"),  # JSON: accepted so far
    Column("rejected", Text, nullable=False, default="[]", server_default="[]"),  # JSON: attribute, reason, attempt
    Column("call", Text, ForeignKey("call.key")),
    UniqueConstraint("generation", "profile", "position"),
)
