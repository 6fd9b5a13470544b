from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.protocol.stage cimport BaseStage

cdef class EventTimeStage(BaseStage):
    cdef public object _run, _key, _time, _ahead, _faults
    cdef public object _withheld
