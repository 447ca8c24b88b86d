"""Which addresses a service may have: never those where machines keep their own secrets.

    transport = guarded_transport(allows_private=False)
    client = httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)

A name is resolved once for each connection, every address it has is judged, and the connection goes
to one of those that were judged: a name that leads elsewhere a moment later gains nothing. How a
host is spelled does not matter (`2130706433`, `0x7f.1`), since it is judged by what the resolver
makes of it. TLS verifies the certificate against the name, not the address. No redirect is followed
here, so whoever follows one is judged again.

Of the networks, after the registries of IANA for special-purpose addresses:

* never reached: link-local, metadata services, multicast, unspecified, reserved, documentation, and
  the tunnels that hide one address in another (6to4, Teredo, ISATAP, IPv4-compatible, local NAT64);
* reached where private ones are meant: loopback, private, unique local, shared (CGNAT), benchmarks;
* judged by what they stand for: IPv4-mapped addresses and the well-known prefix of NAT64, through
  which machines without IPv4 reach the rest of the world.
"""

import asyncio
import socket
import ssl
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import ClassVar, Final
from urllib.parse import urlsplit

import httpcore
import httpx

from noema.core.errors import InvalidInput

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_PRIVATE: Final = "a private address"
_HERE: Final = "this machine itself"
_METADATA: Final = "a metadata service"
_LINK_LOCAL: Final = "a link-local address"
_MULTICAST: Final = "a multicast address"
_UNSPECIFIED: Final = "an unspecified address"
_TUNNEL: Final = "a tunnel's address"
_RESERVED: Final = "a reserved address"
_MAY_BE_MEANT: Final = frozenset({_PRIVATE, _HERE})

