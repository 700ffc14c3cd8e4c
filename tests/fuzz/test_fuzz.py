"""Changed files of every format: the kept ones, and some hundred new ones."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz.formats import FORMATS, Format
from fuzz.run import Fuzzer, Reader

from xtx.core import UserError

INPUTS = {"checkpoint": 120, "config": 120, "lines": 120, "story": 150}
"""Changed files for each format; 400 where reading takes a millisecond."""


@pytest.fixture(params=FORMATS.values(), ids=list(FORMATS), scope="module")
def fuzzer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    found = Fuzzer(request.param, tmp_path_factory.mktemp(request.param.name))
    yield found
    found.close()


def test_kept_files(fuzzer: Fuzzer) -> None:
    paths = fuzzer.form.list_corpus()
    assert [path for path in paths if path.name.startswith("good")]
    assert {path.name: trouble for path in paths if (trouble := fuzzer.try_file(path.read_bytes()))} == {}


def test_changed_files(fuzzer: Fuzzer) -> None:
    findings = list(filter(None, fuzzer.try_inputs(range(INPUTS.get(fuzzer.form.name, 400)))))
    assert [(finding.number, finding.trouble) for finding in findings] == []


def test_a_good_file_is_read(tmp_path: Path) -> None:
    """Not only refused: otherwise the changed ones would show nothing."""
    for form in FORMATS.values():
        (tmp_path / form.name).mkdir()
        content = form.make(tmp_path / form.name)
        try:
            form.read(tmp_path / form.name, content)
        except UserError as error:
            assert form.name == "lines", error  # episodes are no metrics


# --- the driver notices -------------------------------------------------------------------------------------------


def same(rng: random.Random, content: bytes, scratch: Path) -> bytes:
    return content


def fail(scratch: Path, content: bytes) -> None:
    match content:
        case b"two lines":
            raise UserError("one\ntwo")
        case b"one line":
            raise UserError("one")
        case b"error":
            raise KeyError("key")
        case b"crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"hang":
            while True:
                pass
        case b"memory":
            bytes(3 << 30)


def test_the_driver_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.run.PATIENCE", 1.0)
    reader = Reader(Format("some", same, fail, lambda scratch: b""), tmp_path)
    try:
        troubles = {
            content: reader.read(content)
            for content in (b"good", b"one line", b"two lines", b"error", b"crash", b"hang", b"memory", b"")
        }
    finally:
        reader.close()
    assert troubles[b"good"] == troubles[b"one line"] == troubles[b""] == ""
    assert troubles[b"two lines"].startswith("more than one line")
    assert troubles[b"error"].startswith("KeyError in test_fuzz.py")
    assert troubles[b"crash"] == f"the process ended with {-signal.SIGKILL}"
    assert troubles[b"hang"] == "no answer for 1 s"
    assert troubles[b"memory"].startswith("MemoryError")
