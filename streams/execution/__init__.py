"""Stages that call handlers, one event at a time or in batches, under a limit.

The way of an event through a working stage, with the module and the method of each step:

    on_events         worker_stage    it is admitted, or waits behind another event of its turn
        |
    inbox             waiting         it waits for a slot; held while many wait to be tried again
        |
    _begin            worker_stage    it is given to a slot, as `gate` allows, and is due
        |                             (plain_stage: it is called here, without a slot)
    work              calling_stage   a slot of `slots` calls the handler; `iterators` reads several
        |                             results of a call
    _ended            flushing_stage  it has its result, or the error in its record (`call`)
        |
    _flush            flushing_stage  all that has ended, in the order of the ends
        |
        |-- result    results         goes on as there is demand, in order if that was asked for
        |-- failure   flushing_stage  `_judge`: back to the inbox over `retry`, or given up
        |
    _end_turns        flushing_stage  the next event of its turn comes into the inbox

`batch_stage` replaces the steps up to the call, the stage of a worker's parent and the stage of a
work pool's master all steps up to `_ended`.
"""
