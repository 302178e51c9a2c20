"""LLM agent conversations as an explicit state machine over an append-only event log."""
