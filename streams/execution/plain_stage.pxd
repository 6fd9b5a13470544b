from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.execution.worker_stage cimport WorkerStage

cdef class PlainStage(WorkerStage):
    cdef public Py_ssize_t _stride
    cdef public double _stride_began
    cdef public object calling
