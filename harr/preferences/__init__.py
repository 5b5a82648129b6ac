"""Stage filter for train.method leret: tries queries and turns them into pairs of a better and a worse one."""
