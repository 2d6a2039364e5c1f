"""The master that sentinels name, found again whenever it does not answer as a master.

The sentinels are asked one after the other, beginning with the one that knew it last. This module must not know any
operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from proxy.stores.redis_errors import FAILURES, NoMasterError, NotConnectedError, is_lost
from proxy.stores.redis_node import Access, Node, Place
from proxy.stores.redis_scripts import Script


class Sentinels:
    def __init__(self, places: Sequence[Place], service: str, access: Access) -> None:
        self._sentinels = [Node(place, access.to_sentinels()) for place in places]
        self._service = service
        self._access = access
        self._masters: dict[Place, Node] = {}
        self._master: Node | None = None
        self._finding = asyncio.Lock()

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str]) -> Any:
        """What a script says on the master. After an error that may mean another one, it is found anew."""
        master = self._master or await self._find()
        try:
            return await master.run(script, keys, arguments)
        except FAILURES as error:
            if is_lost(error) and self._master is master:
                self._master = None
            raise

    async def close(self) -> None:
        for node in (*self._masters.values(), *self._sentinels):
            await node.close()

    async def _find(self) -> Node:
        async with self._finding:
            if self._master is None:
                place = await self._named()
                for old in [node for node in self._masters.values() if node.place != place and not node.busy]:
                    await self._masters.pop(old.place).close()
                self._master = self._masters.setdefault(place, Node(place, self._access))
            return self._master

    async def _named(self) -> Place:
        """Raises NoMasterError, or NotConnectedError where no sentinel answers."""
        last: BaseException | None = None
        answered = False
        for sentinel in tuple(self._sentinels):
            try:
                found = await sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except FAILURES as error:
                last = error
                continue
            answered = True
            if found:
                self._sentinels.remove(sentinel)
                self._sentinels.insert(0, sentinel)
                return found[0].decode(), int(found[1])
        if answered:
            raise NoMasterError("No sentinel knows the service.")
        raise NotConnectedError("No sentinel answers.") from last
