"""Policies: from documents to decisions."""
