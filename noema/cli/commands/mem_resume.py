"""Where an import that was interrupted goes on: one small file for each source and daemon.

It is a convenience: without it an import begins anew, and what was stored is deduplicated.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from noema.cli.commands.mem_sending import Tally
from noema.cli.importing import Identity, Mark
from noema.cli.output import CommandError
from noema.core.clock import Clock

_VERSION: Final = 1
_EVERY_S: Final = 1.0
_ANEW: Final = "--restart begins anew; what is there already is deduplicated."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far an import came: all up to `mark` is done and counted in `tally`."""

    salt: str
    mark: Mark
    tally: Tally
    rejects_bytes: int = 0


class ResumePoint:
    """The file that keeps the place of one import.

    `about` is what must be the same for going on to make sense: the namespace that is written to
    and the options that shape what is written.
    """

    def __init__(
        self, folder: Path, *, url: str, source: Identity, about: Mapping[str, Any], clock: Clock
    ) -> None:
        name = sha256(f"{url}\n{source.path}".encode("utf-8", "backslashreplace")).hexdigest()
        self.path = folder / f"{name[:32]}.json"
        self._source, self._about, self._clock = source, dict(about), clock
        self._saved_at: float | None = None

    def load(self) -> Place | None:
        """Return the place to go on at, None where there is none.

        Raises CommandError where the source, or what is to be written, is not what it was.
        """
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            if kept["version"] != _VERSION:
                return None
            place = Place(
                salt=str(kept["salt"]),
                mark=Mark(**kept["mark"]),
                tally=Tally(**kept["tally"]),
                rejects_bytes=int(kept["rejects_bytes"]),
            )
            source, about = kept["source"], kept["about"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError, KeyError):
            raise CommandError(f"Cannot use {self.path}; {_ANEW}") from None
        done = f"An import of {self._source.path} stopped behind {place.mark.items:,} items"
        if source != asdict(self._source):
            raise CommandError(f"{done}, and it has changed since. {_ANEW}")
        for key, value in self._about.items():
            if about.get(key) != value:
                raise CommandError(f"{done} with another {key} ({about.get(key)}). {_ANEW}")
        return place

    def save(self, place: Place, *, now: bool = False) -> None:
        """Keep the place, at most once a second unless `now`."""
        at = self._clock.monotonic()
        if not now and self._saved_at is not None and at - self._saved_at < _EVERY_S:
            return
        self._saved_at = at
        kept = {
            "version": _VERSION,
            "source": asdict(self._source),
            "about": self._about,
            "salt": place.salt,
            "mark": asdict(place.mark),
            "tally": asdict(place.tally),
            "rejects_bytes": place.rejects_bytes,
        }
        try:
            _replace(self.path, json.dumps(kept))
        except OSError as exc:
            raise CommandError(
                f"Cannot keep in {self.path.parent} how far the import is: {exc.strerror}. "
                "Make room there, or name another place with XDG_CACHE_HOME."
            ) from exc

    def clear(self) -> None:
        """Forget the place; the import is complete."""
        self.path.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    """Write the file whole or not at all, for its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".import-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
