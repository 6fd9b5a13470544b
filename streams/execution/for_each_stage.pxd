from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.sink_stage cimport BaseSinkStage

cdef class ForEachStage(BaseSinkStage):
    cdef public object _run, _function, _faults, _waiting, _begun, _slot, _wanted, _traced, calling
    cdef public Py_ssize_t _in_flight
    cdef public bint _async
    cdef public set _over
