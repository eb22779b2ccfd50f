"""Sessions: which earlier messages of the assistant were in the prompt of a message"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("response", sa.Column("earlier", sa.Text(), nullable=True))
