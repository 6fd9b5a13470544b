from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.state.changes cimport Cell, Root
from penstock.streams.state.held_stage cimport BaseHeldStage

cdef class WindowStage(BaseHeldStage):
    cdef public object _asked, _asks, _clock, _early, _late, _stamp_of, _timers, _value_of, _windows
    cdef public dict _changed
    cdef public bint _is_stored
    cdef public Py_ssize_t _lost
