"""Files that are written whole or not at all, whatever their names."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from xtx.config.settings import RunConfig
from xtx.files.atomic_writes import name_temporary, write_atomically
from xtx.runs.run_folder import Run


@pytest.mark.parametrize(
    "name",
    ["a", "x" * 255, "ä" * 127, "\U0001f3ae" * 63, "\udcff" * 255],
    ids=["1", "255", "254", "252", "255 undecodable"],
)
def test_a_name_of_any_length_can_be_written(name: str, tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        write_atomically(tmp_path / name, content)
        assert (tmp_path / name).read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_threads_that_write_the_same_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    contents = [bytes([number]) * 50_000 for number in range(8)]
    failed: list[OSError] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(20):
                write_atomically(tmp_path / "file", content)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_in_a_run_folder_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Run.create(folder, RunConfig("toy:corridor-5", "random", {}, steps=8)).close()
    left = [name_temporary(folder / name) for name in ("config.json", "metrics.jsonl", "score.png", "checkpoints/best")]
    left.append(folder / ".versions.json.1234")  # of an earlier version
    for path in left:
        path.write_bytes(b"half")
    Run.open(folder).close()
    assert not any(path.exists() for path in left)
