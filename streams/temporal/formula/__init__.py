"""Formulas: read, shortened, written, and taken apart event by event."""
