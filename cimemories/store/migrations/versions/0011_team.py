"""A team: people with roles, a log of who did what, and assignments of slices"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, key, optional, required, to

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "person",
        id_column(),
        sa.Column("account", sa.Text),
        *required(sa.Text, "name"),
        *optional(sa.Text, "email"),
        *required(sa.Text, "role", "created"),
        *optional(sa.Text, "seen"),
        sa.UniqueConstraint("account", name="uq_person_account"),
        sa.UniqueConstraint("name", name="uq_person_name"),
    )
    op.create_table(
        "audit_log",
        id_column(),
        *required(sa.Text, "created", "person", "action", "subject"),
        *required(sa.Text, "details", default="{}"),
    )
    op.create_index("ix_audit_log_created", "audit_log", ["created"])
    op.create_table(
        "assignment",
        *to("slice", primary_key=True),
        *optional(sa.Integer, "overlap"),
        *optional(sa.Text, "due"),
        *required(sa.Text, "annotator", "created"),
    )
    op.create_table("assignee", *to("slice", primary_key=True), *key("name"), sqlite_with_rowid=False)
