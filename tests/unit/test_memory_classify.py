"""What a memory must be protected as, and that nothing in there lets a text through unlabelled."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.memory import classify as module
from noema.memory import personal
from noema.memory.classify import (
    DESTINATIONS,
    Rules,
    at_least,
    classify,
    failed,
    inherited,
    strictest,
)
from noema.memory.model import Label, Sensitivity
from noema.memory.presidio import Presidio
from noema.memory.presidio_worker import serve
from tests.helpers import eventually, not_for_ever


def wide(text: str) -> str:
    """Return ASCII text in full-width characters, as Japanese keyboards write it."""
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


RULES = Rules()
labels = st.builds(
    lambda level, pii, names: Label(
        sensitivity=level,
        pii=tuple(sorted(pii)),
        destinations=DESTINATIONS[level],
        classifier=names,
    ),
    st.sampled_from(Sensitivity),
    st.sets(st.sampled_from(["email", "phone"])),
    st.sampled_from(["rules-1", "error:ValueError", "presidio"]),
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Write to ada@example.com.", "email"),
        ("Ruf mich an: +49 30 901820", "phone"),
        ("Call (425) 882-8080 before noon", "phone"),
        ("ring 0117 496 0123", "phone"),
        ("mein Handy: 0171 2345678", "phone"),
        ("IBAN DE89 3704 0044 0532 0130 00 please", "iban"),
        ("pay to gb82west12345698765432", "iban"),
        ("from 10.0.0.3 port 22", "ip"),
        ("2001:db8::1 answered", "ip"),
        ("She was born on 12 May 1980.", "birth_date"),
        ("DOB: 1980-05-12", "birth_date"),
        ("1980年5月12日生まれ", "birth_date"),
        ("I live at 12 Baker Street.", "address"),
        ("Musterstraße 12, Berlin", "address"),
        ("12, rue de Rivoli", "address"),
        ("〒100-0001", "address"),
        ("passport C01X00T47", "passport"),
        (wide("ADA@example.com"), "email"),
    ],
)
def test_personal_data_makes_a_text_confidential(text: str, kind: str) -> None:
    label = RULES.label(text)

    assert kind in label.pii
    assert label.sensitivity is Sensitivity.CONFIDENTIAL
    assert "peer" not in label.destinations


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("card 4111 1111 1111 1111, 12/29", "credit_card"),
        ("カード " + wide("4111111111111111"), "credit_card"),
        ("SSN 219-09-9999", "national_id"),
        ("my NI number is QQ 12 34 56 C".replace("QQ", "AB"), "national_id"),
        ("DNI 54362315K", "national_id"),
        ("CPF 390.533.447-05", "national_id"),
        ("BSN 111222333", "national_id"),
    ],
)
def test_what_lets_somebody_pose_as_another_is_restricted(text: str, kind: str) -> None:
    label = RULES.label(text)

    assert kind in label.pii
    assert label.sensitivity is Sensitivity.RESTRICTED
    assert label.destinations == ("local",)


# Put together here, so that this file holds nothing that looks like one.
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE", "private_key"),
        ("key " + "AKIA" + "IOSFODNN7EXAMPLE", "aws_key"),
        ("token gh" + "p_" + "a1" * 18, "github_token"),
        ("glpat" + "-" + "x1" * 10, "gitlab_token"),
        ("xox" + "b-123456789012-abcdef", "slack_token"),
        ("sk_" + "live_" + "a1b2" * 6, "stripe_key"),
        ("sk-" + "proj-" + "a1b2" * 8, "llm_key"),
        ("ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxIn0.c2ln", "jwt"),
        ("Authorization: Bearer " + "0123abcd" * 4, "bearer_token"),
        ("noema" + "_" + "a1" * 25, "noema_token"),
        ("password: hunter22", "password"),
        ("the password is hunter22", "password"),
        ("the password is: hunter22", "password"),
        ("パスワードは hunter22", "password"),
        ("API_KEY=" + "a1b2c3d4" * 3, "api_key"),
        ("postgres://ada:secret@db/prod", "connection_string"),
    ],
)
def test_credentials_are_restricted_and_their_kind_is_named(text: str, kind: str) -> None:
    label = RULES.label(text)

    assert kind in label.secrets
    assert label.sensitivity is Sensitivity.RESTRICTED
    assert label.destinations == ("local",)


@pytest.mark.parametrize(
    "text",
    [
        "The disk failed.",
        "We meet on 2024-01-15 at 10:22:33.",
        "Order 20240115123456 was shipped.",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "It took 1700000000000 ms.",
        "A password is required.",
        "The passwords: nobody knows them.",
        "He was born in 1980.",
        "std::vector::push_back",
        "version 1.22.3 of 12 parts",
        "see https://example.com/a/b",
        "three of 12 people in 5 places",
    ],
)
def test_what_everybody_writes_is_merely_internal(text: str) -> None:
    label = RULES.label(text)

    assert (label.pii, label.secrets) == ((), ())
    assert label.sensitivity is Sensitivity.INTERNAL
    assert label.classifier == Rules.name


@given(st.text(max_size=300))
def test_every_text_gets_a_label(text: str) -> None:
    label = RULES.label(text)

    assert label.classifier == Rules.name
    assert label.destinations == DESTINATIONS[label.sensitivity]


@pytest.mark.parametrize(
    "piece",
    ["1 ", "1", "a1 b2 ", "1.", "::1", "a@", "a.", "+1 ", "12 a b c ", "AB12 ", "born ", "x://a",
     "passport ", "password ", "eyJ", "A", "1:", "calle a ", "0-0", "phone 0171 ", "sk-",
     "born 1-1-"],
)  # fmt: skip
def test_no_text_takes_long_to_label(piece: str) -> None:
    with not_for_ever():
        label = RULES.label((piece * 263_000)[:262_144])

    assert label.classifier == Rules.name


class _Failing:
    name: ClassVar[str] = "failing"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        raise self._error


class _Late:
    name: ClassVar[str] = "late"

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        await asyncio.Event().wait()
        raise AssertionError


class _Short:
    name: ClassVar[str] = "short"

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        return []


# Guarantee 22
@pytest.mark.parametrize("error", [ValueError("x"), RecursionError(), OSError(), KeyError("y")])
async def test_guarantee_22_a_classifier_that_fails_labels_restricted(error: Exception) -> None:
    found = await classify([RULES, _Failing(error)], ["The disk failed.", "So it did."])

    assert [label.sensitivity for label in found] == [Sensitivity.RESTRICTED] * 2
    assert all(label.destinations == ("local",) for label in found)
    assert all(f"error:{type(error).__name__}" in label.classifier for label in found)


async def test_guarantee_22_a_classifier_that_is_late_labels_restricted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WITHIN_S", 0.01)

    found = await classify([RULES, _Late()], ["The disk failed."])

    assert found[0].sensitivity is Sensitivity.RESTRICTED
    assert found[0].classifier == "error:TimeoutError + rules-1"


async def test_guarantee_22_labels_that_are_missing_are_no_labels() -> None:
    found = await classify([_Short()], ["The disk failed."])

    assert found[0].sensitivity is Sensitivity.RESTRICTED


async def test_guarantee_22_without_any_classifier_everything_is_restricted() -> None:
    found = await classify([], ["The disk failed."])

    assert found[0].sensitivity is Sensitivity.RESTRICTED


async def test_guarantee_22_a_text_that_spoils_the_rules_spoils_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = personal.kinds

    def spoilt(text: str) -> tuple[str, ...]:
        if "poison" in text:
            raise IndexError
        return kinds(text)

    monkeypatch.setattr(personal, "kinds", spoilt)

    found = await classify([RULES], ["The disk failed.", "poison", "So it did."])

    assert [label.classifier for label in found] == ["rules-1", "error:IndexError", "rules-1"]
    assert found[1].sensitivity is Sensitivity.RESTRICTED


@given(labels, labels)
def test_of_two_labels_the_strictest_counts_and_both_find(one: Label, other: Label) -> None:
    both = strictest(one, other)
    order = list(Sensitivity)

    assert order.index(both.sensitivity) == max(
        map(order.index, (one.sensitivity, other.sensitivity))
    )
    assert set(both.pii) == {*one.pii, *other.pii}
    assert set(both.destinations) == {*one.destinations} & {*other.destinations}
    assert strictest(other, one) == both


@given(labels, labels)
def test_a_derived_label_is_no_less_strict_than_its_source(label: Label, source: Label) -> None:
    derived = inherited(label, source)
    order = list(Sensitivity)

    assert order.index(derived.sensitivity) >= order.index(source.sensitivity)
    assert order.index(derived.sensitivity) >= order.index(label.sensitivity)
    assert {*derived.destinations} <= {*source.destinations} & {*label.destinations}
    assert derived.pii == label.pii


def test_a_label_is_raised_to_a_level_and_never_lowered() -> None:
    restricted = failed(ValueError())

    assert at_least(restricted, Sensitivity.INTERNAL) == restricted
    assert at_least(RULES.label("x"), Sensitivity.CONFIDENTIAL).destinations == (
        "local",
        "provider",
    )


# --- Presidio, as far as it can be without it ---

_WORKER = """
import json, sys, time
if "loading" in sys.argv: time.sleep(60)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    texts = json.loads(line)["texts"]
    if "sleep" in texts: time.sleep(60)
    if "die" in texts: sys.exit(1)
    if "babble" in texts: print("no json", flush=True); continue
    kinds = [["EMAIL_ADDRESS", "PERSON"] if "@" in text else [] for text in texts]
    print(json.dumps({"kinds": kinds}), flush=True)
