"""`sidecall schema`: JSON Schemas for editors."""

from __future__ import annotations

import argparse

from proxy.authoring.schemas import MODELS, rendered, schema_of, schema_of_all
from proxy.commands.terminal import Commands

_EPILOG = """\
example:
  sidecall schema > .sidecall.schema.json
and as the first line of a policy file, so that editors complete and check it:
  # yaml-language-server: $schema=.sidecall.schema.json
"""


def add_schema(commands: Commands) -> None:
    parser = commands.add_parser(
        "schema",
        help="print the JSON Schemas of configuration, policies and tests",
        description="Print a JSON Schema: of one kind of document, or one for all of them that goes by their kind.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=tuple(MODELS), nargs="?", help="(all of them)")
    parser.set_defaults(command=_schema)


def _schema(options: argparse.Namespace) -> int:
    found = schema_of_all() if options.name is None else schema_of(options.name)
    print(rendered(found), end="")
    return 0
