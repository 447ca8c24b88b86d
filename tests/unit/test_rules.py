"""Rules of the house that no linter knows."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from noema.events.model import CONTROL

ROOT = Path(__file__).parents[2]
LONGEST_MODULE = 700
# Pinned text of others: the licence and the list of pins.
_SKIPPED = {"LICENSE"}
_BUILT = {"build", "dist", "node_modules", "__pycache__"}


@cache
def tracked() -> tuple[Path, ...]:
    """Return the files of the project: what git keeps or would keep, or all where git is not."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
        names = done.stdout.decode().split("\0")
        found = [ROOT / name for name in names if name]
    except (OSError, subprocess.SubprocessError):
        found = list(_walked())
    return tuple(sorted(p for p in found if p.is_file() and p.name not in _SKIPPED))


def _walked() -> Iterator[Path]:
    for directory, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in _BUILT and (f == ".ci" or f[0] != ".")]
        yield from (Path(directory) / name for name in names)


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return (name, text) of every file that is text."""
    found = []
    for path in tracked():
        raw = path.read_bytes()
        if b"\0" not in raw:
            found.append((path.relative_to(ROOT).as_posix(), raw.decode("utf-8", "replace")))
    return tuple(found)


def offenders(pattern: re.Pattern[str], *, under: str = "") -> list[str]:
    """Return `file:line: match` for every match in the project's text."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in texts()
        if name.startswith(under)
        for match in pattern.finditer(text)
    ]


def test_the_project_has_files_to_look_at() -> None:
    assert len(tracked()) > 50


def test_no_file_knows_a_path_of_the_machine_it_was_written_on() -> None:
    places = [str(Path.home()), str(ROOT), str(ROOT.parent / "shared")]
    # A checkout right under the root, as in a container, has too common a name to look for.
    known = [re.escape(p) + r"(?:/|\b)" for p in places if len(Path(p).parts) > 2]
    known.append(re.escape(f"{Path.home()}/"))

    assert offenders(re.compile("|".join(known))) == []


def test_no_file_names_a_package_registry_or_how_to_reach_one() -> None:
    hosts = r"https?://[\w.:@-]*(?:pypi|pythonhosted|npmjs|registry|artifactory|nexus|devpi)[\w.-]*"
    # With a bracket in each, so that this file does not find itself.
    options = r"--(?:extra-)?[i]ndex-url\b|--[t]rusted-host\b|--[f]ind-links\b|PIP_[I]NDEX"

    assert offenders(re.compile(f"{hosts}|{options}")) == []


def test_no_file_holds_what_looks_like_a_secret() -> None:
    shapes = (
        r"noema_[A-Za-z0-9]{40,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
        # Amazon's: ids of keys, session tokens, and secrets as its documentation shows them.
        r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[0-9A-Z]{16}\b",
        r"\b(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{8,}",
        r"\bwJalrXUtn[A-Za-z0-9+/]{8,}",
        r"\bAIza[A-Za-z0-9_-]{35}",
        r"\bhf_[A-Za-z0-9]{30,}",
        r"\bgh[pousr]_[A-Za-z0-9]{36}",
        r"\bsk-[A-Za-z0-9_-]{32,}",
        r"\bxox[baprs]-[A-Za-z0-9-]{20,}",
        r"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}",
    )

    assert offenders(re.compile("|".join(shapes))) == []


def test_nothing_is_left_for_later_in_a_comment() -> None:
    # Spelt apart, so that this file does not find itself.
    marks = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK:"))

    assert offenders(re.compile(rf"\b(?:{marks})")) == []


def test_no_pin_has_anything_but_a_name_a_version_and_a_marker() -> None:
    pin = re.compile(r"[a-z0-9][a-z0-9.-]*==[a-z0-9.]+(?: ; [a-z_]+ [!=<>]+ '[\w.]+'.*)?")

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not pin.fullmatch(line)] == []


def test_every_migration_goes_up_and_down() -> None:
    folder = ROOT / "migrations"
    ups = {p.name.removesuffix(".up.sql") for p in folder.glob("*.up.sql")}
    downs = {p.name.removesuffix(".down.sql") for p in folder.glob("*.down.sql")}

    assert ups
    assert ups == downs
    assert sorted(int(name[:4]) for name in ups) == list(range(1, len(ups) + 1))


def test_the_index_of_what_people_send_names_the_types_the_code_names() -> None:
    sql = (ROOT / "migrations/0001_history.up.sql").read_text(encoding="utf-8")

    found = re.search(r"INDEX cognitive_events_control.*?type IN \(([^)]*)\)", sql, re.DOTALL)

    assert found is not None
    assert re.findall(r"'([^']+)'", found[1]) == list(CONTROL)


def test_no_module_outgrows_its_name() -> None:
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "noema").rglob("*.py")
    }

    assert {name: size for name, size in sizes.items() if size > LONGEST_MODULE} == {}


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"<style\b|\sstyle\s*=", id="style"),
        pytest.param(r"<script\b(?![^>]*\ssrc=)[^>]*>|<script\b[^>]*>\s*[^<\s]", id="script"),
        pytest.param(r"<[^>{]*\son[a-z]+\s*=", id="handler"),
        pytest.param(r"(?:href|src|action)\s*=\s*[\"']?\s*(?:javascript|data):", id="address"),
        pytest.param(r"(?:href|src)\s*=\s*[\"'](?:https?:)?//", id="foreign"),
        pytest.param(r"\|\s*safe\b", id="unescaped"),
    ],
)
def test_no_template_holds_what_the_content_security_policy_refuses(pattern: str) -> None:
    assert offenders(re.compile(pattern, re.IGNORECASE), under="templates/") == []


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "noema").rglob("__init__.py")
        if '"""' not in path.read_text(encoding="utf-8")
    ]

    assert silent == []
