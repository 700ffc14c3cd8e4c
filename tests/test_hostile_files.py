"""Run folders and summaries that are damaged, hostile or odd: one line for each, and the other runs are shown."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import write_run

from xtx.cli.main import main
from xtx.files import bounded_reads
from xtx.files.bounded_reads import BadFileError, decode_json, read_bounded, read_json, read_json_lines
from xtx.report.data.load_runs import find_below, read_runs
from xtx.report.plots.room_layout import make_chart
from xtx.runs.checkpoint_file import read_checkpoint, write_checkpoint
from xtx.sweep.sweep_folder import is_held
from xtx.web.run_watcher import Watcher

DEEP = b"[" * 5000 + b"]" * 5000
LONG = b"9" * 400


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A test that waits for a FIFO fails after a while, and does not stop the others."""

    def fail(*_: object) -> None:
        pytest.fail("the test hangs")  # no Exception, so that nothing takes it for an error of the file

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 60, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# --- the reader -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (DEEP, "nested more than 32 deep"),
        (b'{"a":' * 5000, "nested more than 32 deep"),
        (b'{"a": ' + LONG + b"}", "a number of more than 24 digits"),
        (b'{"a": 0.' + LONG + b"}", "a number of more than 24 digits"),
        (b"1e400", "out of range"),
        (b"NaN", "malformed"),
        (b'"\xff\xfe"', "codec can't decode"),
        (b'"\\udcff"', "surrogate"),
        (b"", "truncated"),
        (b"{", "truncated"),
    ],
)
def test_json_out_of_bounds(content: bytes, why: str) -> None:
    with pytest.raises(BadFileError, match=why) as raised:
        decode_json(content)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 200


def test_strings_may_hold_brackets_and_digits() -> None:
    text = '{"\\"' + "[" * 99 + LONG.decode()
    assert decode_json(json.dumps([text, "\\", {"a": text}]).encode()) == [text, "\\", {"a": text}]
    many = [[1, {"a": [2]}]] * 1000
    assert decode_json(json.dumps(many).encode()) == many


