"""Counts over time of rows that are valid from one instant to another."""
