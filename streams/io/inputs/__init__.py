"""Inputs that are more than one file: several files in order, and a position for each."""
