from penstock.streams.protocol.event cimport BaseEvent

cdef class Siblings:
    cdef public Py_ssize_t waiting
    cdef public dict at_work

cdef class Waiting:
    cdef public Py_ssize_t _window
    cdef public object inbox, retries, held
    cdef public Siblings siblings
