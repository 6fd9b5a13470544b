"""Graphs of steps, rules about their paths, and counter-examples."""
