"""What a memory must be protected as: sensitivity, personal data, credentials, destinations.

Every text passes here, by whatever way it came in. What goes wrong in here never lets a text
through unlabelled: it is labelled restricted then, and the label says what went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from noema.memory import credentials, personal
from noema.memory.model import Label, Sensitivity

log = structlog.get_logger()

WITHIN_S: Final = 10.0
"""How long a classifier may take for all texts of a request, in seconds."""

_RANK: Final[Mapping[Sensitivity, int]] = MappingProxyType(
    {level: rank for rank, level in enumerate(Sensitivity)}
)

# `provider` is a model service outside, `peer` another daemon. What is restricted stays here.
DESTINATIONS: Final[Mapping[Sensitivity, tuple[str, ...]]] = MappingProxyType(
    {
        Sensitivity.PUBLIC: ("local", "peer", "provider"),
        Sensitivity.INTERNAL: ("local", "peer", "provider"),
        Sensitivity.CONFIDENTIAL: ("local", "provider"),
        Sensitivity.RESTRICTED: ("local",),
    }
)


OPEN: Final = Label(sensitivity=Sensitivity.PUBLIC, destinations=DESTINATIONS[Sensitivity.PUBLIC])
"""The label that asks for nothing."""


class Classifier(Protocol):
    """Labels texts. Whatever it raises, and being late, labels them restricted."""

    @property
    def name(self) -> str: ...

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        """Return one label per text, in order."""
        ...


class Rules:
    """The classifier that is always there: shapes, check digits and words around them.

    Credentials, payment cards and national ids make a text restricted; other personal data make it
    confidential; what is left is internal. Nothing is public because nothing was found in it.
    """

    name: Final = "rules-1"

    async def labels(self, texts: Sequence[str]) -> Sequence[Label]:
        """Return one label per text; a text that cannot be labelled spoils no other."""
        found = []
        for number, text in enumerate(texts):
            # A long transcript must not keep everybody else waiting.
            if number and number % 32 == 0:
                await asyncio.sleep(0)
            found.append(self.label(text))
        return found

    def label(self, text: str) -> Label:
        """Return the label of one text."""
        try:
            return _rules_label(text, self.name)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the text keeps its protection
            log.warning("classifier_failed", classifier=self.name, error=type(exc).__name__)
            return failed(exc)


def _rules_label(text: str, name: str) -> Label:
    pii = personal.kinds(text)
    secrets = credentials.kinds(text)
    if secrets or personal.RESTRICTED.intersection(pii):
        level = Sensitivity.RESTRICTED
    else:
        level = Sensitivity.CONFIDENTIAL if pii else Sensitivity.INTERNAL
    return Label(
        sensitivity=level,
        pii=pii,
        secrets=secrets,
        destinations=DESTINATIONS[level],
        classifier=name,
    )


def failed(exc: BaseException) -> Label:
    """Return the label of a text whose classifier failed."""
    return Label(
        sensitivity=Sensitivity.RESTRICTED,
        destinations=DESTINATIONS[Sensitivity.RESTRICTED],
        classifier=f"error:{type(exc).__name__}",
    )


def is_failed(label: Label) -> bool:
    """Whether a classifier failed over the text, and the label is strict for that reason alone."""
    return label.classifier.startswith("error:")


async def classify(classifiers: Sequence[Classifier], texts: Sequence[str]) -> list[Label]:
    """Return one label per text: the strictest of all, with what each classifier found."""
    labels: list[Label] | None = None
    for classifier in classifiers:
        found = await _labels_of(classifier, texts)
        labels = found if labels is None else list(map(strictest, labels, found))
    if labels is None:
        # No classifier is as bad as one that fails.
        return [failed(LookupError()) for _ in texts]
    return labels


def may_leave_by(
    classifiers: Sequence[Classifier],
) -> Callable[[Sequence[str]], Awaitable[Sequence[bool]]]:
    """Return who says of texts whether they may be shown to a provider, by these classifiers."""

    async def may_leave(texts: Sequence[str]) -> Sequence[bool]:
        if not texts:
            return ()
        return ["provider" in label.destinations for label in await classify(classifiers, texts)]

    return may_leave


async def _labels_of(classifier: Classifier, texts: Sequence[str]) -> list[Label]:
    try:
        async with asyncio.timeout(WITHIN_S):
            found = list(await classifier.labels(texts))
        if len(found) == len(texts):
            return found
        error: Exception = ValueError("labels are missing")
    except Exception as exc:  # noqa: BLE001 - whatever it is, the texts keep their protection
        error = exc
    log.warning("classifier_failed", classifier=classifier.name, error=type(error).__name__)
    return [failed(error) for _ in texts]


def strictest(one: Label, *others: Label) -> Label:
    """Return a label at least as strict as each: all they found, only where all may go.

    `classifier` names them all, an error first.
    """
    if not others:
        return one
    labels = (one, *others)
    level = max((label.sensitivity for label in labels), key=_RANK.__getitem__)
    allowed = set(DESTINATIONS[level]).intersection(*(label.destinations for label in labels))
    names = {name for label in labels for name in label.classifier.split(" + ") if name}
    return Label(
        sensitivity=level,
        pii=tuple(sorted({kind for label in labels for kind in label.pii})),
        secrets=tuple(sorted({kind for label in labels for kind in label.secrets})),
        destinations=tuple(sorted(allowed)),
        classifier=" + ".join(
            sorted(names, key=lambda name: (not name.startswith("error:"), name))
        ),
    )


def covers(label: Label, least: Label) -> bool:
    """Whether the label is no less strict than the other in everything."""
    return (
        _RANK[label.sensitivity] >= _RANK[least.sensitivity]
        and {*label.destinations} <= {*least.destinations}
        and {*label.pii} >= {*least.pii}
        and {*label.secrets} >= {*least.secrets}
    )


def at_least(label: Label, level: Sensitivity) -> Label:
    """Return the label, no less strict than the level."""
    if _RANK[label.sensitivity] >= _RANK[level]:
        return label
    return strictest(label, Label(sensitivity=level, destinations=DESTINATIONS[level]))


def inherited(label: Label, *sources: Label) -> Label:
    """Return the label, no less strict than those it was derived from.

    What was found in a source is not said to be in here; where a source may not go, neither may
    what was made of it.
    """
    for source in sources:
        label = at_least(label, source.sensitivity)
        allowed = tuple(d for d in label.destinations if d in source.destinations)
        if allowed != label.destinations:
            label = Label(
                sensitivity=label.sensitivity,
                pii=label.pii,
                secrets=label.secrets,
                destinations=allowed,
                classifier=label.classifier,
            )
    return label
