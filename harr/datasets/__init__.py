"""Stage download: one file per data set."""
