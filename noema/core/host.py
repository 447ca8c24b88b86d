"""Whether a host is this machine."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own, by its spelling; nothing is resolved."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
