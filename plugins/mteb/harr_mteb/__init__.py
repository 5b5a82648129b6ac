"""`harr mteb`: a trained retriever on tasks of mteb, and on folders in the layout of BEIR."""
