from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.execution.calling_stage cimport CallingStage
from penstock.streams.execution.gate cimport Gate

cdef class WorkerStage(CallingStage):
    cdef public object _hold_timer, _iterators, _options
    cdef public Gate _gate
    cdef public Py_ssize_t admitted, allowed
    cdef public bint is_concurrent
