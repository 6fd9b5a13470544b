from penstock.streams.protocol.event cimport BaseEvent
from penstock.streams.state.changes cimport Cell, Change, Root
from penstock.streams.state.held_stage cimport BaseHeldStage
from penstock.streams.state.states cimport States

cdef class StatefulStage(BaseHeldStage):
    cdef public object _clock, _context, _event_timers, _last, _on_timer, _step, _timers, _wall
    cdef public States _event_states
    cdef public bint _has_timers, _takes_context
