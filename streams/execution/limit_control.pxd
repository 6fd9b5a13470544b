cdef class LimitControl:
    cdef public object limit, reason
    cdef public object _limiter, _moved, _broke, _overload, _on_limit_change, _watch, _on_arrive, _report
    cdef public bint learns, from_arrival
    cdef object __weakref__
