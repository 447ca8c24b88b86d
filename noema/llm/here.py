"""Whether what a model is shown stays on this machine."""

from urllib.parse import urlsplit

from noema.core.host import is_loopback
from noema.llm.providers.ollama import HANDED_ON


def stays_here(endpoint: str, *models: str) -> bool:
    """Whether the address is this machine's, and none of the models is run at its makers'."""
    if any(model.endswith(HANDED_ON) for model in models):
        return False
    return is_loopback(urlsplit(endpoint).hostname or "")
