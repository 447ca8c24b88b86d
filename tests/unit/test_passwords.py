"""Guarantee 11: what a password hash is, what it costs, and how many at once."""

import asyncio
import threading

import pytest
from argon2 import PasswordHasher, extract_parameters
from argon2.low_level import Type

from noema.auth.passwords import MAX_BYTES, Parameters, Passwords, check_policy
from noema.core.errors import InvalidInput, TooLarge

CHEAP = Parameters(memory_kib=64, passes=1, lanes=1)
GOOD = "correct horse battery"


async def test_guarantee_11_a_hash_is_argon2id_with_the_promised_parameters() -> None:
    passwords = Passwords()

    made = await passwords.hash(GOOD)
    verdict = await passwords.verify(made, GOOD)
    passwords.close()

    found = extract_parameters(made)
    assert found.type is Type.ID
    assert (found.memory_cost, found.time_cost, found.parallelism) == (65_536, 3, 2)
    assert (found.salt_len, found.hash_len) == (16, 32)
    assert verdict.matches
    assert not verdict.is_outdated


async def test_guarantee_11_two_hashes_of_one_password_differ() -> None:
    passwords = Passwords(parameters=CHEAP)

    assert await passwords.hash(GOOD) != await passwords.hash(GOOD)


async def test_guarantee_11_a_hash_of_other_parameters_is_right_and_outdated() -> None:
    old = PasswordHasher(time_cost=1, memory_cost=32, parallelism=1).hash(GOOD)

    verdict = await Passwords(parameters=CHEAP).verify(old, GOOD)

    assert verdict.matches
    assert verdict.is_outdated


async def test_guarantee_11_nobodys_password_is_never_right() -> None:
    passwords = Passwords(parameters=CHEAP)

    assert not (await passwords.verify(None, GOOD)).matches
    assert not (await passwords.verify(None, "")).matches


async def test_guarantee_11_nobodys_password_costs_what_a_wrong_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The work is one hash, by the parameters that stand in what it is compared with.
    passwords = Passwords(parameters=Parameters(memory_kib=16_384, passes=2, lanes=1))
    stored = await passwords.hash(GOOD)
    work: list[tuple[object, int]] = []
    verify = PasswordHasher.verify

    def noted(hasher: PasswordHasher, hash_: str, password: bytes) -> bool:
        work.append((extract_parameters(hash_), len(password)))
        return verify(hasher, hash_, password)

    monkeypatch.setattr(PasswordHasher, "verify", noted)
    await passwords.verify(stored, "something else")
    await passwords.verify(None, "something else")

    wrong, nobody = work
    assert nobody == wrong


@pytest.mark.parametrize("long", ["x" * (MAX_BYTES + 1), "é" * (MAX_BYTES // 2 + 1)])
async def test_guarantee_11_over_1024_bytes_are_refused_before_any_work(long: str) -> None:
    passwords = Passwords(parameters=CHEAP)
    passwords.close()  # Any work would fail now.

    with pytest.raises(TooLarge):
        await passwords.hash(long)
    with pytest.raises(TooLarge):
        await passwords.verify(None, long)


async def test_guarantee_11_no_more_than_two_are_hashed_at_once_even_when_callers_leave() -> None:
    passwords = Passwords(parameters=CHEAP)
    inside = most = 0
    lock = threading.Lock()
    both = threading.Semaphore(0)
    go = threading.Event()

    def work() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        both.release()
        go.wait(20)
        with lock:
            inside -= 1

    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(passwords._in_thread(work)) for _ in range(50)]
        await asyncio.to_thread(both.acquire)
        await asyncio.to_thread(both.acquire)
        for caller in callers[:25]:
            caller.cancel()
        assert not await asyncio.to_thread(both.acquire, True, 0.1)
        go.set()
    passwords.close()

    assert most == 2
    assert sum(not caller.cancelled() for caller in callers) == 25


async def test_a_letter_spelt_in_two_ways_is_one_password_and_nothing_else_is_changed() -> None:
    passwords = Passwords(parameters=CHEAP)
    stored = await passwords.hash("crème brûlée ")

    assert (await passwords.verify(stored, "cre\u0300me bru\u0302le\u0301e ")).matches
    assert not (await passwords.verify(stored, "crème brûlée")).matches
    assert not (await passwords.verify(stored, "Crème brûlée ")).matches


async def test_what_is_not_even_text_can_be_a_wrong_password() -> None:
    assert not (await Passwords(parameters=CHEAP).verify(None, "\ud800\x00")).matches


@pytest.mark.parametrize(
    "password",
    [
        "short",
        "eleven char",
        "ada.lovelace",
        "Ada.Lovelace1",
        "aaaaaaaaaaaaaaaa",
        "abababababab",
        "123456789012",
        "abcdefghijkl",
        "qwertyuiopasdf",
        "abc12abc12abc12",
    ],
)
def test_a_password_that_is_tried_first_is_refused(password: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_policy(password, user_name="ada.lovelace")

    assert password not in str(refused.value)


@pytest.mark.parametrize(
    "password", ["correct horse battery", "пароль-что-надо", "ada.lovelace wrote notes"]
)
def test_a_long_password_of_any_characters_will_do(password: str) -> None:
    check_policy(password, user_name="ada.lovelace")
