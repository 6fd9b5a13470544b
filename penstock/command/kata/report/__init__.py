"""What was measured of runs of the kata: a table, a page, a line a second, a verdict."""
