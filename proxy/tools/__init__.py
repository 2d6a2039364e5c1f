"""Proxy tools: calls that Sidecall runs itself, one back end a module."""
