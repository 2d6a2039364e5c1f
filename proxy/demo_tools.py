"""The proxy tool of the demonstration: a function as anybody would write one for `python: "module:function"`."""

from __future__ import annotations

_ORDERS = {
    "7": {"order_id": "7", "status": "on its way", "arrives": "Thursday"},
    "8": {"order_id": "8", "status": "delivered", "arrives": "last Monday"},
}


def get_order_status(order_id: str) -> dict[str, str]:
    """The status of an order, from the shop's own records, which no client can reach."""
    return _ORDERS.get(order_id, {"order_id": order_id, "status": "unknown"})
