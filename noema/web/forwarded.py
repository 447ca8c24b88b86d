"""Whose request it is where proxies stand in between: the nearest address that is none of ours."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from noema.config import Network

Address = IPv4Address | IPv6Address


def client_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """Return the client's address: the peer's, unless a trusted proxy says it speaks for another.

    `forwarded` are the X-Forwarded-For headers as they came. Each proxy adds at the right who spoke
    to it, so from the right the first that is no proxy of ours is the client; what stands to the
    left of it was written by the client and counts for nothing.
    """
    nearest = _address(peer)
    if nearest is None:
        return peer
    hops = [hop.strip() for line in forwarded for hop in line.split(",")]
    while hops and _is_trusted(nearest, trusted):
        said = _address(hops.pop())
        if said is None:
            break
        nearest = said
    return str(nearest)


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _address(text: str) -> Address | None:
    """Return the address, which may have a port and brackets; None where it is none."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
