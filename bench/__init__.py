"""What turnlog costs. `python -m bench` runs all of it and prints ratios; each file also runs alone."""
