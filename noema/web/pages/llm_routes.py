"""The addresses of pages about models: operators look, administrators change."""

from typing import Final

from noema.core.identity import ConsoleRole
from noema.web.call import Endpoint, Handler
from noema.web.pages import (
    llm_budgets,
    llm_calls,
    llm_prompts,
    llm_providers,
    llm_roles,
    llm_spend,
)

_PROVIDER: Final = "/models/providers/{name}"
_ROLE: Final = "/models/roles/{role}"
_PROMPT: Final = "/models/prompts/{name}"


def _look(path: str, handler: Handler, role: ConsoleRole = ConsoleRole.OPERATOR) -> Endpoint:
    return Endpoint(method="GET", path=path, handler=handler, need="read", role=role, is_page=True)


def _change(path: str, handler: Handler) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        handler=handler,
        need="write",
        role=ConsoleRole.ADMINISTRATOR,
        is_page=True,
    )


LLM: Final[tuple[Endpoint, ...]] = (
    _look("/models", llm_providers.show),
    _look("/models/new", llm_providers.new, ConsoleRole.ADMINISTRATOR),
    _change("/models/new", llm_providers.create),
    _look(_PROVIDER, llm_providers.show_one),
    _change(_PROVIDER, llm_providers.change),
    _change(f"{_PROVIDER}/secret", llm_providers.set_secret),
    _change(f"{_PROVIDER}/enable", llm_providers.enable),
    _change(f"{_PROVIDER}/disable", llm_providers.disable),
    _change(f"{_PROVIDER}/delete", llm_providers.delete),
    _change(f"{_PROVIDER}/test", llm_providers.test),
    _look("/models/roles", llm_roles.show),
    _look(_ROLE, llm_roles.show_one),
    _change(_ROLE, llm_roles.save),
    _change(f"{_ROLE}/back", llm_roles.put_back),
    _look("/models/prompts", llm_prompts.show),
    _look(_PROMPT, llm_prompts.show_one),
    _change(_PROMPT, llm_prompts.save),
    # It keeps nothing; whoever may read a prompt may try one.
    Endpoint(
        method="POST",
        path=f"{_PROMPT}/preview",
        handler=llm_prompts.preview,
        need="read",
        role=ConsoleRole.OPERATOR,
        is_page=True,
    ),
    _change(f"{_PROMPT}/use", llm_prompts.use),
    _look("/models/calls", llm_calls.show),
    _look("/models/calls/{id}", llm_calls.show_one),
    _look("/models/spend", llm_spend.show),
    _look("/models/budgets", llm_budgets.show),
    _change("/models/budgets", llm_budgets.save),
    _change("/models/budgets/{id}/end", llm_budgets.end),
)
