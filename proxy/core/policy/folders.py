"""Whether a path lies inside a folder: by the text alone; links, `~` and `$VAR` are not seen.

Readers of paths differ: on backslashes, drive letters, `file:` URLs and white space around. A text that they read
differently may be inside to one and outside to another; both answers are given.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

_DRIVE_OR_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]")


@dataclass(frozen=True, slots=True)
class Folder:
    path: str

    @classmethod
    def of(cls, path: str) -> Folder:
        """Raises ValueError."""
        if not path.startswith("/"):
            raise ValueError(f"expected an absolute path, got '{path[:60]}'")
        return cls("/" + posixpath.normpath(path).strip("/"))

    def takes_in(self, text: str) -> frozenset[bool]:
        """Whether the path is inside, by each reading."""
        spellings = {text, text.strip()}
        spellings |= {spelling.replace("\\", "/") for spelling in spellings}
        return frozenset(map(self._has, spellings))

    def _has(self, text: str) -> bool:
        if "\0" in text or _DRIVE_OR_SCHEME.match(text):
            return False
        whole = "/" + posixpath.normpath(posixpath.join(self.path, text)).lstrip("/")
        return self.path == "/" or whole == self.path or whole.startswith(self.path + "/")