# The first that fits counts. Written out, because what Python's own tables say of them differs from
# one patch release to the next.
_SPECIAL: Final[Sequence[tuple[IPv4Network | IPv6Network, str]]] = tuple(
    (ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", _UNSPECIFIED),
        ("10.0.0.0/8", _PRIVATE),
        ("100.100.100.200/32", _METADATA),
        ("100.64.0.0/10", _PRIVATE),
        ("127.0.0.0/8", _HERE),
        ("168.63.129.16/32", _METADATA),
        ("169.254.169.254/32", _METADATA),
        ("169.254.0.0/16", _LINK_LOCAL),
        ("172.16.0.0/12", _PRIVATE),
        ("192.0.0.0/24", _RESERVED),
        ("192.0.2.0/24", _RESERVED),
        ("192.88.99.0/24", _TUNNEL),
        ("192.168.0.0/16", _PRIVATE),
        ("198.18.0.0/15", _PRIVATE),
        ("198.51.100.0/24", _RESERVED),
        ("203.0.113.0/24", _RESERVED),
        ("224.0.0.0/4", _MULTICAST),
        ("240.0.0.0/4", _RESERVED),
        ("::/128", _UNSPECIFIED),
        ("::1/128", _HERE),
        ("::/96", _TUNNEL),
        ("64:ff9b:1::/48", _TUNNEL),
        ("2001::/32", _TUNNEL),
        ("2001::/23", _RESERVED),
        ("2001:db8::/32", _RESERVED),
        ("2002::/16", _TUNNEL),
        ("3fff::/20", _RESERVED),
        # Amazon's own: metadata, credentials of containers, DNS, time.
        ("fd00:ec2::/32", _METADATA),
        ("fd20:ce::254/128", _METADATA),
        ("fc00::/7", _PRIVATE),
        ("fe80::/10", _LINK_LOCAL),
        ("ff00::/8", _MULTICAST),
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_6: Final = IPv6Network("2000::/3")
# The second half of an ISATAP address begins so, with or without the bit for "global".
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LOW_32: Final = 0xFFFF_FFFF

_SCHEMES: Final = ("http", "https")
_PORTS: Final = {"http": 80, "https": 443}
_LONGEST_NAME: Final = 253
_MAX_CONNECTIONS: Final = 64
_KEEPALIVE_S: Final = 30.0


class AddressRefused(InvalidInput):
    """The address is none that may be asked; nothing was sent there."""

    code: ClassVar[str] = "address_refused"


def judged(text: str, *, allows_private: bool) -> Address:
    """Return the address to connect to for one that the resolver found.

    Raises AddressRefused, which names the address and what is wrong with it, where it may not be
    reached. An IPv4-mapped address becomes the one that it stands for.
    """
    try:
        address = ip_address(text)
    except ValueError:
        raise AddressRefused(
            "The name leads to something that is no address of the internet."
        ) from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            # It is meant for one network card; nobody's service is there.
            raise AddressRefused(f"{_without_zone(address)} is an address of one network only.")
        if address in _MAPPED:
            address = IPv4Address(int(address) & _LOW_32)
    what = _special(address)
    if what and not (allows_private and what in _MAY_BE_MEANT):
        hint = " Allow private addresses for it if that is meant." if what in _MAY_BE_MEANT else ""
        raise AddressRefused(f"{address} is {what}, which is not asked.{hint}")
    return address


def _special(address: Address) -> str:
    """Return what is special about the address, empty where nothing is."""
    if address in _NAT64:
        address = IPv4Address(int(address) & _LOW_32)
    for network, what in _SPECIAL:
        if address in network:
            # A tunnel may end in a private network as well.
            return _TUNNEL if what == _PRIVATE and _is_isatap(address) else what
    if isinstance(address, IPv4Address):
        return ""
    if _is_isatap(address):
        return _TUNNEL
    return "" if address in _GLOBAL_6 else _RESERVED


def _is_isatap(address: Address) -> bool:
    return isinstance(address, IPv6Address) and (int(address) >> 32) & _LOW_32 in _ISATAP


def _without_zone(address: IPv6Address) -> str:
    return str(IPv6Address(int(address)))


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host as this machine's resolver gives them, in its order.

    Raises OSError where it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def check_url(url: str, *, allows_private: bool) -> None:
    """Check the form of a service's address; raises AddressRefused.

    `http` or `https`, plain `http` only where private addresses are allowed, a host, no name and no
    password in it. A host that is a number is judged; names are when they are connected to.
    """
    try:
        # As the client reads it: what two readers see differently would be a way round.
        parsed = httpx.URL(url)
        _ = urlsplit(url).port
    except (httpx.InvalidURL, ValueError, TypeError):
        raise AddressRefused("That is no address of the form https://host/path.") from None
    _check_form(parsed, allows_private=allows_private)
    try:
        ip_address(parsed.host)
    except ValueError:
        return
    judged(parsed.host, allows_private=allows_private)


async def check_reachable(
    url: str, *, allows_private: bool, resolver: Resolver = resolve
) -> tuple[Address, ...]:
    """Check form and every address of a service now; return the addresses, the preferred one first.

    For whoever stores an address, to say at once what is wrong with it. It protects nothing: the
    name may lead elsewhere later, and is judged again with each connection. Raises AddressRefused,
    also where the name is not known.
    """
    check_url(url, allows_private=allows_private)
    parsed = httpx.URL(url)
    port = parsed.port or _PORTS[parsed.scheme]
    try:
        return await _addresses(parsed.host, port, resolver, allows_private=allows_private)
    except OSError:
        raise AddressRefused(f"The name {_shown(parsed.host)} is not known here.") from None


def guarded_transport(
    *,
    allows_private: bool,
    resolver: Resolver = resolve,
    ssl_context: ssl.SSLContext | None = None,
    max_connections: int = _MAX_CONNECTIONS,
) -> httpx.AsyncBaseTransport:
    """Return a transport for `httpx.AsyncClient` that reaches only what may be reached.

    It raises AddressRefused where an address may not be, before anything is sent, and httpx's own
    errors for everything else. `ssl_context` is whom to trust; the usual authorities without it.
    """
    return _GuardedTransport(
        allows_private=allows_private,
        resolver=resolver,
        ssl_context=ssl_context or httpx.create_ssl_context(trust_env=False),
        max_connections=max_connections,
    )


class _GuardedTransport(httpx.AsyncBaseTransport):
    """httpcore's pool of connections with a resolver in between, as an httpx transport."""

    def __init__(
        self,
        *,
        allows_private: bool,
        resolver: Resolver,
        ssl_context: ssl.SSLContext,
        max_connections: int,
    ) -> None:
        self._allows_private = allows_private
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=max_connections,
            max_keepalive_connections=max_connections,
            keepalive_expiry=_KEEPALIVE_S,
            network_backend=_PinnedBackend(resolver, allows_private=allows_private),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _check_form(request.url, allows_private=self._allows_private)
        if not isinstance(request.stream, httpx.AsyncByteStream):
            raise TypeError("The transport is for httpx.AsyncClient.")
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            # Another name to verify than that of the address would be a way round.
            extensions={k: v for k, v in request.extensions.items() if k != "sni_hostname"},
        )
        with _as_httpx():
            answer = await self._pool.handle_async_request(asked)
        if not isinstance(answer.stream, AsyncIterable):
            raise TypeError("httpcore's pool gave a body that cannot be awaited.")
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _PinnedBackend(httpcore.AsyncNetworkBackend):
    """Resolves, judges all that was found, and connects to what was judged."""

    def __init__(self, resolver: Resolver, *, allows_private: bool) -> None:
        self._resolver = resolver
        self._allows_private = allows_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection to an address of the host; tries them in order."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(until):
                addresses = await _addresses(
                    host, port, self._resolver, allows_private=self._allows_private
                )
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except OSError:
            raise httpcore.ConnectError from None
        failure: Exception = httpcore.ConnectError()
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            # One that never answers leaves the others their share.
            share = None if until is None else max((until - loop.time()) / left, 0.0)
            try:
                return await self._inner.connect_tcp(
                    str(address),
                    port,
                    timeout=share,
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: no service is asked there."""
        raise AddressRefused("A service is not asked by a socket of this machine.")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Body(httpx.AsyncByteStream):
    def __init__(self, source: AsyncIterable[bytes]) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for part in self._source:
                yield part

    async def aclose(self) -> None:
        closing = getattr(self._source, "aclose", None)
        if closing is not None:
            with _as_httpx():
                await closing()


async def _addresses(
    host: str, port: int, resolver: Resolver, *, allows_private: bool
) -> tuple[Address, ...]:
    """Return all addresses of the host; one that is refused refuses the host. Raises OSError."""
    try:
        found = await resolver(host, port)
    except UnicodeError:
        raise AddressRefused("That is no name of a host.") from None
    if not found:
        raise OSError("no address")
    try:
        return tuple(judged(text, allows_private=allows_private) for text in found)
    except AddressRefused as exc:
        raise AddressRefused(f"The name {_shown(host)} cannot be used: {exc}") from None


def _check_form(url: httpx.URL, *, allows_private: bool) -> None:
    # Neither the address nor its parts are told: a password may stand in any of them.
    if url.scheme not in _SCHEMES:
        raise AddressRefused("An address begins with https://, or with http:// on a private one.")
    if url.scheme == "http" and not allows_private:
        raise AddressRefused(
            "Plain http:// gives the key to everybody on the way. Use https://, or allow private "
            "addresses for it if it is on your own network."
        )
    if url.userinfo:
        raise AddressRefused("An address holds no name and no password. Set the key by itself.")
    if not url.host or len(url.host) > _LONGEST_NAME or "%" in url.host:
        raise AddressRefused("The address names no host.")


def _shown(host: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in host)[:_LONGEST_NAME]


_ERRORS: Final[Sequence[tuple[type[Exception], type[httpx.TransportError]]]] = (
    (httpcore.ConnectTimeout, httpx.ConnectTimeout),
    (httpcore.ReadTimeout, httpx.ReadTimeout),
    (httpcore.WriteTimeout, httpx.WriteTimeout),
    (httpcore.PoolTimeout, httpx.PoolTimeout),
    (httpcore.TimeoutException, httpx.TimeoutException),
    (httpcore.ConnectError, httpx.ConnectError),
    (httpcore.ReadError, httpx.ReadError),
    (httpcore.WriteError, httpx.WriteError),
    (httpcore.NetworkError, httpx.NetworkError),
    (httpcore.UnsupportedProtocol, httpx.UnsupportedProtocol),
    (httpcore.LocalProtocolError, httpx.LocalProtocolError),
    (httpcore.RemoteProtocolError, httpx.RemoteProtocolError),
    (httpcore.ProtocolError, httpx.ProtocolError),
)


@contextmanager
def _as_httpx() -> Iterator[None]:
    """Turn httpcore's errors into httpx's, as its own transport does."""
    try:
        yield
    except tuple(theirs for theirs, _ in _ERRORS) as exc:
        ours = next(ours for theirs, ours in _ERRORS if isinstance(exc, theirs))
        raise ours(str(exc)) from exc
