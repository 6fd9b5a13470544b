"""What a stream is: Flowable, the pipelines made of it, and what they are run with.

What is public of it is in `penstock`.
"""

from __future__ import annotations

if __name__ != "penstock.streams":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'streams' is 'penstock.streams': write `from penstock import ...`",
        name=__name__,
    )
