"""Run folders of earlier versions are resumed, reported, evaluated and played from.

tests/runs/earlier_versions has one folder for each version: a run of a tiny XTX on the embedded adventure, stopped at
step 320 of 480. A change that such a run does not survive needs code that reads the old form, not a new folder here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from xtx.cli.main import main
from xtx.report.data.load_runs import read_run
from xtx.report.data.run_summary import read_summary
from xtx.runs.checkpoint_file import list_checkpoints, read_checkpoint
from xtx.runs.line_files import read_lines

FOLDERS = sorted((Path(__file__).parent / "earlier_versions").iterdir())
MEANS = ["--workers", "1", "--threads", "1", "--device", "cpu"]


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XTX_NO_SHIPPED")  # searching what is known ahead would take half a minute
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def test_there_is_one() -> None:
    assert FOLDERS[0].name == "0.1.0-4f2b04f"
    assert sum(path.stat().st_size for path in FOLDERS[0].rglob("*") if path.is_file()) < 300_000


def test_it_goes_on_to_its_end(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: (run / f"{name}.jsonl").read_bytes() for name in ("metrics", "episodes", "rooms")}
    assert main(["resume", str(run), *MEANS, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    for name, content in before.items():
        assert (run / f"{name}.jsonl").read_bytes().startswith(content)
    assert [line["step"] for line in read_lines(run, "metrics")] == list(range(20, 481, 20))
    saved = read_checkpoint(list_checkpoints(run)[0])
    assert saved["state"]["progress"]["steps"] == 480
    assert set(saved["digests"]) == set(before), "from here on its files are tied to each other"
    given, kept = json.loads((run / "config.json").read_text()), json.loads(saved["config"])
    later = {"actions": "templates", "thorough_survey": False, "byte_score": False}
    given["num_envs"] = given.pop("games")
    given.pop("wide_grammar", None)
    assert kept == {**later, **given}, "what came later is as it was before"
    assert main(["resume", str(run), *MEANS, "--quiet"]) == 0, "it is no change that config.json lacks that"


def test_it_is_reported(run: Path, tmp_path: Path) -> None:
    found = read_run(run)
    assert (found.reached, found.finished, found.config.agent) == (320, False, "xtx-demo")
    assert found.config.num_envs == 2, "`games` in its config.json"
    assert found.notes == ["not finished: 320 of 480 steps"]
    assert len(found.scores) == 38 and len(found.moves) == 5 and found.speed is not None
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "xtx-demo" in (tmp_path / "page.html").read_text()
    assert main(["summarise", str(run), "--out", str(tmp_path / "summaries")]) == 0
    [summary] = (tmp_path / "summaries").rglob("seed-3.json")
    assert read_summary(summary).config.num_envs == 2
    summary.write_text(summary.read_text().replace('"num_envs":2', '"games":2'))
    assert read_summary(summary).config.num_envs == 2, "a summary of an earlier version"


def test_its_agent_plays(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--agent", str(run)]) == 0
    assert "Sennet Quay" in capsys.readouterr().out
    assert main(["evaluate", str(run), *MEANS, "--episodes", "2"]) == 0
    assert json.loads((run / "evaluation.json").read_text())["trained_steps"] == 320
    assert main(["best", str(run)]) == 0
    assert "points" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["wide_grammar", "settings.imitation.bfloat16", "settings.imitation.length_buckets"])
def test_a_run_with_what_no_longer_exists_is_read_but_not_resumed(
    run: Path, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((run / "config.json").read_text())
    *parents, last = key.split(".")
    level = config
    for name in parents:
        level = level[name]
    level[last] = not level[last]
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert main(["runs", str(run)]) == 0
    assert "1 run" in capsys.readouterr().out
    assert main(["best", str(run)]) == 0
    assert main(["evaluate", str(run), *MEANS, "--episodes", "2"]) == 0
    assert ("`--wide-grammar`, which no longer exists" in capsys.readouterr().err) == (key == "wide_grammar")
    assert main(["summarise", str(run), "--out", str(tmp_path / "summaries")]) == 0
    [summary] = (tmp_path / "summaries").rglob("seed-3.json")
    for one in (read_run(run).config, read_summary(summary).config):
        assert one.wide_grammar == (key == "wide_grammar")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}
    capsys.readouterr()
    assert main(["resume", str(run), *MEANS, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"{key}' of an earlier version, and can go on here only with" in said and said.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before
