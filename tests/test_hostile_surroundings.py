"""Full devices, small memories, a C locale and a clock in the year 9999: one line, exit status 2, no traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from report_runs import write_run

from xtx.core import UserError
from xtx.games.emulator.jericho_library import explain_temporary_files
from xtx.processes.out_of_memory import explain_lack_of_memory

TOY = "toy:corridor-5"
XTX = f"{sys.executable} -m xtx.cli"


def run(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What came of a shell command, in the surroundings of a user."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", os.fsencode(words)],
        capture_output=True, check=False, timeout=120, env=surroundings | environment,
        encoding="utf-8", errors="surrogateescape",
    )  # fmt: skip


# --- output ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["games", "--help", "report --help", "games info lowwater"])
def test_a_full_device_as_output(words: str, unbuffered: str) -> None:
    ended = run(f"{XTX} {words} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (ended.returncode, ended.stderr) == (2, "xtx: standard output: No space left on device\n")


def test_a_full_device_for_everything() -> None:
    assert run(f"{XTX} games > /dev/full 2> /dev/full").returncode == 2
    assert run(f"{XTX} no-such-command 2> /dev/full").returncode == 2


def test_training_into_a_full_device_can_go_on(tmp_path: Path) -> None:
    """The trouble is not the run's folder, and what cannot be said on the error stream does not stop a run."""
    words = f"train {TOY} --agent random --steps 80 --workers 0 --out {tmp_path / 'r'}"
    ended = run(f"{XTX} {words} > /dev/full")
    assert (ended.returncode, ended.stderr) == (2, "xtx: standard output: No space left on device\n")
    assert run(f"{XTX} resume {tmp_path / 'r'} --workers 0 --threads 7 2> /dev/full").returncode == 0


def test_a_c_locale(tmp_path: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    folder = tmp_path / "räume\udcff"  # a name that is not UTF-8
    ended = run(f"{XTX} train {TOY} --agent random --steps 400 --workers 0 --out {folder}", **locale)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    assert str(folder) in ended.stdout, "names are printed as they are"
    for words in (
        f"report {folder} --no-walkthroughs --out {folder}/p.html",
        f"best {folder}",
        "games",
        "train --help",
    ):
        ended = run(f"{XTX} {words}", **locale)
        assert ended.returncode == 0 and "Traceback" not in ended.stderr, words
    ended = run(f"{XTX} best {tmp_path}/nirgendwö", **locale)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "there is not enough memory; close other programs"),
        (MemoryError("Unable to allocate 9 GiB"), "there is not enough memory (Unable to allocate 9 GiB)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is not enough memory"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "no further process or thread"),
        (RuntimeError("can't start new thread"), "no further process or thread"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "there is not enough memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate\n2 GiB"), "the GPU has not enough memory (CUDA out of"),
        (ImportError("libx.so: failed to map segment from shared object"), "there is not enough memory"),
        (RuntimeError("something else"), ""),
        (ImportError("no module"), ""),
        (OSError(errno.ENOENT, "No such file"), ""),
        (ValueError("cannot allocate memory"), ""),
    ],
)
def test_a_lack_of_memory_is_known(error: Exception, said: str) -> None:
    line = explain_lack_of_memory(error)
    assert line.startswith(said) and bool(line) == bool(said) and "\n" not in line and len(line) < 400


@pytest.mark.parametrize(("kilobytes", "agent"), [(300_000, "drrn"), (650_000, "random")])
def test_training_with_too_little_memory(kilobytes: int, agent: str, tmp_path: Path) -> None:
    """In the main process, whose libraries cannot be loaded, and in a worker that searches."""
    words = f"train lowwater --agent {agent} --steps 80 --num-envs 2 --workers 1 --no-atlas --out {tmp_path / 'r'}"
    ended = run(f"ulimit -v {kilobytes}; exec {XTX} {words}")
    lines = ended.stderr.splitlines()
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert lines[-1].startswith("xtx: ") and "memory" in lines[-1], ended.stderr


