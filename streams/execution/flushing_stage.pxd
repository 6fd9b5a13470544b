from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.demand_stage cimport BaseDemandStage
from penstock.streams.execution.results cimport Results
from penstock.streams.execution.waiting cimport Siblings, Waiting

cdef class FlushingStage(BaseDemandStage):
    cdef public object _faults, _inbox, _retries, _turns
    cdef public Siblings _siblings
    cdef public Waiting _waiting
    cdef public list _ended
    cdef public Results _results
    cdef public bint _has_failures, _has_families, _is_ordered
