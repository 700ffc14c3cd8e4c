"""Writes the files that pin every package which `make` and CI install, with the checksums that pip verifies.

    make lock                    # the same versions where they still fit, checksums as the index lists them
    make lock ARGS=--upgrade     # the newest versions that fit pyproject.toml

| file | holds |
|---|---|
| constraints-build.txt | what building xtx and Jericho needs; installed first, because nothing is built in isolation |
| constraints.txt | what xtx needs, and its extra `dev` |
| constraints-extras.txt | what the extras `cluster`, `docs` and `wandb` need beyond that |
| constraints-dist.txt | what the extra `dist` (building packages) needs beyond constraints.txt |
| constraints-cuda.txt | what torch's usual wheel needs beyond that; its wheel for machines without a GPU does not |

Each package has the checksums of all files of that version that a Linux machine with CPython 3.11 or newer can install,
so the files serve both kinds of processor and every mirror that carries unchanged files. A source archive counts only
where there is no wheel. Files from folders that pip is told to look into (`find-links`) count too, and checksums that
a file had before stay as long as the version does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
from collections.abc import Iterable, Mapping
from email.parser import Parser
from pathlib import Path

# pip's own classes find the index, its certificates and its folders the way `pip install` does.
from pip._internal.commands import create_command
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link
from pip._internal.network.lazy_wheel import dist_from_wheel_url
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
EXTRAS = ("cluster", "docs", "wandb")
HEADER = "# {} Written by tools/lock.py; renew with: make lock\n"
TITLES = {
    "constraints-build.txt": "What building xtx and Jericho needs.",
    "constraints.txt": "What xtx and its extra `dev` need, in the versions it is tested with.",
    "constraints-extras.txt": "What the extras `cluster`, `docs` and `wandb` need beyond constraints.txt.",
    "constraints-dist.txt": "What the extra `dist` needs beyond constraints.txt: building packages.",
    "constraints-cuda.txt": "What torch's wheel for machines with a GPU needs beyond constraints.txt.",
}
_WHEEL = re.compile(
    r"(?P<name>.+?)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl"
)
_PIN = re.compile(r"^(\S+)==(\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LINUX = {"platform_system": "Linux", "sys_platform": "linux", "platform_machine": "x86_64", "os_name": "posix"}

Pins = dict[str, str]
"""Versions by normalised name."""


class Index:
    """All files that pip could install, by package and version."""

    def __init__(self) -> None:
        command = create_command("download")
        options, _ = command.parse_args([])
        self._session = command._build_session(options)
        self._collector = LinkCollector.create(self._session, options=options)
        self._links: dict[str, list[Link]] = {}

    def find_files(self, name: str) -> list[Link]:
        """List the files of every version of a package, from all indexes and folders."""
        if name not in self._links:
            scope = self._collector.search_scope
            pages = map(self._collector.fetch_response, map(Link, scope.get_index_urls_locations(name)))
            links = [link for page in pages if page is not None for link in parse_links(page)]
            for folder in scope.find_links:
                files = sorted(Path(folder).glob("*")) if Path(folder).is_dir() else []
                links += [Link(path.as_uri()) for path in files]
            self._links[name] = [link for link in links if _read_filename(link.filename)[0] == name]
        return self._links[name]

    def find_versions(self, name: str) -> list[str]:
        """List the released versions of a package, newest first."""
        versions = {_read_filename(link.filename)[1] for link in self.find_files(name)}
        final = [version for version in versions if version and not Version(version).is_prerelease]
        return sorted(final, key=Version, reverse=True)

    def hash_files(self, name: str, version: str) -> set[str]:
        """Return the checksums of all files of a version that a Linux machine can install."""
        found = [link for link in self.find_files(name) if _is_version(link.filename, version)]
        wheels = [link for link in found if _fits_linux(link.filename)]
        return {self._hash(link) for link in wheels or [link for link in found if not link.is_wheel]}

    def _hash(self, link: Link) -> str:
        known = link._hashes.get("sha256")
        if known:
            return known
        if link.is_file:
            return hashlib.sha256(Path(link.file_path).read_bytes()).hexdigest()
        raise SystemExit(f"the index gives no checksum for {link.filename}")

    def read_requirements(self, name: str, version: str, extras: Iterable[str]) -> list[Requirement]:
        """Return what a version's published wheel requires on Linux, with these extras."""
        wheels = [link for link in self.find_files(name) if _is_version(link.filename, version) and link.is_wheel]
        usual = [link for link in wheels if _fits_linux(link.filename) and not link.is_file and "x86" in link.filename]
        plain = [link for link in wheels if link.filename.endswith("-any.whl")]
        url = urllib.parse.urldefrag((usual or plain)[0].url).url
        answer = self._session.get(f"{url}.metadata")
        if answer.ok:
            lines = Parser().parsestr(answer.text).get_all("Requires-Dist", [])
        else:  # the index does not have it beside the wheel, so it is read out of the wheel
            lines = dist_from_wheel_url(name, url, self._session).metadata.get_all("Requires-Dist", [])
        wanted = []
        for requirement in map(Requirement, lines):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({**_LINUX, "extra": extra}) for extra in ["", *extras]):
                wanted.append(requirement)
        return wanted


