"""What `harr doctor` looks at: the machine and the servers; every check is a plain function that returns findings.

They change nothing. Where the project stands, `harr status` says (flows/status.py).
"""
