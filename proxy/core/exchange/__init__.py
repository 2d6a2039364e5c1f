"""One request and its reply: where the wire, the policies and the ledger's records meet."""
