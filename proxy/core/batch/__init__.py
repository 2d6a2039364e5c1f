"""Batches: what is split is remembered, and put back together."""
