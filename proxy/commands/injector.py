"""`sidecall injector`: the webhook that puts the sidecar into pods."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from proxy.commands.terminal import Commands
from proxy.configfile import parse_address
from proxy.errors import ConfigError, Problem
from proxy.injector.serving import Certificate, serve
from proxy.injector.template import read_template
from proxy.server.logs import Log, adopt_libraries

_ADDRESS = "0.0.0.0:8443"


def add_injector(commands: Commands) -> None:
    parser = commands.add_parser(
        "injector",
        help="run the webhook that puts the sidecar into pods of Kubernetes",
        description="Answer AdmissionReviews over TLS until SIGTERM. The chart in helm/ installs it (mode: injector).",
    )
    parser.add_argument("--template", metavar="FILE", required=True, help="the sidecar, as the chart renders it")
    parser.add_argument("--cert", metavar="FILE", required=True, help="the certificate; read again when it changes")
    parser.add_argument("--key", metavar="FILE", required=True, help="its key")
    parser.add_argument("--listen", metavar="HOST:PORT", default=_ADDRESS, help=f"({_ADDRESS})")
    parser.set_defaults(command=_injector)


def _injector(options: argparse.Namespace) -> int:
    try:
        host, port = parse_address(options.listen)
    except ValueError as error:
        raise ConfigError([Problem("--listen", 0, 0, str(error))]) from error
    template = read_template(Path(options.template))
    log = Log(clock=time.time)
    adopt_libraries(log)
    try:
        certificate = Certificate(Path(options.cert), Path(options.key))
        asyncio.run(serve(template, certificate, log, host=host, port=port))
    except OSError as error:
        sys.stderr.write(f"cannot serve: {error.strerror or error}\n")
        return 1
    return 0
