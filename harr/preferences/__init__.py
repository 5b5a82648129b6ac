"""Stage filter for train.method leret: queries are tried, and become pairs of a better and a worse one."""
