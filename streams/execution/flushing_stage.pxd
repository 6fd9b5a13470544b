from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.stages.demand_stage cimport BaseDemandStage
from penstock.streams.execution.results cimport Results

cdef class FlushingStage(BaseDemandStage):
    cdef public object _faults, _inbox, _retries, _siblings, _turns, _waiting
    cdef public list _ended
    cdef public Results _results
    cdef public bint _has_failures, _has_families, _is_ordered
