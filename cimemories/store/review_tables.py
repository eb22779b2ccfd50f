"""The tables of review: guidelines, comments, marks, who works on what, slices for audits, and verdicts on judgements.

They hang on the same metadata as `store.tables`. What people say is append-only; `uid` is given by whoever made the
event (a browser, a file), so that the same event sent twice, or merged from another workspace, is one event.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
)

from cimemories.store.tables import RowId, id_column, metadata, to

# What annotators go by. A decision names the hash of the text that stood when it was made.
guideline = Table(
    "guideline",
    metadata,
    id_column(),
    Column("hash", Text, nullable=False, unique=True),
    Column("text", Text, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

# Append-only. A row with `resolves` says that the comment it names is settled, and why.
comment = Table(
    "comment",
    metadata,
    id_column(),
    Column("uid", Text, nullable=False),
    to("dataset"),
    to("attribute"),
    to("context"),
    Column("annotator", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("resolves", RowId, ForeignKey("comment.id", ondelete="CASCADE")),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "uid"),
    Index("ix_comment_pair", "attribute", "context"),
)

# Append-only: what is said of a pair that is no label. The newest row of an annotator on a pair holds.
mark = Table(
    "mark",
    metadata,
    id_column(),
    Column("uid", Text, nullable=False),
    to("dataset"),
    to("attribute"),
    to("context"),
    Column("annotator", Text, nullable=False),
    Column("kind", Text, nullable=False),  # skip | flag | clear
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("seconds", Float),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "uid"),
    Index("ix_mark_pair", "attribute", "context"),
)

# Who has a pair on the screen or next in line; it lapses by itself, so that nobody who left blocks the others.
claim = Table(
    "claim",
    metadata,
    to("attribute", primary_key=True),
    to("context", primary_key=True),
    Column("annotator", Text, primary_key=True),
    Column("session", Text, primary_key=True),  # one browser tab
    to("dataset"),
    Column("until", Float, nullable=False),  # seconds since 1970
    Index("ix_claim_dataset", "dataset", "until"),
    sqlite_with_rowid=False,
)

# How many people see a pair: one, but a `share` of the pairs, drawn by `seed`, is given to `people`.
review_plan = Table(
    "review_plan",
    metadata,
    to("dataset", primary_key=True),
    Column("share", Float, nullable=False),
    Column("people", Integer, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

saved_view = Table(
    "saved_view",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    Column("page", Text, nullable=False),
    Column("query", Text, nullable=False),  # JSON: parameter -> value
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
)

# A stratified random sample, drawn once and kept: of pairs (kind labels) or of responses' attributes (judgements).
slice = Table(
    "slice",
    metadata,
    id_column(),
    to("dataset"),
    Column("kind", Text, nullable=False),  # labels | judgements
    Column("name", Text, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("manifest", Text, nullable=False),  # JSON: strata with their sizes, and what it was drawn from
    Column("annotator", Text, nullable=False),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "name"),
)

slice_item = Table(
    "slice_item",
    metadata,
    to("slice", primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    to("attribute"),
    to("context"),
    Column("response", RowId, ForeignKey("response.id", ondelete="CASCADE")),  # null in a slice of labels
    Column("stratum", Text, nullable=False),
    Column("weight", Float, nullable=False),  # how many of the population this item stands for
    Index("ix_slice_item_attribute", "attribute"),
    Index("ix_slice_item_context", "context"),
    Index("ix_slice_item_response", "response"),
    sqlite_with_rowid=False,
)

# Append-only: a person's verdict on whether a response reveals an attribute. It stands beside the judges', never over.
audit = Table(
    "audit",
    metadata,
    id_column(),
    Column("uid", Text, nullable=False),
    to("dataset"),
    to("response"),
    to("attribute"),
    Column("annotator", Text, nullable=False),
    Column("verdict", Text),  # full | partial | implied | none; null: taken back
    Column("reason", Text, nullable=False, default="", server_default=""),
    Column("seconds", Float),
    Column("blind", Boolean, nullable=False, default=False, server_default="0"),
    Column("supersedes", RowId, ForeignKey("audit.id", ondelete="CASCADE")),
    Column("created", Text, nullable=False),
    UniqueConstraint("dataset", "uid"),
    Index("ix_audit_flow", "response", "attribute"),
    Index("ix_audit_attribute", "attribute"),
)
