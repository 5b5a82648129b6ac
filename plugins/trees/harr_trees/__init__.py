"""Boosted trees for harr: LambdaMART over the features of linked candidates, alone or over a trained encoder."""
