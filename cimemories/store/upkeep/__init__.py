"""Looking after a record: backups, checks, deleting, and purging calls that nothing needs."""
