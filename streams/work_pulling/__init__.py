"""Work pulling: a master hands out jobs as workers request them.

`offering.py` is the stage of a master and `working.py` the pipeline of a worker; between them is a
`Dispatcher`: `in_process.py`, or `jetstream_master.py` with `jetstream_worker.py`.
"""
