"""Tools and where they come from."""
