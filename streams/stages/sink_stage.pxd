from penstock.streams.protocol.event cimport BaseEvent

cdef class BaseSinkStage:
    cdef public object upstream, state, error, _closed
    cdef dict __dict__
    cdef object __weakref__
