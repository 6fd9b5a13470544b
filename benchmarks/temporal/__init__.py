"""Timings of `penstock.streams.temporal`, next to their bounds."""
