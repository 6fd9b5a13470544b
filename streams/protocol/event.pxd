cimport cython

cdef class BaseEvent:
    cdef public object value, created, origin, token, turn, outer, call, started, ended, time
    cdef public Py_ssize_t level, pending

cdef class Decoded(BaseEvent):
    cdef public object data
