from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.time_slice cimport TimeSlice
from penstock.streams.execution.flushing_stage cimport FlushingStage
from penstock.streams.execution.slots cimport CallSlot, Slots

cdef class CallingStage(FlushingStage):
    cdef public object _awaitables, _due, _handler, _kept, _name, _now, _returned, _traced, _watch, _watched, who
    cdef public Slots _slots
    cdef public set _checked
    cdef public TimeSlice _slice
    cdef public bint _gathers, _is_awaited, _is_driving, _is_own, flush_is_due
    cdef public Py_ssize_t in_flight, peak_in_flight
