"""Stock operators of reactivex, lifted so that demand is kept through them, and those of our own.

How to add an operator of Rx that reads, or is read by, several streams:

1. A module of `operators/rx`, one a mechanism, has the page (six labelled lines and a marble) and
   `def NAME(...)` for each name, with the parameters of `reactivex.operators.NAME` by their names;
   `operators/rx/__init__.py` has it. An alias or a variant says in a line of what.
2. Its stage has one of these bases in `combining`: `several.Several` (all streams at once:
   `combine` does a step with what waits in `inputs`), `succession.Succession` (one after another),
   `flat_map.FlatMap` and `switching.Switching` (the streams are the values), `sharing.Connectable`
   (several readers).
   A further stream enters by `combining.inputs.as_stream`, which bounds a plain Observable.
3. `table.py` says in `_OURS` what it does; `pipe` then leads the stock operator to it by name, as
   do the fluent methods. Options of ours need a method in `fluent.py`.
4. A case in `tests/helpers/reactive_streams/rx_cases.py` holds it to the rules of Reactive Streams.
"""
