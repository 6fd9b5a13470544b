cdef class SlicedWindows:
    cdef public object _grid, _aggregate, _add, _start, _keep
    cdef public bint merges
