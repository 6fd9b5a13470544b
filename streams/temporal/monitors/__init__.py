"""Monitors: deterministic machines over traces, and a monitor for each key."""
