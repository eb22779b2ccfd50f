"""Alembic's entry: runs inside the connection and transaction that `migrate.upgrade` hands over."""

from alembic import context

from cimemories.store import tables  # noqa: F401  their tables hang on the same metadata
from cimemories.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
context.run_migrations()
