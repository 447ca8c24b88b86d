"""What everything else stands on keeps its word."""

import inspect
import json
import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.core import canonical as c
from noema.core import errors
from noema.core.clock import (
    EPOCH,
    ManualClock,
    SequentialIds,
    SystemClock,
    UuidV7Ids,
    from_micros,
    to_micros,
)
from noema.core.errors import InvalidInput, NoemaError, NotFound
from noema.core.identity import MAX_DEPTH, check_namespace, namespace_ancestors

START = datetime(2026, 1, 1, tzinfo=UTC)

# Every code point, lone surrogates and NUL included.
any_text = st.text(st.characters(codec=None, categories=None), max_size=40) | st.text(
    st.sampled_from("\x00\ue000\ud800\udfff0ed8a\U0001f600"), max_size=20
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


class TestEscape:
    @given(any_text)
    def test_unescape_gives_back_every_text(self, text: str) -> None:
        assert c.unescape(c.escape(text)) == text

    @given(any_text)
    def test_what_is_escaped_can_be_stored(self, text: str) -> None:
        stored = c.escape(text)

        assert "\x00" not in stored
        stored.encode("utf-8")

    @given(any_text, any_text)
    def test_different_texts_stay_different(self, one: str, other: str) -> None:
        assert (c.escape(one) == c.escape(other)) == (one == other)

    @given(any_json)
    def test_a_whole_value_comes_back_keys_included(self, value: Any) -> None:
        assert c.unescape_tree(c.escape_tree(value)) == value

    def test_ordinary_text_is_left_as_it_is(self) -> None:
        assert c.escape("Grüße, 世界 \U0001f600") == "Grüße, 世界 \U0001f600"


class TestCanonical:
    @given(any_json)
    def test_it_is_json_that_says_the_same(self, value: Any) -> None:
        escaped = c.escape_tree(value)

        assert json.loads(c.canonical(escaped)) == escaped

    @given(st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=6))
    def test_the_order_of_keys_does_not_matter(self, value: dict[str, int]) -> None:
        turned = dict(reversed(value.items()))

        assert c.canonical(c.escape_tree(value)) == c.canonical(c.escape_tree(turned))

    def test_it_is_this_very_spelling(self) -> None:
        value = {"b": [1, None, True], "a": 'é"\n/', "": {}}

        assert c.canonical(value) == '{"":{},"a":"é\\"\\n/","b":[1,null,true]}'.encode()

    @pytest.mark.parametrize("value", [0.5, [1, {"a": 1.0}], {"a": (1, -0.0)}, float("nan")])
    def test_a_float_anywhere_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidInput, match="integers only"):
            c.refuse_floats(value)

    def test_whole_numbers_and_texts_are_not_refused(self) -> None:
        c.refuse_floats({"a": [1, "1.0", None, True, {"b": (2,)}]})

    def test_a_commitment_needs_both_the_salt_and_the_content(self) -> None:
        made = c.commitment(b"salt", b"content")

        assert made == sha256(b"saltcontent").digest()
        assert made != c.commitment(b"talt", b"content")
        assert made != c.commitment(b"salt", b"contents")


class TestTime:
    @given(st.integers(-(10**15), 10**17))
    def test_micros_and_moments_are_the_same_thing(self, micros: int) -> None:
        assert to_micros(from_micros(micros)) == micros

    def test_the_system_clock_speaks_utc(self) -> None:
        assert SystemClock().now().utcoffset() == timedelta(0)

    async def test_sleeping_on_a_manual_clock_moves_both_of_its_hands(self) -> None:
        clock = ManualClock(START)

        await clock.sleep(2)

        assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=2), 2.0)

    def test_a_jump_moves_the_wall_clock_alone(self) -> None:
        clock = ManualClock(START)

        clock.jump(-3600)

        assert (clock.now(), clock.monotonic()) == (START - timedelta(hours=1), 0.0)


class TestIds:
    def test_ids_of_one_process_only_ever_grow(self) -> None:
        clock = ManualClock(START)
        ids = UuidV7Ids(clock)
        made = []
        for step in (0.0, 0.0, 0.001, 5.0, -3600.0, 0.0, 7200.0):
            clock.jump(step)
            made += [ids.new() for _ in range(500)]

        assert made == sorted(made)
        assert len(set(made)) == len(made)

    def test_every_id_is_a_version_7_of_the_rfc(self) -> None:
        ids = UuidV7Ids(ManualClock(START))

        for made in (ids.new() for _ in range(5000)):
            assert (made.version, made.variant) == (7, RFC_4122)

    def test_the_time_can_be_read_from_an_id(self) -> None:
        made = UuidV7Ids(ManualClock(START)).new()

        assert EPOCH + timedelta(milliseconds=made.int >> 80) == START

    def test_salts_are_sixteen_bytes_and_never_the_same(self) -> None:
        ids = UuidV7Ids(ManualClock(START))

        salts = {ids.salt() for _ in range(100)}

        assert {len(salt) for salt in salts} == {16}
        assert len(salts) == 100

    def test_sequential_ids_can_be_named_before_they_exist(self) -> None:
        ids = SequentialIds()

        assert (ids.new(), ids.new()) == (UUID(int=1), UUID(int=2))


segment = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)


class TestNamespace:
    @given(st.lists(segment, min_size=1, max_size=MAX_DEPTH))
    def test_ancestors_are_the_paths_down_to_itself(self, parts: list[str]) -> None:
        namespace = "/".join(parts)

        found = namespace_ancestors(check_namespace(namespace))

        assert found[-1] == namespace
        assert len(found) == len(parts)
        assert all(namespace == a or namespace.startswith(a + "/") for a in found)

    def test_a_longer_name_is_no_ancestor(self) -> None:
        assert "acme/eng" not in namespace_ancestors("acme/engineering")

    @pytest.mark.parametrize(
        "namespace",
        [
            *("", "/", "a/", "/a", "a//b", "A", "a b", "a/%", "a\\b", "_a", ".", "..", "a\n", "ä"),
            "a" * 64,
            "/".join("a" * (MAX_DEPTH + 1)),
        ],
    )
    def test_an_unusable_namespace_is_refused(self, namespace: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_namespace(namespace)

        assert caught.value.field == "namespace"


class TestErrors:
    def test_the_tree_in_the_docstring_is_the_tree_in_the_code(self) -> None:
        drawn: dict[str, tuple[str, str]] = {}
        path: list[str] = []
        for line in (errors.__doc__ or "").splitlines():
            match = re.match(r'( *)[*x] (\w+) +code "(\w+)"', line)
            if match:
                depth, name, code = len(match[1]) // 2, match[2], match[3]
                path = [*path[:depth], name]
                drawn[name] = (path[depth - 1] if depth else "Exception", code)
        real = {
            cls.__name__: (cls.__bases__[0].__name__, cls.code)
            for _, cls in inspect.getmembers(errors, inspect.isclass)
            if issubclass(cls, NoemaError)
        }

        assert drawn == real

    def test_every_code_is_used_once(self) -> None:
        codes = [
            cls.code
            for _, cls in inspect.getmembers(errors, inspect.isclass)
            if issubclass(cls, NoemaError)
        ]

        assert len(codes) == len(set(codes))

    def test_missing_and_hidden_read_the_same(self) -> None:
        assert str(NotFound("mind", "ada")) == "No mind ada that you may see."
