"""The fictional encyclopaedia, its grammar, and the scripted player that reads it."""
