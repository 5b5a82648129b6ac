"""Late interaction (ColBERT, arXiv 2004.12832): every query token finds its nearest among a passage's tokens."""
