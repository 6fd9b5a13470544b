"""An inbox, below its public class: callers put values in or ask, on the loop and in threads.

`callers.py` has what a caller waits for and is told; `entrance.py` connects those that wait for
room with the run that reads; `reader.py` is the source stage of that run.
"""
