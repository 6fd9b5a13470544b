from penstock.streams.protocol.acknowledgement cimport AckHook
from penstock.streams.protocol.event cimport BaseEvent

cdef class InFlight(AckHook):
    cdef public object kept, origin
    cdef public TimeLine _line
    cdef public Py_ssize_t left

cdef class TimeLine:
    cdef public object name, partition, _source, _kept_lists, _sequence_of
    cdef public double first, reached, _greatest, _seen
    cdef public bint is_here, is_empty
    cdef public Py_ssize_t late, _lead, _lists
    cdef public list _on_their_way
    cdef public set _holders
    cdef public dict _returned
    cdef object __weakref__
