"""The OpenAPI 3.1 description, made from the table of routes and the types of its bodies."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from noema import __version__
from noema.core.identity import ConsoleRole
from noema.web.call import Endpoint

_PARAMETER = re.compile(r"{(\w+)(?::path)?}")


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the description of the API's endpoints."""
    types = list(dict.fromkeys(e.takes for e in endpoints if e.takes is not None))
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, by_type)
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = operation
    components["Problem"] = {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string"},
            "field": {"type": "string"},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Noema",
            "version": __version__,
            "description": "Minds that people can watch, explain, replay and govern.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "noema_session"},
            },
        },
    }


def _operation(endpoint: Endpoint, by_type: dict[Any, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(endpoint.path)
    ]
    parameters.extend(
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in endpoint.query
    )
    if endpoint.is_keyed:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "maxLength": 200},
            }
        )
    slug = _PARAMETER.sub(r"\1", endpoint.path.strip("/")).replace("/", "_")
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{slug}",
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {
            str(endpoint.status): {"description": "Done."},
            "default": {
                "description": "What went wrong, and what to do.",
                "content": {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                },
            },
        },
    }
    if endpoint.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_type[endpoint.takes]}},
        }
    if endpoint.need == "public":
        operation["security"] = []
    else:
        operation["security"] = [{"token": []}, {"session": []}]
        if endpoint.role is not ConsoleRole.NONE:
            operation["description"] = f"Needs the console role {endpoint.role.value} or above."
    return operation
