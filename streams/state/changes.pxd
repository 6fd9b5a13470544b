cdef class Cell:
    cdef public object room, key, text, state, timers, partition
    cdef public Change last
    cdef public bint is_stored, used

cdef class Change:
    cdef public Cell cell
    cdef public Root root
    cdef public Change after, before, more
    cdef public object data, state, timers

cdef class Root(Change):
    cdef public object ending, event, origin, outer, why
    cdef public list others, parts
    cdef public Py_ssize_t missing
    cdef public bint is_left, is_lost
