"""Passages: what many prompts share is stored once; prompts of before stay whole"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import key, required

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table("passage", *key("hash"), *required(sa.Text, "text"))
    op.add_column("request", sa.Column("passages", sa.Text(), nullable=True))
