"""Streams that meet: rows that are paired by key and time.

`sides.py` merges two streams, whose events say from which side they come; `stage.py` keeps their
rows by the windows' stage, until the watermark of `streams/event_time` lets them go. `rows.py` has
the rows of one key and their pairs, `versions.py` those of a table and the events that wait for
one; `join_stage.py` and `lookup_stage.py` send what they find. `whole_stage.py` has the newest rows
of a table that is read whole.
"""
