"""Bytes, lines and values, in and out of files, pipes and terminals."""
