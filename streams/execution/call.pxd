cdef class Call:
    cdef public object attempts, error, family, stream
    cdef public list results
    cdef public bint is_over
