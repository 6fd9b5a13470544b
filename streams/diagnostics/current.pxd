cdef class Current:
    cdef public object stage, tasks
