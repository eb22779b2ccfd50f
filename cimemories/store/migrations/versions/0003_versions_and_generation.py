"""Versions, edits, rules, imported labels and generation"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "dataset_version",
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("parent", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_dataset_version_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["parent"], ["dataset.id"], name=op.f("fk_dataset_version_parent_dataset"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("dataset", name=op.f("pk_dataset_version")),
    )
    op.create_index("ix_dataset_version_parent", "dataset_version", ["parent"], unique=False)
    op.create_table(
        "edit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("profile", sa.Integer(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_edit_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_edit")),
    )
    op.create_index("ix_edit_dataset", "edit", ["dataset"], unique=False)
    op.create_table(
        "freeze",
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("labelling", sa.Text(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_freeze_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("dataset", name=op.f("pk_freeze")),
    )
    op.create_table(
        "generation",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.Float(), nullable=True),
        sa.Column("heartbeat", sa.Float(), nullable=True),
        sa.Column("revision", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("finished", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_generation_dataset_dataset"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generation")),
    )
    op.create_index("ix_generation_dataset", "generation", ["dataset"], unique=False)
    op.create_table(
        "rule",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Float(), nullable=False),
        sa.Column("priors", sa.Text(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_rule_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rule")),
        sa.UniqueConstraint("dataset", "name", name=op.f("uq_rule_dataset_name")),
    )
    op.create_table(
        "generation_part",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("generation", sa.Text(), nullable=False),
        sa.Column("profile", sa.Integer(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("attempt", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("attributes", sa.Text(), server_default="[]", nullable=False),
        sa.Column("rejected", sa.Text(), server_default="[]", nullable=False),
        sa.Column("call", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["call"], ["call.key"], name=op.f("fk_generation_part_call_call")),
        sa.ForeignKeyConstraint(
            ["generation"], ["generation.id"], name=op.f("fk_generation_part_generation_generation"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generation_part")),
        sa.UniqueConstraint(
            "generation", "profile", "position", name=op.f("uq_generation_part_generation_profile_position")
        ),
    )
    op.create_table(
        "imported_vote",
        sa.Column("labelling", sa.Text(), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("persona", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("necessary", sa.Float(), nullable=False),
        sa.Column("inappropriate", sa.Float(), nullable=False),
        sa.Column("abstain", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_imported_vote_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_imported_vote_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["labelling"], ["labelling.id"], name=op.f("fk_imported_vote_labelling_labelling"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["persona"], ["persona.id"], name=op.f("fk_imported_vote_persona_persona"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("labelling", "attribute", "context", "persona", name=op.f("pk_imported_vote")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_imported_vote_attribute", "imported_vote", ["attribute"], unique=False)
    op.create_index("ix_imported_vote_context", "imported_vote", ["context"], unique=False)
