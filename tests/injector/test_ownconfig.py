"""A configuration that a pod brings in place of the template's."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.injector.ownconfig import check_config
from proxy.injector.pods import PodRefusedError
from tests.injector.recorded import TEMPLATE

HEAD = "apiVersion: sidecall.io/v1\nkind: Config\n"
ADMIN = "admin: {host: 0.0.0.0}\n"


def refusal(text: str) -> str:
    with pytest.raises(PodRefusedError) as raised:
        check_config(text, TEMPLATE.config)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "sidecall.io/config:1:1: the file is empty"),
        ("a: [", "sidecall.io/config:2:1: "),
        ("[]", "expected a mapping of kind Config"),
        (f"{HEAD}{ADMIN}nosuch: 1\n", "sidecall.io/config:4:1: unknown key 'nosuch'"),
        (ADMIN, "the key 'apiVersion' is missing"),
        (f"{HEAD}{ADMIN}listen: {{port: 9999}}\n", "listen.port: expected 15480"),
        (f"{HEAD}{ADMIN}listen: {{host: 10.0.0.1}}\n", "listen.host: expected 127.0.0.1"),
        (f"{HEAD}{ADMIN}listen: {{tls: {{certFile: a, keyFile: b}}}}\n", "listen.tls: expected none"),
        (f"{HEAD}admin: {{host: 0.0.0.0, port: 1}}\n", "admin.port: expected 15490"),
        (HEAD, "admin.host: expected 0.0.0.0"),
    ],
)
def test_what_cannot_take_the_templates_place_is_refused(text: str, said: str) -> None:
    """The proxy would not start, or nobody would find it."""
    assert said in refusal(text)


def test_all_its_mistakes_are_told_up_to_a_bound() -> None:
    """An answer of the API server is short."""
    told = refusal(HEAD + ADMIN + "".join(f"wrong{number}: 1\n" for number in range(9)))
    assert told.count("unknown key") == 5


def test_a_whole_configuration_is_fine() -> None:
    """On any address that the application's leads to."""
    check_config(f"{HEAD}{ADMIN}listen: {{host: 0.0.0.0}}\ndefaultAction: block\n", TEMPLATE.config)


def test_secrets_are_the_pods_and_not_looked_for(tmp_path: Path) -> None:
    """Neither whether they are there, nor what is in them."""
    (tmp_path / "there").write_text("two\nlines")
    check_config(
        f"{HEAD}{ADMIN}"
        "upstream: {apiKey: {file: /nowhere/key}}\n"
        "clients: [{name: a, key: {env: NO_SUCH_VARIABLE}}]\n"
        f"state: {{url: {{file: {tmp_path}/there}}, encryptionKey: {{file: /nowhere/key}}}}\n"
        "approvals: {webhook: {url: {env: NO_SUCH_URL}, secret: {env: NO_SUCH_KEY}}}\n",
        TEMPLATE.config,
    )
