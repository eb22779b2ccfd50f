"""Review: guidelines, comments, marks, claims, slices, audits; decisions get an identity of their own"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "guideline",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_guideline")),
        sa.UniqueConstraint("hash", name=op.f("uq_guideline_hash")),
    )
    op.create_table(
        "saved_view",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("page", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_view")),
        sa.UniqueConstraint("name", name=op.f("uq_saved_view_name")),
    )
    op.create_table(
        "review_plan",
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("people", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_review_plan_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("dataset", name=op.f("pk_review_plan")),
    )
    op.create_table(
        "slice",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_slice_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slice")),
        sa.UniqueConstraint("dataset", "name", name=op.f("uq_slice_dataset_name")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("response", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("blind", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("supersedes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_audit_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_audit_dataset_dataset"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["response"], ["response.id"], name=op.f("fk_audit_response_response"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["supersedes"], ["audit.id"], name=op.f("fk_audit_supersedes_audit"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sa.UniqueConstraint("dataset", "uid", name=op.f("uq_audit_dataset_uid")),
    )
    op.create_index("ix_audit_attribute", "audit", ["attribute"], unique=False)
    op.create_index("ix_audit_flow", "audit", ["response", "attribute"], unique=False)
    op.create_table(
        "claim",
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_claim_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["context"], ["context.id"], name=op.f("fk_claim_context_context"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_claim_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attribute", "context", "annotator", "session", name=op.f("pk_claim")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_claim_dataset", "claim", ["dataset", "until"], unique=False)
    op.create_table(
        "comment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("resolves", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_comment_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_comment_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_comment_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["resolves"], ["comment.id"], name=op.f("fk_comment_resolves_comment"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comment")),
        sa.UniqueConstraint("dataset", "uid", name=op.f("uq_comment_dataset_uid")),
    )
    op.create_index("ix_comment_pair", "comment", ["attribute", "context"], unique=False)
    op.create_table(
        "mark",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_mark_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["context"], ["context.id"], name=op.f("fk_mark_context_context"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_mark_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mark")),
        sa.UniqueConstraint("dataset", "uid", name=op.f("uq_mark_dataset_uid")),
    )
    op.create_index("ix_mark_pair", "mark", ["attribute", "context"], unique=False)
    op.create_table(
        "slice_item",
        sa.Column("slice", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("response", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("stratum", sa.Text(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_slice_item_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_slice_item_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["response"], ["response.id"], name=op.f("fk_slice_item_response_response"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["slice"], ["slice.id"], name=op.f("fk_slice_item_slice_slice"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("slice", "ordinal", name=op.f("pk_slice_item")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_slice_item_attribute", "slice_item", ["attribute"], unique=False)
    op.create_index("ix_slice_item_context", "slice_item", ["context"], unique=False)
    op.create_index("ix_slice_item_response", "slice_item", ["response"], unique=False)
    op.add_column("decision", sa.Column("uid", sa.Text(), nullable=True))
    op.add_column("decision", sa.Column("guideline", sa.Text(), nullable=True))
    op.add_column("decision", sa.Column("cause", sa.Text(), nullable=True))
    op.create_index("ix_decision_batch", "decision", ["batch"], unique=False)
    op.create_index("uq_decision_dataset_uid", "decision", ["dataset", "uid"], unique=True)
