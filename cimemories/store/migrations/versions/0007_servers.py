"""Servers: a call says who answered it and whether it was drawn anew; which addresses are the same server"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import key, required

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table("server", *key("id"), *required(sa.Text, "created"))
    op.create_table("same_server", *key("first", "second"), *required(sa.Text, "author", "created"))
    op.add_column("call", sa.Column("server", sa.Text(), nullable=True))
    op.add_column("call", sa.Column("fresh", sa.Text(), nullable=True))
