from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.time_slice cimport TimeSlice
from penstock.streams.execution.flushing_stage cimport FlushingStage

cdef class CallingStage(FlushingStage):
    cdef public object _awaitables, _due, _handler, _name, _now, _returned, _slots, _traced, _watch, _watched, who
    cdef public set _checked
    cdef public TimeSlice _slice
    cdef public bint _is_awaited, _is_own, _refills, _slot_drains, flush_is_due
    cdef public Py_ssize_t in_flight, peak_in_flight
