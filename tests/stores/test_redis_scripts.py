"""The scripts and the form of records. What they do is tested on real servers, in `test_redis.py`."""

from __future__ import annotations

import hashlib
import re

import pytest

from proxy.errors import StoreError
from proxy.stores import redis_scripts
from proxy.stores.base import Stored
from proxy.stores.redis_scripts import Script, read_record

SCRIPTS = {name: value for name, value in vars(redis_scripts).items() if isinstance(value, Script)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_known_by_its_digest(name: str) -> None:
    """Redis finds it by the SHA-1 of its text."""
    script = SCRIPTS[name]
    assert script.sha == hashlib.sha1(script.text.encode()).hexdigest()
    assert script.text.isascii()


COMMANDS = re.compile(
    "EXISTS|GETRANGE|LINDEX|LLEN|LTRIM|MGET|PEXPIRE|RPUSH|SET|SETRANGE|TIME|UNLINK|"
    "ZADD|ZRANGEBYSCORE|ZREM|ZREVRANGEBYSCORE|ZSCAN|ZSCORE"
)


def test_the_commands_are_those_of_redis_6() -> None:
    """No script calls a command, or names a key, that an older server or a cluster would not have."""
    called = {command for script in SCRIPTS.values() for command in re.findall(r"redis\.call\('(\w+)'", script.text)}
    assert all(COMMANDS.fullmatch(command) for command in called)
    keys = {key for s in SCRIPTS.values() for key in re.findall(r"redis\.call\('(?!TIME|MGET)\w+', (.*?)[,)]", s.text)}
    assert keys == {"KEYS[1]", "KEYS[i]", "key"}


def test_a_record_is_read() -> None:
    """Behind the mark, the version, the end and the token comes the value, whatever bytes it has."""
    assert read_record(b"1" + b"%016d" % 7 + b"%016d" % 5 + b"t" * 16 + b"\0\xff1") == Stored(b"\0\xff1", 7)
    assert read_record(b"1" + b"%016d" % 1 + b"%016d" % 5 + b"t" * 16) == Stored(b"", 1)


@pytest.mark.parametrize("raw", [b"", b"1", b"2" + b"0" * 48, b"1" + b"x" * 48])
def test_another_form_is_refused(raw: bytes) -> None:
    """A newer release's record, or another program's."""
    with pytest.raises(StoreError, match="form that this release does not know"):
        read_record(raw)
