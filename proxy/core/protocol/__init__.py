"""The wire: reading and writing what clients and upstreams send."""
