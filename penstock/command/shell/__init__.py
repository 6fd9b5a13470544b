"""Pipelines of one command line, without a file."""
