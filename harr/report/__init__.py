"""Every page, plot, and model card."""
