"""Automata of formulas: made, made small, drawn, read and written."""
