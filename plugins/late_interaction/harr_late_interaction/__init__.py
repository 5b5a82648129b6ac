"""Late interaction (ColBERT, arXiv 2004.12832): every token of a query looks for its like among a passage's tokens."""
