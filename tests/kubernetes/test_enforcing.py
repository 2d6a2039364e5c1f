"""The owner-uid rule of sidecar.enforce as the chart renders it, in a network namespace made for this: the proxy's uid
reaches the endpoint, another uid does not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.kubernetes.charts import documents, proxies, rendered

INSIDE = """
import encodings.idna, json, os, socket, subprocess, sys  # what other uids may not read is read before

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for address in ("10.1.2.3/32", "10.9.9.9/32", "fd00::1/128"):
    subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
for _ in range(2):  # a container that is started again finds its own rule
    subprocess.run(json.loads(sys.argv[1]), check=True)
places = [("10.1.2.3", 443), ("10.1.2.3", 8443), ("10.1.2.3", 80), ("10.9.9.9", 443), ("fd00::1", 443)]
families = {True: socket.AF_INET6, False: socket.AF_INET}
listeners = [socket.create_server(place, family=families[":" in place[0]]) for place in places]
found = {}
for uid in (10001, 20002, 0):
    reached = []
    for place in places:
        child = os.fork()
        if not child:
            os.setgid(uid)
            os.setuid(uid)
            try:
                socket.create_connection(place, timeout=10).close()
            except ConnectionError:
                os._exit(1)
            os._exit(0)
        reached.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)
    found[uid] = reached
print(json.dumps(found))
"""


def test_only_the_proxys_uid_reaches_the_endpoint() -> None:
    """By both families, at the ports that are named; everything else stays open to everybody."""
    missing = [program for program in ("unshare", "ip", "nft") if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"the rule needs root and {', '.join(missing) or 'nothing else'}")
    [(pod, _)] = proxies(documents(rendered("helm4", "sidecar-enforced")))
    command = json.dumps(pod["initContainers"][0]["command"])
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", INSIDE, command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    reached = json.loads(done.stdout)
    assert reached == {
        "10001": [True, True, True, True, True],
        "20002": [False, False, True, True, False],
        "0": [False, False, True, True, False],
    }
