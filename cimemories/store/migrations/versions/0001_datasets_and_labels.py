"""Datasets, recorded calls, votes and decisions"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "dataset",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("source_name", sa.Text(), nullable=True),
        sa.Column("source_hash", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset")),
        sa.UniqueConstraint("name", name=op.f("uq_dataset_name")),
    )
    op.create_table(
        "persona",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("pack", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prior", sa.Float(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_persona")),
        sa.UniqueConstraint("hash", name=op.f("uq_persona_hash")),
    )
    op.create_table(
        "request",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_request")),
    )
    op.create_table(
        "call",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("draw", sa.Integer(), nullable=False),
        sa.Column("exchange", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("response", sa.Text(), nullable=True),
        sa.Column("reasoning", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("cached_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("started", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="1", nullable=False),
        sa.ForeignKeyConstraint(["request"], ["request.hash"], name=op.f("fk_call_request_request")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_call")),
    )
    with op.batch_alter_table("call", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_call_request"), ["request"], unique=False)
    op.create_table(
        "context",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("sphere", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_context_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_context")),
        sa.UniqueConstraint("dataset", "task", "recipient", name=op.f("uq_context_dataset_task_recipient")),
    )
    op.create_table(
        "labelling",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("pack", sa.Text(), nullable=False),
        sa.Column("draws", sa.Integer(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
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
            ["dataset"], ["dataset.id"], name=op.f("fk_labelling_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_labelling")),
        sa.UniqueConstraint("identity", name=op.f("uq_labelling_identity")),
    )
    with op.batch_alter_table("labelling", schema=None) as batch_op:
        batch_op.create_index("ix_labelling_dataset", ["dataset"], unique=False)
    op.create_table(
        "profile",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sex", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("age", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_profile_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile")),
        sa.UniqueConstraint("dataset", "ordinal", name=op.f("uq_profile_dataset_ordinal")),
    )
    op.create_table(
        "attribute",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("profile", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("bio", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["profile"], ["profile.id"], name=op.f("fk_attribute_profile_profile"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attribute")),
        sa.UniqueConstraint("profile", "key", name=op.f("uq_attribute_profile_key")),
        sa.UniqueConstraint("profile", "ordinal", name=op.f("uq_attribute_profile_ordinal")),
    )
    op.create_table(
        "ballot",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("labelling", sa.Text(), nullable=False),
        sa.Column("profile", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("persona", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("draw", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("conflicts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("unknown", sa.Integer(), server_default="0", nullable=False),
        sa.Column("call", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["call"], ["call.key"], name=op.f("fk_ballot_call_call")),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_ballot_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["labelling"], ["labelling.id"], name=op.f("fk_ballot_labelling_labelling"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["persona"], ["persona.id"], name=op.f("fk_ballot_persona_persona"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["profile"], ["profile.id"], name=op.f("fk_ballot_profile_profile"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ballot")),
        sa.UniqueConstraint(
            "labelling",
            "profile",
            "context",
            "persona",
            "draw",
            name=op.f("uq_ballot_labelling_profile_context_persona_draw"),
        ),
    )
    with op.batch_alter_table("ballot", schema=None) as batch_op:
        batch_op.create_index("ix_ballot_context", ["context"], unique=False)
        batch_op.create_index("ix_ballot_profile", ["profile"], unique=False)
    op.create_table(
        "profile_context",
        sa.Column("profile", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_profile_context_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["profile"], ["profile.id"], name=op.f("fk_profile_context_profile_profile"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("profile", "context", name=op.f("pk_profile_context")),
    )
    with op.batch_alter_table("profile_context", schema=None) as batch_op:
        batch_op.create_index("ix_profile_context_context", ["context"], unique=False)
    op.create_table(
        "decision",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=True),
        sa.Column("blind", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("supersedes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_decision_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_decision_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["dataset"], ["dataset.id"], name=op.f("fk_decision_dataset_dataset"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["supersedes"], ["decision.id"], name=op.f("fk_decision_supersedes_decision"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
    )
    with op.batch_alter_table("decision", schema=None) as batch_op:
        batch_op.create_index("ix_decision_dataset", ["dataset"], unique=False)
        batch_op.create_index("ix_decision_pair", ["attribute", "context"], unique=False)
    op.create_table(
        "vote",
        sa.Column("ballot", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_vote_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["ballot"], ["ballot.id"], name=op.f("fk_vote_ballot_ballot"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("ballot", "attribute", name=op.f("pk_vote")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("vote", schema=None) as batch_op:
        batch_op.create_index("ix_vote_attribute", ["attribute"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("vote", schema=None) as batch_op:
        batch_op.drop_index("ix_vote_attribute")
    op.drop_table("vote")
    with op.batch_alter_table("decision", schema=None) as batch_op:
        batch_op.drop_index("ix_decision_pair")
        batch_op.drop_index("ix_decision_dataset")
    op.drop_table("decision")
    with op.batch_alter_table("profile_context", schema=None) as batch_op:
        batch_op.drop_index("ix_profile_context_context")
    op.drop_table("profile_context")
    with op.batch_alter_table("ballot", schema=None) as batch_op:
        batch_op.drop_index("ix_ballot_profile")
        batch_op.drop_index("ix_ballot_context")
    op.drop_table("ballot")
    op.drop_table("attribute")
    op.drop_table("profile")
    with op.batch_alter_table("labelling", schema=None) as batch_op:
        batch_op.drop_index("ix_labelling_dataset")
    op.drop_table("labelling")
    op.drop_table("context")
    with op.batch_alter_table("call", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_call_request"))
    op.drop_table("call")
    op.drop_table("request")
    op.drop_table("persona")
    op.drop_table("dataset")
