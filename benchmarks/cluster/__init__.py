"""Figures of pipelines on many machines, with real servers and real worker processes."""
