"""Formulas from examples: those that hold of good traces and fail of bad ones."""
