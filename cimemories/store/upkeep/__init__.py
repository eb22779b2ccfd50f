"""Looking after a record: backups, checks, deleting, purging calls that nothing needs, and what its failures mean."""
