def apply(op, s): return op(s)
