from penstock.streams.protocol.acknowledgement cimport AckHook
from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.state.changes cimport Change, Root

cdef class Commits(AckHook):
    cdef public object _backend, _commit, _name, _orders, _overdue, _run, _slow, _sources, _timer
    cdef public object database, latencies, moves, reads
    cdef public double _every, _patience
    cdef public Py_ssize_t _left, _most, _numbered, _voided, _written, committed, held
    cdef public bint _is_cut, _is_given_up, _is_torn
    cdef public list _ended, _free, _waiting
    cdef public dict _over
