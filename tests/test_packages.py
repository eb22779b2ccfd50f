"""What is installed, and what the project says of it: exact versions of everything, and no address of a registry."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
APP = "cimemories-studio"
APART = {"vllm"}  # the extras that are installed into an environment of their own
SEEDED = {"pip", "setuptools", "wheel"}  # what `python -m venv` puts there


def pinned(file: Path) -> dict[str, str]:
    """The exact versions in a file of requirements, by package."""
    lines = file.read_text(encoding="utf-8").splitlines()
    matches = (re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", line) for line in lines)
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


def needed(extras: set[str]) -> set[str]:
    """The packages that the app with these extras leads to, here; an extra's that is not installed by name alone."""
    waiting, seen = [(APP, frozenset(extras))], set()
    while waiting:
        package = waiting.pop()
        if package in seen:
            continue
        seen.add(package)
        try:
            lines = metadata.requires(package[0]) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in (package[1] or {""})
            )
            if applies:
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in seen} - {APP}


def test_everything_that_is_installed_has_its_exact_version_in_the_constraints() -> None:
    constraints = pinned(ROOT / "constraints.txt")
    here = {canonicalize_name(each.metadata["Name"]): each.version for each in metadata.distributions()}
    # By what the project leads to: an environment may hold more, which is nobody's business here.
    extras = set(metadata.metadata(APP).get_all("Provides-Extra") or ()) - APART
    packages = needed(extras)
    assert {"kaleido", "choreographer", "streamlit", "pytest"} <= packages
    assert not sorted(packages - constraints.keys() - SEEDED), "add them to constraints.txt"
    versions = {name: here[name] for name in packages & here.keys() - SEEDED}
    assert versions == {name: constraints[name] for name in versions}


def files() -> Iterator[Path]:
    yield ROOT / "constraints.txt"
    yield ROOT / "pyproject.toml"
    yield ROOT / "Makefile"
    yield from (ROOT / "deploy").glob("*")


def test_no_file_names_a_registry() -> None:
    for file in files():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"--(?:extra-)?index-url|--find-links|/simple/", text), file


def test_the_image_gets_what_the_tests_run_with() -> None:
    """deploy/requirements.txt: every package that the app needs, at the version of the constraints, by its hashes."""
    file = ROOT / "deploy" / "requirements.txt"
    locked, constraints = pinned(file), pinned(ROOT / "constraints.txt")
    assert not needed({""}) - locked.keys(), "make lock"
    # Other systems need a few packages more (colorama on Windows), which are not installed here.
    assert {name: constraints.get(name, version) for name, version in locked.items()} == locked, "make lock"
    entries = re.split(r"\n(?=[A-Za-z0-9])", file.read_text(encoding="utf-8").strip())
    without = [entry.splitlines()[0] for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
    assert not without


@pytest.mark.parametrize(
    ("version", "is_taken"), [((3, 10), False), ((3, 11), True), ((3, 14), True), ((3, 15), False)]
)
def test_make_refuses_a_python_for_which_the_exact_versions_have_no_wheels(
    tmp_path: Path, version: tuple[int, int], is_taken: bool
) -> None:
    python, environment = tmp_path / "python", tmp_path / "venv"
    environment.mkdir()
    # Says that it is this version, and makes no environment.
    told = f"import sys; sys.version_info = {(*version, 0)}; sys.version = '{version[0]}.{version[1]}.0 (main)'"
    python.write_text(f'#!/bin/sh\n[ "$1" != -c ] || exec "{sys.executable}" -c "{told}; $2"\n', encoding="utf-8")
    python.chmod(0o755)
    command = ["make", f"VENV={environment}", f"PYTHON={python}", f"{environment}/python"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is is_taken, done.stderr
    assert is_taken or f"Python 3.11 to 3.14 is needed; this is {version[0]}.{version[1]}.0" in done.stderr
