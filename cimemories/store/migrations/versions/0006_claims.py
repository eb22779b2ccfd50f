"""Claims on work: a token that every write of its worker carries, and which machine the worker is on"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for table in ("run", "labelling", "generation", "sweep"):
        op.add_column(table, sa.Column("machine", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("claim", sa.Text(), nullable=True))
