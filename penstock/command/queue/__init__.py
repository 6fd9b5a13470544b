"""Inspecting and maintaining a queue in a database table."""