def test_a_long_string_is_checked_in_little_memory() -> None:
    """In a process of its own, whose memory is limited to what it has and 64 MB; the string has 4 MB."""
    program = """
import json, resource
from xtx.files.bounded_reads import decode_json
text = "a" * (4 << 20) + '"[' * 40
content = json.dumps([text, [1]]).encode()
has = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (has + (64 << 20),) * 2)
assert decode_json(content) == [text, [1]]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in ((tmp_path / "fifo", "a named pipe"), (tmp_path, "a folder"), (Path("/dev/zero"), "a device")):
        with pytest.raises(OSError, match=kind):
            read_json(path)
        with pytest.raises(OSError, match=kind):
            list(read_json_lines(path))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"123\n4567\n89")
    assert list(read_json_lines(path)) == [123, 4567]
    with pytest.raises(BadFileError, match="larger than 9 bytes"):
        read_bounded(path, 9)
    assert read_bounded(path, 11) == b"123\n4567\n89"
    with monkeypatch.context() as changed:
        changed.setattr(bounded_reads, "MAX_LINE_BYTES", 4)
        with pytest.raises(BadFileError, match="line 2: larger than 4 bytes"):
            list(read_json_lines(path))
    monkeypatch.setattr(bounded_reads, "MAX_LINES_BYTES", 6)
    with pytest.raises(BadFileError, match="larger than 6 bytes"):
        list(read_json_lines(path))


def test_a_line_without_an_end_is_not_read_whole(tmp_path: Path) -> None:
    """A file of 1 TB without content on disk."""
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadFileError, match="larger than 68,719,476,736 bytes"):
        read_bounded(tmp_path / "a", 1 << 36)
    with pytest.raises(BadFileError, match="line 1: larger than"):
        list(read_json_lines(tmp_path / "a"))


# --- runs in a report and in the live view ----------------------------------------------------------------------


def spoil(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink(missing_ok=True) or ((folder / name).write_bytes(content) and None)


def make_fifo(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def change_config(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return spoil


def change_episode(**changes: Any) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        lines = (folder / "episodes.jsonl").read_text().splitlines()
        lines[1] = json.dumps(json.loads(lines[1]) | changes)
        (folder / "episodes.jsonl").write_text("\n".join(lines) + "\n")

    return spoil


def nested(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = {"a": tree}
    return tree


CONTENTS = {"null": b"null\n", "deep": DEEP + b"\n", "number": LONG + b"\n", "bytes": b"\xff\n"}
EXTRAS = ("versions.json", "metrics.jsonl", "timing.jsonl", "rooms.jsonl", "live.json")
"""Files that a run can be shown without."""
UNREADABLE: dict[str, Callable[[Path], None]] = {
    **{f"{name} {what}": spoil(name, content)
       for name in ("config.json", "episodes.jsonl")
       for what, content in {**CONTENTS, "list": b"[]\n", "zeros": bytes(40) + b"\n"}.items()},
    "config.json fifo": make_fifo("config.json"),
    "episodes.jsonl fifo": make_fifo("episodes.jsonl"),
    "steps 0": change_config(steps=0),
    "steps of 400 digits": change_config(steps=int(LONG)),
    "steps 10^18": change_config(steps=10**18),
    "num_envs -1": change_config(num_envs=-1),
    "settings nested": change_config(settings=nested(400)),
    "score of 400 digits": change_episode(score=int(LONG)),
    "score of 20 digits": change_episode(score=10**20),
    "steps that go back": change_episode(step=0),
    "negative length": change_episode(length=-5),
    "seed null": change_episode(seed=None),
}  # fmt: skip
READABLE: dict[str, Callable[[Path], None]] = {
    **{f"{name} {what}": spoil(name, content) for name in EXTRAS for what, content in CONTENTS.items()},
    **{f"{name} fifo": make_fifo(name) for name in EXTRAS},
    "odd packages": spoil("versions.json", b'[{"packages": [1], "git": {"a": 1}, "started": 7, "processors": "x"}]'),
    "odd start": spoil("versions.json", b'[{"started": "9999-12-31T23:59:59-1200"}]'),
    "no year": spoil("versions.json", b'[{"started": "10000-01-01T00:00:00+0000"}]'),
    "step of 20 digits": spoil("metrics.jsonl", b'{"step": 10000000000000000000}\n'),
    "time 1e300": spoil("timing.jsonl", b'{"step": 5, "time": 1e300}\n{"step": 6, "time": -1e300}\n'),
    "odd game": change_config(game="\0" * 3),
    "long game": change_config(game="x/" * 9000),
    "odd settings": change_config(settings={"q": [], "phases": {"": None}, "": 1e308}),
    "odd agent": change_config(agent="<script>" * 20),
    "ended oddly": change_episode(ended="\u2028", actions=["x" * 90_000]),
    "checkpoint names": lambda folder: [(folder / "checkpoints" / name).touch() for name in ("²", "9" * 200)] and None,
}  # fmt: skip


def live_text(folder: Path) -> str:
    watcher = Watcher([folder], lambda config: None)
    return "".join(piece.html for piece in watcher.look().pieces)


@pytest.mark.parametrize("spoil", UNREADABLE.values(), ids=list(UNREADABLE))
def test_a_run_that_cannot_be_read(
    spoil: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = write_run(tmp_path / "runs" / "bad", [7, 8, 9], seed=1)
    spoil(bad)
    out = ["--no-walkthroughs", "--out", str(tmp_path / "page.html")]
    for command in (["report", *out], ["summarise", "--no-walkthroughs", "--out", str(tmp_path / "s")], ["best"]):
        assert main([command[0], str(bad), *command[1:]]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("xtx: ") and str(bad) in line and len(line) < 600
    assert main(["export", str(bad), "--out", str(tmp_path / "lines")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    write_run(tmp_path / "runs" / "good", [77, 78])
    assert main(["report", str(tmp_path / "runs"), *out]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert "bad is left out: " in line
    assert "Max 78" in (tmp_path / "page.html").read_text()
    text = live_text(tmp_path / "runs")
    assert "Max 78" in text and "bad cannot be read and is left out" in text


@pytest.mark.parametrize("spoil", READABLE.values(), ids=list(READABLE))
def test_a_run_of_which_something_can_be_read(
    spoil: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(write_run(tmp_path / "odd", [7, 8, 9], seed=1))
    write_run(tmp_path / "good", [77, 78])
    out = ["--no-walkthroughs", "--out", str(tmp_path / "page.html")]
    assert main(["report", str(tmp_path), *out]) == 0
    assert capsys.readouterr().err == ""
    page = (tmp_path / "page.html").read_text()
    assert "Max 78" in page and "Max 9" in page and "<script>" * 2 not in page
    text = live_text(tmp_path)
    assert "Max 78" in text and "Max 9" in text
    assert main(["summarise", str(tmp_path), "--no-walkthroughs", "--out", str(tmp_path / "s")]) == 0
    assert main(["report", str(tmp_path / "s"), *out]) == 0
    assert capsys.readouterr().err == ""


def test_what_no_check_foresaw_spoils_one_run_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run for which a part of the page fails is found and left out, in the report and in the live view."""
    for seed in range(3):
        write_run(tmp_path / f"run-{seed}", [70 + seed], seed=seed)

    def fail(moves: Any) -> Any:
        return 1 // 0 if len(moves) == 3 else make_chart(moves)  # the run with seed 1

    monkeypatch.setattr("xtx.report.pages.by_run._describe_run", lambda run: fail(run.moves) and "")
    text = live_text(tmp_path)
    assert "Max 70" in text and "Max 72" in text and "Max 71" not in text
    assert "run-1 cannot be read and is left out: it cannot be shown (ZeroDivisionError" in text
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--no-walkthroughs", "--out", str(page)]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert "run-1 is left out: it cannot be shown (ZeroDivisionError" in line and "Max 72" in page.read_text()


def test_folders_nested_very_deep(tmp_path: Path) -> None:
    """Deeper than Python's recursion; the kernel takes no longer path than 4,096 letters."""
    here = str(tmp_path)
    while len(here) < 3900:
        here += "/d"
        os.mkdir(here)
    write_run(tmp_path / "z", [1])
    assert list(find_below(tmp_path)) == [tmp_path / "z"]
    Path(here, "config.json").write_text("{}")
    assert list(map(str, find_below(tmp_path))) == [here, str(tmp_path / "z")]
    Path(here, "config.json").unlink()
    while here != str(tmp_path):  # shutil.rmtree, with which pytest cleans up later, cannot go so deep
        os.rmdir(here)
        here = os.path.dirname(here)


SUMMARY = {
    "null": b"null", "deep": DEEP, "number": b'{"xtx_summary": ' + LONG + b"}", "bytes": b"\xff", "empty": b"",
}  # fmt: skip


@pytest.mark.parametrize("content", SUMMARY.values(), ids=list(SUMMARY))
def test_summaries_that_are_none(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", [1])
    (tmp_path / "seed-1.json").write_bytes(content)
    os.mkfifo(tmp_path / "seed-2.json")
    (tmp_path / "seed-3.json").symlink_to(tmp_path / "nowhere")
    assert main(["report", str(tmp_path), "--no-walkthroughs", "--out", str(tmp_path / "page.html")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith("xtx: ") and "is left out" in line for line in lines)


def test_names_that_are_not_utf8(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\xfen"))
    write_run(folder / "a", [5])
    write_run(folder / "b", [6], seed=1)
    (folder / "b" / "config.json").write_text("null")
    for out in ("page.html", "page.md", "page.csv"):
        assert main(["report", str(folder), "--no-walkthroughs", "--out", str(tmp_path / out)]) == 0
        assert capfd.readouterr().err.count("\n") == 1
        assert "5" in (tmp_path / out).read_text("utf-8")
    assert "Max 5" in live_text(folder)
    assert main(["summarise", str(folder), "--no-walkthroughs", "--out", str(folder / "s")]) == 0
    assert len(list((folder / "s").rglob("seed-*.json"))) == 1


def test_names_that_command_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names with escape sequences, line ends or reversed writing are shown with these written out."""
    for name in ("a\x1b[2J", "b\nc", "d\u202ee", "f\x9b31m"):
        write_run(tmp_path / name, [5])
        shutil.copytree(tmp_path / name, tmp_path / f"{name} none")
        (tmp_path / f"{name} none" / "config.json").write_text("null")
    main(["runs", str(tmp_path)])
    main(["evaluate", str(tmp_path)])
    main(["report", str(tmp_path), "--no-walkthroughs", "--out", str(tmp_path / "page.html")])
    main(["best", str(tmp_path / "a\x1b[2J none")])
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert not set("\x1b\u202e\x9b") & set(text)
    assert r"b\nc" in shown.out and "a\\x1b[2J none" in shown.err
    assert all(line.startswith("xtx: ") for line in shown.err.splitlines())


class _Capabilities(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextlib.contextmanager
def permissions_count() -> Iterator[None]:
    """Root reads and writes whatever the permissions say; here it does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (_Capabilities * 2)()
    assert libc.capget(header, sets) == 0
    before = sets[0].effective
    sets[0].effective &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(header, sets) == 0


def test_what_may_not_be_read(tmp_path: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of somebody else's: the others are listed, and what cannot be read is named."""
    for name in ("good", "lock", "config.json", "episodes.jsonl", "checkpoints", "folder", "metrics.jsonl"):
        shutil.copytree(toy_run, tmp_path / name)
        (tmp_path / name / name).chmod(0) if name in os.listdir(toy_run) else None
    (tmp_path / "folder").chmod(0)
    with permissions_count():
        status, shown = main(["runs", str(tmp_path)]), capsys.readouterr()
        listed = {name for name in os.listdir(tmp_path) if f"/{name}\n" in shown.out}
        assert status == 2 and listed == {"good", "lock", "episodes.jsonl", "metrics.jsonl"}
        assert len(shown.err.splitlines()) == 3 and shown.err.count("Permission denied") == 3
        assert main(["report", str(tmp_path), "--no-walkthroughs", "--out", str(tmp_path / "page.html")]) == 0
        left_out = capsys.readouterr().err
        assert all(f"/{name} is left out" in left_out for name in ("config.json", "episodes.jsonl", "folder"))
        assert main(["resume", str(tmp_path / "checkpoints"), "--workers", "0"]) == 2
        assert "checkpoints cannot be read (Permission denied)" in capsys.readouterr().err
    (tmp_path / "folder").chmod(0o700)


@pytest.mark.parametrize("odd", ["link", "fifo"])
def test_an_evaluation_is_written_to_a_regular_file_only(
    odd: str, tmp_path: Path, toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, foreign = tmp_path / "r", tmp_path / "foreign"
    shutil.copytree(toy_run, folder)
    foreign.write_text("mine")
    make_fifo("evaluations.jsonl")(folder) if odd == "fifo" else (folder / "evaluations.jsonl").symlink_to(foreign)
    assert main(["evaluate", str(folder), "--episodes", "1", "--workers", "0"]) == 2
    assert foreign.read_text() == "mine" and "plays" not in capsys.readouterr().out


def test_a_run_of_somebody_else_that_is_running(tmp_path: Path, toy_run: Path) -> None:
    """Its lock may not be opened; the kernel lists who has it."""
    shutil.copytree(toy_run, tmp_path / "r")
    with (tmp_path / "r" / "lock").open("w") as lock, permissions_count():
        (tmp_path / "r" / "lock").chmod(0)
        assert not is_held(tmp_path / "r")
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_held(tmp_path / "r")


def test_many_rising_scores_are_read_quickly(tmp_path: Path) -> None:
    """Each new highest score used to be looked for among all episodes."""
    folder = write_run(tmp_path / "a", [0])
    line = (folder / "episodes.jsonl").read_bytes()
    with (folder / "episodes.jsonl").open("wb") as file:
        for number in range(30_000):
            file.write(line.replace(b'"peak": 0', b'"peak": %d' % number))
    [run], [] = read_runs([folder])
    assert len(run.digest.firsts) == 30_000
    assert (run.digest.firsts[7].score, run.digest.firsts[7].steps) == (7, 100)


# --- going on with a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that is finished."""
    folder = tmp_path_factory.mktemp("toy") / "r"
    words = ["train", "toy:corridor-5", "--agent", "random", "--steps", "400", "--workers", "0", "--out", str(folder)]
    assert main(words) == 0
    return folder


def make_folder(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink(missing_ok=True) or (folder / name).mkdir()


def forge_checkpoint(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Checkpoints whose checksum is right, with another content."""

    def spoil(folder: Path) -> None:
        for path in (folder / "checkpoints").iterdir():
            state = read_checkpoint(path)
            write_checkpoint(path, change(state))

    return spoil


def without(*path: str) -> Callable[[dict[str, Any]], Any]:
    def change(state: dict[str, Any]) -> dict[str, Any]:
        inside = state
        for name in path[:-1]:
            inside = inside[name]
        del inside[path[-1]]
        return state

    return change


REFUSED: dict[str, Callable[[Path], None]] = {
    "lock is a folder": make_folder("lock"),
    "lock is a fifo": make_fifo("lock"),
    "config.json is a fifo": make_fifo("config.json"),
    "episodes.jsonl is a fifo": make_fifo("episodes.jsonl"),
    "episodes.jsonl is a folder": make_folder("episodes.jsonl"),
    **{f"config.json {what}": spoil("config.json", content) for what, content in CONTENTS.items()},
    "config.json nested": change_config(settings=nested(400)),
    "empty checkpoint": forge_checkpoint(lambda _: {}),
    "state null": forge_checkpoint(lambda state: {**state, "state": None}),
    "state empty": forge_checkpoint(lambda state: {**state, "state": {}}),
    "no progress": forge_checkpoint(without("state", "progress")),
    "no games": forge_checkpoint(without("state", "games")),
    "no seeds": forge_checkpoint(without("state", "seeds_drawn")),
    "no window": forge_checkpoint(without("state", "window")),
}


@pytest.mark.parametrize("spoil", REFUSED.values(), ids=list(REFUSED))
def test_a_run_that_cannot_go_on(
    spoil: Callable[[Path], None], toy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(toy_run, folder)
    spoil(folder)
    capsys.readouterr()
    assert main(["resume", str(folder), "--workers", "0"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("xtx: ")]
    assert lines and len(lines[-1]) < 600


def test_a_lock_is_for_its_owner_only(toy_run: Path) -> None:
    assert (toy_run / "lock").stat().st_mode & 0o777 == 0o600
