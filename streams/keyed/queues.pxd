cimport cython

from penstock.streams.protocol.event cimport BaseEvent

cdef class KeyQueue:
    cdef public object events, key, outer, tail
    cdef public KeyedQueues queues
    cdef public Py_ssize_t holders, limit
    cdef public bint is_open, over

cdef class KeyedQueues:
    cdef public object go_on, overflow, turnover, keys, rotation
    cdef public object _key, _feeders, _outside
    cdef public Py_ssize_t waiting
    cdef public bint _leaves
    cdef public dict _queues, opened
    cdef public list _spare, taken, ended
    cdef object __weakref__

    @cython.locals(event=BaseEvent, queue=KeyQueue)
    cpdef put(self, list events)

    cpdef KeyQueue _begin(self, object key)

    @cython.locals(queue=KeyQueue, holders=Py_ssize_t)
    cpdef list release(self, object turns)

@cython.locals(queues=KeyedQueues)
cpdef release(object turns)
