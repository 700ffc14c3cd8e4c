"""The C sources compile for the processors that packages are made for; CI also builds and tries them (`make dist`)."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
SOURCES = [source for module in MODULES for source in module["sources"]]
COMPILERS = {
    "x86-64": ["gcc", "-march=x86-64"],
    "aarch64": ["aarch64-linux-gnu-gcc"],
    "without-linux": ["gcc", "-DXTX_NO_AFFINITY"],
}
"""The last leaves out what macOS does not have."""


@pytest.mark.parametrize("processor", COMPILERS)
def test_all_sources_compile_without_a_warning(processor: str) -> None:
    program, *options = COMPILERS[processor]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    assert len(SOURCES) > 15
    words = [program, *options, "-std=gnu11", "-O0", "-fPIC", "-Wall", "-Werror", "-S", "-o", "/dev/null"]
    for source in SOURCES:
        done = subprocess.run([*words, source], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{source}: {done.stderr}"


def test_every_file_of_a_source_tree_that_is_compiled_is_packaged() -> None:
    for module in MODULES:
        for name in [*module["sources"], *module["depends"]]:
            assert (ROOT / name).is_file()
