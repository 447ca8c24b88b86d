"""Azure OpenAI: chat completions behind another address and another header.

There are two forms of address. The newer one, `https://…/openai/v1`, takes the deployment as the
model in the body. The older one has the deployment in its path and a dated version in its query.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from noema.llm.model import Parameters
from noema.llm.providers.asking import merged, with_path
from noema.llm.providers.openai import API_VERSION, OpenAIProvider

# The last version of the older form that is no preview.
VERSION: Final = "2024-10-21"
_DEPLOYMENTS: Final = "/openai/deployments"


class AzureProvider(OpenAIProvider):
    """Chat completions of one Azure resource; the model is the name of a deployment.

    `endpoint` is `https://<resource>.openai.azure.com`, with the path as far as it is known. The
    newer form is used unless the path says `/openai/deployments` or a version is set, as
    `api_version` in `extra` or in the endpoint's query.
    """

    def _url(self, model: str, parameters: Parameters) -> str:
        parts = urlsplit(self._endpoint)
        query = dict(parse_qsl(parts.query))
        version = merged(self._parameters, parameters).extra.get(API_VERSION)
        if isinstance(version, str) and version:
            query["api-version"] = version
        path = parts.path.rstrip("/")
        if self._names_model(parameters):
            path = path if "/openai/v1" in path else f"{path.removesuffix('/openai')}/openai/v1"
        else:
            query.setdefault("api-version", VERSION)
            if _DEPLOYMENTS not in path:
                path = f"{path.removesuffix('/openai')}{_DEPLOYMENTS}"
            if path.endswith(_DEPLOYMENTS):
                path = f"{path}/{quote(model, safe='')}"
        url = urlunsplit(parts._replace(path=path, query=urlencode(query)))
        return with_path(url, "/chat/completions")

    def _headers(self) -> Mapping[str, str]:
        return {"api-key": self._secret} if self._secret else {}

    def _names_model(self, parameters: Parameters) -> bool:
        parts = urlsplit(self._endpoint)
        if "/openai/v1" in parts.path:
            return True
        is_versioned = parameters.extra.get(API_VERSION) or "api-version" in parts.query
        return not is_versioned and _DEPLOYMENTS not in parts.path
