"""From run folders to statistics, tables beside the paper's, and one page. Never imports torch."""

from xtx.callable_modules import make_callable

make_callable(__name__, "xtx.api.sweeps", "report")
