"""docs/security.md has every item of the checklist, and names no test that is not there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
ROW = re.compile(r"^\| (\d[\d., –]*) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
WITHOUT_TEST = ("Described", "Not applicable", "Not met", "Not shown", "For whoever runs it")
# ASVS 5.0.0: the items of levels 1 and 2 in each section. 10 and 17 apply to us in no part.
ITEMS = {
    "1.1": "1 2", "1.2": "1 2 3 4 5 6 7 8 9", "1.3": "1 2 3 4 5 6 7 8 9 10 11", "1.4": "1 2 3",
    "1.5": "1 2", "2.1": "1 2 3", "2.2": "1 2 3", "2.3": "1 2 3 4", "2.4": "1", "3.2": "1 2",
    "3.3": "1 2 3 4", "3.4": "1 2 3 4 5 6", "3.5": "1 2 3 4 5", "3.7": "1 2", "4.1": "1 2 3",
    "4.2": "1", "4.3": "1 2", "4.4": "1 2 3 4", "5.1": "1", "5.2": "1 2 3", "5.3": "1 2",
    "5.4": "1 2 3", "6.1": "1 2 3", "6.2": "1 2 3 4 5 6 7 8 9 10 11 12", "6.3": "1 2 3 4",
    "6.4": "1 2 3 4", "6.5": "1 2 3 4 5", "6.6": "1 2 3", "6.8": "1 2 3 4", "7.1": "1 2 3",
    "7.2": "1 2 3 4", "7.3": "1 2", "7.4": "1 2 3 4 5", "7.5": "1 2", "7.6": "1 2", "8.1": "1 2",
    "8.2": "1 2 3", "8.3": "1", "8.4": "1", "9.1": "1 2 3", "9.2": "1 2 3 4", "11.1": "1 2",
    "11.2": "1 2 3", "11.3": "1 2 3", "11.4": "1 2 3 4", "11.5": "1", "11.6": "1",
    "12.1": "1 2 3", "12.2": "1 2", "12.3": "1 2 3 4", "13.1": "1", "13.2": "1 2 3 4 5",
    "13.3": "1 2", "13.4": "1 2 3 4 5", "14.1": "1 2", "14.2": "1 2 3 4", "14.3": "1 2 3",
    "15.1": "1 2 3", "15.2": "1 2 3", "15.3": "1 2 3 4 5 6 7", "16.1": "1", "16.2": "1 2 3 4 5",
    "16.3": "1 2 3 4", "16.4": "1 2 3", "16.5": "1 2 3",
}  # fmt: skip


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of a file's tests, as pytest has them behind the path."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(_named(tree.body, ""))


def _named(body: list[ast.stmt], before: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _named(node.body, f"{before}{node.name}::")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{before}{node.name}"


def items_of(cell: str) -> Iterator[str]:
    """The items that the first cell of a row stands for: `6.8.1–6.8.4` are four."""
    for part in cell.split(", "):
        first, _, last = part.partition("–")
        section, _, low = first.rpartition(".")
        for number in range(int(low), int((last or first).rpartition(".")[2]) + 1):
            yield f"{section}.{number}"


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(PAGE))))
def test_every_test_that_the_page_names_is_there(path: str, name: str) -> None:
    assert (ROOT / path).is_file()
    assert name in names_in(path)


def test_every_item_of_levels_1_and_2_stands_in_the_page_once() -> None:
    wanted = [f"{section}.{n}" for section, numbers in ITEMS.items() for n in numbers.split()]

    found = [item for cell, _ in ROW.findall(PAGE) for item in items_of(cell)]

    whole = [item for item in found if item.count(".") == 1]
    assert sorted({item.partition(".")[0] for item in whole}) == ["10", "17"]
    assert sorted(item for item in found if item.count(".") == 2) == sorted(wanted)


@pytest.mark.parametrize(("items", "shown_by"), ROW.findall(PAGE))
def test_every_item_names_its_test_or_says_why_there_is_none(items: str, shown_by: str) -> None:
    assert NAMED.search(shown_by) or shown_by.startswith(WITHOUT_TEST), items
