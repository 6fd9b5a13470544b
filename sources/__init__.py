"""Sources of events, one per module, `read_x` in `x.py`; `penstock` has their names."""

from __future__ import annotations

if __name__ != "penstock.sources":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'sources' is 'penstock.sources': write `from penstock import ...`",
        name=__name__,
    )
