"""Pipelines on many machines, and streams of NATS JetStream that others own.

Needs the extra `cluster`. Nothing outside this package imports it before it is needed.
"""
