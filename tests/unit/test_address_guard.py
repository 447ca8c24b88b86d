"""Where a service may be, and that what was judged is what is connected to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpx
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from noema.core.errors import InvalidInput
from noema.net.guard import (
    AddressRefused,
    check_reachable,
    check_url,
    guarded_transport,
    judged,
    resolve,
)

CANARY = "canary-4f1d-9Zq"

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.1",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]
PRIVATE = [
    "10.0.0.5",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "198.18.0.1",
    "::1",
    "fc00::1",
    "fd12:3456:789a::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.5",
    "64:ff9b::10.0.0.5",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.0.1",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fe80::1",
    "fe80::1%1",
    "::1%1",
    "2606:4700::1%1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "2001:db8::1",
    "3fff::1",
    "100::1",
    "4000::1",
    "::ffff:169.254.169.254",
    "::ffff:0.0.0.0",
    "::ffff:224.0.0.1",
    "::169.254.169.254",
    "::127.0.0.1",
    "::8.8.8.8",
    "64:ff9b::169.254.169.254",
    "64:ff9b::0.0.0.0",
    "64:ff9b:1::1",
    "2002:a9fe:a9fe::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:20::1",
    "2606:4700::5efe:10.0.0.5",
    "2606:4700::200:5efe:10.0.0.5",
    "fd12::5efe:169.254.169.254",
    "not an address",
    "",
]


@pytest.mark.parametrize("text", PUBLIC)
@pytest.mark.parametrize("allows_private", [True, False])
def test_public_addresses_are_reached(text: str, allows_private: bool) -> None:
    assert judged(text, allows_private=allows_private).version in (4, 6)


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_are_reached_where_they_are_meant(text: str) -> None:
    judged(text, allows_private=True)

    with pytest.raises(AddressRefused, match="Allow private addresses for it if that is meant"):
        judged(text, allows_private=False)


@pytest.mark.parametrize("text", NEVER)
@pytest.mark.parametrize("allows_private", [True, False])
def test_what_nobody_means_is_never_reached(text: str, allows_private: bool) -> None:
    with pytest.raises(AddressRefused) as refused:
        judged(text, allows_private=allows_private)

    assert "Allow private" not in str(refused.value)


def test_a_mapped_address_is_reached_as_what_it_stands_for() -> None:
    assert judged("::ffff:8.8.8.8", allows_private=False) == IPv4Address("8.8.8.8")


@given(st.ip_addresses(v=4))
def test_what_is_not_global_by_pythons_tables_is_not_reached(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast:
        with pytest.raises(AddressRefused):
            judged(str(address), allows_private=False)


@given(st.ip_addresses(v=6))
def test_of_ipv6_only_global_unicast_is_reached(address: IPv6Address) -> None:
    try:
        found = judged(str(address), allows_private=False)
    except AddressRefused:
        return
    assert found.version == 4 or str(found).startswith(("2", "3", "64:ff9b::"))


@given(st.ip_addresses(v=4))
def test_another_form_of_an_address_opens_nothing(address: IPv4Address) -> None:
    """Mapped and translated forms are judged as the address itself, and tunnels never reached."""

    def is_reached(text: str) -> bool:
        try:
            judged(text, allows_private=False)
        except AddressRefused:
            return False
        return True

    plain = is_reached(str(address))
    assert is_reached(f"::ffff:{address}") is plain
    assert is_reached(f"64:ff9b::{address}") is plain
    high, low = int(address) >> 16, int(address) & 0xFFFF
    assert not is_reached(f"2002:{high:x}:{low:x}::1")
    assert not is_reached(f"::{address}")


@pytest.mark.parametrize(
    "url",
    [
        f"https://{CANARY}@example.com/",
        f"https://user:{CANARY}@example.com/v1",
        f"https://user:{CANARY}@/",
        f"ftp://{CANARY}/",
        f"file:///etc/{CANARY}",
        f"gopher://{CANARY}/",
        f"{CANARY}",
        f"//{CANARY}/",
        "https://",
        "https:///v1",
        "",
        f"https://[{CANARY}/",
        f"https://exa\nmple/{CANARY}",
        "https://[fe80::1%25eth0]/",
        f"https://{'a' * 300}.com/",
        f"https://example.com:{CANARY}/",
        "https://example.com:99999999/",
        "https://0177.0.0.1/",
    ],
)
def test_the_form_of_an_address_is_checked_and_not_told(url: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        check_url(url, allows_private=True)

    assert CANARY not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.code == "address_refused"
    assert isinstance(refused.value, InvalidInput)


def test_plain_http_is_for_private_networks() -> None:
    check_url("http://ollama.lan:11434", allows_private=True)
    check_url("https://api.example.com/v1?x=1", allows_private=False)

    with pytest.raises(AddressRefused, match="Plain http:// gives the key to everybody"):
        check_url("http://api.example.com", allows_private=False)


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]"])
def test_a_number_is_judged_when_it_is_set(host: str) -> None:
    with pytest.raises(AddressRefused, match="is not asked"):
        check_url(f"http://{host}/latest/meta-data", allows_private=True)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "017700000001", "0x7f.1", "127.1"])
async def test_other_spellings_are_what_the_resolver_makes_of_them(host: str) -> None:
    with pytest.raises(AddressRefused, match=r"127\.0\.0\.1 is this machine itself"):
        await check_reachable(f"https://{host}/", allows_private=False)


async def test_this_machines_resolver_knows_this_machine() -> None:
    assert {ip_address(text).is_loopback for text in await resolve("localhost", 80)} == {True}


class Names:
    """A resolver that is told what it finds, each time the next of the answers."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@asynccontextmanager
