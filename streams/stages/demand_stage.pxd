from penstock.streams.diagnostics.current cimport Current
from penstock.streams.protocol.event cimport BaseEvent

cdef class BaseDemandStage:
    cdef public object downstream, upstream, run, info, state, error, demand, asked
    cdef public object _rest, _next_of_rest
    cdef public Current _current
    cdef public bint _acts_after_drain, _draining, _noted
