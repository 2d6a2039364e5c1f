"""The pure core: bytes and values in, bytes and values out. No I/O, no clock, no randomness, no logging."""
