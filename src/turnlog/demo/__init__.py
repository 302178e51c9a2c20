"""A conversation that shows what turnlog does, with toy files and a scripted model."""
