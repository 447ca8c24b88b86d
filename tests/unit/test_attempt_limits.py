"""Guarantee 15: attempts by address, in memory and bounded."""

from noema.auth.limits import DELAYS_S, LONGEST_S, Addresses, site_of
from noema.core.clock import ManualClock


def test_guarantee_15_an_address_has_a_burst_and_then_a_rate(clock: ManualClock) -> None:
    addresses = Addresses(clock=clock, burst=3, refill_s=2)

    first = [addresses.take("192.0.2.1") for _ in range(5)]
    clock.advance(2)
    later = [addresses.take("192.0.2.1") for _ in range(2)]

    assert first == [0, 0, 0, 2, 2]
    assert later == [0, 2]


def test_guarantee_15_one_address_takes_nothing_from_another(clock: ManualClock) -> None:
    addresses = Addresses(clock=clock, burst=1, refill_s=2)
    addresses.take("192.0.2.1")

    assert addresses.take("192.0.2.2") == 0


def test_guarantee_15_a_wall_clock_that_jumps_changes_nothing(clock: ManualClock) -> None:
    addresses = Addresses(clock=clock, burst=1, refill_s=2)
    addresses.take("192.0.2.1")
    clock.jump(3_600)

    assert addresses.take("192.0.2.1") == 2


def test_guarantee_15_any_number_of_addresses_takes_bounded_memory(clock: ManualClock) -> None:
    addresses = Addresses(clock=clock, most=100)

    for n in range(1_000):
        addresses.take(f"198.51.{n // 256}.{n % 256}")

    assert len(addresses) == 100


def test_guarantee_15_a_flood_is_told_of_once_until_it_is_over(clock: ManualClock) -> None:
    addresses = Addresses(clock=clock, burst=1, refill_s=2)
    addresses.take("192.0.2.1")
    told = []
    for _ in range(3):
        addresses.take("192.0.2.1")
        told.append(addresses.is_first_refusal("192.0.2.1"))
    clock.advance(2)
    addresses.take("192.0.2.1")
    addresses.take("192.0.2.1")

    assert told == [True, False, False]
    assert addresses.is_first_refusal("192.0.2.1")


def test_guarantee_15_a_site_of_ipv6_is_one_address() -> None:
    assert site_of("2001:db8:1:2::1") == site_of("2001:db8:1:2:ffff::9")
    assert site_of("2001:db8:1:2::1") != site_of("2001:db8:1:3::1")
    assert site_of("::ffff:192.0.2.1") == site_of("192.0.2.1")


def test_guarantee_15_the_delay_doubles_and_ends_at_fifteen_minutes() -> None:
    assert DELAYS_S[:4] == (0, 0, 0, 0)
    assert DELAYS_S[4:9] == (1, 2, 4, 8, 16)
    assert max(DELAYS_S) == DELAYS_S[-1] == LONGEST_S == 900
