"""The one rule of who sees what, as Python decides it. Guarantees 19 and 20."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.core.errors import NoemaError
from noema.core.identity import namespace_ancestors
from noema.memory.model import Scope
from noema.memory.scope import by_place, fence, in_subtree, is_above

# Few letters and every character that means something to a pattern, so that look-alikes are drawn.
path = st.text(alphabet="ab_%\\/A", max_size=8)

# The worked example of the architecture: a caller in acme/eng/platform.
WORKED = [
    ("acme/eng/platform", True),
    ("acme/eng", True),
    ("acme", True),
    ("acme/eng/platform/db", False),
    ("acme/sales", False),
    ("acme/engineering", False),
    ("acmecorp", False),
]


@pytest.mark.parametrize(("row", "is_seen"), WORKED)
def test_guarantee_19_the_worked_example_of_the_architecture(row: str, is_seen: bool) -> None:
    assert is_above(row, "acme/eng/platform") is is_seen
    assert (row in by_place("acme/eng/platform")) is is_seen


@given(path, path)
def test_guarantee_19_the_list_and_the_predicate_agree(caller: str, row: str) -> None:
    assert (row in by_place(caller)) == is_above(row, caller)


@given(path, path)
def test_guarantee_19_one_is_in_a_subtree_where_its_root_is_above(inner: str, root: str) -> None:
    assert in_subtree(inner, root) == is_above(root, inner)


@given(path)
def test_one_sees_oneself_and_nothing_that_is_longer(caller: str) -> None:
    seen = by_place(caller)

    assert seen == namespace_ancestors(caller)
    assert seen[-1] == caller
    assert all(caller == s or caller.startswith(s + "/") for s in seen)


def test_names_that_begin_alike_are_strangers() -> None:
    assert not in_subtree("acme/engineering", "acme/eng")
    assert not in_subtree("acme/engx/db", "acme/eng_")
    assert not is_above("acme/eng", "acme/engineering")
    assert not is_above("Acme", "acme/eng")


@pytest.mark.parametrize("missing", [None, Scope(writable="", own=(), namespaces=())])
def test_guarantee_20_a_missing_scope_is_an_error(missing: Scope | None) -> None:
    with pytest.raises(NoemaError, match="without a scope") as raised:
        fence(missing)

    assert raised.value.code == "internal"
