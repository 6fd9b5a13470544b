from penstock.streams.diagnostics.current cimport Current
from penstock.streams.runtime.slot cimport Slot

cdef class CallSlot(Slot):
    cdef public object context, coroutine, error, future, go_on, send, thrown, wake, _variables
    cdef public Slots _slots
    cdef public bint is_idle

    cpdef bint has_changed(self)

cdef class Slots:
    cdef public object _context, _loop, _name, _run, stage
    cdef public Current _current
    cdef public Py_ssize_t _starting
    cdef public dict by_task, idle
    cdef public list yielded

    cpdef step(self, CallSlot slot)
