"""RULER (arXiv 2404.06654) as data sets of harr: needles in a long text, and paragraphs among others."""
