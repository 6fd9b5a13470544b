from penstock.streams.state.changes cimport Cell, Change, Root

cdef class States:
    cdef public object name, when_undone
    cdef public object _info, _backend, _version, _decode, _start, _start_text, _ttl, _migrate, _wall
    cdef public dict cells, unreadable
    cdef public bint has_ends, has_forgotten
    cdef public object _cache, _most
    cdef public Py_ssize_t _grown
    cdef public list _last_rows
    cdef public set _known
