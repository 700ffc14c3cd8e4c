"""What every test stands on: folders of its own, and the real games where XTX_GAMES names their folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

GAMES = [Path(folder).resolve() for folder in os.environ.get("XTX_GAMES", "").split(os.pathsep) if folder]
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, and as early
REQUIRED = os.environ.get("XTX_REQUIRE_ROMS", "") not in ("", "0")
"""Whether a test of real games that is skipped counts as failed: so it is where the games must be there."""
COMPLETE = os.environ.get("XTX_REQUIRE_ALL", "") not in ("", "0")
"""Whether any other skipped test counts as failed, except those that need a GPU. CI sets it."""


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background deaf to Ctrl-C, and processes inherit that; tests send Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the proofs that take many minutes, unless XTX_SLOW is set, as `make verify` does."""
    if os.environ.get("XTX_SLOW"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("roms") and not any(folder.is_dir() for folder in GAMES):
        pytest.skip("set XTX_GAMES to the folder of the real story files")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_to_fail = hasattr(report, "wasxfail")
    if report.skipped and not expected_to_fail and (variable := _forbidding_skips(item)):
        report.outcome = "failed"
        report.longrepr = f"skipped although {variable} is set: {report.longrepr}"
    return report


def _forbidding_skips(item: pytest.Item) -> str:
    """Name the variable that makes a skip of this test a failure; empty if it may be skipped."""
    if item.get_closest_marker("roms"):
        return "XTX_REQUIRE_ROMS" if REQUIRED else ""
    return "XTX_REQUIRE_ALL" if COMPLETE and not item.get_closest_marker("gpu") else ""


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tensors as small as those in tests only make threads wait for each other, the more so on a busy machine."""
    import torch  # not at the top: most tests do without

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def own_folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeps the test away from the user's data and cache; only tests marked `roms` see XTX_GAMES."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    # Most tests of games are about searching; with what is known ahead, the embedded adventure would need none.
    monkeypatch.setenv("XTX_NO_SHIPPED", "1")
    if request.node.get_closest_marker("roms"):
        monkeypatch.setenv("XTX_GAMES", os.pathsep.join(map(str, GAMES)))
    else:
        monkeypatch.delenv("XTX_GAMES", raising=False)


@pytest.fixture(scope="session")
def real_story() -> Callable[[str], Path]:
    """Gives the path of a real story by its file's name or stem; skips the test if it is not there."""

    def find(name: str) -> Path:
        for folder in GAMES:
            for path in sorted(folder.glob("*.z?")):
                if name in (path.name, path.stem):
                    return path
        pytest.skip(f"{name} is not in the folders of XTX_GAMES")

    return find
