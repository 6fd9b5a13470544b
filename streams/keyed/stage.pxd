from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.demand_stage cimport BaseDemandStage
from penstock.streams.keyed.queues cimport KeyedQueues

cdef class KeyedStage(BaseDemandStage):
    cdef public KeyedQueues queues
    cdef public object overflow, _put, _key, _faults, _starves_since, _look
    cdef public Py_ssize_t _buffer, _batch, _trial, _freed, _peak, _peak_groups
    cdef dict __dict__
    cdef object __weakref__
