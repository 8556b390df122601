"""Writes docs/families.md."""

from scripts.families.page import write

if __name__ == "__main__":
    write()
