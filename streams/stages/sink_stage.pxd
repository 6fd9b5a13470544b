from penstock.streams.diagnostics.current cimport Current
from penstock.streams.protocol.event cimport BaseEvent

cdef class BaseSinkStage:
    cdef public object upstream, state, error, _closed
    cdef public Current _current
    cdef dict __dict__
    cdef object __weakref__
