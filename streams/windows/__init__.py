"""Windows: their shapes, those of one key, and the stage with those of all keys.

`shapes.py` has what users write; `windows.py` the interface of the windows of one key, and
`windows_of`, which makes them of a shape and an aggregate. `stage.py` adds events to them, and
closes them by the watermark of `streams/event_time`.
"""
