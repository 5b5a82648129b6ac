"""What `harr doctor` and `harr status` look at; every check is a plain function that returns findings.

They change nothing in the project: DVC, MLflow, servers and the machine are asked through their own clients.
"""
