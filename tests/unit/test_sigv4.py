"""Our signatures beside those of Amazon's own library, for the same request at the same moment."""

from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any
from urllib.parse import unquote

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from noema.core.errors import ConfigError, InvalidInput
from noema.llm.providers.sigv4 import (
    Credential,
    canonical_path,
    credential_from,
    segment,
    signed_headers,
)
from tests.llm_keys import KEY_ID, SECRET, TOKEN

NOW = datetime(2027, 3, 1, 9, 8, 7, tzinfo=UTC)
PLAIN = "meta.llama3"
VERSIONED = "anthropic.claude-3-5-sonnet-20241022-v2:0"
ARN = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.amazon.nova-pro-v1:0"
BODY = '{"messages":[{"role":"user","content":[{"text":"Grüße"}]}]}'.encode()


def theirs(
    monkeypatch: pytest.MonkeyPatch, *, model: str, token: str, host: str, body: bytes, action: str
) -> AWSRequest:
    """Return a request as botocore signs it; its encoding of the path is botocore's as well."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: NOW)
    request = AWSRequest(
        method="POST",
        url=f"https://{host}/model/{botocore_label(model)}/{action}",
        data=body,
        headers={"Content-Type": "application/json"},
    )
    SigV4Auth(Credentials(KEY_ID, SECRET, token or None), "bedrock", "eu-central-1").add_auth(
        request
    )
    return request


@cache
def bedrock() -> Any:
    return get_session().create_client(
        "bedrock-runtime",
        region_name="eu-central-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )


def botocore_label(model: str) -> str:
    """Return the model as botocore itself puts it into the path of a Converse call."""
    client = bedrock()
    made = client.meta.service_model.operation_model("Converse")
    serialised = client._serializer.serialize_to_request({"modelId": model, "messages": []}, made)
    path: str = serialised["url_path"]
    return path.removeprefix("/model/").removesuffix("/converse")


def ours(*, model: str, token: str, host: str, body: bytes, action: str) -> dict[str, str]:
    return signed_headers(
        credential=Credential(KEY_ID, SECRET, token),
        region="eu-central-1",
        service="bedrock",
        host=host,
        path=f"/model/{segment(model)}/{action}",
        body=body,
        now=NOW,
    )


@pytest.mark.parametrize("token", ["", TOKEN], ids=["without token", "with token"])
@pytest.mark.parametrize("model", [PLAIN, VERSIONED, ARN], ids=["plain", "version", "ARN"])
@pytest.mark.parametrize("action", ["converse", "converse-stream", "invoke"])
def test_a_signature_is_the_one_that_amazons_library_makes(
    monkeypatch: pytest.MonkeyPatch, model: str, token: str, action: str
) -> None:
    asked: dict[str, Any] = {
        "model": model,
        "token": token,
        "host": "bedrock-runtime.eu-central-1.amazonaws.com",
        "body": BODY,
        "action": action,
    }

    request = theirs(monkeypatch, **asked)
    headers = ours(**asked)

    assert headers["authorization"] == request.headers["Authorization"]
    assert headers["x-amz-date"] == request.headers["X-Amz-Date"] == "20270301T090807Z"
    assert headers.get("x-amz-security-token") == request.headers.get("X-Amz-Security-Token")
    assert str(request.url).endswith(f"/model/{segment(model)}/{action}")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:9000"])
@pytest.mark.parametrize("body", [b"", b"{}", bytes(range(256))])
def test_host_and_body_are_signed_as_amazons_library_signs_them(
    monkeypatch: pytest.MonkeyPatch, host: str, body: bytes
) -> None:
    asked: dict[str, Any] = {
        "model": ARN,
        "token": TOKEN,
        "host": host,
        "body": body,
        "action": "converse",
    }

    assert ours(**asked)["authorization"] == theirs(monkeypatch, **asked).headers["Authorization"]


def test_an_arn_is_encoded_once_on_the_wire_and_twice_in_the_signature() -> None:
    wire = segment(ARN)

    assert wire.endswith("inference-profile%2Feu.amazon.nova-pro-v1%3A0")
    assert "inference-profile%252Feu.amazon.nova-pro-v1%253A0" in canonical_path(f"/model/{wire}/x")
    assert canonical_path("/model/a") == "/model/a"


def test_a_signature_that_is_known_stays_what_it_is() -> None:
    headers = ours(
        model=VERSIONED,
        token="",
        host="bedrock-runtime.eu-central-1.amazonaws.com",
        body=BODY,
        action="converse",
    )

    assert headers["authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20270301/eu-central-1/bedrock/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, Signature="
    )
    assert SECRET not in str(headers)


def test_the_moment_is_told_in_utc_whatever_its_zone() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=13)))
    asked: dict[str, Any] = {
        "credential": Credential(KEY_ID, SECRET),
        "region": "eu-central-1",
        "service": "bedrock",
        "host": "h",
        "path": "/",
        "body": b"",
    }

    assert signed_headers(**asked, now=there) == signed_headers(**asked, now=NOW)
    with pytest.raises(InvalidInput):
        signed_headers(**asked, now=NOW.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("text", "credential"),
    [
        (f"{KEY_ID}:{SECRET}", Credential(KEY_ID, SECRET)),
        (f" {KEY_ID}:{SECRET}:{TOKEN}\n", Credential(KEY_ID, SECRET, TOKEN)),
    ],
)
def test_a_credential_has_two_or_three_parts(text: str, credential: Credential) -> None:
    assert credential_from(text) == credential


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEY_ID,
        f"{KEY_ID}:",
        f":{SECRET}",
        f"{KEY_ID}:{SECRET}:",
        f"{KEY_ID}:{SECRET}:{TOKEN}:more",
        f"{KEY_ID}:{SECRET} and more",
        f"{KEY_ID}:{SECRET}\r\nx-evil: 1",
        f"{KEY_ID}:{SECRET}é",
        "ABSKQmVkcm9ja0FQSUtleS1hYmNkZWZn",
    ],
)
def test_another_form_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        credential_from(text)

    told = str(refused.value)
    assert "ACCESS_KEY_ID:SECRET_ACCESS_KEY" in told
    assert not any(part in told for part in (KEY_ID, SECRET, TOKEN, "ABSK"))
    assert refused.value.__cause__ is None


def test_a_credential_does_not_show_itself() -> None:
    shown = f"{Credential(KEY_ID, SECRET, TOKEN)!r} {Credential(KEY_ID, SECRET, TOKEN)}"

    assert not any(part in shown for part in (KEY_ID, SECRET, TOKEN))


@given(st.text(min_size=1, max_size=40))
def test_a_segment_holds_nothing_that_divides_a_path(name: str) -> None:
    try:
        encoded = segment(name)
    except UnicodeEncodeError:
        return

    assert encoded.isascii()
    assert not set("/?#: ") & set(encoded)
    assert unquote(encoded) == name
