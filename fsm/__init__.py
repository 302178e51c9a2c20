"""The machine: pure functions from a session and an input to events."""
