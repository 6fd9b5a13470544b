"""Monitors of formulas with bounds in time."""
