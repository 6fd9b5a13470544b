"""Stages that call handlers, one event at a time or in batches, under a limit."""
