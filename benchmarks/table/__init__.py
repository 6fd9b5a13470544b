"""Claim, work, finish: a database table as a queue, beside the libraries made for that."""
