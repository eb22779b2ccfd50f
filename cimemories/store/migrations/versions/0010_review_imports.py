"""Imports of review events: which file brought which of them, so that one can be undone whole"""

import sqlalchemy as sa
from alembic import op

from cimemories.store.tables import id_column, key, optional, required, to

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "review_import",
        id_column(),
        *to("dataset"),
        *required(sa.Text, "name", "annotator", "created"),
        *optional(sa.Text, "undone", "undone_by"),
    )
    op.create_index("ix_review_import_dataset", "review_import", ["dataset"])
    op.create_table(
        "review_import_item",
        *to("review_import", primary_key=True),
        *key("kind", "uid"),
        sqlite_with_rowid=False,
    )
