"""Memory systems: what they recalled, and which responses it was recalled for"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import key, optional, required, to

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "recall",
        *key("hash"),
        *to("profile"),
        *required(sa.Text, "system", "lines"),
        *required(sa.Integer, "ungrounded"),
        *optional(sa.Float, "seconds"),
        *optional(sa.Text, "cost"),
    )
    op.create_index("ix_recall_profile", "recall", ["profile"])
    op.add_column("response", sa.Column("recall", sa.Text()))
