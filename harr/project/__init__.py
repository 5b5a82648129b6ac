"""A project from the installed package: `harr init` makes its files, and the command `harr` runs its code."""
