"""Settings: the sole reader of the environment.

Each setting is a variable (`NOEMA_PORT`) and a key of `noema.toml` (`port`); the environment wins.
An unknown or malformed one stops the start with one line that says which and why.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from noema.core.errors import ConfigError
from noema.core.host import is_loopback
from noema.core.secret import key_from_text

Env = Literal["production", "development"]
EmbedderKind = Literal["hash", "none", "local", "openai", "azure", "ollama", "bedrock"]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Variables that other parts of Noema's promise reserve; they are read when those parts exist, and
# must not be refused as unknown meanwhile.
_RESERVED: Final = frozenset(
    {
        "NOEMA_COLD_KEK",
        "NOEMA_SIGNING_KEY",
        "NOEMA_KNOWLEDGE_DIR",
        "NOEMA_URL",
        "NOEMA_LLM_SECRET",
        "NOEMA_TOKEN",
    }
)
_VARIABLES: Final = {
    "database_url": "DATABASE_URL",
    "owner_database_url": "NOEMA_OWNER_DATABASE_URL",
    "data_dir": "NOEMA_DATA_DIR",
    "host": "NOEMA_HOST",
    "port": "NOEMA_PORT",
    "env": "NOEMA_ENV",
    "public_url": "NOEMA_PUBLIC_URL",
    "log_level": "NOEMA_LOG_LEVEL",
    "log_format": "NOEMA_LOG_FORMAT",
    "secret_key": "NOEMA_SECRET_KEY",
    "bootstrap_admin": "NOEMA_BOOTSTRAP_ADMIN",
    "trusted_proxies": "NOEMA_TRUSTED_PROXIES",
    "embedder": "NOEMA_EMBEDDER",
    "embedder_url": "NOEMA_EMBEDDER_URL",
    "embedder_model": "NOEMA_EMBEDDER_MODEL",
    "embedder_key": "NOEMA_EMBEDDER_KEY",
    "embedder_dims": "NOEMA_EMBEDDER_DIMS",
    "embedder_api_version": "NOEMA_EMBEDDER_API_VERSION",
    "embedder_region": "NOEMA_EMBEDDER_REGION",
    "embedder_query_prefix": "NOEMA_EMBEDDER_QUERY_PREFIX",
    "embedder_document_prefix": "NOEMA_EMBEDDER_DOCUMENT_PREFIX",
}

MAX_DIMS: Final = 4000
_EMBEDDERS: Final[tuple[EmbedderKind, ...]] = (
    "hash",
    "none",
    "local",
    "openai",
    "azure",
    "ollama",
    "bedrock",
)
_REMOTE: Final = frozenset({"openai", "azure", "ollama", "bedrock"})
# What an address looks like; Ollama alone has a default.
_FOR_EXAMPLE: Final = {
    "azure": "https://NAME.openai.azure.com",
    "bedrock": "https://bedrock-runtime.eu-central-1.amazonaws.com",
    "openai": "https://api.openai.com/v1",
}
_OLLAMA: Final = "http://127.0.0.1:11434"
# The service's version of the wire format that this was written against.
_AZURE_API: Final = "2024-10-21"
# What a cloud's machines learn about themselves, their keys among it; never an embedder.
# Of clouds that keep theirs on an address like any other.
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192"))
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_METADATA_NAMES: Final = frozenset({"metadata.google.internal", "metadata"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderSettings:
    """Where vectors come from. `query_model` and `model` (for documents) are mostly one.

    `dims` is None where the service's own length is taken. `url` has no slash at its end. A
    `region` is set where Bedrock is asked at another address than Amazon's own.
    """

    kind: EmbedderKind = "hash"
    url: str = ""
    model: str = ""
    query_model: str = ""
    key: str | None = field(default=None, repr=False)
    dims: int | None = None
    api_version: str = _AZURE_API
    region: str = ""
    query_prefix: str = ""
    document_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a daemon is told from outside, checked."""

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    owner_database_url: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 8420
    env: Env = "production"
    public_url: str | None = None
    log_level: str = "info"
    log_format: Literal["text", "json"] = "text"
    secret_key: bytes | None = field(default=None, repr=False)
    bootstrap_admin: tuple[str, str] | None = field(default=None, repr=False)
    trusted_proxies: tuple[Network, ...] = ()
    embedder: EmbedderSettings = field(default_factory=EmbedderSettings)

    @property
    def embedded(self) -> bool:
        """Whether Noema brings its own PostgreSQL."""
        return self.database_url is None

    @property
    def base_url(self) -> str:
        """Where a browser finds this daemon."""
        if self.public_url is not None:
            return self.public_url
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def with_port(self, port: int) -> "Settings":
        """Return the same settings with the port that was really bound."""
        return replace(self, port=port)

    @property
    def secure(self) -> bool:
        """Whether people reach Noema over TLS, so that cookies may insist on it."""
        return self.base_url.startswith("https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What `noemactl` is told from outside."""

    url: str | None
    token: str | None = field(repr=False)
    llm_secret: str | None = field(default=None, repr=False)
    config_dir: Path
    cache_dir: Path | None = None


def load(environ: Mapping[str, str] | None = None, *, file: Path | None = None) -> Settings:
    """Read the environment and `noema.toml`; raise ConfigError with one line that names the fault.

    `file` defaults to `noema.toml` in the working directory, used where it exists.
    """
    environ = os.environ if environ is None else environ
    values = _read_file(Path("noema.toml") if file is None else file, required=file is not None)
    known = set(_VARIABLES.values()) | _RESERVED
    for name in sorted(environ):
        if name.startswith("NOEMA_") and name not in known:
            raise ConfigError(f"Unknown setting {name}. Known ones: {', '.join(sorted(known))}.")
    for key, variable in _VARIABLES.items():
        if environ.get(variable):
            values[key] = environ[variable]
    return _checked(values, environ)


def load_client(environ: Mapping[str, str] | None = None) -> ClientSettings:
    """Read what `noemactl` needs: where the daemon is, and the token, if given."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CONFIG_HOME") or str(_home(environ) / ".config")
    return ClientSettings(
        url=environ.get("NOEMA_URL") or None,
        token=environ.get("NOEMA_TOKEN") or None,
        llm_secret=environ.get("NOEMA_LLM_SECRET") or None,
        config_dir=Path(base) / "noema",
        cache_dir=Path(environ.get("XDG_CACHE_HOME") or _home(environ) / ".cache") / "noema",
    )


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def _read_file(path: Path, *, required: bool) -> dict[str, str]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise ConfigError(f"No settings file {path}.") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"Cannot read settings file {path}: {exc}.") from exc
    values: dict[str, str] = {}
    for key, value in raw.items():
        if key not in _VARIABLES:
            raise ConfigError(
                f"Unknown setting {key!r} in {path}. Known ones: {', '.join(sorted(_VARIABLES))}."
            )
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ConfigError(f"Setting {key!r} in {path} must be a string or a whole number.")
        values[key] = str(value)
    return values


def _checked(values: Mapping[str, str], environ: Mapping[str, str]) -> Settings:
    env = values.get("env", "production")
    if env not in ("production", "development"):
        raise ConfigError(f"NOEMA_ENV is {env!r}; use production or development.")
    level = values.get("log_level", "info").lower()
    if level not in ("debug", "info", "warning", "error"):
        raise ConfigError(f"NOEMA_LOG_LEVEL is {level!r}; use debug, info, warning or error.")
    log_format = values.get("log_format", "text")
    if log_format not in ("text", "json"):
        raise ConfigError(f"NOEMA_LOG_FORMAT is {log_format!r}; use text or json.")
    host = values.get("host", "127.0.0.1")
    public_url = values.get("public_url")
    if public_url is not None:
        public_url = _url("NOEMA_PUBLIC_URL", public_url, ("http", "https")).rstrip("/")
    if env == "production" and not is_loopback(host) and not (public_url or "").startswith("https"):
        raise ConfigError(
            f"NOEMA_HOST is {host}, which others can reach, and Noema itself speaks plain http. "
            "Put TLS in front and set NOEMA_PUBLIC_URL=https://…, or listen on 127.0.0.1."
        )
    database_url = values.get("database_url")
    owner_url = values.get("owner_database_url")
    for name, url in (("DATABASE_URL", database_url), ("NOEMA_OWNER_DATABASE_URL", owner_url)):
        if url is not None:
            _url(name, url, ("postgresql", "postgres"), secret=True)
    if owner_url is not None and database_url is None:
        raise ConfigError("NOEMA_OWNER_DATABASE_URL is set without DATABASE_URL; set both or none.")
    data_dir = values.get("data_dir") or str(_home(environ) / ".local/share/noema")
    return Settings(
        data_dir=Path(data_dir).expanduser().absolute(),
        database_url=database_url,
        owner_database_url=owner_url or database_url,
        host=host,
        port=_port(values.get("port", "8420")),
        env="development" if env == "development" else "production",
        public_url=public_url,
        log_level=level,
        log_format="json" if log_format == "json" else "text",
        secret_key=_secret_key(values.get("secret_key")),
        bootstrap_admin=_bootstrap(values.get("bootstrap_admin")),
        trusted_proxies=_networks(values.get("trusted_proxies", "")),
        embedder=_embedder(values),
    )


def _embedder(values: Mapping[str, str]) -> EmbedderSettings:
    name = values.get("embedder", "hash")
    kind = next((known for known in _EMBEDDERS if known == name), None)
    if kind is None:
        raise ConfigError(f"NOEMA_EMBEDDER is {name!r}; use one of {', '.join(_EMBEDDERS)}.")
    if kind not in _REMOTE:
        for key in sorted(values):
            if key.startswith("embedder_") and kind != "none":
                raise ConfigError(
                    f"{_VARIABLES[key]} is set, and NOEMA_EMBEDDER={kind} has no use for it. "
                    "Take it away, or set NOEMA_EMBEDDER to openai, azure, ollama or bedrock."
                )
        return EmbedderSettings(kind=kind)
    secret = values.get("embedder_key")
    url = _embedder_url(kind, values.get("embedder_url"), has_key=secret is not None)
    query_model, model = _embedder_models(kind, values.get("embedder_model"))
    return EmbedderSettings(
        kind=kind,
        url=url,
        model=model,
        query_model=query_model,
        key=_embedder_key(kind, secret),
        dims=_embedder_dims(values.get("embedder_dims")),
        api_version=values.get("embedder_api_version", _AZURE_API),
        region=values.get("embedder_region", "").strip(),
        query_prefix=values.get("embedder_query_prefix", ""),
        document_prefix=values.get("embedder_document_prefix", ""),
    )


def _embedder_url(kind: EmbedderKind, text: str | None, *, has_key: bool) -> str:
    name = "NOEMA_EMBEDDER_URL"
    if text is None:
        if kind == "ollama":
            return _OLLAMA
        # No default: that texts leave this house is for somebody to decide.
        raise ConfigError(f"NOEMA_EMBEDDER={kind} needs {name}, such as {_FOR_EXAMPLE[kind]}.")
    # The address is not shown: people put keys into them.
    url = _url(name, text.strip(), ("https", "http"), secret=True)
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port == 0 or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{name} is not of the form https://host:port/path.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{name} holds a login, a query or a fragment. Give the bare address; the key goes "
            "into NOEMA_EMBEDDER_KEY, Azure's version into NOEMA_EMBEDDER_API_VERSION."
        )
    if host.rstrip(".") in _METADATA_NAMES or _is_off_limits(host):
        raise ConfigError(
            f"{name} names {host}, where machines keep their own secrets; no embedder is there."
        )
    if has_key and parts.scheme != "https" and not is_loopback(host):
        raise ConfigError(
            f"{name} is plain http to {host}, which would show NOEMA_EMBEDDER_KEY to the network. "
            "Use https, or take the key away."
        )
    return url.rstrip("/")


def _embedder_models(kind: EmbedderKind, text: str | None) -> tuple[str, str]:
    names = [name.strip() for name in (text or "").split(",")]
    if not all(names) or len(names) > 2 or not all(n.isprintable() for n in names):
        raise ConfigError(
            f"NOEMA_EMBEDDER={kind} needs NOEMA_EMBEDDER_MODEL: the model's name (Azure: the "
            "deployment's), or two with a comma, the first for queries, the second for documents."
        )
    if len(", ".join(names)) > 200:
        raise ConfigError("NOEMA_EMBEDDER_MODEL is longer than 200 characters.")
    return names[0], names[-1]


def _embedder_key(kind: EmbedderKind, text: str | None) -> str | None:
    if text is None:
        if kind == "azure":
            raise ConfigError("NOEMA_EMBEDDER=azure needs NOEMA_EMBEDDER_KEY.")
        if kind == "bedrock":
            raise ConfigError(
                "NOEMA_EMBEDDER=bedrock needs NOEMA_EMBEDDER_KEY, "
                "as ACCESS_KEY_ID:SECRET_ACCESS_KEY or ACCESS_KEY_ID:SECRET_ACCESS_KEY:TOKEN."
            )
        return None
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "NOEMA_EMBEDDER_KEY has a character that no key has, such as a space or an accent."
        )
    return key


def _embedder_dims(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_DIMS):
        raise ConfigError(
            f"NOEMA_EMBEDDER_DIMS is {text!r}; use a whole number from 1 to {MAX_DIMS}."
        )
    return int(text)


def _is_off_limits(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return off_limits(address)


def off_limits(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether nothing of ours may be asked there: link-local, metadata, multicast, unspecified.

    Loopback and private networks are fine: an operator's own services live there.
    """
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if mapped is None and address in _NAT64:
        mapped = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    address = address if mapped is None else mapped
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA
    )


def _secret_key(text: str | None) -> bytes | None:
    return None if text is None else key_from_text(text, name="NOEMA_SECRET_KEY")


def _bootstrap(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        raise ConfigError("NOEMA_BOOTSTRAP_ADMIN is not of the form name:password.")
    return name, password


def _networks(text: str) -> tuple[Network, ...]:
    found = []
    for part in text.replace(",", " ").split():
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError:
            raise ConfigError(
                f"NOEMA_TRUSTED_PROXIES has {part!r}, which is no address and no network; "
                "use a list such as 10.0.0.5, 192.168.0.0/16."
            ) from None
    return tuple(found)


def _port(text: str) -> int:
    # Port 0 asks the system for a free one; the daemon prints which it got.
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) <= 65535:
        raise ConfigError(f"NOEMA_PORT is {text!r}; use a whole number from 0 to 65535.")
    return int(text)


def _url(name: str, text: str, schemes: tuple[str, ...], *, secret: bool = False) -> str:
    try:
        parts = urlsplit(text)
        scheme = parts.scheme
    except ValueError:
        scheme = ""
    if scheme not in schemes:
        shown = "" if secret else f" {text!r}"
        raise ConfigError(f"{name}{shown} is not a URL that starts with {schemes[0]}://.")
    return text
