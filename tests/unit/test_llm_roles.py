"""Which roles there are, and who asks them."""

import re
from pathlib import Path

import pytest

from noema.cli.commands.llm_values import ROLES, from_when, role_shown
from noema.core.errors import InvalidInput
from noema.llm.defaults import DEFAULTS
from noema.llm.embedders.choice import InForce
from noema.llm.model import Role
from noema.llm.roles import ASKED_BY, asked_by
from noema.web.llm_forms import role_of
from noema.web.llm_reply import unset_role
from noema.web.pages.llm_roles import ABOUT

HASH = InForce(model="hash", source="NOEMA_EMBEDDER", destination="local")
PACKAGE = Path(__file__).parents[2] / "noema"


def test_who_asks_a_role_is_said_of_those_that_are_asked_and_of_no_other() -> None:
    asking = [*PACKAGE.glob("memory/model_*.py"), *PACKAGE.glob("cognition/processes/*.py")]
    # The one that is answered by vectors, and has no prompt.
    assert "Role.EMBED" in (PACKAGE / "llm/embedders/choice.py").read_text()
    named = set(re.findall(r'"([a-z]+)"', "".join(path.read_text() for path in asking)))

    assert {role.value for role in ASKED_BY} == named & set(DEFAULTS) | {"embed"}


def test_page_command_and_program_know_the_same_roles_and_say_who_asks() -> None:
    assert set(ROLES) == set(Role) == set(ABOUT)
    for role in Role:
        row = unset_role(role, HASH)
        assert row["asked_by"] == asked_by(role)
        assert role_shown(row)["asked_by"] == (asked_by(role) or "nothing yet")


def test_of_vectors_it_is_said_what_makes_them_and_when_a_change_takes_effect() -> None:
    row = unset_role(Role.EMBED, HASH)

    assert (row["in_force"], row["takes_effect"]) == (HASH, "when the daemon starts again")
    assert from_when(row).startswith("when the daemon starts again")
    assert from_when(unset_role(Role.PLAN, HASH)) == "now"


def test_a_role_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="summarise, embed, not 'dream'"):
        role_of("dream")
