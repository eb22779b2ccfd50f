"""Which calls a run asked itself: what it paid is no longer told from the clocks of two machines"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("run_call", sa.Column("asked", sa.Boolean(), nullable=True))
