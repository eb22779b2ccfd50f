"""Versions, edits, rules, imported labels and generation"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, key, optional, optional_to, required, to, to_call, to_work, work_columns

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "dataset_version",
        *to("dataset", primary_key=True),
        optional_to("dataset", "parent", ondelete="SET NULL"),
        *required(sa.Integer, "version"),
        *required(sa.Text, "created"),
    )
    op.create_index("ix_dataset_version_parent", "dataset_version", ["parent"])
    op.create_table(
        "edit",
        id_column(),
        *to("dataset"),
        *optional(sa.Integer, "profile"),
        *required(sa.Text, "kind", "action"),
        *optional(sa.Text, "before", "after"),
        *required(sa.Text, "annotator"),
        *required(sa.Text, "reason", default=""),
        *required(sa.Text, "created"),
    )
    op.create_index("ix_edit_dataset", "edit", ["dataset"])
    op.create_table(
        "freeze",
        *to("dataset", primary_key=True),
        *required(sa.Text, "hash"),
        *optional(sa.Text, "labelling"),
        *required(sa.Text, "rule", "counts", "annotator", "created"),
    )
    op.create_table(
        "generation",
        *key("id"),
        *required(sa.Text, "name", "model", "endpoint"),
        *required(sa.Boolean, "simulated"),
        *required(sa.Text, "manifest"),
        optional_to("dataset", ondelete="SET NULL"),
        *work_columns(),
    )
    op.create_index("ix_generation_dataset", "generation", ["dataset"])
    op.create_table(
        "rule",
        id_column(),
        *to("dataset"),
        *required(sa.Text, "name"),
        *required(sa.Float, "threshold"),
        *required(sa.Text, "priors"),
        *required(sa.Boolean, "current"),
        *required(sa.Text, "annotator", "created"),
        sa.UniqueConstraint("dataset", "name"),
    )
    op.create_table(
        "generation_part",
        id_column(),
        to_work("generation"),
        *required(sa.Integer, "profile"),
        *required(sa.SmallInteger, "position"),
        *required(sa.Text, "event"),
        *required(sa.SmallInteger, "attempt", default="0"),
        *required(sa.Text, "status"),
        *optional(sa.Text, "cause"),
        *required(sa.Text, "attributes", "rejected", default="[]"),
        to_call(),
        sa.UniqueConstraint("generation", "profile", "position"),
    )
    op.create_table(
        "imported_vote",
        to_work("labelling", primary_key=True),
        *to("attribute", "context", "persona", primary_key=True),
        *required(sa.Float, "necessary", "inappropriate", "abstain"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_imported_vote_attribute", "imported_vote", ["attribute"])
    op.create_index("ix_imported_vote_context", "imported_vote", ["context"])
