"""The chain in order: a database that stood at 0014 while the chain ran 0012, 0014, 0013 gets what 0013 adds"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    if "explains" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("run")}:
        op.add_column("run", sa.Column("explains", sa.Text(), nullable=True))
        op.create_index("ix_run_explains", "run", ["explains"])
