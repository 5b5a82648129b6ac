"""Corpora with judgements as data sets of harr: folders in BEIR's layout, and what ir_datasets knows by a name."""
