"""MedQuAD (arXiv 1901.08079) as a data set of harr: questions of patients, and the pages that answer them."""
