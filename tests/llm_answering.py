"""A model service that answers each of Noema's prompts as a test says."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noema.app import Noema
from noema.llm.configured import Link, NewProvider
from noema.llm.model import Role
from tests.llm_fake import FakeOpenAI, Reply, Request
from tests.llm_house import ADMIN

# The first words of what each prompt that is shipped tells the model.
_BEGINS: Final[Mapping[str, str]] = {
    "extract": "You take a text apart",
    "verify": "You check whether",
    "judge": "You judge how",
    "reflect": "You look back",
    "plan": "You plan how",
    "dialogue": "You are ",
}


class Answering(FakeOpenAI):
    """Answers by prompt: with a text, an object as JSON, or a reply as it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.says: dict[str, str | Mapping[str, Any] | Reply] = {}
        self.asked: list[tuple[str, str]] = []

    def usual(self, request: Request) -> Reply:
        messages = request.json["messages"]
        system = messages[0]["content"]
        name = next(n for n, words in _BEGINS.items() if system.startswith(words))
        # In a repair, what is said last is what was wrong.
        self.asked.append((name, messages[1]["content"]))
        answer = self.says.get(name, "Well.")
        if isinstance(answer, Reply):
            return answer
        self.text = answer if isinstance(answer, str) else json.dumps(answer)
        return super().usual(request)

    def questions(self, name: str) -> list[str]:
        """Return what the model was asked by the prompt, in order."""
        return [asked for prompt, asked in self.asked if prompt == name]


async def configure(noema: Noema, fake: FakeOpenAI, roles: Sequence[str]) -> None:
    """Have the daemon ask the service for these roles."""
    await noema.llm.registry.create(
        ADMIN,
        NewProvider(
            name="fake",
            kind="openai",
            endpoint=f"{fake.url}/v1",
            model="gpt-fake",
            allows_private=True,
        ),
    )
    for role in roles:
        await noema.llm.registry.set_role(ADMIN, Role(role), [Link(provider="fake")])
