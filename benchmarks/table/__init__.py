"""Claim, work, finish: a table of a database as a queue, beside the libraries made for that."""
