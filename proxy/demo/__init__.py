"""A small scripted upstream, for trying Sidecall out without a key and without a model."""
