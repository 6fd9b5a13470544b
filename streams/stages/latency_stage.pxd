from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.sink_stage cimport BaseSinkStage

cdef class LatencyStage(BaseSinkStage):
    cdef public object _run, _every, _report, _whole, _interval, _timer, _file, _offset, _since, _log, _last, _key, _by, _by_key, _stage
    cdef public dict _times
    cdef public list _waiting, _service
