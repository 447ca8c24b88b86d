"""Guarantee 13: codes as RFC 6238 has them, and nothing that only looks like one."""

import re
from base64 import b32encode

import pytest

from noema.auth.totp import (
    RECOVERY_CODES,
    enrolment,
    new_recovery_codes,
    new_seed,
    recovery_digest,
    spaceless,
    step_of,
)

SEED = b32encode(b"12345678901234567890").decode()


@pytest.mark.parametrize(
    ("unix_s", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_guarantee_13_the_vectors_of_rfc_6238_are_codes_of_their_step(
    unix_s: int, code: str
) -> None:
    # The RFC prints eight digits; a code of six is the last six of them.
    assert step_of(SEED, code[2:], unix_s=unix_s) == unix_s // 30


@pytest.mark.parametrize(("late_s", "counts"), [(-60, False), (-30, True), (30, True), (60, False)])
def test_guarantee_13_a_code_counts_one_step_either_side(late_s: int, counts: bool) -> None:
    found = step_of(SEED, "050471", unix_s=1111111111 + late_s)

    assert (found == 1111111111 // 30) is counts


@pytest.mark.parametrize(
    "code",
    [
        "٠٥٠٤٧١",
        "０５０４７１",  # noqa: RUF001
        "०५०४७१",
        "05047",
        "0504710",
        "050471\n",
        "+50471",
        "0x0471",
        "",
    ],
)
def test_guarantee_13_only_six_ascii_digits_are_a_code(code: str) -> None:
    assert step_of(SEED, code, unix_s=1111111111) is None


def test_guarantee_13_only_plain_spaces_may_stand_in_a_code() -> None:
    assert spaceless(" 050 471 ") == "050471"
    assert spaceless("050\u00a0471") == "050\u00a0471"


def test_an_enrolment_names_person_and_issuer_and_its_picture_needs_no_style() -> None:
    made = enrolment(new_seed(), user="ada@example.org", issuer="Noema")

    assert made.url.startswith("otpauth://totp/Noema:ada%40example.org?secret=")
    assert made.svg.startswith("<svg")
    assert re.search(r"\sstyle\s*=|<style|<script|\son\w+=", made.svg) is None
    assert made.secret in made.url


def test_guarantee_18_an_enrolment_shows_nothing_of_itself_in_a_log() -> None:
    made = enrolment(new_seed(), user="ada", issuer="Noema")

    assert made.secret not in repr(made)
    assert made.svg not in repr(made)


def test_recovery_codes_are_ten_of_120_bits_and_all_different() -> None:
    codes = new_recovery_codes()

    assert len(set(codes)) == RECOVERY_CODES == 10
    assert all(re.fullmatch(r"([0-9A-HJKMNP-TV-Z]{4}-){5}[0-9A-HJKMNP-TV-Z]{4}", c) for c in codes)


def test_a_recovery_code_may_be_typed_as_it_is_read() -> None:
    written = "01AB-CDEF-GHJK-MNPQ-RSTV-WXYZ"

    assert recovery_digest("olab cdef ghjk mnpq rstv wxyz") == recovery_digest(written)
    assert recovery_digest("O1AB-CDEF-GHJK-MNPQ-RSTV-WXYZ") == recovery_digest(written)
    assert recovery_digest("02AB-CDEF-GHJK-MNPQ-RSTV-WXYZ") != recovery_digest(written)
