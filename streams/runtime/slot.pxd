cdef class Slot:
    cdef public object task, event, span
    cdef public double deadline
    cdef public bint has_begun, is_late, is_withdrawn
