"""What was measured of runs of the kata: a table, a page, a line per second, a verdict."""
