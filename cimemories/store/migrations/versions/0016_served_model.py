"""The model that answered a call, where it is not the one that was asked for"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("call", sa.Column("served_model", sa.Text(), nullable=True))
