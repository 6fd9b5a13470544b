"""The command `penstock`: a module for each sub-command, imported when it is called.

`dispatch.py` finds it; `output.py` and `explain.py` are what it writes with.
"""