@pytest.mark.parametrize("words", ["games info lowwater", "play lowwater"])
def test_no_room_for_temporary_files(words: str) -> None:
    """Jericho loads a copy of libfrotz."""
    ended = run(f"ulimit -f 16; exec {XTX} {words} < /dev/null")
    said = "cannot be written (File too large); set TMPDIR to another folder"
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].endswith(said), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("mounted", "expected"), [(os.ST_NOEXEC, UserError), (0, OSError)])
def test_temporary_files_that_cannot_be_executed(
    mounted: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=mounted))
    with pytest.raises(expected, match="noexec; set TMPDIR" if mounted else "failed to map"), explain_temporary_files():
        raise OSError("libfrotz.so: failed to map segment from shared object")


def test_a_worker_that_cannot_be_started(tmp_path: Path) -> None:
    program = (
        "import errno, subprocess, sys\n"
        "import xtx.games.vector.worker_client\n"
        "def fail(*_, **__): raise BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "subprocess.Popen = fail\n"
        "from xtx.cli.main import main\n"
        f"sys.exit(main('train {TOY} --agent random --steps 8 --workers 1 --out {tmp_path / 'r'}'.split()))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("xtx: no further process or thread can be started")
    assert "Traceback" not in ended.stderr


# --- the clock ------------------------------------------------------------------------------------------------------

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { return SECONDS; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += shift();
    return status;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
"""
"""A library that moves the clock of a process."""
YEAR = 31_556_952
"""Seconds."""


def move_clock(tmp_path: Path, year: int) -> dict[str, str]:
    """The surroundings of a process in that year."""
    (tmp_path / "clock.c").write_text(CLOCK)
    seconds = (year - time.gmtime().tm_year) * YEAR
    library = tmp_path / "clock.so"
    build = ["cc", "-shared", "-fPIC", f"-DSECONDS={seconds}L", "-o", library, tmp_path / "clock.c", "-ldl"]
    subprocess.run(build, check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("words", [f"train {TOY} --agent random --steps 8 --workers 0", "report . --no-walkthroughs"])
def test_a_clock_in_the_year_9999(words: str, tmp_path: Path) -> None:
    """Python's own clock ends in 2262."""
    write_run(tmp_path / "r", [1, 2])
    ended = run(f"cd {tmp_path} && {XTX} {words} --out {tmp_path / 'p.html'}", **move_clock(tmp_path, 9999))
    assert ended.returncode == 2
    assert ended.stderr == "xtx: the clock of this machine is beyond the year 2262, where Python's ends; set it right\n"


def test_a_clock_in_the_year_2261(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    program = (
        "import sys, time\n"
        "from xtx.cli.main import main\n"
        "from pathlib import Path\n"
        "from xtx.web.run_watcher import Watcher\n"
        "assert time.gmtime().tm_year >= 2260, time.gmtime()\n"
        f"train = 'train {TOY} --agent random --steps 400 --workers 1 --out {folder}'.split()\n"
        f"report = 'report {folder} --no-walkthroughs --out {tmp_path / 'p.html'}'.split()\n"
        f"summarise = 'summarise {folder} --no-walkthroughs --out {tmp_path / 's'}'.split()\n"
        f"again = 'report {tmp_path / 's'} --no-walkthroughs --out {tmp_path / 'q.html'}'.split()\n"
        f"for words in (train, 'resume {folder}'.split(), report, summarise, again):\n"
        "    assert main(words) == 0, words\n"
        f"text = ''.join(piece.html for piece in Watcher([Path({str(folder)!r})], lambda _: None).look().pieces)\n"
        "assert '400 of 400 steps' in text, text[:2000]\n"
    )
    (tmp_path / "program.py").write_text(program)
    ended = run(f"{sys.executable} {tmp_path / 'program.py'}", TZ="Pacific/Kiritimati", **move_clock(tmp_path, 2261))
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr
    assert '"started": "226' in (folder / "versions.json").read_text()
