"""Pipelines on several cores: worker processes next to one process and to `in_processes`."""
