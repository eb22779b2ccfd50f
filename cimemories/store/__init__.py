"""The system of record: SQLite by default, PostgreSQL by URL. One small module a noun, SQL nowhere else but here and in
`analysis`."""
