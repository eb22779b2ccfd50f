"""Runs that explain a leak of another run: the same request in variants"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("run", sa.Column("explains", sa.Text(), nullable=True))
    op.create_index("ix_run_explains", "run", ["explains"])
