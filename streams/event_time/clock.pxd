from penstock.streams.event_time.line cimport InFlight
from penstock.streams.protocol.event cimport BaseEvent

cdef class Watermark:
    cdef public object stamp, _has_ended, _lines, _pauses
    cdef public double watermark
    cdef public bint _is_last
