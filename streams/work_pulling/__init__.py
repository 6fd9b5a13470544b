"""Work pulling: a master hands out jobs as workers request them.

`offering.py` is the stage of a master and `working.py` the pipeline of a worker; between them is an
`Office`, which is `hub.py` in one process, and `master.py` with `desk.py` on NATS JetStream.
"""
