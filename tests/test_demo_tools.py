"""The demonstration's proxy tool."""

from __future__ import annotations

from proxy.demo_tools import get_order_status


def test_an_order_has_a_status() -> None:
    """A known order has its record; an unknown one says so."""
    assert get_order_status("7")["arrives"] == "Thursday"
    assert get_order_status("x") == {"order_id": "x", "status": "unknown"}
