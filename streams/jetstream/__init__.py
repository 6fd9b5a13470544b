"""Pipelines on many machines: NATS JetStream stores the events, workers share the partitions.

Needs the extra `cluster`. Nothing outside this package imports it before it is used.
"""
