"""Datasets, recorded calls, votes and decisions"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, key, optional, optional_to, required, to, to_call, to_work, work_columns

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "dataset",
        id_column(),
        *required(sa.Text, "name", "origin"),
        *optional(sa.Text, "source_name"),
        *required(sa.Text, "source_hash"),
        *required(sa.Integer, "revision", default="0"),
        *required(sa.Text, "created"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "persona",
        id_column(),
        *required(sa.Text, "hash", "pack", "key", "name"),
        *required(sa.Float, "prior"),
        *required(sa.Text, "description"),
        sa.UniqueConstraint("hash"),
    )
    op.create_table("request", *key("hash"), *required(sa.Text, "body"))
    op.create_table(
        "call",
        *key("key"),
        *required(sa.Text, "kind", "model", "endpoint"),
        *required(sa.Boolean, "simulated"),
        sa.Column("request", sa.Text, sa.ForeignKey("request.hash"), nullable=False),
        *required(sa.Integer, "draw"),
        *required(sa.Text, "exchange", "status"),
        *optional(sa.Text, "error", "response", "reasoning", "finish_reason"),
        *optional(sa.Integer, "prompt_tokens", "cached_tokens", "completion_tokens"),
        *required(sa.Float, "seconds"),
        *required(sa.Text, "started"),
        *required(sa.Integer, "attempts", default="1"),
    )
    op.create_index("ix_call_request", "call", ["request"])
    op.create_table(
        "context",
        id_column(),
        *to("dataset"),
        *required(sa.Integer, "ordinal"),
        *required(sa.Text, "task", "recipient"),
        *optional(sa.Text, "sphere"),
        sa.UniqueConstraint("dataset", "task", "recipient"),
    )
    op.create_table(
        "labelling",
        *key("id"),
        *required(sa.Text, "identity"),
        *to("dataset"),
        *required(sa.Text, "model", "endpoint"),
        *required(sa.Boolean, "simulated"),
        *required(sa.Text, "pack"),
        *required(sa.Integer, "draws"),
        *required(sa.Text, "manifest"),
        *work_columns(),
        sa.UniqueConstraint("identity"),
    )
    op.create_index("ix_labelling_dataset", "labelling", ["dataset"])
    op.create_table(
        "profile",
        id_column(),
        *to("dataset"),
        *required(sa.Integer, "ordinal"),
        *required(sa.Text, "name", "sex", "address"),
        *required(sa.Integer, "age"),
        sa.UniqueConstraint("dataset", "ordinal"),
    )
    op.create_table(
        "attribute",
        id_column(),
        *to("profile"),
        *required(sa.Integer, "ordinal"),
        *required(sa.Text, "key", "value", "domain", "event", "statement"),
        *required(sa.Boolean, "bio"),
        sa.UniqueConstraint("profile", "key"),
        sa.UniqueConstraint("profile", "ordinal"),
    )
    op.create_table(
        "ballot",
        id_column(),
        to_work("labelling"),
        *to("profile", "context", "persona"),
        *required(sa.Integer, "draw"),
        *required(sa.Text, "status"),
        *optional(sa.Text, "cause"),
        *required(sa.Integer, "conflicts", "unknown", default="0"),
        to_call(),
        sa.UniqueConstraint("labelling", "profile", "context", "persona", "draw"),
    )
    op.create_index("ix_ballot_context", "ballot", ["context"])
    op.create_index("ix_ballot_profile", "ballot", ["profile"])
    op.create_table("profile_context", *to("profile", "context", primary_key=True), *required(sa.Integer, "ordinal"))
    op.create_index("ix_profile_context_context", "profile_context", ["context"])
    op.create_table(
        "decision",
        id_column(),
        *to("dataset", "attribute", "context"),
        *required(sa.Text, "annotator"),
        *optional(sa.Text, "label"),
        *required(sa.Text, "reason", default=""),
        *optional(sa.Float, "seconds"),
        *required(sa.Text, "source"),
        *optional(sa.Text, "batch"),
        *required(sa.Boolean, "blind", default="0"),
        optional_to("decision", "supersedes"),
        *required(sa.Text, "created"),
    )
    op.create_index("ix_decision_dataset", "decision", ["dataset"])
    op.create_index("ix_decision_pair", "decision", ["attribute", "context"])
    op.create_table(
        "vote", *to("ballot", "attribute", primary_key=True), *required(sa.Text, "verdict"), sqlite_with_rowid=False
    )
    op.create_index("ix_vote_attribute", "vote", ["attribute"])
