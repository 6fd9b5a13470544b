"""Benchmarks: the cost per event in penstock, by hand and in other libraries.

``python -m benchmarks`` runs everything and prints tables. Every subject (by hand, penstock,
each peer) is one module with the same case names, run as ``python -m benchmarks.<module> <case>``;
benchmarks/case.py says what a case prints.
"""
