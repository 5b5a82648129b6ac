"""Great Expectations: the suites, and the process that checks them."""
