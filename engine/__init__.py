"""The engine: performs the effects that the machine owes."""
