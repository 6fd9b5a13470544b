"""Formulas from examples: those that hold on good traces and fail on bad ones."""
