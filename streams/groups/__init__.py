"""Operators inside groups, on the stream of each key."""
