"""Every program in examples/ runs as it is, in an empty folder, on the adventure that comes with xtx."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAID = {
    "gym_loop.py": "of 75 points in",
    "valid_actions.py": "Sennet Quay: ",
    "language_model.py": "of 75 points in",
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


class FirstCommand(BaseHTTPRequestHandler):
    """A language model that takes the first of the commands that it is told, or `inventory`, and goes on talking."""

    asked: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        conversation = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        self.asked.append(conversation[-1])
        commands = conversation[-1]["content"].partition("Possible commands: ")[2]
        answer = f"> {commands.partition(';')[0] or 'inventory'}.\nThat is because"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": answer}}]}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FirstCommand]]:
    FirstCommand.asked.clear()
    with HTTPServer(("127.0.0.1", 0), FirstCommand) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        yield FirstCommand
        server.shutdown()


def test_a_language_model_may_be_told_the_valid_actions_or_not(model: type[FirstCommand], tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "language_model.py"), "lowwater", "--free"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "> inventory (+0)" in done.stdout
    assert len(model.asked) == 30
    assert not any("Possible commands" in message["content"] for message in model.asked)


def test_a_server_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    program = [sys.executable, str(EXAMPLES / "language_model.py"), "lowwater", "--free"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no answer from http://127.0.0.1:1/v1: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", SAID)
@pytest.mark.usefixtures("model")
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
