"""What every command shares: signals, locks, workspaces, Prefect."""
