"""MLflow's runs: what a stage reports."""
