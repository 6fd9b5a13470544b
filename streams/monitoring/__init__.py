"""Stages that ask a monitor, or counts over time, about each event of a stream."""
