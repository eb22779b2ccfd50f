"""Experiments: wording, memories, the calls behind a run, sweeps; judges get a channel and settings"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import key, optional, required, to, to_work, work_columns

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "prompt", *key("hash"), *required(sa.Text, "kind", "level", "template", "answers", "source", "created")
    )
    op.create_table("memory", *key("hash"), *to("profile"), *required(sa.Text, "attributes"))
    op.create_index("ix_memory_profile", "memory", ["profile"])
    op.create_table(
        "run_call",
        to_work("run", primary_key=True),
        sa.Column("call", sa.Text, sa.ForeignKey("call.key"), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sweep",
        *key("id"),
        *required(sa.Text, "name"),
        *to("dataset"),
        *required(sa.Text, "spec", "plan"),
        *optional(sa.Float, "cap"),
        *work_columns(),
    )
    op.create_index("ix_sweep_dataset", "sweep", ["dataset"])
    op.add_column("run", sa.Column("sweep", sa.Text(), nullable=True))
    op.add_column("run", sa.Column("cell", sa.Integer(), nullable=True))
    op.create_index("ix_run_sweep", "run", ["sweep"])
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
