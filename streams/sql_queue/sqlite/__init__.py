"""The queue in a file of SQLite."""
