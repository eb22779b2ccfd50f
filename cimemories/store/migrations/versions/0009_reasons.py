"""Reasons: why a guideline or an overlap was changed, and every overlap that was set"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, required, to

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("guideline", sa.Column("reason", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "plan_change",
        id_column(),
        *to("dataset"),
        *required(sa.Float, "share"),
        *required(sa.Integer, "people", "seed"),
        *required(sa.Text, "annotator", "reason", "created"),
    )
    op.create_index("ix_plan_change_dataset", "plan_change", ["dataset"])
