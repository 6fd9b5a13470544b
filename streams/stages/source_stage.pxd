from penstock.streams.stages.demand_stage cimport BaseDemandStage

cdef class BaseSourceStage(BaseDemandStage):
    cdef public object counts, drops, received, _finished, _returned_tokens, _withheld, _chunk, _slice
    cdef public bint _waking
    cdef dict __dict__
    cdef object __weakref__
