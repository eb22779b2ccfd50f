"""Sessions: which earlier messages of the assistant were in the prompt of a message"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    # The chain ran 0012, 0014, 0013 for some days: a database of then that stands at 0013 has this column.
    if "earlier" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("response")}:
        op.add_column("response", sa.Column("earlier", sa.Text(), nullable=True))
