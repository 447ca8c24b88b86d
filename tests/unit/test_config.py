"""Settings come from the environment and a file, and a bad one stops the start with its name."""

from pathlib import Path

import pytest

from noema.config import Settings, load, load_client
from noema.core.errors import ConfigError

HOME = {"HOME": "/home/ada"}


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(**environ: str) -> Settings:
    return load(HOME | environ)


def test_the_first_administrator_is_a_name_and_a_password_that_may_hold_colons() -> None:
    settings = load(HOME | {"NOEMA_BOOTSTRAP_ADMIN": "root:a:canary"})

    assert settings.bootstrap_admin == ("root", "a:canary")
    assert "canary" not in repr(settings)


@pytest.mark.parametrize("name", ["NOEMA_BOOTSTRAP_ADMIN", "NOEMA_SECRET_KEY"])
@pytest.mark.parametrize("value", ["canary", "canary:", ":canary"])
def test_guarantee_18_a_secret_setting_that_cannot_be_read_is_named_and_not_shown(
    name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        load(HOME | {name: value})

    assert "canary" not in str(refused.value)


def test_without_settings_a_daemon_listens_on_loopback_with_its_own_database() -> None:
    settings = loaded()

    assert settings.embedded
    assert settings.data_dir == Path("/home/ada/.local/share/noema")
    assert settings.base_url == "http://127.0.0.1:8420"
    assert (settings.env, settings.secure) == ("production", False)


def test_the_environment_wins_over_the_file() -> None:
    Path("noema.toml").write_text('port = 1000\nlog_level = "debug"\n')

    settings = loaded(NOEMA_PORT="2000")

    assert (settings.port, settings.log_level) == (2000, "debug")


def test_an_empty_variable_counts_as_unset() -> None:
    assert loaded(NOEMA_PORT="", DATABASE_URL="").port == 8420


def test_the_owner_defaults_to_the_one_login_there_is() -> None:
    settings = loaded(DATABASE_URL="postgresql://db/noema")

    assert not settings.embedded
    assert settings.owner_database_url == "postgresql://db/noema"


def test_a_public_https_address_allows_listening_to_others() -> None:
    settings = loaded(NOEMA_HOST="0.0.0.0", NOEMA_PUBLIC_URL="https://noema.example/")

    assert settings.base_url == "https://noema.example"
    assert settings.secure


def test_development_may_listen_to_others_without_tls() -> None:
    assert loaded(NOEMA_HOST="0.0.0.0", NOEMA_ENV="development").host == "0.0.0.0"


def test_an_ipv6_host_is_bracketed_in_the_address() -> None:
    assert loaded(NOEMA_HOST="::1").base_url == "http://[::1]:8420"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NOEMA_PROT": "1"}, "Unknown setting NOEMA_PROT"),
        ({"NOEMA_PORT": "http"}, "NOEMA_PORT is 'http'"),
        ({"NOEMA_PORT": "65536"}, "NOEMA_PORT"),
        ({"NOEMA_PORT": "-1"}, "NOEMA_PORT"),
        ({"NOEMA_PORT": "\u0664\u0662"}, "NOEMA_PORT"),
        ({"NOEMA_ENV": "prod"}, "NOEMA_ENV is 'prod'"),
        ({"NOEMA_LOG_LEVEL": "loud"}, "NOEMA_LOG_LEVEL"),
        ({"NOEMA_LOG_FORMAT": "xml"}, "NOEMA_LOG_FORMAT"),
        ({"NOEMA_HOST": "0.0.0.0"}, "Put TLS in front"),
        ({"NOEMA_HOST": "0.0.0.0", "NOEMA_PUBLIC_URL": "http://x"}, "Put TLS in front"),
        ({"NOEMA_PUBLIC_URL": "noema.example"}, "NOEMA_PUBLIC_URL"),
        ({"NOEMA_OWNER_DATABASE_URL": "postgresql://db/x"}, "without DATABASE_URL"),
    ],
)
def test_a_wrong_setting_is_named_with_its_reason(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(HOME | environ)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["DATABASE_URL", "NOEMA_OWNER_DATABASE_URL"])
def test_a_wrong_database_address_is_refused_without_showing_its_password(name: str) -> None:
    environ = HOME | {"DATABASE_URL": "postgresql://db/x", name: "mysql://u:s3cret@db/x"}

    with pytest.raises(ConfigError, match=name) as caught:
        load(environ)

    assert "s3cret" not in str(caught.value)


def test_settings_never_print_a_database_address() -> None:
    assert "s3cret" not in repr(loaded(DATABASE_URL="postgresql://u:s3cret@db/x"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "Unknown setting 'prot'"),
        ("port = true", "must be a string or a whole number"),
        ("port = [1]", "must be a string or a whole number"),
        ("port = ", "Cannot read settings file"),
    ],
)
def test_a_wrong_file_is_named(text: str, message: str) -> None:
    Path("noema.toml").write_text(text)

    with pytest.raises(ConfigError, match=message):
        loaded()


def test_a_file_that_was_asked_for_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"No settings file .*absent\.toml"):
        load(HOME, file=Path("absent.toml"))


def test_the_client_finds_its_place_for_credentials() -> None:
    assert load_client(HOME).config_dir == Path("/home/ada/.config/noema")
    assert load_client(HOME | {"XDG_CONFIG_HOME": "/x"}).config_dir == Path("/x/noema")


def test_the_client_never_prints_its_token() -> None:
    settings = load_client(HOME | {"NOEMA_URL": "http://h", "NOEMA_TOKEN": "noema_secret"})

    assert (settings.url, settings.token) == ("http://h", "noema_secret")
    assert "noema_secret" not in repr(settings)


def test_trusted_proxies_are_addresses_and_networks() -> None:
    settings = loaded(NOEMA_TRUSTED_PROXIES="10.0.0.5, 192.168.0.0/16 ::1")

    assert [str(n) for n in settings.trusted_proxies] == [
        "10.0.0.5/32",
        "192.168.0.0/16",
        "::1/128",
    ]
    assert loaded().trusted_proxies == ()


@pytest.mark.parametrize("value", ["proxy.example", "10.0.0.1/8", "10.0.0.0/33", "*"])
def test_a_trusted_proxy_that_is_no_address_stops_the_start(value: str) -> None:
    with pytest.raises(ConfigError, match="NOEMA_TRUSTED_PROXIES"):
        loaded(NOEMA_TRUSTED_PROXIES=value)
