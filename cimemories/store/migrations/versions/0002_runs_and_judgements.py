"""Runs, responses, judgements and reveals"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, key, optional, required, to, to_call, to_work, work_columns

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # For a few hours the first migration made these tables as well, exactly as they are made here.
    if sa.inspect(op.get_bind()).has_table("run"):
        return
    op.create_table(
        "judge",
        id_column(),
        *required(sa.Text, "identity", "kind", "model", "endpoint"),
        *required(sa.Boolean, "simulated"),
        *optional(sa.Text, "prompt_hash"),
        *required(sa.Text, "parameters"),
        sa.UniqueConstraint("identity"),
    )
    op.create_table(
        "run",
        *key("id"),
        *required(sa.Text, "name"),
        *to("dataset"),
        *required(sa.Text, "dataset_hash", "model", "endpoint"),
        *required(sa.Boolean, "simulated"),
        *required(sa.SmallInteger, "samples"),
        *optional(sa.Integer, "seed"),
        *required(sa.Text, "prompt_level", "prompt_hash", "composition", "parameters", "manifest"),
        *work_columns(),
    )
    op.create_index("ix_run_dataset", "run", ["dataset"])
    op.create_table(
        "response",
        id_column(),
        to_work("run"),
        *to("profile", "context"),
        *required(sa.Text, "level", default="full"),
        *required(sa.SmallInteger, "sample"),
        *required(sa.Text, "status"),
        *optional(sa.Text, "cause", "text", "reasoning", "finish_reason"),
        to_call(),
        sa.UniqueConstraint("run", "profile", "context", "level", "sample"),
    )
    op.create_index("ix_response_context", "response", ["context"])
    op.create_index("ix_response_profile", "response", ["profile"])
    op.create_table(
        "run_judge",
        to_work("run", primary_key=True),
        *to("judge", primary_key=True),
        *required(sa.SmallInteger, "ordinal"),
    )
    op.create_table(
        "judgement",
        id_column(),
        *to("response", "judge"),
        *required(sa.Text, "status"),
        *optional(sa.Text, "cause"),
        *required(sa.Integer, "unknown", default="0"),
        to_call(),
        sa.UniqueConstraint("response", "judge"),
    )
    op.create_table(
        "reveal",
        *to("judgement", "attribute", primary_key=True),
        *required(sa.Text, "quote"),
        *optional(sa.Integer, "start", "end"),
        *required(sa.Boolean, "grounded"),
        *required(sa.Text, "strength"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_reveal_attribute", "reveal", ["attribute"])
