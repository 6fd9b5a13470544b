"""Queues per key with a fair rotation over them, and operators inside groups."""
