"""Packs xtx and what it needs, but for torch and NumPy, for a machine on which nothing can be installed.

    make portable                       # build/xtx-portable.tgz, for Python 3.12
    make portable ARGS="--python 3.13"
    make portable ARGS=--tests          # with the tests and all that they read

On the other machine, which has Linux with the same kind of processor, that Python, torch and NumPy:

    tar xzf xtx-portable.tgz && PYTHONPATH=xtx-portable python3 -m xtx.cli train lowwater
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = "xtx-portable"
THERE = {"torch", "numpy"}
"""What the other machine has, made for its GPU."""
BUILT_HERE = {"jericho"}
"""Compiled by its setup, into a library that knows nothing of Python: it runs there as it is."""
FOR_TESTS = ("pytest", "pytest-timeout", "hypothesis")
READ_BY_TESTS = (
    "tests",
    "docs",
    "tools",
    "stories",
    "results",
    "benchmarks",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "constraints-build.txt",
    "constraints-cuda.txt",
    "constraints-extras.txt",
    "constraints.txt",
)


def needed(names: list[str]) -> set[str]:
    """All distributions that some need, themselves included, as they are installed here; extras are left out."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name in found | THERE | BUILT_HERE:
            continue
        found.add(name)
        for line in metadata.requires(name) or ():
            requirement, _, condition = line.partition(";")
            match = re.match(r"[\w.-]+", requirement.strip())
            if match and "extra" not in condition and _installed(match.group()):
                names.append(_normal(match.group()))
    return found - {"xtx"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False  # for another system, or another Python


def gather(folder: Path, python: str, tests: bool) -> None:
    """Puts everything into a folder."""
    names = needed(["xtx", *(FOR_TESTS if tests else ())])
    exact = [f"{name}=={metadata.version(name)}" for name in sorted(names)]
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
    kinds = [f"{kind}_{platform.machine()}" for kind in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    other = ["--only-binary=:all:", "--python-version", python, *(f"--platform={kind}" for kind in kinds)]
    subprocess.run([*pip, *other, "--target", str(folder), *exact], check=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in BUILT_HERE:
        files = metadata.files(name)
        if not files:
            raise OSError(f"{name} has no list of its files here; install it again")
        for file in files:
            if "__pycache__" not in file.parts and ".." not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)
    about = metadata.distribution("xtx")
    facts = folder / f"xtx-{about.version}.dist-info"  # so that it knows its version there
    facts.mkdir()
    (facts / "METADATA").write_text(about.read_text("METADATA") or "")
    for part in ("xtx", *(READ_BY_TESTS if tests else ())):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=ignore)
        else:
            shutil.copyfile(ROOT / part, folder / part)


def main() -> int:
    """Writes the archive and says where it is."""
    parser = argparse.ArgumentParser(description="Packs xtx for a machine on which nothing can be installed.")
    parser.add_argument("--python", default="3.12", help="version of Python there (3.12)")
    parser.add_argument("--tests", action="store_true", help="pack the tests too, and all that they read")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / f"{NAME}.tgz", help="the archive to write")
    args = parser.parse_args()
    try:
        pack(args.out, args.python, args.tests)
    except subprocess.CalledProcessError:
        print(f"not packed: pip did not find all packages for Python {args.python} (see above)", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"not packed: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.0f} MB")
    return 0


def pack(out: Path, python: str, tests: bool) -> None:
    """Writes the archive, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        folder, archive = Path(scratch) / NAME, Path(scratch) / out.name
        gather(folder, python, tests)
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(folder, NAME)
        archive.replace(out)


if __name__ == "__main__":
    sys.exit(main())
