"""`python -m turnlog` is the command `turnlog`."""

from turnlog.cli import main

if __name__ == "__main__":
    main()
