"""Servers: a call says who answered it and whether it was drawn anew; which addresses are the same server"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "server",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_server")),
    )
    op.create_table(
        "same_server",
        sa.Column("first", sa.Text(), nullable=False),
        sa.Column("second", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("first", "second", name=op.f("pk_same_server")),
    )
    op.add_column("call", sa.Column("server", sa.Text(), nullable=True))
    op.add_column("call", sa.Column("fresh", sa.Text(), nullable=True))
