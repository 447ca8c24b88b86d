"""`llm provider`: where models are asked, and with which secret."""

import sys
from typing import Any, Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands import llm_values as values
from noema.cli.commands.common import example, json_option, name_argument
from noema.cli.commands.llm_values import told
from noema.cli.output import Column, CommandError, put_json, put_one, put_rows, visible

_KINDS: Final = ("openai", "azure", "anthropic", "ollama", "bedrock", "echo")
_PROVIDERS: Final = (
    Column(heading="PROVIDER", key="name"),
    Column(heading="KIND", key="kind"),
    Column(heading="MODEL", key="model"),
    Column(heading="ENABLED", key="is_enabled"),
    Column(heading="SECRET", key="secret"),
    Column(heading="PRIVATE", key="allows_private"),
    Column(heading="VERSION", key="version", right=True),
    Column(heading="ENDPOINT", key="endpoint"),
)


@click.group(epilog=example("noemactl llm provider create local --kind ollama --model qwen3:8b"))
def provider() -> None:
    """Manage providers: where models are asked, and with which secret."""


@provider.command("list", epilog=example("noemactl llm provider list --json | jq -r '.[].name'"))
@json_option
@pass_ctl
def list_providers(ctl: Ctl, as_json: bool) -> None:
    """List the providers; of their secrets only whether there is one, and how it ends."""
    rows = ctl.daemon().items(api("llm", "providers"))
    if not as_json:
        rows = [{**row, "secret": values.secret_shown(row)} for row in rows]
    put_rows(
        rows,
        _PROVIDERS,
        as_json=as_json,
        empty="No providers yet; make one with `noemactl llm provider create NAME --kind KIND`.",
    )


@provider.command("show", epilog=example("noemactl llm provider show openai --json"))
@name_argument
@json_option
@pass_ctl
def show_provider(ctl: Ctl, name: str, as_json: bool) -> None:
    """Show a provider: endpoint, model, parameters, prices."""
    put_one(ctl.daemon().get(api("llm", "providers", name)), as_json=as_json)


def _provider_options(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--endpoint", help="Where it is asked; the usual place unless told."),
            click.option("--model", help="What it asks for unless a role says otherwise."),
            click.option(
                "--param",
                "params",
                multiple=True,
                metavar="KEY=VALUE",
                help="A parameter to send, as temperature=0.2; extra.KEY=VALUE goes as it is.",
            ),
            click.option(
                "--price",
                "prices",
                multiple=True,
                metavar="CLASS=AMOUNT",
                help="For a million tokens, as input=2.50; also output, reasoning, cache_read, "
                "cache_write.",
            ),
            click.option(
                "--private/--public",
                "allows_private",
                default=None,
                help="Whether addresses of private networks are meant.",
            ),
            click.option(
                "--secret-stdin", is_flag=True, help="Read its secret from standard input."
            ),
        )
    ):
        command = option(command)
    return command


@provider.command(
    "create",
    epilog=example(
        "noemactl llm provider create local --kind ollama --model qwen3:8b",
        "pass show openai | noemactl llm provider create openai --kind openai \\",
        "    --model gpt-4.1-mini --price input=0.40 --price output=1.60 --secret-stdin",
    ),
)
@name_argument
@click.option("--kind", type=click.Choice(_KINDS), required=True, help="What it speaks.")
@_provider_options
@json_option
@pass_ctl
def create_provider(
    ctl: Ctl,
    name: str,
    kind: str,
    endpoint: str | None,
    model: str | None,
    params: tuple[str, ...],
    prices: tuple[str, ...],
    allows_private: bool | None,
    secret_stdin: bool,
    as_json: bool,
) -> None:
    """Make a provider.

    Its secret is never an argument, where histories and process lists keep it: it comes from
    standard input, from NOEMA_LLM_SECRET, or later by `noemactl llm provider secret NAME`.
    """
    body = _provider_body(endpoint, model, params, prices, allows_private)
    secret = _first_line() if secret_stdin else ctl.settings.llm_secret
    if secret and kind != "echo":
        body["secret"] = secret
    made = ctl.daemon().post(api("llm", "providers"), {**body, "name": name, "kind": kind})
    told(made, f"Made provider {visible(name)}", as_json=as_json)


