"""Pipelines as data: what they are made of, files of it, and the differences between two."""
