"""Runs, responses, judgements and reveals"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # For a few hours the first migration made these tables as well, exactly as they are made here.
    if sa.inspect(op.get_bind()).has_table("run"):
        return
    op.create_table(
        "judge",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("prompt_hash", sa.Text(), nullable=True),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judge")),
        sa.UniqueConstraint("identity", name=op.f("uq_judge_identity")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dataset", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("dataset_hash", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("samples", sa.SmallInteger(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=True),
        sa.Column("prompt_level", sa.Text(), nullable=False),
        sa.Column("prompt_hash", sa.Text(), nullable=False),
        sa.Column("composition", sa.Text(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
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
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_run_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index("ix_run_dataset", ["dataset"], unique=False)
    op.create_table(
        "response",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("profile", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("level", sa.Text(), server_default="full", nullable=False),
        sa.Column("sample", sa.SmallInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("reasoning", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("call", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["call"], ["call.key"], name=op.f("fk_response_call_call")),
        sa.ForeignKeyConstraint(
            ["context"], ["context.id"], name=op.f("fk_response_context_context"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["profile"], ["profile.id"], name=op.f("fk_response_profile_profile"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_response_run_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_response")),
        sa.UniqueConstraint(
            "run", "profile", "context", "level", "sample", name=op.f("uq_response_run_profile_context_level_sample")
        ),
    )
    with op.batch_alter_table("response", schema=None) as batch_op:
        batch_op.create_index("ix_response_context", ["context"], unique=False)
        batch_op.create_index("ix_response_profile", ["profile"], unique=False)
    op.create_table(
        "run_judge",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("judge", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(["judge"], ["judge.id"], name=op.f("fk_run_judge_judge_judge"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_run_judge_run_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "judge", name=op.f("pk_run_judge")),
    )
    op.create_table(
        "judgement",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("response", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("judge", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("unknown", sa.Integer(), server_default="0", nullable=False),
        sa.Column("call", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["call"], ["call.key"], name=op.f("fk_judgement_call_call")),
        sa.ForeignKeyConstraint(["judge"], ["judge.id"], name=op.f("fk_judgement_judge_judge"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["response"], ["response.id"], name=op.f("fk_judgement_response_response"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judgement")),
        sa.UniqueConstraint("response", "judge", name=op.f("uq_judgement_response_judge")),
    )
    op.create_table(
        "reveal",
        sa.Column("judgement", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attribute", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("quote", sa.Text(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=True),
        sa.Column("end", sa.Integer(), nullable=True),
        sa.Column("grounded", sa.Boolean(), nullable=False),
        sa.Column("strength", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attribute"], ["attribute.id"], name=op.f("fk_reveal_attribute_attribute"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["judgement"], ["judgement.id"], name=op.f("fk_reveal_judgement_judgement"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("judgement", "attribute", name=op.f("pk_reveal")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("reveal", schema=None) as batch_op:
        batch_op.create_index("ix_reveal_attribute", ["attribute"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("reveal", schema=None) as batch_op:
        batch_op.drop_index("ix_reveal_attribute")
    op.drop_table("reveal")
    op.drop_table("judgement")
    op.drop_table("run_judge")
    with op.batch_alter_table("response", schema=None) as batch_op:
        batch_op.drop_index("ix_response_profile")
        batch_op.drop_index("ix_response_context")
    op.drop_table("response")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index("ix_run_dataset")
    op.drop_table("run")
    op.drop_table("judge")
