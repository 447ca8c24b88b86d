"""What a service echoes of a secret is masked, in messages and in answers, and nothing else is."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.llm.providers.scrub import MASK, Scrubber, parts_of
from tests.llm_keys import CREDENTIAL, KEY_ID, SECRET, TOKEN

KEY = 'canary/4f1d+9Zq&71"bb<KEY>==end'

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda key: key,
    "in capitals": str.upper,
    "for a URL": lambda key: quote(key, safe=""),
    "for a path": quote,
    "for a form": quote_plus,
    "for a URL, in small letters": lambda key: quote(key, safe="").lower(),
    "for a URL, every byte": lambda key: "".join(f"%{b:02X}" for b in key.encode()),
    "in JSON": json.dumps,
    "in JSON with slashes escaped": lambda key: json.dumps(key).replace("/", "\\/"),
    "in JSON in JSON": lambda key: json.dumps(json.dumps(key)),
    "in JSON, every character": lambda key: "".join(f"\\u{ord(c):04x}" for c in key),
    "in HTML": html.escape,
    "in hex": lambda key: key.encode().hex(),
    "in hex, in capitals": lambda key: key.encode().hex().upper(),
    "in base64": lambda key: b64encode(key.encode()).decode(),
    "in base64 for URLs": lambda key: urlsafe_b64encode(key.encode()).decode(),
    "in base64 behind a name": lambda key: b64encode(f"api:{key}".encode()).decode(),
}


def longest_left(text: str, form: str) -> int:
    """Return how many characters in a row of the form are still in the text."""
    for size in range(len(form), 0, -1):
        if any(form[n : n + size] in text for n in range(len(form) - size + 1)):
            return size
    return 0


class TestForms:
    @pytest.mark.parametrize("form", FORMS)
    def test_guarantee_18_a_secret_is_masked_in_every_form(self, form: str) -> None:
        written = FORMS[form](KEY)
        scrubber = Scrubber((KEY,))
        # Of a form that writes several characters for one, as many are left of the secret.
        wide = len(written) // len(KEY) if "every" in form or "hex" in form else 1
        for masked, most in (
            (scrubber.scrub(f"The key <{written}> is wrong."), 8 * wide - 1),
            (scrubber.remove(f"The key <{written}> is wrong."), 16 * wide - 1),
        ):
            assert MASK in masked
            assert masked.startswith("The key <")
            assert masked.endswith("> is wrong.")
            assert longest_left(masked, written) <= most, masked

    @pytest.mark.parametrize("form", FORMS)
    def test_an_answer_without_a_secret_stays_as_it_is(self, form: str) -> None:
        text = FORMS[form]("Keys begin with canary/4f and end with =end.")

        assert Scrubber((KEY,)).remove(text) == text

    @given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 15), st.integers(16, 31))
    def test_half_a_secret_in_an_answer_is_masked_wherever_it_stands(
        self, before: str, after: str, start: int, size: int
    ) -> None:
        part = KEY[start : start + size]

        shown = Scrubber((KEY,)).remove(f"{before}|{part}|{after}")

        if len(part) >= 16:
            assert part not in shown
            assert f"|{MASK}|" in shown


class TestParts:
    def test_guarantee_18_of_a_credential_of_amazon_every_part_is_masked(self) -> None:
        scrubber = Scrubber(parts_of("bedrock", CREDENTIAL))
        for part in (KEY_ID, SECRET, TOKEN):
            assert scrubber.remove(f"so <{part}> it is") == f"so <{MASK}> it is"
            assert scrubber.scrub(f"so <{part}> it is") == f"so <{MASK}> it is"
        assert parts_of("openai", "a:b") == ("a:b",)


class TestShort:
    @pytest.mark.parametrize("word", ["EMPTY", "none", "x", "ollama"])
    def test_a_word_given_as_a_key_is_not_torn_out_of_answers(self, word: str) -> None:
        answer = f"{word} is a word, and {word}x is another."

        assert Scrubber((word,)).remove(answer) == answer

    def test_a_short_secret_is_masked_in_messages_and_a_letter_is_not(self) -> None:
        assert Scrubber(("ollama",)).scrub("the key Ollama is wrong") == f"the key {MASK} is wrong"
        assert Scrubber(("x",)).scrub("no such model: x") == "no such model: x"

    def test_of_eight_characters_it_is_masked_whole_in_answers(self) -> None:
        scrubber = Scrubber(("s3cret-8",))

        assert scrubber.remove("It is s3cret-8, or S3CRET-8.") == f"It is {MASK}, or {MASK}."
        assert scrubber.remove("It is s3cret-, or 3cret-8.") == "It is s3cret-, or 3cret-8."

    @given(st.text())
    def test_without_a_secret_nothing_changes(self, text: str) -> None:
        scrubber = Scrubber(("", ""))

        assert (scrubber.scrub(text), scrubber.remove(text)) == (text, text)
