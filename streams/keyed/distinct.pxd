cimport cython

from penstock.streams.diagnostics.current cimport Current
from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.protocol.acknowledgement cimport AckHook
from penstock.streams.protocol.stage cimport BaseStage

cdef class DistinctStage(BaseStage):
    cdef public object _run, _info, _key, _event_times, _max_keys, _hold, _faults, _until_more
    cdef public object _seen, _times, _ends, _full, _asked, _answers
    cdef public Current _current
    cdef public double _clock, _seconds
    cdef public Py_ssize_t _next_look, _forgotten, _peak, _room, _owed, _coming
    cdef public _Unfinished _unfinished

    @cython.locals(event=BaseEvent, unfinished=_Unfinished, known=Py_ssize_t, keys=list)
    cpdef _sift(self, list events, list fresh)

cdef class _Unfinished(AckHook):
    cdef public object _shared, _broke, source, _seen
    cdef public Py_ssize_t sharing, skipped, base
    cdef public list keys
    cdef public bint _has_others
    cdef public dict _sharing

    @cython.locals(
        event=BaseEvent, number=Py_ssize_t, base=Py_ssize_t, keys=list, sharing=dict,
        has_others=bint, is_forgotten=bint
    )
    cpdef ended(self, list events, object ending, BaseException error)
