"""Generated pages are current, and the pages name what the code has."""

import re
import runpy
from pathlib import Path

from noema.cognition.attention import OWNED
from noema.cognition.defaults import DEFAULTS
from noema.cognition.habits import TopicStats
from noema.cognition.model import FEATURES, MICRO, NEGATIVE
from noema.events.model import CATALOGUE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def test_the_page_of_events_is_what_the_catalogue_says() -> None:
    render = runpy.run_path(str(DOCS / "generate_events.py"))["render"]

    page = (DOCS / "events.md").read_text(encoding="utf-8")

    assert page == render(), "run `make docs`"


def test_the_page_of_events_has_a_row_for_every_type() -> None:
    page = (DOCS / "events.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| \S", page, re.MULTILINE)

    assert sorted(rows) == sorted(CATALOGUE)


def test_the_page_of_attention_explains_every_feature_and_every_number_of_a_topic() -> None:
    page = (DOCS / "attention.md").read_text(encoding="utf-8")

    wanted = {*FEATURES, *TopicStats.__struct_fields__}

    assert sorted(name for name in wanted if f"`{name}`" not in page) == []


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "ADR").glob("*.md")]

    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert broken == []


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name[:4]) for path in (ROOT / "ADR").glob("[0-9]*.md"))

    assert numbers == list(range(1, len(numbers) + 1))


def test_the_page_of_attention_states_the_default_weights() -> None:
    page = (DOCS / "attention.md").read_text(encoding="utf-8")

    stated = dict(
        re.findall(r"^\| `(\w+)` \| (-?[\d.]+) \| (?:process|attention) \|", page, re.MULTILINE)
    )

    wanted = {
        name: f"{'-' if name in NEGATIVE else ''}{DEFAULTS.weights[name] / MICRO:g}"
        for name in FEATURES
    }
    assert stated == wanted


def test_the_page_of_attention_says_which_features_attention_owns() -> None:
    page = (DOCS / "attention.md").read_text(encoding="utf-8")

    owned = re.findall(r"^\| `(\w+)` \| \S+ \| attention \|", page, re.MULTILINE)

    assert sorted(owned) == sorted(OWNED)
