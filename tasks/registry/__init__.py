"""MLflow's registry: promotion, and the gate before it."""
