"""Review: guidelines, comments, marks, claims, slices, audits; decisions get an identity of their own"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, key, optional, optional_to, required, to

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "guideline",
        id_column(),
        *required(sa.Text, "hash", "text", "annotator", "created"),
        sa.UniqueConstraint("hash"),
    )
    op.create_table(
        "saved_view",
        id_column(),
        *required(sa.Text, "name", "page", "query", "annotator", "created"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "review_plan",
        *to("dataset", primary_key=True),
        *required(sa.Float, "share"),
        *required(sa.Integer, "people", "seed"),
        *required(sa.Text, "annotator", "created"),
    )
    op.create_table(
        "slice",
        id_column(),
        *to("dataset"),
        *required(sa.Text, "kind", "name"),
        *required(sa.Integer, "seed"),
        *required(sa.Text, "manifest", "annotator", "created"),
        sa.UniqueConstraint("dataset", "name"),
    )
    op.create_table(
        "audit",
        id_column(),
        *required(sa.Text, "uid"),
        *to("dataset", "response", "attribute"),
        *required(sa.Text, "annotator"),
        *optional(sa.Text, "verdict"),
        *required(sa.Text, "reason", default=""),
        *optional(sa.Float, "seconds"),
        *required(sa.Boolean, "blind", default="0"),
        optional_to("audit", "supersedes"),
        *required(sa.Text, "created"),
        sa.UniqueConstraint("dataset", "uid"),
    )
    op.create_index("ix_audit_attribute", "audit", ["attribute"])
    op.create_index("ix_audit_flow", "audit", ["response", "attribute"])
    op.create_table(
        "claim",
        *to("attribute", "context", primary_key=True),
        *key("annotator", "session"),
        *to("dataset"),
        *required(sa.Float, "until"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_claim_dataset", "claim", ["dataset", "until"])
    op.create_table(
        "comment",
        id_column(),
        *required(sa.Text, "uid"),
        *to("dataset", "attribute", "context"),
        *required(sa.Text, "annotator", "text"),
        optional_to("comment", "resolves"),
        *required(sa.Text, "created"),
        sa.UniqueConstraint("dataset", "uid"),
    )
    op.create_index("ix_comment_pair", "comment", ["attribute", "context"])
    op.create_table(
        "mark",
        id_column(),
        *required(sa.Text, "uid"),
        *to("dataset", "attribute", "context"),
        *required(sa.Text, "annotator", "kind"),
        *required(sa.Text, "reason", default=""),
        *optional(sa.Float, "seconds"),
        *required(sa.Text, "created"),
        sa.UniqueConstraint("dataset", "uid"),
    )
    op.create_index("ix_mark_pair", "mark", ["attribute", "context"])
    op.create_table(
        "slice_item",
        *to("slice", primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        *to("attribute", "context"),
        optional_to("response"),
        *required(sa.Text, "stratum"),
        *required(sa.Float, "weight"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_slice_item_attribute", "slice_item", ["attribute"])
    op.create_index("ix_slice_item_context", "slice_item", ["context"])
    op.create_index("ix_slice_item_response", "slice_item", ["response"])
    op.add_column("decision", sa.Column("uid", sa.Text(), nullable=True))
    op.add_column("decision", sa.Column("guideline", sa.Text(), nullable=True))
    op.add_column("decision", sa.Column("cause", sa.Text(), nullable=True))
    op.create_index("ix_decision_batch", "decision", ["batch"])
    op.create_index("uq_decision_dataset_uid", "decision", ["dataset", "uid"], unique=True)
