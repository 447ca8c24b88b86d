"""One request on its way to a handler: who asks, what came, and the shape of a route."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from noema.auth.model import Bearer, Credential, Session
from noema.auth.sight import Sight
from noema.core.errors import Denied, InvalidInput, UnsupportedMedia
from noema.core.identity import ConsoleRole, Identity
from noema.web import forms
from noema.web.services import Services

T = TypeVar("T")

Need = Literal["public", "session", "read", "write"]
"""Who may call: anybody; a browser session alone; who may read; who may change something."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A request that was let in. `identity` is None on public routes only."""

    request: Request
    services: Services
    identity: Identity | None = None
    session: Session | None = None
    bearer: Bearer | None = None
    body: bytes = b""
    form: Mapping[str, str] = field(default_factory=dict)
    is_dispatched: bool = False
    """Whether a syscall has begun, which puts every outcome on record itself."""

    @property
    def who(self) -> Identity:
        """The identity that acts."""
        if self.identity is None:
            raise Denied("This needs somebody to act; log in first.")
        return self.identity

    @property
    def sight(self) -> Sight:
        """What the identity sees; the services of this call show no more than that."""
        return Sight.of(self.credential)

    @property
    def credential(self) -> Credential:
        """The session or the token that was let in."""
        found = self.session or self.bearer
        if found is None:
            raise Denied("This needs somebody to act; log in first.")
        return found

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters behind the question mark."""
        return self.request.query_params

    @property
    def key(self) -> str | None:
        """The idempotency key, where one came."""
        return self.request.headers.get("idempotency-key")

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def json(self, type_: type[T]) -> T:
        """Return the body as that type; raises InvalidInput or UnsupportedMedia."""
        sent = self.request.headers.get("content-type", "").split(";")[0].strip().lower()
        if sent != "application/json":
            raise UnsupportedMedia(
                f"Send JSON with Content-Type: application/json, not {sent[:60] or 'nothing'}."
            )
        if not self.body:
            raise InvalidInput("The body is empty; send a JSON object.")
        return forms.decode(self.body, type_)


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One line of the table of routes; `is_keyed` where it heeds an idempotency key.

    `op` is the syscall the route leads to: what is turned away before it begins is on record under
    that name.
    """

    method: Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
    path: str
    handler: Handler
    need: Need
    role: ConsoleRole = ConsoleRole.OBSERVER
    summary: str = ""
    takes: type[Any] | None = None
    query: tuple[str, ...] = ()
    status: int = 200
    limit_bytes: int = 1024 * 1024
    is_page: bool = False
    is_keyed: bool = False
    op: str | None = None
