"""Sidecall: a sidecar proxy that governs the tool calls of AI agents."""

__version__ = "0.1.0"
