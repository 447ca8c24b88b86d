"""Each kind has its own content."""

from typing import Any

import msgspec
import pytest

from noema.memory.contents import CONTENT_OF, content_of, stored
from noema.memory.model import Kind
from noema.memory.verify import check_content

EXAMPLES: dict[Kind, dict[str, Any]] = {
    Kind.FACT: {"subject": "Ada", "attribute": "lives in", "value": "Rome", "single_valued": True},
    Kind.PREFERENCE: {"holder": "Ada", "about": "tea", "stance": "prefers", "over": "coffee"},
    Kind.EPISODE: {"what": "The disk failed.", "where": "rack 7", "who": ["Ada"]},
    Kind.ENTITY: {"name": "Ada Lovelace", "type": "person", "aliases": ["Ada"]},
    Kind.POINTER: {
        "uri": "https://example.com/handbook",
        "title": "Handbook",
        "fetched_at": "2026-01-01T00:00:00Z",
        "digest": "sha256:" + "0a" * 32,
    },
    Kind.SEMANTIC: {"topic": "disks", "scope": "spinning ones", "examples": ["They wear out."]},
    Kind.PROCEDURAL: {
        "goal": "Replace a disk",
        "steps": ["Drain it.", "Pull it."],
        "preconditions": ["A spare is there."],
    },
    Kind.AUTOBIOGRAPHICAL: {"who": "ada", "period": "the first winter", "significance": "It held."},
}


def test_every_kind_has_a_type_of_its_own() -> None:
    assert set(CONTENT_OF) == set(Kind)
    assert len(set(CONTENT_OF.values())) == len(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_content_of_its_kind_is_kept_as_it_came(kind: Kind) -> None:
    assert stored(content_of(kind, EXAMPLES[kind])) == EXAMPLES[kind]


@pytest.mark.parametrize("kind", Kind)
def test_a_field_that_a_kind_does_not_know_is_refused(kind: Kind) -> None:
    with pytest.raises(msgspec.ValidationError):
        content_of(kind, EXAMPLES[kind] | {"unheard_of": 1})


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("other", Kind)
def test_content_of_another_kind_is_refused(kind: Kind, other: Kind) -> None:
    if kind is other:
        return
    kept, fault = check_content(kind, EXAMPLES[other])

    assert kept == {}
    assert fault is not None
    assert kind.value in fault


def test_what_is_not_said_is_not_kept() -> None:
    content = content_of(Kind.FACT, {"subject": "Ada", "attribute": "age", "value": 36})

    assert stored(content) == {"subject": "Ada", "attribute": "age", "value": 36}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.PROCEDURAL, {"goal": "g", "steps": []}),
        (Kind.PREFERENCE, {"holder": "Ada", "about": "tea", "stance": "adores"}),
        (Kind.POINTER, {"uri": "u", "fetched_at": "2026-01-01T00:00:00"}),
        (Kind.POINTER, {"uri": "u", "digest": "nonsense"}),
        (Kind.FACT, {"subject": "", "attribute": "a", "value": "v"}),
        (Kind.FACT, {"subject": "Ada", "attribute": "a", "value": ["v"]}),
        (Kind.SEMANTIC, {"topic": "t" * 501}),
    ],
)
def test_content_that_makes_no_sense_is_refused_with_the_reason(
    kind: Kind, content: dict[str, Any]
) -> None:
    _, fault = check_content(kind, content)

    assert fault is not None
    assert fault.endswith(".")


def test_content_has_a_limit_as_a_whole() -> None:
    content = {"topic": "t", "examples": ["x" * 2_000] * 10}

    _, fault = check_content(Kind.SEMANTIC, content)

    assert fault is not None
    assert "16,384 bytes" in fault
