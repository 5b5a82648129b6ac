"""Stories of bAbI in documents of any length (BABILong): a data set of harr, and `harr lengths`."""
