"""Judged corpora as data sets of harr: folders in BEIR's layout, and data sets that ir_datasets knows by name."""
