"""Kinds of credential in a text, by their shapes. What exactly was found is never returned.

Each shape is looked for only where a piece of text that it cannot do without is there; looking for
a piece is a hundred times cheaper than trying a pattern at every place.
"""

import re
from typing import Final, NamedTuple


class _Shape(NamedTuple):
    kind: str
    pieces: tuple[str, ...]
    pattern: re.Pattern[str]


_PASSWORD: Final = (
    "password", "passwd", "pwd", "passphrase", "passcode", "passwort", "kennwort", "mot de passe",
    "contraseña", "senha", "пароль", "密码", "パスワード",
)  # fmt: skip
_API_KEY: Final = (
    "api_key", "api-key", "apikey", "api key", "access_token", "access token", "auth_token",
    "secret_key", "secret key", "client_secret", "client secret", "private_token",
)  # fmt: skip

_SHAPES: Final = (
    _Shape(
        "private_key",
        ("private key",),
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----"),
    ),
    _Shape(
        "aws_key",
        ("akia", "asia", "abia", "acca"),
        re.compile(r"(?<![A-Z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Z0-9])"),
    ),
    _Shape(
        "aws_key",
        ("secret_access_key", "secretaccesskey", "secret access key"),
        re.compile(r"secret.?access.?key\W{1,5}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])", re.IGNORECASE),
    ),
    _Shape(
        "github_token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})"),
    ),
    _Shape("gitlab_token", ("glpat-",), re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}")),
    _Shape(
        "slack_token",
        (
            "xoxa-",
            "xoxb-",
            "xoxe-",
            "xoxe.",
            "xoxo-",
            "xoxp-",
            "xoxr-",
            "xoxs-",
            "xapp-",
            "hooks.slack.com",
        ),
        re.compile(
            r"(?<![A-Za-z0-9])(?:xox[abeoprs][.-]|xapp-)[A-Za-z0-9.-]{10,}"
            r"|hooks\.slack\.com/services/\w+/\w+/\w+"
        ),
    ),
    _Shape(
        "stripe_key",
        ("k_live_", "k_test_", "whsec_"),
        re.compile(r"(?<![A-Za-z0-9])(?:[rsp]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,}"),
    ),
    _Shape("google_key", ("aiza",), re.compile(r"(?<![A-Za-z0-9])AIza[\w-]{35}")),
    _Shape("llm_key", ("sk-",), re.compile(r"(?<![A-Za-z0-9])sk-(?:[a-z]{2,10}-)?[\w-]{20,}")),
    _Shape(
        "jwt",
        ("eyj",),
        re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    ),
    _Shape(
        "bearer_token",
        ("bearer ",),
        re.compile(r"\bbearer +(?=[^\s]*[0-9._~+/-])[A-Za-z0-9._~+/-]{16,}=*", re.IGNORECASE),
    ),
    _Shape(
        "bearer_token",
        ("basic ",),
        re.compile(r"authorization\W{1,4}basic +[A-Za-z0-9+/]{8,}=*", re.IGNORECASE),
    ),
    _Shape("noema_token", ("noema_",), re.compile(r"(?<![A-Za-z0-9])noema_[\w-]{20,}")),
    _Shape(
        "password",
        _PASSWORD,
        re.compile(
            r"(?<![^\W_])(?:" + "|".join(_PASSWORD) + r")[\"']?"
            r"(?:\s{0,3}(?:[:=：＝]|は|是)\s{0,3}"  # noqa: RUF001
            r"|\s{1,3}(?:is|was|ist|est|es)(?:\s{0,3}[:=]\s{0,3}|\s{1,3}))"
            r"[\"'`]?(?!(?:not|now|the|a|an|required|wrong|too|expired|weak|invalid|incorrect"
            r"|being|stored|reset|changed|hashed|set)\b)[^\s\"'`]{4,}",
            re.IGNORECASE,
        ),
    ),
    _Shape(
        "api_key",
        _API_KEY,
        re.compile(
            r"(?:" + "|".join(_API_KEY) + r")[\"']?"
            r"(?:\s{0,3}[:=]\s{0,3}|\s{1,3}is(?:\s{0,3}:\s{0,3}|\s{1,3}))"
            r"[\"'`]?(?=[^\s\"'`]*\d)[A-Za-z0-9_./+=~-]{12,}",
            re.IGNORECASE,
        ),
    ),
    _Shape(
        "connection_string",
        ("://",),
        re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s:/@?#]{0,200}:[^\s/@]{1,200}@", re.IGNORECASE),
    ),
    _Shape(
        "connection_string",
        ("accountkey=", "sharedaccesskey=", "sig="),
        re.compile(r"(?:accountkey|sharedaccesskey|[?&]sig)=[\w%+/=-]{20,}", re.IGNORECASE),
    ),
)


def kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of credential in the text, sorted, each once."""
    low = text.lower()
    found = {
        shape.kind
        for shape in _SHAPES
        if any(piece in low for piece in shape.pieces) and shape.pattern.search(text)
    }
    return tuple(sorted(found))
