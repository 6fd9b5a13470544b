from penstock.streams.stages.demand_stage cimport BaseDemandStage
from penstock.streams.state.commits cimport Commits
from penstock.streams.state.states cimport States

cdef class BaseHeldStage(BaseDemandStage):
    cdef public object _again, _key, _faults, _full, _out, all_states, timers
    cdef public States _states
    cdef public Commits _commits
    cdef public list _unread
    cdef public double _offset
    cdef public bint _is_known, _is_reading, _is_waiting
    cdef object __weakref__
