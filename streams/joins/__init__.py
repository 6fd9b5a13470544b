"""Streams that meet: rows that are paired by key and time.

`rows.py` has the rows of one key and their pairs; `sides.py` merges two streams, whose events say
from which side they come; `stage.py` keeps the rows of all keys by the windows' stage, and the
watermark of `streams/event_time` has them leave.
"""
