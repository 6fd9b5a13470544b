"""All operators in one place: penstock's own, and those of reactivex, which `Flowable.pipe` lifts.

    from penstock import from_iterable, ops, run

    run(from_iterable(range(9)).pipe(ops.filter(bool), ops.batch(work)).to(...))

Where both have a name, such as `group_by`, it is penstock's. `pipe` refuses an operator of
reactivex that cannot be bounded; the error gives the reason and what to use instead. Importing this
takes longer than importing `penstock`, because reactivex's operators are all imported.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Of two definitions mypy takes the first, pyright and the interpreter take the last.
    from penstock.operators import *  # noqa: F403
    from penstock.operators.rx import *  # noqa: F403

from reactivex.operators import *  # type: ignore[assignment, no-redef]  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]

# Ours take the place of those of the same name.
from penstock.operators import *  # noqa: F403
from penstock.operators.rx import *  # noqa: F403
