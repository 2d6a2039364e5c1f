"""The CEL library without its command line, which its package imports beside it.

That command line brings terminals, colours and prompts with it: 280 modules, and an eighth of a proxy's memory. An
empty module stands in its place while the package is imported, and is gone again afterwards.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

_COMMAND_LINE = "cel.cli"


def _imported() -> ModuleType:
    placeholder = None if _COMMAND_LINE in sys.modules else ModuleType(_COMMAND_LINE)
    if placeholder is not None:
        sys.modules[_COMMAND_LINE] = placeholder
    try:
        return import_module("cel")
    finally:
        if placeholder is not None:
            del sys.modules[_COMMAND_LINE]


cel = _imported()
