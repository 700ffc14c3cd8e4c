"""Many runs: what is to be run, how far each run is, and who carries it out, on one machine or on a Ray cluster.

`spec` reads what is asked for, `plan` makes runs of it, `folder` and `progress` know the folders in which they lie,
`conduct` is the loop over all runs, `local` and `cluster` carry them out (each as the process of `child`), and `table`
shows them.
"""

from xtx.callable_modules import make_callable

make_callable(__name__, "xtx.api.sweeps", "sweep")