@provider.command(
    "set",
    epilog=example(
        "noemactl llm provider set openai --model gpt-4.1 --param temperature=0.2",
        "noemactl llm provider set openai --endpoint https://eu.example.com/v1 --secret-stdin",
    ),
)
@name_argument
@_provider_options
@json_option
@pass_ctl
def set_provider(
    ctl: Ctl,
    name: str,
    endpoint: str | None,
    model: str | None,
    params: tuple[str, ...],
    prices: tuple[str, ...],
    allows_private: bool | None,
    secret_stdin: bool,
    as_json: bool,
) -> None:
    """Change a provider; what is not named stays.

    Parameters are changed as a whole, prices too. Where the endpoint moves to another host, its
    secret has to come again.
    """
    body = _provider_body(endpoint, model, params, prices, allows_private)
    if secret_stdin:
        body["secret"] = _first_line()
    if not body:
        raise click.UsageError("Nothing to change; name at least one option.")
    changed = ctl.daemon().patch(api("llm", "providers", name), body)
    told(changed, f"Changed provider {visible(name)}", as_json=as_json)


def _provider_body(
    endpoint: str | None,
    model: str | None,
    params: tuple[str, ...],
    prices: tuple[str, ...],
    allows_private: bool | None,
) -> dict[str, Any]:
    wanted = {
        "endpoint": endpoint,
        "model": model,
        "parameters": values.parameters(params) if params else None,
        "prices": values.prices(prices) if prices else None,
        "allows_private": allows_private,
    }
    return {key: value for key, value in wanted.items() if value is not None}


@provider.command(
    "secret",
    epilog=example(
        "noemactl llm provider secret openai",
        "pass show openai | noemactl llm provider secret openai -",
    ),
)
@name_argument
@click.argument("source", required=False, metavar="[-]")
@click.option("--remove", is_flag=True, help="Take the secret away.")
@json_option
@pass_ctl
def secret(ctl: Ctl, name: str, source: str | None, remove: bool, as_json: bool) -> None:
    """Set a provider's secret: asked for and not shown, or the first line of standard input.

    Without a terminal and without - it is taken from NOEMA_LLM_SECRET.
    """
    if source not in (None, "-"):
        # Not quoted back: it may be the secret.
        raise click.UsageError(
            "A secret is never an argument, where histories and process lists keep it; use -."
        )
    path = api("llm", "providers", name, "secret")
    if remove:
        changed = ctl.daemon().delete(path)
        told(changed, f"Took the secret of {visible(name)} away", as_json=as_json)
        return
    given = _first_line() if source == "-" else ctl.settings.llm_secret or _asked()
    changed = ctl.daemon().put(path, {"secret": given})
    told(changed, f"Set the secret of {visible(name)}", as_json=as_json)


@provider.command("enable", epilog=example("noemactl llm provider enable openai"))
@name_argument
@json_option
@pass_ctl
def enable(ctl: Ctl, name: str, as_json: bool) -> None:
    """Let roles ask a provider again."""
    changed = ctl.daemon().patch(api("llm", "providers", name), {"is_enabled": True})
    told(changed, f"Enabled {visible(name)}", as_json=as_json)


@provider.command("disable", epilog=example("noemactl llm provider disable openai"))
@name_argument
@json_option
@pass_ctl
def disable(ctl: Ctl, name: str, as_json: bool) -> None:
    """Ask a provider no more; roles go on to the next in their chain."""
    changed = ctl.daemon().patch(api("llm", "providers", name), {"is_enabled": False})
    told(changed, f"Disabled {visible(name)}", as_json=as_json)


@provider.command("delete", epilog=example("noemactl llm provider delete openai"))
@name_argument
@pass_ctl
def delete_provider(ctl: Ctl, name: str) -> None:
    """Remove a provider that no role and no budget names, and destroy its secret."""
    ctl.daemon().delete(api("llm", "providers", name))
    click.echo(f"Deleted provider {visible(name)}")


@provider.command("test", epilog=example("noemactl llm provider test openai"))
@name_argument
@click.option("--text", help="What to ask.")
@click.option("--model", help="Another model than the provider's.")
@json_option
@pass_ctl
def test_provider(ctl: Ctl, name: str, text: str | None, model: str | None, as_json: bool) -> None:
    """Ask a provider once; show what was sent and what came back. Ends with 1 where it failed."""
    body = {key: value for key, value in (("text", text), ("model", model)) if value is not None}
    tried = ctl.daemon().post(api("llm", "providers", name, "test"), body)
    if as_json:
        put_json(tried)
    else:
        values.put_test(tried)
    if tried.get("error"):
        raise CommandError(f"{name} did not answer: {tried['error']}")


def _first_line() -> str:
    given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise CommandError("There is no secret on standard input.")
    return given


def _asked() -> str:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask on; use -, or set NOEMA_LLM_SECRET.")
    return str(click.prompt("Secret", hide_input=True, err=True))
