"""The aiohttp shell: two listeners, the data path, health and metrics."""
