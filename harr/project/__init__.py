"""Projects made from the installed package: `harr init` writes the files, and the command `harr` runs the code."""
