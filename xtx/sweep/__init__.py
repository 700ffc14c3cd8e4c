"""Sweeps: many runs, planned from a TOML file and carried out on one machine or on a Ray cluster.

`sweep_file` reads the TOML file, `run_plan` makes the runs, `sweep_folder` and `run_progress` read and write their
folders, `scheduler` is the loop over all runs, `local_processes` and `ray_cluster` carry runs out (each in a process of
`run_process`), and `progress_table` shows them.
"""

from xtx.callable_modules import make_callable

make_callable(__name__, "xtx.api.sweeps", "sweep")
