"""Every error that Noema raises on purpose.

* NoemaError            code "internal"
  x InvalidInput        code "invalid"
    x ConfigError       code "config"
    x TooLarge          code "too_large"
    x UnsupportedMedia  code "unsupported_media_type"
  x Unauthorised        code "unauthorised"
  x Denied              code "denied"
  x NotFound            code "not_found"
  x Conflict            code "conflict"
    x IdempotencyReuse  code "idempotency_key_reused"
    x LeaseLost         code "lease_lost"
  x RateLimited         code "rate_limited"
  x Unavailable         code "unavailable"
    x DatabaseTooOld    code "database_too_old"
    x DataDirBusy       code "data_dir_busy"
    x MigrationError    code "migration"

The message is one or two sentences for a person: what happened, and what to do. It never holds a
secret. The code is for machines and never changes.
"""

from typing import ClassVar


class NoemaError(Exception):
    """Base class: the message is for the person, the code for the machine."""

    code: ClassVar[str] = "internal"


class InvalidInput(NoemaError):  # noqa: N818
    """What came in cannot be used; the message names the field and what would be right."""

    code = "invalid"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigError(InvalidInput):
    """A setting is unknown, malformed or contradicts another."""

    code = "config"


class TooLarge(InvalidInput):
    """More than the stated limit; nothing of it was kept."""

    code = "too_large"


class UnsupportedMedia(InvalidInput):
    """A body that is not of the media type the route takes."""

    code = "unsupported_media_type"


class Unauthorised(NoemaError):  # noqa: N818
    """No credential, or one that is not known here."""

    code = "unauthorised"


class Denied(NoemaError):  # noqa: N818
    """The credential is known and may not do this."""

    code = "denied"


class NotFound(NoemaError):  # noqa: N818
    """No such thing, or none that the caller may see."""

    code = "not_found"

    def __init__(self, kind: str, key: object) -> None:
        super().__init__(f"No {kind} {key} that you may see.")
        self.kind, self.key = kind, key


class Conflict(NoemaError):  # noqa: N818
    """Somebody else got there first, or the thing is in a state that forbids this."""

    code = "conflict"


class IdempotencyReuse(Conflict):
    """An idempotency key came again with another body."""

    code = "idempotency_key_reused"


class LeaseLost(Conflict):
    """Another daemon runs this mind now; the unit was refused and nothing of it was kept."""

    code = "lease_lost"


class RateLimited(NoemaError):  # noqa: N818
    """Too much at once; the caller may try again after `retry_after_s` seconds."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after_s: int = 2) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(NoemaError):  # noqa: N818
    """A thing that is needed cannot be reached now; trying again later may help."""

    code = "unavailable"


class DatabaseTooOld(Unavailable):
    """The server's PostgreSQL is older than 15."""

    code = "database_too_old"


class DataDirBusy(Unavailable):
    """Another daemon owns this data directory."""

    code = "data_dir_busy"


class MigrationError(Unavailable):
    """The schema is not what the migrations say, or one of them failed."""

    code = "migration"
