"""Alembic's entry: runs inside the connection and transaction that `engine.upgrade_schema` hands over."""

from alembic import context

from cimemories.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
context.run_migrations()
