"""`llm`: which models answer, with which prompts, what they were asked, and what they may cost."""

import sys
from pathlib import Path
from typing import Any, Final

import click

from noema.cli.client import Ctl, api, pass_ctl
from noema.cli.commands import llm_values as values
from noema.cli.commands.common import example, json_option, name_argument
from noema.cli.commands.llm_costs import budget, call, spend
from noema.cli.commands.llm_providers import provider
from noema.cli.commands.llm_values import ROLES, told
from noema.cli.output import Column, CommandError, put_json, put_one, put_rows, visible

_CHAINS: Final = (
    Column(heading="ROLE", key="role"),
    Column(heading="VERSION", key="version", right=True),
    Column(heading="DEADLINE", key="deadline"),
    Column(heading="SET", key="set_at"),
    Column(heading="BY", key="actor"),
    Column(heading="ASKS", key="asks"),
    Column(heading="ASKED BY", key="asked_by"),
)
_PROMPTS: Final = (
    Column(heading="PROMPT", key="name"),
    Column(heading="IN USE", key="version", right=True),
    Column(heading="NEWEST", key="newest", right=True),
    Column(heading="SINCE", key="since"),
    Column(heading="BY", key="used_by"),
    Column(heading="NOTE", key="note"),
)
_VERSIONS: Final = (
    Column(heading="VERSION", key="version", right=True),
    Column(heading="CREATED", key="created_at"),
    Column(heading="BY", key="actor"),
    Column(heading="NOTE", key="note"),
)


@click.group(epilog=example("noemactl llm provider list", "noemactl llm call list --state failed"))
def llm() -> None:
    """Manage models: providers, roles, prompts, calls on record, budgets."""


for _command in (provider, call, spend, budget):
    llm.add_command(_command)


# --- roles ---------------------------------------------------------------------------------------


@llm.group(epilog=example("noemactl llm role set dialogue openai local"))
def role() -> None:
    """Say which providers a role asks, the primary first."""


@role.command("list", epilog=example("noemactl llm role list --json"))
@json_option
@pass_ctl
def list_roles(ctl: Ctl, as_json: bool) -> None:
    """List the roles and whom they ask."""
    rows = ctl.daemon().items(api("llm", "roles"))
    if not as_json:
        rows = [values.role_shown(row) for row in rows]
    put_rows(rows, _CHAINS, as_json=as_json, empty="No roles.")


@role.command("show", epilog=example("noemactl llm role show dialogue"))
@click.argument("name", type=click.Choice(ROLES), metavar="ROLE")
@click.option("--versions", is_flag=True, help="How it was configured before, newest first.")
@json_option
@pass_ctl
def show_role(ctl: Ctl, name: str, versions: bool, as_json: bool) -> None:
    """Show whom a role asks, and within what time."""
    if not versions:
        put_one(ctl.daemon().get(api("llm", "roles", name)), as_json=as_json)
        return
    rows = ctl.daemon().items(api("llm", "roles", name, "versions"))
    if not as_json:
        rows = [values.role_shown(row) for row in rows]
    put_rows(rows, _CHAINS, as_json=as_json, empty="Never configured.")


