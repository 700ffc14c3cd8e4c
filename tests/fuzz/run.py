"""Feeds changed files to the readers of all formats, and keeps those at which a reader fails.

    python tests/fuzz/run.py                                  # an hour, all formats in turn
    python tests/fuzz/run.py --seconds 60 checkpoint config
    python tests/fuzz/run.py --first 12345 --inputs 1 config  # replay one input
    python tests/fuzz/run.py --make                           # make the good files of the corpus anew

Input N of a format is a function of N and the corpus. Readers run in a child process, which is replaced when it dies or
is silent for too long; its memory is limited. A reader may succeed or raise `UserError` with one line; everything else
is a finding: it is printed with its number and written to the corpus, where it stays as a test when it is fixed.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "runs")]

from fuzz.formats import CORPUS, FORMATS, Format  # noqa: E402

from xtx.core import UserError  # noqa: E402

PATIENCE = 20.0
"""Seconds that a reader may take; the slowest good file takes a tenth of one."""
MEMORY = 1 << 30
"""Bytes that a reader may take beyond what the process had before."""


@dataclass(frozen=True)
class Finding:
    """A file at which a reader failed."""

    form: str
    number: int
    content: bytes
    trouble: str


def read_in_child(form: Format, content: bytes, scratch: Path) -> str:
    """Read a file; gives what went wrong, or nothing."""
    try:
        form.read(scratch, content)
    except UserError as error:
        return "" if "\n" not in str(error) else f"more than one line: {error}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno} ({last.name}): {str(error)[:200]}"
    return ""


def _serve(form: Format, scratch: Path, connection: Connection, other: Connection) -> None:
    """The child process: reads files until there are no more. `other`: the parent's end, inherited and not needed."""
    other.close()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    read_in_child(form, form.make(scratch), scratch)  # loads and prepares everything
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    connection.send("ready")
    while True:
        try:
            content = connection.recv_bytes()
        except EOFError:
            return
        connection.send(read_in_child(form, content, scratch))


@dataclass
class Reader:
    """A child process that reads files of one format."""

    form: Format
    scratch: Path
    _process: multiprocessing.process.BaseProcess | None = None
    _connection: Connection | None = None

    def read(self, content: bytes) -> str:
        """What went wrong with a file, or nothing."""
        connection = self._connect()
        try:
            connection.send_bytes(content)
            if connection.poll(PATIENCE):
                return str(connection.recv())
            trouble = f"no answer for {PATIENCE:g} s"
        except (EOFError, OSError):
            trouble = ""
        process = self._process
        assert process is not None
        if trouble:
            process.kill()
        process.join()
        self.close()
        return trouble or f"the process ended with {process.exitcode}"

    def _connect(self) -> Connection:
        if self._connection is None:
            context = multiprocessing.get_context("fork")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(self.form, self.scratch, theirs, self._connection))
            self._process.start()
            theirs.close()
            if not self._connection.poll(120) or self._connection.recv() != "ready":
                raise RuntimeError(f"the reader of {self.form.name} did not start")
        return self._connection

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.join(10)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._process = None


@dataclass
class Fuzzer:
    """Makes inputs of one format by number and has them read."""

    form: Format
    scratch: Path
    seeds: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._reader = Reader(self.form, self.scratch)
        self.seeds = self.seeds or [path.read_bytes() for path in self.form.list_corpus()]

    def make_input(self, number: int) -> bytes:
        """The input of that number."""
        rng = random.Random(f"{self.form.name} {number}")
        content = rng.choice(self.seeds)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            content = self.form.mutate(rng, content, self.scratch)
        return content

    def try_inputs(self, numbers: Iterator[int] | range) -> Iterator[Finding | None]:
        """Read inputs; gives a finding or None for each."""
        for number in numbers:
            content = self.make_input(number)
            trouble = self._reader.read(content)
            yield Finding(self.form.name, number, content, trouble) if trouble else None

    def try_file(self, content: bytes) -> str:
        """Read one file as it is; gives what went wrong, or nothing."""
        return self._reader.read(content)

    def close(self) -> None:
        """End the child process."""
        self._reader.close()


def keep(finding: Finding) -> Path:
    """Write a finding to the corpus."""
    path = CORPUS / finding.form / f"finding-{hashlib.sha256(finding.content).hexdigest()[:12]}"
    path.write_bytes(finding.content)
    return path


def make_corpus() -> None:
    """Make the good file of each format anew."""
    for form in FORMATS.values():
        with tempfile.TemporaryDirectory() as scratch:
            (CORPUS / form.name).mkdir(parents=True, exist_ok=True)
            content = form.make(Path(scratch))
            (CORPUS / form.name / "good").write_bytes(content)
            print(f"{form.name}: {len(content):,} bytes")


def main() -> int:
    """Fuzz some formats for some time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("formats", nargs="*", choices=[*FORMATS, []], help="all if none is named")
    parser.add_argument("--seconds", type=float, default=3600, help="for all formats together")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="at most so many for each format")
    parser.add_argument("--first", type=int, help="number of the first input; if not given, another at every start")
    parser.add_argument("--make", action="store_true", help="make the good files of the corpus anew")
    parser.add_argument("--no-keep", action="store_true", help="do not write findings to the corpus")
    given = parser.parse_args()
    if given.make:
        make_corpus()
        return 0
    first = int(time.time()) * 1_000_000 if given.first is None else given.first
    names = given.formats or list(FORMATS)
    seen: set[str] = set()
    for name in names:
        scratch = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
        fuzzer = Fuzzer(FORMATS[name], scratch)
        end, done, found = time.monotonic() + given.seconds / len(names), 0, 0
        try:
            for finding in fuzzer.try_inputs(range(first, min(first + given.inputs, sys.maxsize))):
                done += 1
                if finding is not None:
                    found += 1
                    if finding.trouble not in seen:
                        seen.add(finding.trouble)
                        where = "" if given.no_keep else f" ({keep(finding)})"
                        print(f"FOUND {name} {finding.number}: {finding.trouble}{where}", flush=True)
                if time.monotonic() > end:
                    break
        finally:
            fuzzer.close()
            shutil.rmtree(scratch, ignore_errors=True)
        print(f"{name}: {done:,} inputs from {first}, {found} findings", flush=True)
    return int(bool(seen))


if __name__ == "__main__":
    sys.exit(main())
