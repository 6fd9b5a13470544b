from penstock.streams.state.changes cimport Cell, Change, Root
from penstock.streams.state.states cimport States

cdef class WindowStates(States):
    cdef public object _windows
    cdef public dict _committed
