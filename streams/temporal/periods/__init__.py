"""Aggregates over rows that are valid from one time to another."""
