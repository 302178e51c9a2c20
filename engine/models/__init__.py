"""Adapters from model providers to one narrow protocol."""
