"""Sweeps: many runs, planned from a TOML file and carried out on one machine or on a Ray cluster.

`spec` reads the TOML file, `plan` makes the runs, `folder` and `progress` read and write their folders, `conduct` is
the
loop over all runs, `local` and `cluster` carry runs out (each in a process of `child`), and `table` shows them.
"""

from xtx.callable_modules import make_callable

make_callable(__name__, "xtx.api.sweeps", "sweep")
