"""Experiments: wording, memories, the calls behind a run, sweeps; judges get a channel and settings"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "prompt",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("answers", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_prompt")),
    )
    op.create_table(
        "memory",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("profile", row_id, nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["profile"], ["profile.id"], name=op.f("fk_memory_profile_profile"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_memory")),
    )
    op.create_index("ix_memory_profile", "memory", ["profile"], unique=False)
    op.create_table(
        "run_call",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["call"], ["call.key"], name=op.f("fk_run_call_call_call")),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_run_call_run_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "call", name=op.f("pk_run_call")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sweep",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dataset", row_id, nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("cap", sa.Float(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.Float(), nullable=True),
        sa.Column("heartbeat", sa.Float(), nullable=True),
        sa.Column("revision", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("finished", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["dataset"], ["dataset.id"], name=op.f("fk_sweep_dataset_dataset"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep")),
    )
    op.create_index("ix_sweep_dataset", "sweep", ["dataset"], unique=False)
    op.add_column("run", sa.Column("sweep", sa.Text(), nullable=True))
    op.add_column("run", sa.Column("cell", sa.Integer(), nullable=True))
    op.create_index("ix_run_sweep", "run", ["sweep"], unique=False)
    op.add_column("response", sa.Column("memory", sa.Text(), nullable=True))
    op.add_column("response", sa.Column("shown", sa.Text(), nullable=True))
    op.add_column("response", sa.Column("before", sa.Text(), nullable=True))
    op.add_column("judge", sa.Column("channel", sa.Text(), server_default="message", nullable=False))
    op.add_column("run_judge", sa.Column("settings", sa.Text(), server_default="{}", nullable=False))
    op.add_column("judgement", sa.Column("verdict", sa.Text(), nullable=True))
    for column in ("response.call", "judgement.call"):
        source = (
            "SELECT run, call FROM response WHERE call IS NOT NULL"
            if column == "response.call"
            else "SELECT r.run, j.call FROM judgement j JOIN response r ON j.response = r.id WHERE j.call IS NOT NULL"
        )
        op.execute(f"INSERT INTO run_call (run, call) {source} ON CONFLICT DO NOTHING")
