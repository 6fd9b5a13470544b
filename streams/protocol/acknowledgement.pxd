from penstock.streams.protocol.event cimport BaseEvent

cdef class Family:
    cdef public BaseEvent parent
    cdef public object _cause, _worst, _error
    cdef public Py_ssize_t _open

cdef class AckHook:
    pass
