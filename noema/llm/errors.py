"""What can go wrong when a model is asked.

* Unavailable
  x AttemptFailed    code "model_unavailable"   one attempt at one provider
  x NoModel          code "no_model"            the role has no model
* NoemaError
  x BudgetExceeded   code "budget_exceeded"
  x BadAnswer        code "bad_answer"          an answer came, and cannot be used

No message holds a secret: what a provider sends is scrubbed before it becomes part of one.
"""

from noema.core.errors import NoemaError, Unavailable
from noema.llm.model import Usage


class AttemptFailed(Unavailable):
    """One attempt at one provider brought no answer.

    `retryable` says whether the same request may do better later, and `retry_after_s` how many
    seconds the provider asked for, None where it did not. `status` is the HTTP status, None where
    none came. `usage` is what was used as far as the provider said; `is_cost_unknown` is true where
    the model may have worked for it, so that the cost is not zero but unknown.
    """

    code = "model_unavailable"

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after_s: float | None = None,
        status: int | None = None,
        usage: Usage | None = None,
        is_cost_unknown: bool,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.status = status
        self.usage = Usage() if usage is None else usage
        self.is_cost_unknown = is_cost_unknown


class NoModel(Unavailable):
    """Nobody configured a model for the role, or it was turned off."""

    code = "no_model"


class BudgetExceeded(NoemaError):  # noqa: N818
    """A budget has nothing left for another attempt; nothing was asked."""

    code = "budget_exceeded"


class BadAnswer(NoemaError):  # noqa: N818
    """The model answered, even after one repair, with something that is not what was asked for."""

    code = "bad_answer"
