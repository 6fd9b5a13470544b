from penstock.streams.protocol.event cimport BaseEvent

cdef class BaseStage:
    cdef public object upstream, downstream, state
    cdef dict __dict__
    cdef object __weakref__
