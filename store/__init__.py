"""The log: append-only, transactional, hash-chained."""