@role.command(
    "set",
    epilog=example(
        "noemactl llm role set dialogue openai local",
        "noemactl llm role set extract openai=gpt-4.1-nano local --deadline-ms 20000",
        "noemactl llm role set dialogue --param openai:temperature=0.2 openai",
    ),
)
@click.argument("name", type=click.Choice(ROLES), metavar="ROLE")
@click.argument("chain", nargs=-1, required=True, metavar="PROVIDER[=MODEL]...")
@click.option("--deadline-ms", type=click.IntRange(min=100), help="For all attempts together.")
@click.option(
    "--param", "params", multiple=True, metavar="PROVIDER:KEY=VALUE", help="For this role alone."
)
@json_option
@pass_ctl
def set_role(
    ctl: Ctl,
    name: str,
    chain: tuple[str, ...],
    deadline_ms: int | None,
    params: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say whom a role asks: the primary, then the fallbacks in order."""
    body: dict[str, Any] = {"chain": values.chain(chain, params)}
    if deadline_ms is not None:
        body["deadline_ms"] = deadline_ms
    made = ctl.daemon().put(api("llm", "roles", name), body)
    asks = values.role_shown(made)["asks"]
    told(made, f"{name} asks {visible(asks)} {values.from_when(made)}", as_json=as_json)


@role.command("off", epilog=example("noemactl llm role off reflect"))
@click.argument("name", type=click.Choice(ROLES), metavar="ROLE")
@json_option
@pass_ctl
def role_off(ctl: Ctl, name: str, as_json: bool) -> None:
    """Ask nobody for a role; what it does goes on without a model."""
    made = ctl.daemon().put(api("llm", "roles", name), {"chain": []})
    told(made, f"{name} asks nobody {values.from_when(made)}", as_json=as_json)


# --- prompts -------------------------------------------------------------------------------------


@llm.group(epilog=example("noemactl llm prompt diff dialogue 1 2"))
def prompt() -> None:
    """Look at prompts, write new versions, and say which is in use."""


@prompt.command("list", epilog=example("noemactl llm prompt list"))
@json_option
@pass_ctl
def list_prompts(ctl: Ctl, as_json: bool) -> None:
    """List the prompts, and which version of each is in use."""
    rows = ctl.daemon().items(api("llm", "prompts"))
    put_rows(rows, _PROMPTS, as_json=as_json, empty="No prompts.")


@prompt.command(
    "show",
    epilog=example(
        "noemactl llm prompt show dialogue", "noemactl llm prompt show dialogue --part template"
    ),
)
@name_argument
@click.option("--version", type=click.IntRange(min=1), help="The one in use unless told.")
@click.option(
    "--part", type=click.Choice(["system", "template"]), help="Print this alone, as it is."
)
@json_option
@pass_ctl
def show_prompt(ctl: Ctl, name: str, version: int | None, part: str | None, as_json: bool) -> None:
    """Show a version of a prompt."""
    shown = ctl.daemon().get(api("llm", "prompts", name), {"version": version})
    if as_json:
        put_json(shown)
    elif part is not None:
        click.echo(visible(str(shown.get(part, "")), keep="\n\t"), nl=False)
    else:
        head = {k: v for k, v in shown.items() if k not in ("system", "template")}
        put_one(head, as_json=False)
        for part_name in ("system", "template"):
            click.echo(f"\n--- {part_name}")
            click.echo(visible(str(shown.get(part_name, "")), keep="\n\t"), nl=False)


@prompt.command("versions", epilog=example("noemactl llm prompt versions dialogue"))
@name_argument
@json_option
@pass_ctl
def prompt_versions(ctl: Ctl, name: str, as_json: bool) -> None:
    """List the versions of a prompt, newest first."""
    rows = ctl.daemon().items(api("llm", "prompts", name, "versions"))
    put_rows(rows, _VERSIONS, as_json=as_json, empty="No versions.")


@prompt.command("diff", epilog=example("noemactl llm prompt diff dialogue 1 2"))
@name_argument
@click.argument("old", type=click.IntRange(min=1))
@click.argument("new", type=click.IntRange(min=1))
@json_option
@pass_ctl
def diff_prompt(ctl: Ctl, name: str, old: int, new: int, as_json: bool) -> None:
    """Show what changed between two versions, as a unified diff."""
    found = ctl.daemon().get(api("llm", "prompts", name, "diff"), {"from": old, "to": new})
    if as_json:
        put_json(found)
    else:
        click.echo(visible(str(found.get("diff", "")), keep="\n\t"), nl=False)


@prompt.command(
    "save",
    epilog=example(
        "noemactl llm prompt show dialogue --part template > dialogue.txt",
        "noemactl llm prompt save dialogue --template dialogue.txt --note 'shorter' --use",
    ),
)
@name_argument
@click.option(
    "--template",
    type=click.Path(path_type=Path, allow_dash=True),
    help="A file with the template, or -; the present one unless told.",
)
@click.option(
    "--system",
    type=click.Path(path_type=Path, allow_dash=True),
    help="A file with the system text, or -; the present one unless told.",
)
@click.option("--note", default="", help="Why; it stays with the version.")
@click.option("--use", is_flag=True, help="Put it to use at once.")
@json_option
@pass_ctl
def save_prompt(
    ctl: Ctl,
    name: str,
    template: Path | None,
    system: Path | None,
    note: str,
    use: bool,
    as_json: bool,
) -> None:
    """Save a new version of a prompt; an error names the line that is wrong."""
    if template is None and system is None:
        raise click.UsageError("Nothing to save; name --template, --system or both.")
    daemon = ctl.daemon()
    path = api("llm", "prompts", name)
    present = daemon.get(path)
    newest = daemon.items(api("llm", "prompts", name, "versions"))[0]["version"]
    body = {
        "template": _text_of(template) if template is not None else present["template"],
        "system": _text_of(system) if system is not None else present["system"],
        "note": note,
        "use": use,
        "base": newest,
    }
    saved = daemon.post(api("llm", "prompts", name, "versions"), body)
    more = ", in use now" if use else ""
    told(saved, f"Saved version {saved.get('version')} of {visible(name)}{more}", as_json=as_json)


@prompt.command("use", epilog=example("noemactl llm prompt use dialogue 1"))
@name_argument
@click.argument("version", type=click.IntRange(min=1))
@json_option
@pass_ctl
def use_prompt(ctl: Ctl, name: str, version: int, as_json: bool) -> None:
    """Put a version to use: a newer one, or an earlier one again."""
    used = ctl.daemon().post(api("llm", "prompts", name, "use"), {"version": version})
    told(used, f"{visible(name)} is at version {version} now", as_json=as_json)


def _text_of(path: Path) -> str:
    try:
        if str(path) == "-":
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise CommandError(f"Cannot read {path}: {reason}.") from None


COMMANDS: tuple[click.Command, ...] = (llm,)