"""


def _presidio(path: Path, *arguments: str, **options: Any) -> Presidio:
    worker = path / "worker.py"
    worker.write_text(_WORKER, encoding="utf-8")
    return Presidio(command=(sys.executable, str(worker), *arguments), **options)


async def test_presidio_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    presidio = _presidio(tmp_path, within_s=30.0)

    first = await presidio.labels(["ada@example.com", "The disk failed."])
    second = await presidio.labels(["bob@example.com"])
    await presidio.aclose()

    assert [label.pii for label in first] == [("email",), ()]
    assert first[0].sensitivity is Sensitivity.CONFIDENTIAL
    assert second[0].classifier == "presidio"


@pytest.mark.parametrize("text", ["die", "babble"])
async def test_guarantee_22_presidio_that_fails_labels_restricted_and_is_started_anew(
    tmp_path: Path, text: str
) -> None:
    presidio = _presidio(tmp_path, within_s=30.0)

    found = await classify([RULES, presidio], [text])
    after = await classify([RULES, presidio], ["The disk failed."])
    await presidio.aclose()

    assert found[0].sensitivity is Sensitivity.RESTRICTED
    assert after[0].sensitivity is Sensitivity.INTERNAL


async def test_guarantee_22_presidio_that_is_late_is_ended_and_labels_restricted(
    tmp_path: Path,
) -> None:
    presidio = _presidio(tmp_path, within_s=1.0)
    await eventually(lambda: _is_loaded(presidio))

    found = await classify([presidio], ["sleep"])
    await presidio.aclose()

    assert found[0].classifier == "error:TimeoutError"


async def test_guarantee_22_presidio_that_loads_its_model_is_left_to_it(tmp_path: Path) -> None:
    presidio = _presidio(tmp_path, "loading", within_s=0.05)

    first = await classify([RULES, presidio], ["The disk failed."])
    loading = presidio._process
    await classify([RULES, presidio], ["The disk failed."])

    assert first[0].sensitivity is Sensitivity.RESTRICTED
    assert loading is not None
    assert presidio._process is loading
    await presidio.aclose()


async def _is_loaded(presidio: Presidio) -> bool:
    found = await classify([presidio], ["The disk failed."])
    return found[0].classifier == "presidio"


async def test_guarantee_22_presidio_that_is_not_installed_labels_restricted() -> None:
    presidio = Presidio(command=(sys.executable, "-c", "raise SystemExit(1)"), within_s=30.0)

    found = await classify([RULES, presidio], ["The disk failed."])
    await presidio.aclose()

    assert found[0].sensitivity is Sensitivity.RESTRICTED


def test_the_worker_answers_a_line_for_a_line(tmp_path: Path) -> None:
    class Engine:
        def analyze(self, *, text: str, language: str, score_threshold: float) -> list[Any]:
            assert (language, score_threshold > 0) == ("en", True)
            return [SimpleNamespace(entity_type="PHONE_NUMBER")] * 2 if "5" in text else []

    (tmp_path / "in").write_bytes(b'{"texts": ["555", "none"], "language": "en"}\n' * 2)

    with (tmp_path / "in").open("rb") as questions, (tmp_path / "out").open("wb") as answers:
        serve(Engine(), questions, answers)

    lines = (tmp_path / "out").read_bytes().splitlines()
    kinds = {"kinds": [["PHONE_NUMBER"], []]}
    assert [msgspec.json.decode(line) for line in lines] == [{"ready": True}, kinds, kinds]
