"""Pipelines on many machines: NATS JetStream keeps the events, workers share the partitions.

Needs the extra `cluster`. Nothing outside of this package imports it before it is asked for.
"""