def _read_filename(filename: str) -> tuple[str, str]:
    """Return the normalised name and the version in a file's name; empty if it is not a package's."""
    match = _WHEEL.fullmatch(filename)
    if match:
        name, version = match["name"], match["version"]
    else:
        name, _, version = filename.removesuffix(".tar.gz").rpartition("-")
        if not filename.endswith(".tar.gz"):
            return "", ""
    try:
        Version(version)
    except InvalidVersion:
        return "", ""
    return canonicalize_name(name), version


def _is_version(filename: str, version: str) -> bool:
    """Whether `==version` takes the file; a local part, as in 2.13.0+cpu, makes no difference."""
    found = _read_filename(urllib.parse.unquote(filename))[1]
    return bool(found) and Version(found).public == Version(version).public


def _fits_linux(filename: str) -> bool:
    match = _WHEEL.fullmatch(filename)
    if not match or not re.search(r"^any$|linux.*_(x86_64|aarch64)$", match["platform"]):
        return False
    versions = [int(tag[3:]) for tag in re.findall(r"cp3\d+", match["python"])]
    if not versions:
        return "py3" in match["python"]
    return any(version >= 11 for version in versions) or match["abi"] == "abi3"


def resolve(requirements: Iterable[str], keep: Pins) -> Pins:
    """Let pip choose the versions of everything that the requirements need."""
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder, "pins.txt")
        pinned.write_text("".join(f"{name}=={version}\n" for name, version in keep.items()))
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        done = subprocess.run(
            [*words, "--report", "-", "-c", str(pinned), *requirements], stdout=subprocess.PIPE, text=True, check=True
        )
    chosen = [item["metadata"] for item in json.loads(done.stdout)["install"]]
    return {canonicalize_name(item["name"]): str(Version(item["version"]).public) for item in chosen}


def resolve_cuda(index: Index, torch: str, known: Mapping[str, str], keep: Pins) -> Pins:
    """Choose the versions of what torch's usual wheel needs beyond the known packages, without downloading those: they
    have gigabytes. Each is the newest that fits all that was asked for; a later demand starts the search again."""
    demands: dict[str, SpecifierSet] = {}
    while True:
        before = dict(demands)
        found: Pins = {}
        waiting, seen = index.read_requirements("torch", torch, ()), set()
        while waiting:
            requirement = waiting.pop()
            name = canonicalize_name(requirement.name)
            if name in known or str(requirement) in seen:
                continue
            seen.add(str(requirement))
            demands[name] = demands.get(name, SpecifierSet()) & requirement.specifier
            fitting = list(demands[name].filter(index.find_versions(name)))
            if not fitting:
                raise SystemExit(f"no version of {name} fits {demands[name]}")
            found[name] = keep[name] if keep.get(name) in fitting else fitting[0]
            waiting += index.read_requirements(name, found[name], requirement.extras)
        if demands == before:
            return found


def read_pins(path: Path) -> dict[str, tuple[str, set[str]]]:
    """Return version and checksums of each package in a file."""
    pins: dict[str, tuple[str, set[str]]] = {}
    if path.exists():
        for block in path.read_text().replace("\\\n", " ").splitlines():
            if match := _PIN.match(block):
                pins[canonicalize_name(match[1])] = match[2], set(_HASH.findall(block))
    return pins


def write_pins(path: Path, pins: Pins, index: Index) -> None:
    """Write the packages with all their checksums."""
    before = read_pins(path)
    lines = [HEADER.format(TITLES[path.name])]
    for name, version in sorted(pins.items()):
        old = before[name][1] if name in before and before[name][0] == version else set()
        hashes = sorted(index.hash_files(name, version) | old)
        if not hashes:
            raise SystemExit(f"no file of {name}=={version} fits Linux")
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{found}" for found in hashes)]) + "\n")
    path.write_text("".join(lines))
    print(f"{path.name}: {len(pins)} packages")


def main() -> None:
    """Resolve what pyproject.toml asks for and write the five files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, not those in the files")
    upgrade = parser.parse_args().upgrade
    paths = [ROOT / name for name in TITLES]
    keep = {} if upgrade else {name: pin for path in paths for name, (pin, _) in read_pins(path).items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    needed = project["project"]["dependencies"] + extras["dev"]
    index = Index()
    build = resolve(project["build-system"]["requires"], {})
    main_pins = resolve(needed, keep | build)
    more = resolve(needed + [line for name in EXTRAS for line in extras[name]], keep | build | main_pins)
    dist = resolve(extras["dist"], keep | build | main_pins)
    cuda = resolve_cuda(index, main_pins["torch"], more, keep)
    write_pins(ROOT / "constraints-build.txt", build, index)
    write_pins(ROOT / "constraints.txt", {n: v for n, v in main_pins.items() if n not in build}, index)
    write_pins(ROOT / "constraints-extras.txt", {n: v for n, v in more.items() if n not in main_pins}, index)
    known = build | main_pins | more
    write_pins(ROOT / "constraints-dist.txt", {n: v for n, v in dist.items() if n not in known}, index)
    write_pins(ROOT / "constraints-cuda.txt", cuda, index)


if __name__ == "__main__":
    main()
