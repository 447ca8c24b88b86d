"""What a model read out of a text, held against the text by its words, without a model.

A clause of the text is *told* where at least two thirds of its terms stand in the statements, and
every number of it does; a statement is *foreign* where fewer than half of its own stand in the
text. Words tell neither what is meant nor whether it is denied: that is what a verifying model is
for. They tell what was left out altogether, and what was never said.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from noema.memory.analyse import terms

# A comma inside a number, or a point inside a name, ends nothing: white space has to follow; but
# not where one writes without any.
_CLAUSES: Final = re.compile("(?<=[.!?;:,])\\s+|[\u3002\uff01\uff1f\uff1b\uff0c\u3001\n]+")
_DIGIT: Final = re.compile(r"\d")


def untold(text: str, statements: Iterable[str]) -> list[str]:
    """Return the clauses of the text that the statements do not tell, in order."""
    told = {term for statement in statements for term in terms(statement)}
    return [clause for clause in _CLAUSES.split(text) if clause and not _is_told(clause, told)]


def _is_told(clause: str, told: set[str]) -> bool:
    said = set(terms(clause))
    missing = said - told
    if any(_DIGIT.search(term) for term in missing):
        return False
    return 3 * len(missing) <= len(said)


def foreign(statements: Sequence[str], text: str) -> frozenset[int]:
    """Return the places of the statements that the text has too few words of."""
    known = set(terms(text))
    places = set()
    for place, statement in enumerate(statements):
        said = set(terms(statement))
        if 2 * len(said & known) < len(said):
            places.add(place)
    return frozenset(places)
