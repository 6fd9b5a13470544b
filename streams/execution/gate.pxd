from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.execution.limit_control cimport LimitControl
from penstock.streams.execution.waiting cimport Waiting

cdef class Gate(LimitControl):
    cdef public object _stage
    cdef public Waiting _waiting
    cdef public Py_ssize_t just_ended

cdef class SharedGate(Gate):
    cdef public object _shared
