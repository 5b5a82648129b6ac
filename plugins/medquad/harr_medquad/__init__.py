"""MedQuAD (arXiv 1901.08079) as a data set of harr: patients' questions, and the pages that answer them."""
