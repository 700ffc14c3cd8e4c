"""Every program in examples/ runs as it is, in an empty folder, on the adventure that comes with xtx."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAID = {
    "gym_loop.py": "of 75 points in",
    "valid_actions.py": "Sennet Quay: ",
    "random_agent.py": "best scores after 40 steps",
    "custom_agent.py": "best episode: ",
    "compare_runs.py": "written: runs/compare.html",
    "train_and_plot.ipynb": "points: ",
}
MAX_LINES = 70


def code_of(path: Path) -> str:
    """The program; of a notebook, its code cells one after the other."""
    if path.suffix == ".py":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code") + "\n"


def test_every_example_is_listed_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_it_runs(name: str, tmp_path: Path) -> None:
    source = code_of(EXAMPLES / name)
    assert len(source.splitlines()) <= MAX_LINES
    program = tmp_path / Path(name).with_suffix(".py").name
    program.write_text(source)
    # With what is known of the adventure ahead, as a user has it.
    known = {key: value for key, value in os.environ.items() if key != "XTX_NO_SHIPPED"}
    done = subprocess.run(
        [sys.executable, program.name], cwd=tmp_path, env={**known, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout


def test_the_notebook_holds_no_output() -> None:
    for cell in json.loads((EXAMPLES / "train_and_plot.ipynb").read_text("utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
