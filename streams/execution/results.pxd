from penstock.streams.protocol.event cimport BaseEvent

cdef class Results:
    cdef public object demand, ready, _downstream, window
    cdef public Py_ssize_t out_of_order
    cdef public bint _returns, delivering

cdef class InOrder(Results):
    cdef public object _order
    cdef public set _placed