async def server(
    *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", answer: bytes = b""
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Lend a server's port, and the heads of the requests that it got."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer or b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    serving = await asyncio.start_server(serve, host, 0, ssl=tls)
    try:
        yield serving.sockets[0].getsockname()[1], heads
    finally:
        serving.close()
        await serving.wait_closed()


def client(
    names: Names, *, allows_private: bool = True, trusting: ssl.SSLContext | None = None
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=guarded_transport(
            allows_private=allows_private, resolver=names, ssl_context=trusting
        ),
        trust_env=False,
        timeout=10.0,
    )


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.5"],
        ["2606:4700:4700::1111", "8.8.8.8", "169.254.169.254"],
        ["::ffff:127.0.0.1"],
    ],
)
async def test_one_address_that_is_refused_refuses_the_name(found: list[str]) -> None:
    async with server() as (port, heads), client(Names(found), allows_private=False) as made:
        with pytest.raises(AddressRefused, match=r"The name model\.test cannot be used: "):
            await made.post(
                f"https://model.test:{port}/{CANARY}", headers={"authorization": CANARY}
            )

    assert heads == []


@pytest.mark.parametrize("found", [["169.254.169.254"], ["127.0.0.1", "fd00:ec2::254"]])
async def test_metadata_is_not_reached_where_private_is_meant(found: list[str]) -> None:
    async with server() as (port, heads), client(Names(found)) as made:
        with pytest.raises(AddressRefused, match="a metadata service, which is not asked"):
            await made.get(f"http://model.test:{port}/")

    assert heads == []


async def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    """The name leads to metadata when asked a second time; nobody asks a second time."""
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with server() as (port, heads), client(names) as made:
        first = await made.get(f"http://model.test:{port}/one")
        second = await made.get(f"http://model.test:{port}/two")

    assert (first.text, second.text) == ("ok", "ok")
    assert names.asked == ["model.test"]
    assert f"host: model.test:{port}".encode() in heads[0].lower()


async def test_a_name_that_leads_elsewhere_later_is_judged_with_the_next_connection() -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    closing = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    async with server(answer=closing) as (port, heads), client(names) as made:
        await made.get(f"http://model.test:{port}/one")
        with pytest.raises(AddressRefused):
            await made.get(f"http://model.test:{port}/two")

    assert len(heads) == 1


async def test_a_redirect_is_judged_even_where_somebody_follows_it() -> None:
    answer = (
        b"HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 0\r\n"
        b"location: http://169.254.169.254/latest/meta-data/\r\n\r\n"
    )
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    async with server(answer=answer) as (port, heads), client(names) as made:
        assert (await made.get(f"http://model.test:{port}/")).status_code == 307
        with pytest.raises(AddressRefused):
            await made.get(f"http://model.test:{port}/", follow_redirects=True)

    assert len(heads) == 2


async def test_an_address_that_does_not_answer_leaves_the_next_its_turn() -> None:
    async with server() as (port, _), client(Names(["::1", "127.0.0.1"])) as made:
        assert (await made.get(f"http://model.test:{port}/")).text == "ok"


async def test_a_name_that_is_not_known_is_a_failed_connection() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    transport = guarded_transport(allows_private=True, resolver=unknown)
    async with httpx.AsyncClient(transport=transport) as made:
        with pytest.raises(httpx.ConnectError):
            await made.get("http://model.test/")
    with pytest.raises(AddressRefused, match=r"The name model\.test is not known here"):
        await check_reachable("http://model.test/", allows_private=True, resolver=unknown)


async def test_a_name_without_addresses_is_a_failed_connection() -> None:
    async with client(Names([])) as made:
        with pytest.raises(httpx.ConnectError):
            await made.get("http://model.test/")


async def test_a_resolver_that_hangs_has_the_time_of_a_connection() -> None:
    async def hanging(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    transport = guarded_transport(allows_private=True, resolver=hanging)
    async with httpx.AsyncClient(transport=transport, timeout=0.05) as made:
        with pytest.raises(httpx.ConnectTimeout):
            await made.get("http://model.test/")


@pytest.mark.parametrize(
    "url", ["http://model.test/", f"https://user:{CANARY}@model.test/", "https://[::1%25lo]/"]
)
async def test_the_form_is_checked_with_each_request(url: str) -> None:
    names = Names(["8.8.8.8"])
    async with client(names, allows_private=False) as made:
        with pytest.raises(AddressRefused) as refused:
            await made.get(url)

    assert names.asked == []
    assert CANARY not in str(refused.value)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_tls_verifies_the_name_and_not_the_address(authority: trustme.CA) -> None:
    names = Names(["127.0.0.1"])
    async with (
        server(tls=serving(authority, "model.test")) as (port, heads),
        client(names, trusting=trusting(authority)) as made,
    ):
        answer = await made.get(f"https://model.test:{port}/")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await made.get(f"https://other.test:{port}/")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await made.get(f"https://other.test:{port}/", extensions={"sni_hostname": "model.test"})

    assert answer.text == "ok"
    assert len(heads) == 1


async def test_whom_nobody_vouches_for_is_not_asked(authority: trustme.CA) -> None:
    async with (
        server(tls=serving(authority, "model.test")) as (port, heads),
        client(Names(["127.0.0.1"])) as made,
    ):
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await made.get(f"https://model.test:{port}/")

    assert heads == []


async def test_what_breaks_is_httpxs_own_error() -> None:
    short = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"
    async with server(answer=short) as (port, _), client(Names(["127.0.0.1"])) as made:
        with pytest.raises(httpx.ReadTimeout):
            await made.get(f"http://model.test:{port}/", timeout=0.1)
    async with client(Names(["127.0.0.1"])) as made:
        with pytest.raises(httpx.ConnectError):
            await made.get(f"http://model.test:{port}/")
